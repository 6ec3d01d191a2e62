//! What users say about a build: in the release's request, and in a project file of the sources.
//!
//! Clients of this API family send `build`, `args` and `platformConfig`; the last is the section of
//! their project file that is named like the platform. Fields that we do not know belong to
//! somebody else.

use crate::command::{Command, word_list};
use crate::error::{Result, refused};
use crate::sources::Tree;
use crate::version::Version;
use estrade_model::Invalid;
use estrade_model::paths::FilePath;
use estrade_model::platform::Platform;
use estrade_model::site_settings::PROJECT_FILES;
use serde_json::{Map, Value};
use std::fmt;

/// Most arguments of a build.
const MAX_ARGS: usize = 100;
/// Longest name of one, and longest value, in bytes.
const MAX_NAME: usize = 128;
const MAX_VALUE: usize = 32 * 1024;
/// Most packages of Debian that a build may ask for.
const MAX_PACKAGES: usize = 50;

/// What the names of arguments begin with that are not for the Dockerfile.
const OF_ENGINE: &str = "BUILDKIT_";

/// An argument of a build. Its value may be a secret: it is passed to the engine and is never
/// written into a Dockerfile.
#[derive(Clone, PartialEq, Eq)]
pub struct BuildArg {
    name: String,
    value: String,
}

impl BuildArg {
    /// Its name: letters, digits and `_`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its value.
    pub fn value(&self) -> &str {
        &self.value
    }

    fn new(name: &str, value: &str) -> Result<Self> {
        let in_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let begins = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        if !begins || name.len() > MAX_NAME || !name.bytes().all(in_name) {
            let advice = format!("`{name}` is no name of an argument; use letters, digits and `_`");
            return Err(refused("build.args", advice));
        }
        // They tell an engine with BuildKit how to read a Dockerfile, and with which program.
        let prefix = name.get(..OF_ENGINE.len()).unwrap_or_default();
        if prefix.eq_ignore_ascii_case(OF_ENGINE) {
            let advice =
                format!("`{name}`: names with {OF_ENGINE} are the engine's; choose another");
            return Err(refused("build.args", advice));
        }
        if value.len() > MAX_VALUE || value.contains('\0') {
            let advice = format!("the value of `{name}` must be at most 32 KiB, without NUL");
            return Err(refused("build.args", advice));
        }
        Ok(Self {
            name: name.to_owned(),
            value: value.to_owned(),
        })
    }
}

impl fmt::Debug for BuildArg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BuildArg")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What users say about a build; what is none was not said.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    port: Option<u16>,
    build_args: Option<Vec<BuildArg>>,
    cache: Option<bool>,
    dockerfile: Option<String>,
    build: Option<Command>,
    install: Option<Command>,
    start: Option<Vec<String>>,
    section: Map<String, Value>,
}

impl Settings {
    /// Reads the settings of a release: its `port`, and the map with `build`, `args` and
    /// `platformConfig` as they were sent.
    pub fn from_release(port: Option<u16>, sent: &Map<String, Value>) -> Result<Self> {
        let section = object("platformConfig", sent.get("platformConfig"))?;
        Self::read(port, sent, section)
    }

    fn read(
        port: Option<u16>,
        fields: &Map<String, Value>,
        section: Map<String, Value>,
    ) -> Result<Self> {
        let build = object("build", fields.get("build"))?;
        let command = |name: &str| {
            let value = build.get(name).filter(|value| !value.is_null());
            value
                .map(|value| Command::from_json(&format!("build.{name}"), value))
                .transpose()
        };
        Ok(Self {
            port,
            build_args: build.get("args").map(read_args).transpose()?.flatten(),
            cache: flag("build.cache", build.get("cache"))?,
            dockerfile: path("build.dockerfile", build.get("dockerfile"))?,
            build: command("command")?,
            install: command("install")?,
            start: read_start(fields.get("args"))?,
            section,
        })
    }

