//! Package managers: which one a project uses, and what it is told to do.

use crate::context::BuildContext;
use crate::error::{Result, refused};
use crate::package::{FILE, Package};
use crate::sources::Tree;
use crate::version::Version;

/// Lock files with the manager that writes them, the one that counts first.
const LOCKS: [(&str, Kind); 6] = [
    ("pnpm-lock.yaml", Kind::Pnpm),
    ("yarn.lock", Kind::Yarn),
    ("bun.lock", Kind::Bun),
    ("bun.lockb", Kind::Bun),
    ("package-lock.json", Kind::Npm),
    ("npm-shrinkwrap.json", Kind::Npm),
];
/// Files that change what is installed, for all managers.
const MANIFESTS: [&str; 7] = [
    FILE,
    ".npmrc",
    ".yarnrc",
    ".yarnrc.yml",
    ".pnpmfile.cjs",
    "pnpm-workspace.yaml",
    "bunfig.toml",
];
/// Folders that do.
const FOLDERS: [&str; 2] = [".yarn", "patches"];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Npm,
    Yarn,
    /// Yarn 2 and newer, which is another program.
    Berry,
    Pnpm,
    Bun,
}

/// A package manager, the version it must have, and the lock file it shall respect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Manager {
    kind: Kind,
    version: Option<Version>,
    lock: Option<&'static str>,
}

impl Manager {
    /// Finds it by `packageManager`, else by the lock file.
    pub(crate) fn find(context: &mut BuildContext<'_>, package: &Package) -> Result<Self> {
        let locks: Vec<_> = LOCKS
            .iter()
            .filter(|(name, _)| context.tree.has(name))
            .collect();
        let named = package.text("packageManager").map(read_named).transpose()?;
        let kind = named.map_or_else(
            || locks.first().map_or(Kind::Npm, |(_, kind)| *kind),
            |named| named.0,
        );
        let lock = locks
            .iter()
            .find(|(_, owner)| *owner == kind || (*owner, kind) == (Kind::Yarn, Kind::Berry));
        let lock = lock.map(|(name, _)| *name);
        let (kind, version) = match named {
            Some((kind, version)) => (kind, Some(version)),
            None => from_lock(&context.tree, kind, lock)?,
        };
        let manager = Self {
            kind,
            version,
            lock,
        };
        manager.explain(context, package, named.is_some());
        for (other, _) in locks.iter().filter(|(name, _)| Some(*name) != lock) {
            let why = lock.map_or_else(|| manager.program().to_owned(), str::to_owned);
            context.note(format!("{other} is not used: {why} counts"));
        }
        Ok(manager)
    }

    fn explain(&self, context: &mut BuildContext<'_>, package: &Package, named: bool) {
        let place = if named {
            "packageManager"
        } else {
            "the lock file"
        };
        match self.lock {
            Some(lock) => context.note(format!(
                "{} from {place}; versions as in {lock}",
                self.program()
            )),
            None if package.needs_install() => context.note(format!(
                "there is no lock file for {}: versions may differ from build to build; commit one",
                self.program()
            )),
            None => context.note(format!("{FILE} has no dependencies: nothing is installed")),
        }
    }

