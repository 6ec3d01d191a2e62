//! `vercel.json` and `netlify.toml`: what they say about a build, where that means the same here.

use crate::command::Command;
use crate::error::Result;
use crate::sources::Tree;
use estrade_model::paths::FilePath;
use serde_json::Value;

const VERCEL: &str = "vercel.json";
const NETLIFY: &str = "netlify.toml";
/// How much of such a file is read.
const MAX_BYTES: usize = 64 * 1024;

/// Settings that were written for another host. A file that cannot be read is that host's affair.
#[derive(Debug, Default, Clone)]
pub(crate) struct Hosting {
    /// The file that they are from.
    pub(crate) file: &'static str,
    pub(crate) install: Option<Command>,
    pub(crate) build: Option<Command>,
    /// The folder with the site.
    pub(crate) output: Option<String>,
}

impl Hosting {
    /// Reads the first of the files that says anything about a build.
    pub(crate) fn read(tree: &Tree<'_>) -> Result<Self> {
        if let Some(text) = tree.read_prefix(VERCEL, MAX_BYTES)? {
            let file: Value = serde_json::from_str(&text).unwrap_or_default();
            if let Some(declared) = Self::of_vercel(&file) {
                return Ok(declared);
            }
        }
        if let Some(text) = tree.read_prefix(NETLIFY, MAX_BYTES)? {
            let file: toml::Table = toml::from_str(&text).unwrap_or_default();
            return Ok(Self::of_netlify(&file).unwrap_or_default());
        }
        Ok(Self::default())
    }

    fn of_vercel(file: &Value) -> Option<Self> {
        let text = |name: &str| file.get(name).and_then(Value::as_str);
        Self {
            file: VERCEL,
            install: text("installCommand").and_then(Command::from_line),
            build: text("buildCommand").and_then(Command::from_line),
            output: text("outputDirectory").and_then(folder),
        }
        .unless_empty()
    }

    fn of_netlify(file: &toml::Table) -> Option<Self> {
        let build = file.get("build")?;
        let text = |name: &str| build.get(name).and_then(toml::Value::as_str);
        // Its other paths begin there.
        if text("base").and_then(folder).is_some() {
            return None;
        }
        // People write `# nothing to build`.
        let command = text("command").filter(|line| !line.trim_start().starts_with('#'));
        Self {
            file: NETLIFY,
            install: None,
            build: command.and_then(Command::from_line),
            output: text("publish").and_then(folder),
        }
        .unless_empty()
    }

    fn unless_empty(self) -> Option<Self> {
        let says = self.install.is_some() || self.build.is_some() || self.output.is_some();
        says.then_some(self)
    }
}

/// A folder inside of the sources, other than all of them.
pub(crate) fn folder(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches("./").trim_matches('/');
    FilePath::try_from(text.to_owned()).ok().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn read(files: &[(&str, &str)]) -> (String, String, String) {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
        let sources: BTreeMap<_, _> = files.iter().map(file).collect();
        let declared = Hosting::read(&Tree::new(&sources)).unwrap();
        let shown = declared.build.map(|command| command.shown());
        (
            declared.file.to_owned(),
            shown.unwrap_or_default(),
            declared.output.unwrap_or_default(),
        )
    }

    #[test]
    fn both_files_name_the_build_and_its_folder() {
        let vercel = (
            VERCEL,
            r#"{"buildCommand": "npm run docs", "outputDirectory": "./site/", "rewrites": []}"#,
        );
        let netlify = (
            NETLIFY,
            "[build]\ncommand = \"hugo --minify\"\npublish = \"/public\"\n",
        );
        let declared = |file: &str, build: &str, output: &str| {
            (file.to_owned(), build.to_owned(), output.to_owned())
        };
        assert_eq!(
            read(&[vercel, netlify]),
            declared(VERCEL, "npm run docs", "site")
        );
        assert_eq!(
            read(&[netlify]),
            declared(NETLIFY, "hugo --minify", "public")
        );
        let rewrites = (VERCEL, r#"{"rewrites": []}"#);
        assert_eq!(
            read(&[rewrites, netlify]),
            declared(NETLIFY, "hugo --minify", "public")
        );
        for nothing in [
            (VERCEL, "{"),
            (VERCEL, r#"{"outputDirectory": null, "buildCommand": ""}"#),
            (VERCEL, r#"{"outputDirectory": "../x"}"#),
            (NETLIFY, "[build]\nbase = \"web\"\npublish = \"dist\""),
            (NETLIFY, "[build]\npublish = \".\"\ncommand = \"# none\""),
            (NETLIFY, "["),
        ] {
            assert_eq!(read(&[nothing]), declared("", "", ""), "{nothing:?}");
        }
    }
}