    /// These settings, completed by a project file of the sources. Its sections for a platform have the platform's name;
    /// the first of these counts.
    pub(crate) fn completed(&self, tree: &Tree<'_>, platforms: &[Platform]) -> Result<Self> {
        let Some(name) = tree.first(&PROJECT_FILES) else {
            return Ok(self.clone());
        };
        let text = tree.text(name)?.unwrap_or_default();
        let file: Value = serde_json::from_str(&text)
            .map_err(|error| refused(name, format!("is not JSON: {error}")))?;
        let file = object(name, Some(&file))?;
        let port = file.get("port").and_then(Value::as_u64);
        let port = port
            .and_then(|port| u16::try_from(port).ok())
            .filter(|port| *port > 0);
        let mut section = Map::new();
        for platform in platforms {
            for (name, value) in object(platform.as_str(), file.get(platform.as_str()))? {
                section.entry(name).or_insert(value);
            }
        }
        let said = Self::read(port, &file, section)?;
        let mut all = self.clone();
        all.port = all.port.or(said.port);
        all.build_args = all.build_args.or(said.build_args);
        all.cache = all.cache.or(said.cache);
        all.dockerfile = all.dockerfile.or(said.dockerfile);
        all.build = all.build.or(said.build);
        all.install = all.install.or(said.install);
        all.start = all.start.or(said.start);
        for (name, value) in said.section {
            all.section.entry(name).or_insert(value);
        }
        Ok(all)
    }

    pub(crate) fn port(&self, platform: Platform) -> u16 {
        self.port.unwrap_or_else(|| platform.default_port())
    }

    pub(crate) fn build_args(&self) -> &[BuildArg] {
        self.build_args.as_deref().unwrap_or_default()
    }

    pub(crate) fn cache(&self) -> bool {
        self.cache.unwrap_or(true)
    }

    /// The path of the user's own Dockerfile.
    pub(crate) fn dockerfile(&self) -> Option<&str> {
        self.dockerfile.as_deref()
    }

    /// What builds the app instead of what its platform would do.
    pub(crate) fn build_command(&self) -> Result<Option<Command>> {
        let own = self.build.clone();
        own.map_or_else(|| self.command(&["buildCommand"]), |own| Ok(Some(own)))
    }

    /// What installs its dependencies instead.
    pub(crate) fn install_command(&self) -> Result<Option<Command>> {
        let own = self.install.clone();
        own.map_or_else(|| self.command(&["installCommand"]), |own| Ok(Some(own)))
    }

    /// What starts the app instead.
    pub(crate) fn start_command(&self) -> Result<Option<Command>> {
        self.command(&["startCommand", "start", "command"])
    }

    /// The words that an image is started with, whatever it says itself.
    pub fn args(&self) -> Option<&[String]> {
        self.start.as_deref()
    }

    fn find(&self, names: &[&str]) -> Option<(String, &Value)> {
        let find = |name: &&str| {
            let value = self.section.get(*name).filter(|value| !value.is_null());
            value.map(|value| (format!("platformConfig.{name}"), value))
        };
        names.iter().find_map(find)
    }

    fn command(&self, names: &[&str]) -> Result<Option<Command>> {
        let found = self.find(names);
        found
            .map(|(place, value)| Command::from_json(&place, value))
            .transpose()
    }

    /// A flag of the platform's section.
    pub(crate) fn flag(&self, name: &str) -> Result<Option<bool>> {
        flag(&format!("platformConfig.{name}"), self.section.get(name))
    }

    /// A text of the platform's section, with the place where it is.
    pub(crate) fn text(&self, names: &[&str]) -> Result<Option<(String, String)>> {
        let Some((place, value)) = self.find(names) else {
            return Ok(None);
        };
        match value {
            Value::String(text) => Ok(Some((place, text.trim().to_owned()))),
            Value::Number(number) => Ok(Some((place, number.to_string()))),
            _ => Err(refused(place, "must be a text")),
        }
    }

    /// A version of the platform's section.
    pub(crate) fn version(&self, names: &[&str]) -> Result<Option<Version>> {
        let Some((place, text)) = self.text(names)? else {
            return Ok(None);
        };
        let version = Version::parse(&text);
        let wrong = || {
            refused(
                place,
                format!("`{text}` is no version; write one such as 20 or 3.12"),
            )
        };
        version.map(Some).ok_or_else(wrong)
    }

    /// The path of a file or folder, in the platform's section; `.` for all of it.
    pub(crate) fn path(&self, names: &[&str]) -> Result<Option<String>> {
        let found = self.find(names);
        let read = found.map(|(place, value)| path(&place, Some(value)));
        read.transpose().map(Option::flatten)
    }

    /// Packages of Debian that the app needs.
    pub(crate) fn packages(&self) -> Result<Vec<String>> {
        let Some((place, value)) = self.find(&["packages"]) else {
            return Ok(Vec::new());
        };
        let in_name =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"+-.".contains(&byte);
        let begins = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        let good = |name: &String| {
            name.len() <= MAX_NAME && name.starts_with(begins) && name.bytes().all(in_name)
        };
        let words = word_list(value).filter(|words| words.len() <= MAX_PACKAGES);
        words.filter(|words| words.iter().all(good)).ok_or_else(|| {
            refused(
                place,
                "must be a list of Debian packages, such as [\"ffmpeg\"]",
            )
        })
    }

