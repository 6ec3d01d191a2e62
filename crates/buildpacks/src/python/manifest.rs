//! What a Python project depends on, and with which tool it is installed.

use crate::context::BuildContext;
use crate::error::{Result, refused};
use crate::sources::{Tree, folder_of};
use std::collections::BTreeSet;
use toml::{Table, Value};

pub(crate) const PYPROJECT: &str = "pyproject.toml";
const PIPFILE: &str = "Pipfile";
/// Lists of requirements, the one that counts first.
const REQUIREMENTS: [&str; 4] = [
    "requirements.txt",
    "requirements/production.txt",
    "requirements/prod.txt",
    "requirements/base.txt",
];
/// Most lists that include one another.
const MAX_LISTS: usize = 20;
/// Most bytes of dependencies that fit well on one line of a Dockerfile.
const MAX_ON_A_LINE: usize = 16 * 1024;

/// The tool that installs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Tool {
    Uv,
    Poetry,
    Pipenv {
        locked: bool,
    },
    /// A list for pip.
    List(String),
    /// `project.dependencies` of `pyproject.toml`.
    Listed(Vec<String>),
    /// The project itself, with all that it depends on.
    Itself,
    Nothing,
}

/// What a project depends on.
#[derive(Debug)]
pub(crate) struct Manifest {
    pub(crate) tool: Tool,
    /// Files that decide what is installed.
    pub(crate) files: Vec<String>,
    /// Whether anything of the sources may be needed to install.
    pub(crate) whole: bool,
    /// Whether something comes straight from a repository.
    pub(crate) git: bool,
    packages: BTreeSet<String>,
}

impl Manifest {
    fn new(tool: Tool, files: &[&str]) -> Self {
        Self {
            tool,
            files: files.iter().map(|file| (*file).to_owned()).collect(),
            whole: false,
            git: false,
            packages: BTreeSet::new(),
        }
    }

    /// Finds it: lock files first, then lists, then what has no versions.
    pub(crate) fn find(context: &mut BuildContext<'_>) -> Result<Self> {
        let tree = &context.tree;
        let list = tree.first(&REQUIREMENTS);
        let manifest = if tree.has("uv.lock") && tree.has(PYPROJECT) {
            Self::of_project(tree, Tool::Uv, &[PYPROJECT, "uv.lock"])?
        } else if tree.has("poetry.lock") && tree.has(PYPROJECT) {
            Self::of_project(tree, Tool::Poetry, &[PYPROJECT, "poetry.lock"])?
        } else if tree.has("Pipfile.lock") && tree.has(PIPFILE) {
            Self::of_pipfile(tree, true)?
        } else if let Some(list) = list {
            Self::of_list(tree, list)?
        } else if tree.has(PIPFILE) {
            Self::of_pipfile(tree, false)?
        } else if tree.has(PYPROJECT) {
            Self::of_plain_project(tree)?
        } else if tree.has("setup.py") {
            let mut manifest = Self::new(Tool::Itself, &[]);
            manifest.whole = true;
            manifest
        } else {
            Self::new(Tool::Nothing, &[])
        };
        manifest.explain(context);
        Ok(manifest)
    }

    fn explain(&self, context: &mut BuildContext<'_>) {
        let line = match &self.tool {
            Tool::Uv => "dependencies with uv, versions as in uv.lock".to_owned(),
            Tool::Poetry => {
                "dependencies with Poetry, versions as in poetry.lock or pyproject.toml".to_owned()
            }
            Tool::Pipenv { locked: true } => {
                "dependencies with Pipenv, versions as in Pipfile.lock".to_owned()
            }
            Tool::Pipenv { locked: false } => {
                "dependencies with Pipenv; commit Pipfile.lock to keep their versions".to_owned()
            }
            Tool::List(file) => format!("dependencies with pip from {file}"),
            Tool::Listed(_) => {
                format!("dependencies with pip from {PYPROJECT}; there is no lock file")
            }
            Tool::Itself => "the project itself is installed with pip".to_owned(),
            Tool::Nothing => {
                "no requirements.txt, pyproject.toml or Pipfile: nothing is installed".to_owned()
            }
        };
        context.note(line);
    }

