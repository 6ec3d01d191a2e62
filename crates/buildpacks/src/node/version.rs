//! Which Node.js a project asks for.

use crate::context::{BuildContext, RequestedVersion};
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::package::{FILE, Package};
use crate::version::{Range, Tilde, Version};

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

/// The Node.js that a project asks for: settings, `.nvmrc`, `.node-version`, `engines`.
pub(super) fn requested(
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
