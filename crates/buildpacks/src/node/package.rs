//! `package.json`, and which Node.js a project asks for.

use crate::context::{BuildContext, RequestedVersion};
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::sources::Tree;
use crate::version::{Range, Tilde, Version};
use serde_json::{Map, Value};

pub(crate) const FILE: &str = "package.json";

/// Versions with images of their own, beside the usual one.
const KNOWN: [Version; 6] = [
    Version::major(14),
    Version::major(16),
    Version::major(18),
    Version::major(20),
    Version::major(22),
    Version::major(24),
];
/// Names of long-term versions, as `.nvmrc` has them.
const NAMED: [(&str, u32); 6] = [
    ("fermium", 14),
    ("gallium", 16),
    ("hydrogen", 18),
    ("iron", 20),
    ("jod", 22),
    ("krypton", 24),
];
/// Scripts that a package manager runs when it installs, and that may need any file.
const AT_INSTALL: [&str; 5] = [
    "preinstall",
    "install",
    "postinstall",
    "prepare",
    "preprepare",
];
/// Programs that are not called like their package.
const PROGRAMS: [(&str, &str); 4] = [
    ("nest", "@nestjs/cli"),
    ("tsc", "typescript"),
    ("ng", "@angular/cli"),
    ("vue-cli-service", "@vue/cli-service"),
];

/// A `package.json`. Fields of the wrong type are as good as absent, as for npm.
pub(crate) struct Package(Map<String, Value>);

impl Package {
    pub(crate) fn read(tree: &Tree<'_>) -> Result<Self> {
        let text = tree.manifest(FILE)?;
        let text = text.ok_or_else(|| {
            refused(
                FILE,
                "is missing in the root of the sources; add it, or choose another platform",
            )
        })?;
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)
            .map_err(|error| refused(FILE, format!("is not JSON: {error}")))?;
        match json {
            Value::Object(fields) => Ok(Self(fields)),
            _ => Err(refused(FILE, "must be an object")),
        }
    }

    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.0.get(field)?.as_str()
    }

    pub(crate) fn script(&self, name: &str) -> Option<&str> {
        let script = self.0.get("scripts")?.get(name)?.as_str()?;
        Some(script).filter(|script| !script.trim().is_empty())
    }

    /// The name of the first script that begins so.
    pub(crate) fn script_like(&self, start: &str) -> Option<&str> {
        let names = self.entries("scripts").map(|(name, _)| name);
        names.into_iter().find(|name| name.starts_with(start))
    }

    fn entries<'p>(&'p self, field: &str) -> impl Iterator<Item = (&'p str, &'p Value)> {
        let fields = self.0.get(field).and_then(Value::as_object);
        fields
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value))
    }

    fn dependencies(&self) -> impl Iterator<Item = (&str, &Value)> {
        ["dependencies", "devDependencies", "optionalDependencies"]
            .into_iter()
            .flat_map(|field| self.entries(field))
    }

    /// Whether it depends on this package, be it only for development.
    pub(crate) fn depends_on(&self, name: &str) -> bool {
        self.dependencies()
            .any(|(dependency, _)| dependency == name)
    }

    /// Whether it depends on this package when it runs.
    pub(crate) fn runs_with(&self, name: &str) -> bool {
        self.entries("dependencies").any(|(it, _)| it == name)
    }

    /// The first dependency whose name begins so.
    pub(crate) fn dependency_like(&self, start: &str) -> Option<&str> {
        let mut names = self.dependencies().map(|(name, _)| name);
        names.find(|name| name.starts_with(start))
    }

    /// Whether a package manager has anything to do.
    pub(crate) fn needs_install(&self) -> bool {
        self.is_workspace() || self.runs_at_install() || self.dependencies().next().is_some()
    }

    pub(crate) fn is_workspace(&self) -> bool {
        self.0.contains_key("workspaces")
    }

    pub(crate) fn runs_at_install(&self) -> bool {
        AT_INSTALL.iter().any(|name| self.script(name).is_some())
    }

    /// Whether it depends on files of the sources.
    pub(crate) fn has_local_dependencies(&self) -> bool {
        let local = |text: &str| {
            ["file:", "link:", "portal:", "workspace:", "./", "../"]
                .iter()
                .any(|start| text.starts_with(start))
        };
        self.dependencies()
            .any(|(_, value)| value.as_str().is_some_and(local))
    }

    /// Whether something comes straight from a repository.
    fn has_git_dependencies(&self) -> bool {
        let git = |text: &str| {
            let starts = ["git+", "git:", "github:", "gitlab:", "bitbucket:"];
            starts.iter().any(|start| text.starts_with(start))
        };
        self.dependencies()
            .any(|(_, value)| value.as_str().is_some_and(git))
    }

    /// Packages of Debian that are missing in the usual image: to build with, and to run with.
    pub(crate) fn system(&self) -> (Vec<&'static str>, Vec<&'static str>) {
        let prisma = ["prisma", "@prisma/client"]
            .iter()
            .any(|name| self.depends_on(name));
        let run = if prisma { vec!["openssl"] } else { Vec::new() };
        let mut build = run.clone();
        if self.has_git_dependencies() {
            build.extend(["ca-certificates", "git"]);
        }
        (build, run)
    }

    /// Whether a script uses a program that is there only for development.
    pub(crate) fn uses_dev_program(&self, script: &str) -> bool {
        let dev = |name: &str| self.entries("devDependencies").any(|(dev, _)| dev == name);
        script.split_ascii_whitespace().any(|word| {
            let package = PROGRAMS.iter().find(|(program, _)| *program == word);
            dev(package.map_or(word, |(_, package)| package))
        })
    }

    fn engine(&self) -> Option<&str> {
        self.0.get("engines")?.get("node")?.as_str()
    }
}

