//! `composer.json`: which PHP, which extensions, and what Composer is told to do.

use crate::context::{BuildContext, RequestedVersion};
use crate::error::{Result, refused};
use crate::images::BaseImages;
use crate::sources::Tree;
use crate::version::{Range, Tilde, Version};
use serde_json::{Map, Value};

pub(super) const FILE: &str = "composer.json";
const LOCK: &str = "composer.lock";

/// Versions with images of their own, beside the usual one.
const KNOWN: [Version; 7] = [
    Version::minor(7, 4),
    Version::minor(8, 0),
    Version::minor(8, 1),
    Version::minor(8, 2),
    Version::minor(8, 3),
    Version::minor(8, 4),
    Version::minor(8, 5),
];

/// A `composer.json`.
pub(super) struct Composer(Map<String, Value>);

impl Composer {
    /// None when there is none.
    pub(super) fn read(tree: &Tree<'_>) -> Result<Option<Self>> {
        let Some(text) = tree.manifest(FILE)? else {
            return Ok(None);
        };
        let json: Value = serde_json::from_str(&text)
            .map_err(|error| refused(FILE, format!("is not JSON: {error}")))?;
        match json {
            Value::Object(fields) => Ok(Some(Self(fields))),
            _ => Err(refused(FILE, "must be an object")),
        }
    }

    fn required(&self) -> impl Iterator<Item = (&str, &Value)> {
        let required = self.0.get("require").and_then(Value::as_object);
        required
            .into_iter()
            .flatten()
            .map(|(name, value)| (name.as_str(), value))
    }

    /// Whether it requires a package.
    pub(super) fn requires(&self, name: &str) -> bool {
        self.required().any(|(required, _)| required == name)
    }

    /// The extensions that it requires, without `ext-`.
    pub(super) fn extensions(&self) -> impl Iterator<Item = &str> {
        self.required()
            .filter_map(|(name, _)| name.strip_prefix("ext-"))
    }

    /// The range of versions of PHP, and where it is.
    fn php(&self) -> Option<(&str, &'static str)> {
        let platform = || self.0.get("config")?.get("platform")?.get("php")?.as_str();
        let required = || self.0.get("require")?.get("php")?.as_str();
        let platform = platform().map(|text| (text, "config.platform.php"));
        platform.or_else(|| required().map(|text| (text, "require.php")))
    }

    /// Whether it takes packages from folders of the sources.
    fn has_local_packages(&self) -> bool {
        let repositories = self.0.get("repositories");
        let is_path =
            |repository: &Value| repository.get("type").is_some_and(|kind| kind == "path");
        match repositories {
            Some(Value::Array(list)) => list.iter().any(is_path),
            Some(Value::Object(fields)) => fields.values().any(is_path),
            _ => false,
        }
    }

    /// Writes what installs the packages, and then all other files.
    pub(super) fn install(&self, context: &mut BuildContext<'_>) -> Result<()> {
        if let Some(command) = context.settings.install_command()? {
            context.file.copy_all();
            context.file.run_command(&command);
            return Ok(());
        }
        if context.tree.has(LOCK) {
            context.note(format!("packages with Composer, versions as in {LOCK}"));
        } else {
            context.note(format!(
                "there is no {LOCK}: versions may differ from build to build; commit it"
            ));
        }
        let dev = context.settings.flag("installDevDependencies")? == Some(true);
        let no_dev: &[&str] = if dev { &[] } else { &["--no-dev"] };
        let whole = self.has_local_packages();
        if whole {
            context.file.copy_all();
        } else {
            let lock = context.tree.has(LOCK).then_some(LOCK);
            let files: Vec<_> = [FILE].into_iter().chain(lock).collect();
            context.file.copy(&files, "./")?;
        }
        let install = [
            "composer",
            "install",
            "--no-interaction",
            "--no-progress",
            "--prefer-dist",
            "--no-scripts",
            "--no-autoloader",
        ];
        context.file.run(&[&install[..], no_dev].concat());
        context.file.note_installed();
        if !whole {
            context.file.copy_all();
        }
        let autoload = [
            "composer",
            "dump-autoload",
            "--no-interaction",
            "--optimize",
        ];
        context.file.run(&[&autoload[..], no_dev].concat());
        Ok(())
    }
}

/// The PHP that a project asks for: settings, then `composer.json`.
pub(super) fn version(
    context: &BuildContext<'_>,
    composer: Option<&Composer>,
) -> Result<Option<RequestedVersion>> {
    if let Some(version) = context.settings.version(&["phpVersion", "version"])? {
        let place = "platformConfig".to_owned();
        return Ok(Some(RequestedVersion { version, place }));
    }
    let Some((text, field)) = composer.and_then(Composer::php) else {
        return Ok(None);
    };
    let range = Range::parse(text, Tilde::LastGiven);
    let version = range.and_then(|range| range.choose(BaseImages::usual("php"), &KNOWN));
    let version = version.ok_or_else(|| {
        refused(
            FILE,
            format!("{field} `{text}` fits no known version of PHP; write one such as ^8.2"),
        )
    })?;
    let place = format!("{field} in {FILE} ({text})");
    Ok(Some(RequestedVersion { version, place }))
}