    /// Whether the project depends on a package, by its normalised name.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.packages.contains(name)
    }

    fn of_project(tree: &Tree<'_>, tool: Tool, files: &[&str]) -> Result<Self> {
        let project = table(tree, PYPROJECT)?;
        let mut manifest = Self::new(tool, files);
        for line in dependencies(&project) {
            manifest.add(line);
        }
        let poetry = project.get("tool").and_then(|tool| tool.get("poetry"));
        manifest.add_keys(poetry.and_then(|poetry| poetry.get("dependencies")));
        Ok(manifest)
    }

    fn of_plain_project(tree: &Tree<'_>) -> Result<Self> {
        let project = table(tree, PYPROJECT)?;
        let poetry = project.get("tool").and_then(|tool| tool.get("poetry"));
        if project.get("project").is_none() && poetry.is_some() {
            return Self::of_project(tree, Tool::Poetry, &[PYPROJECT]);
        }
        let lines: Vec<_> = dependencies(&project).map(str::to_owned).collect();
        let mut manifest = Self::new(Tool::Nothing, &[PYPROJECT]);
        for line in &lines {
            manifest.add(line);
        }
        let fits = lines.iter().map(String::len).sum::<usize>() <= MAX_ON_A_LINE;
        if manifest.whole || !fits {
            manifest.tool = Tool::Itself;
            manifest.whole = true;
        } else if let Some(odd) = lines.iter().find(|line| name_of(line).is_none()) {
            let advice =
                format!("`{odd}` in `dependencies` does not begin with the name of a package");
            return Err(refused(PYPROJECT, advice));
        } else if !lines.is_empty() {
            manifest.tool = Tool::Listed(lines);
        }
        Ok(manifest)
    }

    fn of_pipfile(tree: &Tree<'_>, locked: bool) -> Result<Self> {
        let pipfile = table(tree, PIPFILE)?;
        let files: &[&str] = if locked {
            &[PIPFILE, "Pipfile.lock"]
        } else {
            &[PIPFILE]
        };
        let mut manifest = Self::new(Tool::Pipenv { locked }, files);
        manifest.add_keys(pipfile.get("packages"));
        Ok(manifest)
    }

    /// A list for pip, and the lists that it includes.
    fn of_list(tree: &Tree<'_>, list: &str) -> Result<Self> {
        let mut manifest = Self::new(Tool::List(list.to_owned()), &[list]);
        let mut next = 0;
        while let Some(file) = manifest.files.get(next).cloned() {
            next += 1;
            let text = tree.text(&file)?.unwrap_or_default();
            for line in text.lines() {
                let line = line.split(" #").next().unwrap_or_default().trim();
                match included(line) {
                    Some(other) => manifest.include(tree, &file, other)?,
                    None => manifest.add(line),
                }
            }
        }
        Ok(manifest)
    }

    fn include(&mut self, tree: &Tree<'_>, list: &str, other: &str) -> Result<()> {
        let folder = folder_of(list);
        let other = other.trim_start_matches("./");
        let path = match (folder, other.strip_prefix("../")) {
            (".", None) => other.to_owned(),
            (folder, None) => format!("{folder}/{other}"),
            (folder, Some(above)) => match folder.rsplit_once('/') {
                Some((around, _)) => format!("{around}/{above}"),
                None => above.to_owned(),
            },
        };
        if !tree.has(&path) {
            return Err(refused(
                list,
                format!("includes `{other}`, which is not there"),
            ));
        }
        if self.files.len() >= MAX_LISTS {
            return Err(refused(
                list,
                format!("includes too many files; {MAX_LISTS} are the most"),
            ));
        }
        if !self.files.contains(&path) {
            self.files.push(path);
        }
        Ok(())
    }

    /// Notes what a line of requirements names.
    fn add(&mut self, line: &str) {
        let editable = line.starts_with("-e") || line.starts_with("--editable");
        let path = line.starts_with(['.', '/']) || line.contains("file:");
        self.whole |= editable || path;
        self.git |= line.contains("git+");
        if let Some(name) = name_of(line) {
            self.packages.insert(name);
        }
    }

    fn add_keys(&mut self, table: Option<&Value>) {
        for (name, value) in table.and_then(Value::as_table).into_iter().flatten() {
            self.whole |= value.get("path").is_some();
            self.git |= value.get("git").is_some();
            self.packages.extend(name_of(name));
        }
    }
}

fn included(line: &str) -> Option<&str> {
    let options = ["-r", "--requirement", "-c", "--constraint"];
    let rest = options
        .iter()
        .find_map(|option| line.strip_prefix(option))?;
    let rest = rest.strip_prefix('=').unwrap_or(rest).trim();
    Some(rest).filter(|rest| !rest.is_empty() && !rest.contains("://"))
}

/// The normalised name at the beginning of a requirement.
fn name_of(line: &str) -> Option<String> {
    if !line.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let end = line.find(|c: char| !c.is_ascii_alphanumeric() && !"._-".contains(c));
    let name = line.get(..end.unwrap_or(line.len()))?;
    let parts: Vec<_> = name
        .split(['.', '_', '-'])
        .filter(|part| !part.is_empty())
        .collect();
    Some(parts.join("-").to_ascii_lowercase())
}

