//! `package.json`: dependencies, scripts, and the main file.

use crate::error::{Result, refused};
use crate::sources::Tree;
use estrade_model::paths::FilePath;
use serde_json::{Map, Value};

pub(crate) const FILE: &str = "package.json";

/// Scripts that a package manager runs when it installs, and that may need any file.
const AT_INSTALL: [&str; 5] = [
    "preinstall",
    "install",
    "postinstall",
    "prepare",
    "preprepare",
];
/// Fields that list packages.
const DEPENDENCIES: [&str; 3] = ["dependencies", "devDependencies", "optionalDependencies"];
/// Commands of frameworks that write types and configuration next to the sources: nothing that is installed depends on
/// them.
const SYNCS: [&str; 5] = [
    "nuxt prepare",
    "nuxi prepare",
    "svelte-kit sync",
    "astro sync",
    "react-router typegen",
];
/// What people append so that the command may fail.
const FORGIVEN: [&str; 4] = ["|| echo ''", "|| echo \"\"", "|| true", "|| exit 0"];
/// Files that are started when nobody says what to start.
pub(crate) const MAINS: [&str; 8] = [
    "server.js",
    "index.js",
    "app.js",
    "main.js",
    "server.mjs",
    "index.mjs",
    "app.mjs",
    "main.mjs",
];
/// Where builds write to that `main` of a package may be in.
const WRITTEN: [&str; 3] = ["dist/", "build/", "lib/"];
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
        DEPENDENCIES
            .into_iter()
            .flat_map(|field| self.entries(field))
    }

    /// Whether it depends on this package, be it only for development.
    pub(crate) fn depends_on(&self, name: &str) -> bool {
        DEPENDENCIES.iter().any(|field| self.lists(field, name))
    }

    /// Whether it depends on this package when it runs.
    pub(crate) fn runs_with(&self, name: &str) -> bool {
        self.lists("dependencies", name)
    }

    /// Whether a field has an entry of this name. It is looked up: both a script and a list may have 100,000 words.
    fn lists(&self, field: &str, name: &str) -> bool {
        let fields = self.0.get(field).and_then(Value::as_object);
        fields.is_some_and(|fields| fields.contains_key(name))
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

    /// The scripts that run at install, when all that they do is a framework's own work on the sources, which can as well
    /// be done after it.
    pub(crate) fn syncs(&self) -> Vec<&'static str> {
        let scripts = AT_INSTALL
            .into_iter()
            .filter_map(|name| Some((name, self.script(name)?)));
        let scripts: Vec<_> = scripts.collect();
        if !scripts.iter().all(|(_, script)| is_sync(script)) {
            return Vec::new();
        }
        scripts.into_iter().map(|(name, _)| name).collect()
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
        let dev = |name: &str| self.lists("devDependencies", name);
        script.split_ascii_whitespace().any(|word| {
            let package = PROGRAMS.iter().find(|(program, _)| *program == word);
            dev(package.map_or(word, |(_, package)| package))
        })
    }

    /// The versions of Node.js that it says it runs on.
    pub(crate) fn engine(&self) -> Option<&str> {
        self.0.get("engines")?.get("node")?.as_str()
    }
}

fn is_sync(script: &str) -> bool {
    let script = script.trim();
    let script = FORGIVEN
        .iter()
        .find_map(|end| script.strip_suffix(end))
        .unwrap_or(script);
    script
        .split("&&")
        .all(|command| SYNCS.contains(&command.trim()))
}

/// The file that a package says is its main one, or that is usually called so.
pub(crate) fn main_file(package: &Package, tree: &Tree<'_>) -> Option<String> {
    let main = package
        .text("main")
        .map(|main| main.strip_prefix("./").unwrap_or(main));
    // What a build writes is not there yet; it has to be a path at least, which is not endless either.
    let is_path = |main: &str| FilePath::try_from(main.trim_end_matches('/').to_owned()).is_ok();
    let is_built = |main: &&str| {
        package.script("build").is_some()
            && WRITTEN.iter().any(|folder| main.starts_with(folder))
            && is_path(main)
    };
    let main = main.filter(|main| tree.has(main) || is_built(main));
    main.or_else(|| tree.first(&MAINS)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn long_scripts_and_long_lists_are_no_product() {
        let lists: Map<String, Value> = (0..100_000)
            .map(|number| (format!("package-{number}"), Value::from("1")))
            .collect();
        let text = serde_json::json!({"devDependencies": lists}).to_string();
        let package = Package::parse(&text).unwrap();
        assert!(package.depends_on("package-7") && !package.runs_with("package-7"));
        // Each word with each name would be ten billion comparisons.
        assert!(!package.uses_dev_program(&"a ".repeat(100_000)));
        assert!(package.uses_dev_program("a package-99999"));
    }

    #[test]
    fn only_the_work_of_frameworks_is_put_off() {
        let syncs = |scripts: &str| {
            let package = Package::parse(&format!(r#"{{"scripts": {scripts}}}"#)).unwrap();
            package.syncs()
        };
        for (scripts, names) in [
            (r#"{"postinstall": "nuxt prepare"}"#, &["postinstall"][..]),
            (r#"{"prepare": "svelte-kit sync || echo ''"}"#, &["prepare"]),
            (
                r#"{"postinstall": "nuxi prepare && astro sync", "prepare": "astro sync || true"}"#,
                &["postinstall", "prepare"],
            ),
            (r#"{"postinstall": "nuxt prepare && prisma generate"}"#, &[]),
            (
                r#"{"postinstall": "nuxt prepare", "prepare": "husky"}"#,
                &[],
            ),
            (r#"{"postinstall": "nuxt prepare; rm -rf x"}"#, &[]),
            (r#"{"build": "nuxt build"}"#, &[]),
        ] {
            assert_eq!(syncs(scripts), names, "{scripts}");
        }
    }

    #[test]
    fn a_main_file_that_a_build_writes_is_a_path() {
        let main = |main: &str| {
            let text = serde_json::json!({"main": main, "scripts": {"build": "tsc"}}).to_string();
            let sources: BTreeMap<_, _> = [("index.js".to_owned(), Vec::<u8>::new())].into();
            main_file(&Package::parse(&text).unwrap(), &Tree::new(&sources))
        };
        for good in ["dist/main", "dist/", "lib/a b.js"] {
            assert_eq!(main(good).as_deref(), Some(good));
            assert_eq!(main(&format!("./{good}")).as_deref(), Some(good));
        }
        // A whole manifest of spaces took hours to write into a Dockerfile.
        let endless = format!("dist/{}", "\u{2003}".repeat(300_000));
        for bad in ["dist/../../etc/passwd", "dist/a\0", "dist/a\nb", &endless] {
            assert_eq!(main(bad).as_deref(), Some("index.js"));
        }
    }
}