/// The Node.js that a project asks for: settings, `.nvmrc`, `.node-version`, `engines`.
pub(crate) fn version(
    context: &BuildContext<'_>,
    package: &Package,
    setting: &[&str],
) -> Result<Option<RequestedVersion>> {
    if let Some(version) = context.settings.version(setting)? {
        let place = "platformConfig".to_owned();
        return Ok(Some(RequestedVersion { version, place }));
    }
    for file in [".nvmrc", ".node-version"] {
        let Some(text) = context.tree.text(file)? else {
            continue;
        };
        let lines = text
            .lines()
            .map(|line| line.split('#').next().unwrap_or_default().trim());
        let line = lines
            .filter(|line| !line.is_empty())
            .map(str::to_owned)
            .next();
        let line = line.unwrap_or_default();
        let version = named_version(&line).ok_or_else(|| {
            refused(
                file,
                format!("`{line}` is no version of Node.js; write one such as 22"),
            )
        })?;
        let place = file.to_owned();
        return Ok(version.map(|version| RequestedVersion { version, place }));
    }
    let Some(text) = package.engine() else {
        return Ok(None);
    };
    let usual = BaseImages::usual("node");
    let range = Range::parse(text, Tilde::Minor);
    let version = range
        .and_then(|range| range.choose(usual, &KNOWN))
        .ok_or_else(|| {
            let advice =
                format!("engines.node `{text}` fits no known version; write one such as `>=20`");
            refused(FILE, advice)
        })?;
    let place = format!("engines in {FILE} ({text})");
    Ok(Some(RequestedVersion { version, place }))
}

/// `20.1`, `v18`, `lts/iron`; those that mean the newest are left to us.
#[expect(
    clippy::option_option,
    reason = "no version at all, and none in particular"
)]
fn named_version(text: &str) -> Option<Option<Version>> {
    if matches!(
        text,
        "node" | "stable" | "latest" | "current" | "lts/*" | "lts"
    ) {
        return Some(None);
    }
    let name = text.strip_prefix("lts/").map(str::to_ascii_lowercase);
    let named = NAMED
        .iter()
        .find(|(known, _)| Some(*known) == name.as_deref());
    let named = named.map(|(_, major)| Version::major(*major));
    named.or_else(|| Version::parse(text)).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_versions_are_known() {
        let shown = |text| named_version(text).map(|v| v.map(|v| v.to_string()));
        assert_eq!(shown("lts/Iron"), Some(Some("20".into())));
        assert_eq!(shown("v18.19.0"), Some(Some("18.19.0".into())));
        assert_eq!(shown("lts/*"), Some(None));
        assert_eq!(shown("lts/iron; x"), None);
        assert_eq!(shown("iojs"), None);
    }
}
