//! Which Python a project asks for.

use super::manifest::{PYPROJECT, table};
use crate::context::{BuildContext, RequestedVersion};
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::version::{Range, Tilde, Version};

/// Versions with images of their own, beside the usual one.
const KNOWN: [Version; 7] = [
    Version::minor(3, 8),
    Version::minor(3, 9),
    Version::minor(3, 10),
    Version::minor(3, 11),
    Version::minor(3, 12),
    Version::minor(3, 13),
    Version::minor(3, 14),
];

/// Settings, `.python-version`, `runtime.txt`, `Pipfile`, `pyproject.toml`.
pub(super) fn version(context: &BuildContext<'_>) -> Result<Option<RequestedVersion>> {
    if let Some(version) = context.settings.version(&["pythonVersion", "version"])? {
        let place = "platformConfig".to_owned();
        return Ok(Some(RequestedVersion { version, place }));
    }
    for (file, prefix) in [(".python-version", ""), ("runtime.txt", "python-")] {
        if let Some(text) = context.tree.text(file)? {
            let lines = text.lines().map(str::trim);
            let line = lines
                .filter(|line| !line.is_empty() && !line.starts_with('#'))
                .map(str::to_owned)
                .next();
            let line = line.unwrap_or_default();
            let version = Version::parse(line.strip_prefix(prefix).unwrap_or(&line));
            let version = version.filter(|version| version.minor.is_some() || version.major == 3);
            let version = version.ok_or_else(|| {
                refused(
                    file,
                    format!("`{line}` is no version of Python; write {prefix}3.13"),
                )
            })?;
            let place = file.to_owned();
            return Ok(Some(RequestedVersion { version, place }));
        }
    }
    let Some((range, place)) = ranges(context)? else {
        return Ok(None);
    };
    let usual = BaseImages::usual("python");
    let parsed = Range::parse(&range, Tilde::Minor);
    let version = parsed
        .and_then(|parsed| parsed.choose(usual, &KNOWN))
        .ok_or_else(|| {
            refused(
                place,
                format!("`{range}` fits no known version of Python; write one such as >=3.11"),
            )
        })?;
    let place = format!("{place} ({range})");
    Ok(Some(RequestedVersion { version, place }))
}

/// What manifests say, and where.
fn ranges(context: &BuildContext<'_>) -> Result<Option<(String, &'static str)>> {
    if context.tree.has("Pipfile") {
        let pipfile = table(&context.tree, "Pipfile")?;
        let requires = pipfile.get("requires");
        let version = requires.and_then(|requires| {
            let full = requires
                .get("python_full_version")
                .or_else(|| requires.get("python_version"));
            full?.as_str()
        });
        if let Some(version) = version.filter(|version| *version != "*") {
            return Ok(Some((version.to_owned(), "Pipfile")));
        }
    }
    if !context.tree.has(PYPROJECT) {
        return Ok(None);
    }
    let project = table(&context.tree, PYPROJECT)?;
    let standard = project
        .get("project")
        .and_then(|project| project.get("requires-python")?.as_str());
    let poetry = || {
        project
            .get("tool")?
            .get("poetry")?
            .get("dependencies")?
            .get("python")?
            .as_str()
    };
    let range = standard.or_else(poetry);
    Ok(range.map(|range| (range.to_owned(), PYPROJECT)))
}