    /// What it is called in a shell.
    pub(crate) fn program(&self) -> &'static str {
        match self.kind {
            Kind::Npm => "npm",
            Kind::Yarn | Kind::Berry => "yarn",
            Kind::Pnpm => "pnpm",
            Kind::Bun => "bun",
        }
    }

    /// How it is installed itself, unless it comes with Node.js.
    pub(crate) fn setup(&self) -> Option<Vec<String>> {
        let package = match self.kind {
            Kind::Npm => return None,
            Kind::Yarn => "yarn",
            Kind::Berry => "@yarnpkg/cli-dist",
            Kind::Pnpm => "pnpm",
            Kind::Bun => "bun",
        };
        let package = match self.version {
            Some(version) => format!("{package}@{version}"),
            None => package.to_owned(),
        };
        // Some images have an older Yarn at that place.
        let words = ["npm", "install", "--global", "--force"].map(str::to_owned);
        Some(words.into_iter().chain([package]).collect())
    }

    /// What installs dependencies, with or without those for development.
    pub(crate) fn install(&self, dev: bool) -> Vec<&'static str> {
        let locked = self.lock.is_some();
        let (command, production): (&[&str], &[&str]) = match (self.kind, locked) {
            (Kind::Npm, true) => (&["npm", "ci", "--no-audit", "--no-fund"], &["--omit=dev"]),
            (Kind::Npm, false) => (
                &["npm", "install", "--no-audit", "--no-fund"],
                &["--omit=dev"],
            ),
            (Kind::Yarn, true) => (&["yarn", "install", "--frozen-lockfile"], &["--production"]),
            (Kind::Yarn, false) => (&["yarn", "install"], &["--production"]),
            (Kind::Berry, true) => (&["yarn", "install", "--immutable"], &[]),
            (Kind::Berry, false) => (&["yarn", "install", "--no-immutable"], &[]),
            (Kind::Pnpm, true) => (&["pnpm", "install", "--frozen-lockfile"], &["--prod"]),
            (Kind::Pnpm, false) => (&["pnpm", "install", "--no-frozen-lockfile"], &["--prod"]),
            (Kind::Bun, true) => (&["bun", "install", "--frozen-lockfile"], &["--production"]),
            (Kind::Bun, false) => (&["bun", "install"], &["--production"]),
        };
        let production = if dev { &[] } else { production };
        command.iter().chain(production).copied().collect()
    }

    /// What removes dependencies for development, where the manager can.
    pub(crate) fn prune(&self) -> Option<&'static [&'static str]> {
        match self.kind {
            Kind::Npm => Some(&["npm", "prune", "--omit=dev", "--no-audit", "--no-fund"]),
            Kind::Yarn => Some(&[
                "yarn",
                "install",
                "--production",
                "--ignore-scripts",
                "--prefer-offline",
            ]),
            // It asks before it removes anything, unless it is told that nobody is there.
            Kind::Pnpm => Some(&["env", "CI=true", "pnpm", "prune", "--prod"]),
            Kind::Berry | Kind::Bun => None,
        }
    }

    /// What runs a script of `package.json`.
    pub(crate) fn script(&self, name: &'static str) -> [&'static str; 3] {
        [self.program(), "run", name]
    }

    /// Where it and npm, which installs it, keep what they download.
    pub(crate) fn cache_env(&self) -> Vec<(&'static str, &'static str)> {
        let own = match self.kind {
            Kind::Npm => None,
            Kind::Yarn => Some(("YARN_CACHE_FOLDER", "yarn")),
            Kind::Berry => Some(("YARN_GLOBAL_FOLDER", "yarn")),
            Kind::Pnpm => Some(("npm_config_store_dir", "pnpm")),
            Kind::Bun => Some(("BUN_INSTALL_CACHE_DIR", "bun")),
        };
        [("npm_config_cache", "npm")]
            .into_iter()
            .chain(own)
            .collect()
    }

    /// Newer Yarns keep dependencies in a cache of the user who installs, which is not the one who
    /// runs the app. They are told to put them where all others do.
    pub(crate) fn prepare(&self, context: &mut BuildContext<'_>) {
        if self.kind == Kind::Berry {
            context.file.env("YARN_NODE_LINKER", "node-modules");
            context.ignored.push("**/.pnp.*");
        }
        if let Some(setup) = self.setup() {
            context.file.run(&setup);
        }
    }

    /// The files that decide what is installed.
    pub(crate) fn manifests(&self, tree: &Tree<'_>) -> Vec<&'static str> {
        MANIFESTS
            .into_iter()
            .chain(self.lock)
            .filter(|name| tree.has(name))
            .collect()
    }

    /// The folders that do.
    pub(crate) fn folders(tree: &Tree<'_>) -> impl Iterator<Item = &'static str> {
        FOLDERS.into_iter().filter(|folder| tree.has_folder(folder))
    }
}

/// `pnpm@9.1.0+sha512.…`.
fn read_named(text: &str) -> Result<(Kind, Version)> {
    let wrong = || {
        let advice = format!("packageManager `{text}` is not known; write one such as pnpm@9.1.0");
        refused(FILE, advice)
    };
    let (name, version) = text.split_once('@').ok_or_else(wrong)?;
    let version = version.split(['+', '-']).next().unwrap_or_default();
    let version = Version::parse(version).ok_or_else(wrong)?;
    let kind = match name {
        "npm" => Kind::Npm,
        "yarn" if version.major < 2 => Kind::Yarn,
        "yarn" => Kind::Berry,
        "pnpm" => Kind::Pnpm,
        "bun" => Kind::Bun,
        _ => return Err(wrong()),
    };
    Ok((kind, version))
}

/// Which manager can read a lock file: the file says so in its first lines.
fn from_lock(
    tree: &Tree<'_>,
    kind: Kind,
    lock: Option<&'static str>,
) -> Result<(Kind, Option<Version>)> {
    let Some(lock) = lock else {
        return Ok((kind, None));
    };
    let start = tree.read_prefix(lock, 1024)?.unwrap_or_default();
    let number = |key: &str| {
        let line = start.lines().find_map(|line| line.trim().strip_prefix(key));
        Version::parse(line?.trim().trim_matches(['\'', '"']))
    };
    Ok(match kind {
        Kind::Pnpm => {
            let major = match number("lockfileVersion:").map(|version| version.major) {
                Some(0..=5) => 7,
                Some(6..=8) => 8,
                // Settings without packages are how the next version writes that file.
                _ if has_settings_only(tree)? => 10,
                _ => 9,
            };
            (kind, Some(Version::major(major)))
        }
        Kind::Yarn if start.contains("__metadata:") => {
            let major = if number("version:").is_some_and(|version| version.major < 8) {
                3
            } else {
                4
            };
            (Kind::Berry, Some(Version::major(major)))
        }
        Kind::Yarn | Kind::Bun => (kind, Some(Version::major(1))),
        Kind::Npm | Kind::Berry => (kind, None),
    })
}

fn has_settings_only(tree: &Tree<'_>) -> Result<bool> {
    let workspace = tree.read_prefix("pnpm-workspace.yaml", 64 * 1024)?;
    let packages = |text: &str| text.lines().any(|line| line.starts_with("packages:"));
    Ok(workspace.is_some_and(|text| !packages(&text)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::BaseImages;
    use crate::settings::Settings;
    use estrade_model::platform::Platform;
    use std::collections::BTreeMap;

    fn found(files: &[(&str, &str)]) -> Result<(String, String, Vec<String>)> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
        let sources: BTreeMap<_, _> = files.iter().map(file).collect();
        let (tree, images) = (Tree::new(&sources), BaseImages::default());
        let package = Package::read(&tree)?;
        let mut context = BuildContext::new(Platform::Node, tree, Settings::default(), &images);
        let manager = Manager::find(&mut context, &package)?;
        let setup = manager
            .setup()
            .unwrap_or_default()
            .last()
            .cloned()
            .unwrap_or_default();
        Ok((manager.install(true).join(" "), setup, context.notes))
    }

    #[test]
    fn the_lock_file_decides() {
        let npm = "npm ci --no-audit --no-fund";
        for (lock, text, install, setup) in [
            ("package-lock.json", "{}", npm, ""),
            ("npm-shrinkwrap.json", "{}", npm, ""),
            (
                "yarn.lock",
                "# yarn lockfile v1\n",
                "yarn install --frozen-lockfile",
                "yarn@1",
            ),
            (
                "yarn.lock",
                "__metadata:\n  version: 8\n",
                "yarn install --immutable",
                "@yarnpkg/cli-dist@4",
            ),
            (
                "yarn.lock",
                "__metadata:\n  version: 6\n",
                "yarn install --immutable",
                "@yarnpkg/cli-dist@3",
            ),
            (
                "pnpm-lock.yaml",
                "lockfileVersion: '9.0'\n",
                "pnpm install --frozen-lockfile",
                "pnpm@9",
            ),
            (
                "pnpm-lock.yaml",
                "lockfileVersion: '6.0'\n",
                "pnpm install --frozen-lockfile",
                "pnpm@8",
            ),
            (
                "pnpm-lock.yaml",
                "lockfileVersion: 5.4\n",
                "pnpm install --frozen-lockfile",
                "pnpm@7",
            ),
            ("bun.lock", "{}", "bun install --frozen-lockfile", "bun@1"),
            (
                "bun.lockb",
                "\u{1}",
                "bun install --frozen-lockfile",
                "bun@1",
            ),
        ] {
            let (got, got_setup, _) = found(&[(FILE, "{}"), (lock, text)]).unwrap();
            assert_eq!(
                (got.as_str(), got_setup.as_str()),
                (install, setup),
                "{lock} {text}"
            );
        }
    }

    #[test]
    fn a_workspace_file_without_packages_is_of_a_newer_pnpm() {
        let lock = ("pnpm-lock.yaml", "lockfileVersion: '9.0'\n");
        for (workspace, setup) in [
            ("packages:\n  - a\n", "pnpm@9"),
            ("nodeLinker: hoisted\n", "pnpm@10"),
        ] {
            let (_, got, _) =
                found(&[(FILE, "{}"), lock, ("pnpm-workspace.yaml", workspace)]).unwrap();
            assert_eq!(got, setup);
        }
    }

    #[test]
    fn the_named_manager_wins_over_lock_files() {
        let files = [
            (FILE, r#"{"packageManager": "yarn@4.5.1+sha512.abc"}"#),
            ("yarn.lock", "__metadata:\n  version: 8\n"),
            ("package-lock.json", "{}"),
        ];
        let (install, setup, notes) = found(&files).unwrap();
        assert_eq!(install, "yarn install --immutable");
        assert_eq!(setup, "@yarnpkg/cli-dist@4.5.1");
        assert!(
            notes
                .iter()
                .any(|note| note.contains("package-lock.json is not used")),
            "{notes:?}"
        );
        let (install, _, notes) = found(&[(FILE, r#"{"dependencies": {"a": "1"}}"#)]).unwrap();
        assert_eq!(install, "npm install --no-audit --no-fund");
        assert!(
            notes.iter().any(|note| note.contains("no lock file")),
            "{notes:?}"
        );
    }

    #[test]
    fn a_manager_that_nobody_knows_is_refused() {
        for bad in [
            "pnpm",
            "cargo@1",
            "pnpm@latest",
            "pnpm@9;x",
            "pnpm@$(x)",
            "@1",
        ] {
            let text = serde_json::json!({"packageManager": bad}).to_string();
            let error = found(&[(FILE, &text)]).unwrap_err().to_string();
            assert!(
                error.starts_with("package.json: packageManager"),
                "{bad}: {error}"
            );
        }
    }
}