    /// The time zone of the app.
    pub(crate) fn time_zone(&self) -> Result<Option<String>> {
        let Some((place, zone)) = self.text(&["timezone"])? else {
            return Ok(None);
        };
        let in_zone = |byte: u8| byte.is_ascii_alphanumeric() || b"_+-/".contains(&byte);
        let good = zone.starts_with(|c: char| c.is_ascii_alphabetic());
        if good && zone.len() <= 64 && zone.bytes().all(in_zone) {
            return Ok(Some(zone));
        }
        Err(refused(
            place,
            "must be the name of a time zone, such as Europe/Berlin",
        ))
    }
}

fn object(place: &str, value: Option<&Value>) -> Result<Map<String, Value>> {
    match value {
        None | Some(Value::Null) => Ok(Map::new()),
        Some(Value::Object(fields)) => Ok(fields.clone()),
        Some(_) => Err(refused(place, "must be an object")),
    }
}

fn flag(place: &str, value: Option<&Value>) -> Result<Option<bool>> {
    match value {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Bool(flag)) => Ok(Some(*flag)),
        Some(_) => Err(refused(place, "must be true or false")),
    }
}

fn path(place: &str, value: Option<&Value>) -> Result<Option<String>> {
    let text = match value {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::String(text)) => text.trim(),
        Some(_) => return Err(refused(place, "must be a path")),
    };
    // People write `./Dockerfile`, `dist/`, and `.` or `/` for all of it.
    let mut inner = text.strip_prefix('/').unwrap_or(text);
    while let Some(rest) = inner.strip_prefix("./") {
        inner = rest;
    }
    let inner = inner.trim_end_matches('/');
    if inner.is_empty() || inner == "." {
        return Ok(Some(".".to_owned()));
    }
    let path = FilePath::try_from(inner.to_owned());
    path.map(|path| Some(path.into()))
        .map_err(|Invalid(reason)| refused(place, reason))
}

fn read_start(value: Option<&Value>) -> Result<Option<Vec<String>>> {
    let empty =
        |value: &&Value| !value.is_null() && value.as_array().is_none_or(|words| !words.is_empty());
    let Some(value) = value.filter(empty) else {
        return Ok(None);
    };
    let words = word_list(value);
    words
        .map(Some)
        .ok_or_else(|| refused("args", "must be a list of words, 8 KiB at most"))
}

