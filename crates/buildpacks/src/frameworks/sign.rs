//! Signs by which frameworks are known, and whether sources have them.

use crate::error::Result;
use crate::hosting::Hosting;
use crate::javascript::says;
use crate::package::{FILE as PACKAGE, Package, main_file};
use crate::sources::{Tree, depth, extension_of};
use std::collections::HashSet;

/// How much of a manifest or of a configuration is looked at.
const MAX_PREFIX_BYTES: usize = 64 * 1024;
/// How much of a list of Python's packages is looked at: with hashes, a hundred packages have some 300 KB.
const MAX_LIST_BYTES: usize = 1024 * 1024;
/// Where Python's dependencies are listed.
const PYTHON_LISTS: [&str; 4] = ["requirements.txt", "pyproject.toml", "Pipfile", "setup.py"];

/// What tells one framework from others.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Sign {
    /// A dependency of `package.json`, be it only for development.
    Package(&'static str),
    /// A dependency that is there when it runs.
    Runtime(&'static str),
    /// A dependency whose name begins so.
    PackagePrefix(&'static str),
    /// A file.
    File(&'static str),
    /// A file with this extension, in the root or one folder below it.
    Extension(&'static str),
    /// A script of `package.json`, and a text in it.
    Script(&'static str, &'static str),
    /// The script `build` has this text, or there is no such script.
    BuildsWith(&'static str),
    /// A field in the first of these files has this value.
    Says(&'static [&'static str], &'static str, &'static str),
    /// A file has this text.
    Text(&'static str, &'static str),
    /// A package that Python installs.
    Python(&'static str),
    /// Something that says what to start, and not only while developing.
    Starts,
    /// An output folder in `vercel.json` or `netlify.toml`.
    Publishes,
    /// None of these.
    Not(&'static [Sign]),
    /// One of these.
    Any(&'static [Sign]),
}

/// Start scripts that people use while they develop. Two words that follow each other.
const DEVELOPMENT: [&[&str]; 27] = [
    &["vite"],
    &["react-scripts", "start"],
    &["craco", "start"],
    &["vue-cli-service", "serve"],
    &["ng", "serve"],
    &["gatsby", "develop"],
    &["docusaurus", "start"],
    &["eleventy", "--serve"],
    &["astro", "dev"],
    &["nuxt", "dev"],
    &["next", "dev"],
    &["nest", "start"],
    &["vitepress", "dev"],
    &["vuepress", "dev"],
    &["hexo", "server"],
    &["parcel"],
    &["remix", "dev"],
    &["react-router", "dev"],
    &["vinxi", "dev"],
    &["storybook", "dev"],
    &["start-storybook"],
    &["webpack", "serve"],
    &["webpack-dev-server"],
    &["nitro", "dev"],
    &["preact", "watch"],
    &["rsbuild", "dev"],
    &["ionic", "serve"],
];

/// Whether a script starts a server for developers.
pub(crate) fn is_for_development(script: &str) -> bool {
    let words: Vec<_> = script.split_ascii_whitespace().collect();
    DEVELOPMENT
        .iter()
        .any(|known| words.windows(known.len()).any(|words| words == *known))
}

/// What is known about sources before a plan is made.
pub(crate) struct Facts<'f, 's> {
    pub(crate) tree: &'f Tree<'s>,
    /// None when there is no such file, or none that can be read.
    pub(crate) package: Option<Package>,
    pub(crate) hosting: Hosting,
    python: HashSet<String>,
}

impl<'f, 's> Facts<'f, 's> {
    pub(crate) fn read(tree: &'f Tree<'s>) -> Result<Self> {
        let text = tree.text(PACKAGE)?;
        let package = text.and_then(|text| Package::parse(&text).ok());
        let mut python = HashSet::new();
        for list in PYTHON_LISTS {
            let text = tree.read_prefix(list, MAX_LIST_BYTES)?.unwrap_or_default();
            // `a==1`, `"a>=1"`, `a = "^1"`; a comment names nothing.
            for line in text
                .lines()
                .map(|line| line.split('#').next().unwrap_or(line))
                .filter(|line| !line.trim_start().starts_with("--hash"))
            {
                let in_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
                let words = line.split(|c| !in_name(c));
                python.extend(words.filter(|word| !word.is_empty()).map(str::to_lowercase));
            }
        }
        Ok(Self {
            tree,
            package,
            hosting: Hosting::read(tree)?,
            python,
        })
    }

    /// Whether all of these are there.
    pub(crate) fn have(&self, signs: &[Sign]) -> Result<bool> {
        for sign in signs {
            if !self.has(sign)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn has(&self, sign: &Sign) -> Result<bool> {
        let package = self.package.as_ref();
        let script = |name| package.and_then(|package| package.script(name));
        Ok(match *sign {
            Sign::Package(name) => package.is_some_and(|package| package.depends_on(name)),
            Sign::Runtime(name) => package.is_some_and(|package| package.runs_with(name)),
            Sign::PackagePrefix(start) => {
                package.is_some_and(|package| package.dependency_like(start).is_some())
            }
            Sign::File(path) => self.tree.has(path),
            Sign::Extension(extension) => {
                let mut top = self.tree.paths().filter(|path| depth(path) <= 1);
                top.any(|path| extension_of(path) == Some(extension))
            }
            Sign::Script(name, text) => script(name).is_some_and(|script| script.contains(text)),
            Sign::BuildsWith(text) => script("build").is_none_or(|script| script.contains(text)),
            Sign::Says(files, field, value) => match self.tree.first(files) {
                Some(file) => {
                    let code = self.tree.read_prefix(file, MAX_PREFIX_BYTES)?;
                    code.is_some_and(|code| says(&code, field, value))
                }
                None => false,
            },
            Sign::Text(file, text) => {
                let found = self.tree.read_prefix(file, MAX_PREFIX_BYTES)?;
                found.is_some_and(|found| found.contains(text))
            }
            Sign::Python(name) => self.python.contains(name),
            Sign::Starts => self.starts(),
            Sign::Publishes => self.hosting.output.is_some(),
            Sign::Not(signs) => !self.has_any(signs)?,
            Sign::Any(signs) => self.has_any(signs)?,
        })
    }

    fn has_any(&self, signs: &[Sign]) -> Result<bool> {
        for sign in signs {
            if self.has(sign)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn starts(&self) -> bool {
        if self.tree.has("Procfile") {
            return true;
        }
        let Some(package) = &self.package else {
            return false;
        };
        match package.script("start") {
            Some(script) => !is_for_development(script),
            None => main_file(package, self.tree).is_some(),
        }
    }

    /// The script `start`, unless it is for developers.
    pub(crate) fn start_script(&self) -> Option<&str> {
        let script = self.package.as_ref()?.script("start")?;
        (!is_for_development(script)).then_some(script)
    }

    /// The first of these signs as a person would name it, for the build log.
    pub(crate) fn named(&self, signs: &[Sign]) -> Result<Option<String>> {
        for sign in signs {
            let named = match *sign {
                Sign::Package(name) | Sign::Runtime(name) => Some(format!("`{name}` in {PACKAGE}")),
                Sign::PackagePrefix(start) => {
                    let package = self.package.as_ref();
                    let name = package.and_then(|package| package.dependency_like(start));
                    name.map(|name| format!("`{name}` in {PACKAGE}"))
                }
                Sign::File(path) => Some(path.to_owned()),
                Sign::Extension(extension) => Some(format!("a file *.{extension}")),
                Sign::Script(name, "") => Some(format!("the script `{name}`")),
                Sign::Script(name, text) => Some(format!("`{text}` in the script `{name}`")),
                Sign::Says(files, field, value) => {
                    let file = self.tree.first(files).unwrap_or_default();
                    Some(format!("`{field}: {value}` in {file}"))
                }
                Sign::Text(file, text) => Some(format!("`{text}` in {file}")),
                Sign::Python(name) => Some(format!("`{name}` among the dependencies")),
                Sign::Publishes => Some(self.hosting.file.to_owned()),
                Sign::Any(signs) => {
                    let mut first = None;
                    for sign in signs {
                        if self.has(sign)? {
                            first = self.named(std::slice::from_ref(sign))?;
                            break;
                        }
                    }
                    first
                }
                Sign::Starts | Sign::BuildsWith(_) | Sign::Not(_) => None,
            };
            if named.is_some() {
                return Ok(named);
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_scripts_for_developers_are_known() {
        for script in [
            "vite",
            "vite --host",
            "cross-env X=1 react-scripts start",
            "ng serve -o",
        ] {
            assert!(is_for_development(script), "{script}");
        }
        for script in [
            "node server.js",
            "react-router-serve ./build",
            "next start",
            "vite-node x.js",
        ] {
            assert!(!is_for_development(script), "{script}");
        }
    }
}
