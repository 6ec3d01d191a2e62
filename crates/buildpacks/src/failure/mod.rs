//! Why a build failed: the cause in one sentence with what to do next, then where.

mod patterns;
mod quote;

use crate::build_plan::{NO_SITE, Outcome};
use crate::node::{FOLDERS_LINE, INDEX_LINE};
use crate::readable::{Action, action_of, is_take, readable_step};
use patterns::{COPIES, OUTPUTS, Pattern};
use quote::quoted;

/// The exit code of what the kernel killed, mostly for want of memory.
const EXIT_KILLED: i64 = 137;
/// The exit code of a shell that did not find a program.
const EXIT_NOT_FOUND: i64 = 127;
/// Most folders that a message lists.
const MAX_LISTED: usize = 8;
/// Prefixes of lines that are not the cause: the engine's, and the end of npm's output.
const IGNORED_PREFIXES: [&str; 6] = [
    "---> ",
    "Step ",
    "at ",
    "Node.js v",
    "npm error A complete log",
    "npm error /",
];
/// The engine's line at the end of a step. It goes on where a step wrote no end of its last line.
const END_OF_STEP: &str = "Removing intermediate container ";
/// What begins a command that installs dependencies.
const INSTALLS: [&str; 14] = [
    "npm ci",
    "npm install",
    "yarn install",
    "pnpm install",
    "bun install",
    "pip install",
    "pip3 install",
    "python -m pip install",
    "python3 -m pip install",
    "composer install",
    "go mod download",
    "dotnet restore",
    "/opt/tools/bin/",
    "UV_PROJECT_ENVIRONMENT",
];

/// A build that failed, as the engine tells of it.
pub struct FailedBuild<'f> {
    pub outcome: &'f Outcome,
    /// The step, such as `Step 3/5 : RUN make`; none: it failed before the first.
    pub step: Option<&'f str>,
    /// The exit code of its command, if it was one.
    pub code: Option<i64>,
    /// The engine's own words.
    pub message: &'f str,
    /// The last lines of what the step printed, as many as shall be looked at.
    pub output: Vec<&'f str>,
    /// Memory of a step, in MiB.
    pub memory: u64,
}

impl FailedBuild<'_> {
    /// The cause and what to do, and on the next line the step.
    pub fn explain(&self) -> String {
        let cause = self.cause();
        match self.step {
            Some(step) => {
                let readable = readable_step(step);
                format!("{cause}\n{}", quoted(readable.as_deref().unwrap_or(step)))
            }
            None => cause,
        }
    }

    fn cause(&self) -> String {
        let (Some(code), Some(step)) = (self.code, self.step) else {
            let known = COPIES.iter().find_map(|row| row.explain(&[self.message]));
            return known
                .unwrap_or_else(|| quoted(self.message.lines().next().unwrap_or_default()));
        };
        if let Outcome::Static { looked_in, .. } = self.outcome
            && code == NO_SITE
            && is_take(step)
        {
            return self.no_site(looked_in);
        }
        let action = action_of(step);
        if code == EXIT_KILLED {
            return self.out_of_memory(&action);
        }
        let known = OUTPUTS
            .iter()
            .find_map(|row: &Pattern| row.explain(&self.lines()));
        if let Some(known) = known {
            return known.replace("{memory}", &self.memory.to_string());
        }
        let error = self.error_line();
        let error = error.map(|line| format!(": {}", quoted(line)));
        let error = error.unwrap_or_default();
        let command = match &action {
            Action::Command(command) => quoted(command),
            Action::Ours(what) => {
                return format!(
                    "the step to {what} failed with exit code {code}{error}; a base image of one's own may lack what it needs: look at docker.images"
                );
            }
        };
        if code == EXIT_NOT_FOUND {
            return format!(
                "`{command}` needs a program that is not in the image{error}; add it to the dependencies, or to platformConfig.packages"
            );
        }
        if INSTALLS.iter().any(|begin| command.starts_with(begin)) {
            return format!(
                "the dependencies could not be installed: `{command}` failed with exit code {code}{error}; run the same command in an empty copy of the project, and deploy again when it succeeds"
            );
        }
        format!(
            "`{command}` failed with exit code {code}{error}; correct that, and deploy again when the same command succeeds on your machine"
        )
    }

    fn out_of_memory(&self, action: &Action) -> String {
        let what = match action {
            Action::Command(command) => format!("`{}`", quoted(command)),
            Action::Ours(what) => format!("the step to {what}"),
        };
        format!(
            "{what} was killed: it needs more than {} MiB of memory; make it need less, or raise docker.build_memory_mb",
            self.memory
        )
    }

    /// What was looked for, and what is there instead.
    fn no_site(&self, looked_in: &[String]) -> String {
        let after = |prefix: &'static str| {
            let lines = self
                .lines()
                .filter_map(move |line| line.strip_prefix(prefix));
            lines.map(str::trim).filter(|rest| !rest.is_empty())
        };
        let looked_in = looked_in.join(", ");
        // A site has pages in folders inside of it.
        let mut sites: Vec<&str> = Vec::new();
        for folder in after(INDEX_LINE) {
            let holds = |site: &&str| {
                folder
                    .strip_prefix(*site)
                    .is_some_and(|rest| rest.starts_with('/'))
            };
            if sites.len() < MAX_LISTED && !sites.iter().any(holds) {
                sites.push(folder);
            }
        }
        let found: Vec<_> = sites.into_iter().map(quoted).collect();
        if let [folder] = found.as_slice() {
            return format!(
                "the build wrote no index.html to {looked_in}, but there is one in {folder}; set platformConfig.outputDir to \"{folder}\" if that is the site"
            );
        }
        let (what, folders) = if found.is_empty() {
            let folders = after(FOLDERS_LINE).flat_map(str::split_whitespace);
            let folders = folders.map(|folder| folder.trim_end_matches('/'));
            let folders = folders.filter(|folder| !["*", "node_modules"].contains(folder));
            (
                "the folders here are",
                folders.take(MAX_LISTED).map(quoted).collect(),
            )
        } else {
            ("there is one in each of", found)
        };
        let folders = if folders.is_empty() {
            "there are no other folders".to_owned()
        } else {
            format!("{what} {}", folders.join(", "))
        };
        format!(
            "the build wrote no index.html to {looked_in}; {folders}; set platformConfig.outputDir to the folder that it writes"
        )
    }

    fn lines(&self) -> impl DoubleEndedIterator<Item = &str> + Clone {
        let lines = self.output.iter();
        lines.filter_map(|line| line.split(END_OF_STEP).next().map(str::trim))
    }

    /// The line that most likely names the cause: the first that begins as an error, else the first that mentions one,
    /// else the last.
    fn error_line(&self) -> Option<&str> {
        let lines = || {
            self.lines().filter(|line| {
                !line.is_empty() && !IGNORED_PREFIXES.iter().any(|noise| line.starts_with(noise))
            })
        };
        let begins = |line: &&str| {
            let first = line.split([':', ' ']).next().unwrap_or_default();
            let first = first.trim_matches(|c: char| !c.is_alphanumeric());
            let is_npm = first == "npm";
            !is_npm && (first.ends_with("Error") || first.eq_ignore_ascii_case("error"))
        };
        let speaks = |line: &&str| line.to_ascii_lowercase().contains("error");
        lines()
            .find(begins)
            .or_else(|| lines().find(speaks))
            .or_else(|| lines().next_back())
    }
}

#[cfg(test)]
mod tests;