/// `["NAME=value"]` or `{"NAME": "value"}`.
fn read_args(value: &Value) -> Result<Option<Vec<BuildArg>>> {
    let wrong = || {
        let advice =
            "must be a list such as [\"NAME=value\"] or an object such as {\"NAME\": \"value\"}";
        refused("build.args", advice)
    };
    let args: Vec<_> = match value {
        Value::Null => return Ok(None),
        Value::Array(list) => {
            let one = |one: &Value| {
                let (name, value) = one
                    .as_str()
                    .and_then(|one| one.split_once('='))
                    .ok_or_else(wrong)?;
                BuildArg::new(name, value)
            };
            list.iter().map(one).collect::<Result<_>>()?
        }
        Value::Object(fields) => {
            let one = |(name, value): (&String, &Value)| match value {
                Value::String(text) => BuildArg::new(name, text),
                Value::Number(_) | Value::Bool(_) => BuildArg::new(name, &value.to_string()),
                _ => Err(wrong()),
            };
            fields.iter().map(one).collect::<Result<_>>()?
        }
        _ => return Err(wrong()),
    };
    if args.len() > MAX_ARGS {
        return Err(refused("build.args", format!("must be at most {MAX_ARGS}")));
    }
    // The last one of a name counts.
    let mut unique: Vec<BuildArg> = Vec::new();
    for arg in args {
        unique.retain(|other| other.name != arg.name);
        unique.push(arg);
    }
    Ok(Some(unique))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use std::collections::BTreeMap;

    fn read(value: &Value) -> Result<Settings> {
        Settings::from_release(None, value.as_object().unwrap())
    }

    fn pairs(settings: &Settings) -> Vec<(&str, &str)> {
        settings
            .build_args()
            .iter()
            .map(|arg| (arg.name(), arg.value()))
            .collect()
    }

    #[test]
    fn arguments_come_in_two_shapes() {
        let list = read(&json!({"build": {"args": ["A=1", "B=x=y", "A=2"]}})).unwrap();
        assert_eq!(pairs(&list), [("B", "x=y"), ("A", "2")]);
        let object = read(&json!({"build": {"args": {"A": 1, "B": "", "C": true}}})).unwrap();
        assert_eq!(pairs(&object), [("A", "1"), ("B", ""), ("C", "true")]);
        assert!(!format!("{list:?}").contains("x=y"), "values are not shown");
    }

    #[test]
    fn what_is_wrong_is_named() {
        let many: Vec<_> = (0..=MAX_ARGS).map(|n| format!("A{n}=")).collect();
        for (bad, place) in [
            (json!({"build": []}), "build: "),
            (json!({"build": {"args": ["A"]}}), "build.args: "),
            (json!({"build": {"args": ["A B=1"]}}), "build.args: "),
            (json!({"build": {"args": {"A\nRUN": "x"}}}), "build.args: "),
            (json!({"build": {"args": {"A": []}}}), "build.args: "),
            (json!({"build": {"args": {"A": "\0"}}}), "build.args: "),
            (json!({"build": {"args": many}}), "build.args: "),
            (
                json!({"build": {"args": ["BUILDKIT_SYNTAX=evil:1"]}}),
                "build.args: ",
            ),
            (
                json!({"build": {"args": {"buildkit_inline_cache": 1}}}),
                "build.args: ",
            ),
            (json!({"build": {"cache": "no"}}), "build.cache: "),
            (
                json!({"build": {"dockerfile": "../x"}}),
                "build.dockerfile: ",
            ),
            (json!({"build": {"command": 1}}), "build.command: "),
            (json!({"args": "x"}), "args: "),
            (json!({"platformConfig": 1}), "platformConfig: "),
        ] {
            let error = read(&bad).unwrap_err().to_string();
            assert!(error.starts_with(place), "{bad}: {error}");
        }
    }

    #[test]
    fn sections_are_typed() {
        let settings = read(&json!({"platformConfig": {
            "version": 20, "bad": "20; rm", "root": "./public/", "zone": 1, "collectStatic": false,
            "packages": ["ffmpeg", "libstdc++6"], "startCommand": "node x",
        }}))
        .unwrap();
        assert_eq!(
            settings.version(&["version"]).unwrap(),
            Some(Version::major(20))
        );
        let error = settings.version(&["bad"]).unwrap_err().to_string();
        assert!(error.starts_with("platformConfig.bad: "), "{error}");
        assert_eq!(
            settings.path(&["nope", "root"]).unwrap().as_deref(),
            Some("public")
        );
        assert!(settings.path(&["zone"]).is_err());
        assert_eq!(settings.flag("collectStatic").unwrap(), Some(false));
        assert!(settings.flag("version").is_err());
        assert_eq!(settings.packages().unwrap(), ["ffmpeg", "libstdc++6"]);
        assert_eq!(settings.start_command().unwrap().unwrap().shown(), "node x");
        for bad in ["--allow", "a b", "a;b", "A", ""] {
            let settings = read(&json!({"platformConfig": {"packages": ["ok", bad]}})).unwrap();
            assert!(settings.packages().is_err(), "{bad}");
        }
        for (zone, good) in [
            ("Asia/Tehran", true),
            ("Etc/GMT+3", true),
            ("a b", false),
            ("$x", false),
        ] {
            let settings = read(&json!({"platformConfig": {"timezone": zone}})).unwrap();
            assert_eq!(settings.time_zone().is_ok(), good, "{zone}");
        }
    }

    #[test]
    fn a_project_file_completes_what_was_sent() {
        let file = r#"{"port": 5000, "build": {"args": ["A=file"], "cache": false},
            "node": {"version": 18, "timezone": "UTC"}, "vue": {"version": 1}}"#;
        let sources: BTreeMap<_, _> = [("liara.json".to_owned(), file.into())].into();
        let tree = Tree::new(&sources);
        let sent = read(&json!({"platformConfig": {"version": 20}})).unwrap();
        let all = sent.completed(&tree, &[Platform::Node]).unwrap();
        assert_eq!(all.port(Platform::Node), 5000);
        assert_eq!(pairs(&all), [("A", "file")]);
        assert!(!all.cache());
        assert_eq!(all.version(&["version"]).unwrap(), Some(Version::major(20)));
        assert_eq!(all.time_zone().unwrap().as_deref(), Some("UTC"));
        let broken: BTreeMap<_, _> = [("estrade.json".to_owned(), b"{".to_vec())].into();
        let error = sent
            .completed(&Tree::new(&broken), &[Platform::Node])
            .unwrap_err();
        assert!(error.to_string().starts_with("estrade.json: "), "{error}");
    }
}