/// Reads a file of TOML.
pub(crate) fn table(tree: &Tree<'_>, file: &str) -> Result<Table> {
    let text = tree.text(file)?.unwrap_or_default();
    text.parse().map_err(|error: toml::de::Error| {
        refused(file, format!("is not TOML: {}", error.message()))
    })
}

fn dependencies(project: &Table) -> impl Iterator<Item = &str> {
    let list = project
        .get("project")
        .and_then(|project| project.get("dependencies")?.as_array());
    list.into_iter().flatten().filter_map(Value::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::BaseImages;
    use crate::settings::Settings;
    use estrade_model::platform::Platform;
    use std::collections::BTreeMap;

    fn find(files: &[(&str, &str)]) -> Result<Manifest> {
        let file = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
        let sources: BTreeMap<_, _> = files.iter().map(file).collect();
        let images = BaseImages::default();
        let mut context = BuildContext::new(
            Platform::Python,
            Tree::new(&sources),
            Settings::default(),
            &images,
        );
        Manifest::find(&mut context)
    }

    #[test]
    fn lock_files_come_first() {
        let project = (
            PYPROJECT,
            "[project]\nname = 'x'\ndependencies = ['Django>=5']\n",
        );
        let list = ("requirements.txt", "flask\n");
        assert_eq!(
            find(&[project, list, ("uv.lock", "")]).unwrap().tool,
            Tool::Uv
        );
        assert_eq!(
            find(&[project, list, ("poetry.lock", "")]).unwrap().tool,
            Tool::Poetry
        );
        let pipfile = (PIPFILE, "[packages]\nFlask_Login = '*'\n");
        let locked = find(&[pipfile, list, ("Pipfile.lock", "{}")]).unwrap();
        assert_eq!(locked.tool, Tool::Pipenv { locked: true });
        assert!(locked.has("flask-login"));
        assert_eq!(
            find(&[pipfile, list]).unwrap().tool,
            Tool::List("requirements.txt".into())
        );
        assert_eq!(
            find(&[pipfile]).unwrap().tool,
            Tool::Pipenv { locked: false }
        );
        let listed = find(&[project]).unwrap();
        assert_eq!(listed.tool, Tool::Listed(vec!["Django>=5".into()]));
        assert!(listed.has("django"));
        let poetry = (
            PYPROJECT,
            "[tool.poetry.dependencies]\npython = '^3.11'\nflask = '3'\n",
        );
        let poetry = find(&[poetry]).unwrap();
        assert_eq!(
            (poetry.tool.clone(), poetry.has("flask")),
            (Tool::Poetry, true)
        );
        assert_eq!(find(&[("setup.py", "")]).unwrap().tool, Tool::Itself);
        assert_eq!(find(&[]).unwrap().tool, Tool::Nothing);
    }

    #[test]
    fn lists_include_lists() {
        let manifest = find(&[
            (
                "requirements.txt",
                "-r requirements/a.txt # x\nDjango==5.0  # why\n--index-url https://x\n",
            ),
            (
                "requirements/a.txt",
                "-r b.txt\n-c ../limits.txt\n-r ../requirements.txt\nPsycopg2 >= 2\n",
            ),
            (
                "requirements/b.txt",
                "uvicorn[standard]\nx @ git+https://example.com/x\n",
            ),
            ("limits.txt", ""),
        ])
        .unwrap();
        let files = [
            "requirements.txt",
            "requirements/a.txt",
            "requirements/b.txt",
            "limits.txt",
        ];
        assert_eq!(manifest.files, files);
        assert!(
            ["django", "psycopg2", "uvicorn", "x"]
                .iter()
                .all(|name| manifest.has(name))
        );
        assert!(manifest.git && !manifest.whole);
        let missing = find(&[("requirements.txt", "-r nope.txt")])
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains("requirements.txt") && missing.contains("nope.txt"),
            "{missing}"
        );
    }

    #[test]
    fn what_is_local_needs_all_files() {
        for line in ["-e .", "./lib", "x @ file:///app/x", "--editable=."] {
            assert!(find(&[("requirements.txt", line)]).unwrap().whole, "{line}");
        }
        let local =
            find(&[(PYPROJECT, "[project]\ndependencies = ['x @ file:///app/x']")]).unwrap();
        assert_eq!(local.tool, Tool::Itself);
    }

    #[test]
    fn nonsense_is_named() {
        for (file, text) in [
            (PYPROJECT, "[project"),
            (
                PYPROJECT,
                "[project]\ndependencies = ['--index-url=http://evil']",
            ),
            (PIPFILE, "x"),
        ] {
            let error = find(&[(file, text)]).unwrap_err().to_string();
            assert!(error.starts_with(file), "{error}");
        }
    }
}
