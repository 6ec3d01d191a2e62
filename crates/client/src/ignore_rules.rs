//! Rules about files that a walk through the folder does not know: Docker's, and Git's of the folders around it.

use crate::error::{ClientError, Result};
use ignore::Match;
use ignore::gitignore::{Gitignore, GitignoreBuilder};
use std::path::{Path, PathBuf};

pub const DOCKER_IGNORE: &str = ".dockerignore";
const GIT_IGNORE: &str = ".gitignore";
/// Where people write rules for this client alone.
pub const OWN_IGNORE: &str = ".estradeignore";
/// Files of rules that the walk through a folder reads.
pub const RULE_FILES: [&str; 2] = [GIT_IGNORE, OWN_IGNORE];
/// Largest file of rules that is read.
const MAX_RULES_BYTES: u64 = 1 << 20;

/// Git's rules of the folders around one, up to the root of its repository.
#[derive(Debug, Clone)]
pub struct OuterRules {
    root: PathBuf,
    /// Of the nearest folder first.
    rules: Vec<Gitignore>,
}

impl OuterRules {
    /// Reads them. There are none outside of a repository, and none for a folder that they leave out as a whole: `dist`
    /// is in many a `.gitignore`, and is what one deploys.
    pub fn read(root: &Path) -> Result<Self> {
        let mut outer = Self {
            root: root.to_owned(),
            rules: Vec::new(),
        };
        let is_repository = |folder: &&Path| folder.join(".git").symlink_metadata().is_ok();
        let Some(repository) = root.ancestors().find(is_repository) else {
            return Ok(outer);
        };
        let around = |folder: &&Path| folder.starts_with(repository);
        for folder in root.ancestors().skip(1).take_while(around) {
            outer.rules.extend(read_git_rules(folder)?);
        }
        let is_left_out = |folder: &Path| outer.matched(folder, true).is_ignore();
        if root.ancestors().take_while(around).any(is_left_out) {
            outer.rules.clear();
        }
        Ok(outer)
    }

    /// Whether they leave something in the folder out that no rule inside of it takes in again.
    pub fn leave_out(&self, path: &Path, is_folder: bool) -> bool {
        self.matched(path, is_folder).is_ignore() && !self.is_taken_in(path, is_folder)
    }

    fn matched(&self, path: &Path, is_folder: bool) -> Match<()> {
        let of_inside = |rules: &&Gitignore| path != rules.path() && path.starts_with(rules.path());
        let mut matches = self.rules.iter().filter(of_inside);
        matches
            .find_map(|rules| match rules.matched(path, is_folder) {
                Match::None => None,
                found => Some(found.map(|_| ())),
            })
            .unwrap_or(Match::None)
    }

    /// Whether a `!` rule inside of the folder names it.
    fn is_taken_in(&self, path: &Path, is_folder: bool) -> bool {
        let inside = |folder: &&Path| folder.starts_with(&self.root);
        let folders = path.ancestors().skip(1).take_while(inside);
        folders
            .flat_map(|folder| [folder.join(OWN_IGNORE), folder.join(GIT_IGNORE)])
            .filter(|file| file.is_file())
            .any(|file| {
                Gitignore::new(file)
                    .0
                    .matched(path, is_folder)
                    .is_whitelist()
            })
    }
}

/// The rules of one folder. A line that cannot be understood is an error: without it, what it names would be sent.
fn read_git_rules(folder: &Path) -> Result<Option<Gitignore>> {
    let path = folder.join(GIT_IGNORE);
    if !is_rules_file(&path)? {
        return Ok(None);
    }
    check_rules(&path)?;
    Ok(Some(Gitignore::new(&path).0))
}

/// Refuses a file of rules that cannot be read to its end. [`Gitignore`] stops at a line that is not UTF-8 and reports
/// it as one fault among others; the walk reports none of the files below its root.
pub fn check_rules(path: &Path) -> Result<()> {
    if !is_rules_file(path)? {
        return Ok(());
    }
    if std::fs::read_to_string(path).is_err() {
        return Err(ClientError::Usage(format!(
            "{} is not UTF-8, so it is not known what to leave out, and nothing is sent",
            path.display()
        )));
    }
    Gitignore::new(path)
        .1
        .map_or(Ok(()), |error| Err(unreadable_rules(&error)))
}

/// The refusal of a folder with rules that cannot be understood.
pub fn unreadable_rules(error: &ignore::Error) -> ClientError {
    ClientError::Usage(format!(
        "rules about what is left out cannot be read, so nothing is sent: {error}"
    ))
}

/// Whether there is such a file. One that is no file, such as a link to a device, is refused: it may never end.
fn is_rules_file(path: &Path) -> Result<bool> {
    match std::fs::metadata(path) {
        Ok(found) if found.is_file() && found.len() <= MAX_RULES_BYTES => Ok(true),
        Ok(_) => Err(ClientError::Usage(format!(
            "{} is no file of at most {MAX_RULES_BYTES} bytes",
            path.display()
        ))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(ClientError::file(path)(error)),
    }
}

/// The rules of `.dockerignore`.
#[derive(Debug)]
pub struct DockerRules(Gitignore);

impl DockerRules {
    /// Reads them. Docker anchors patterns at the root, git does not: each becomes patterns of git's that mean the same.
    pub fn read(root: &Path) -> Result<Self> {
        let path = root.join(DOCKER_IGNORE);
        let text = if is_rules_file(&path)? {
            std::fs::read_to_string(&path).map_err(ClientError::file(&path))?
        } else {
            String::new()
        };
        let refused =
            |error: ignore::Error| ClientError::Usage(format!("{DOCKER_IGNORE}: {error}"));
        let mut rules = GitignoreBuilder::new(root);
        let lines = text.trim_start_matches('\u{feff}').lines();
        for line in lines.filter(|line| !line.starts_with('#')).map(str::trim) {
            let (except, pattern) = match line.strip_prefix('!') {
                Some(pattern) => ("!", pattern.trim_start()),
                None => ("", line),
            };
            let pattern = pattern.trim_start_matches("./").trim_matches('/');
            if pattern.is_empty() || pattern == "." {
                continue;
            }
            // With what is below it: the last rule wins, whether it names a file or a folder around it.
            for pattern in [
                format!("{except}/{pattern}"),
                format!("{except}/{pattern}/**"),
            ] {
                rules.add_line(None, &pattern).map_err(refused)?;
            }
        }
        rules.build().map(Self).map_err(refused)
    }

    /// Whether they leave a file out.
    pub fn leave_out(&self, relative: &Path) -> bool {
        self.0.matched(relative, false).is_ignore()
    }
}
