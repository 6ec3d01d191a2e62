//! Why a build failed: the cause in one sentence, then where.

use crate::Error;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use estrade_buildpacks::{NO_SITE, Outcome, PlanError, readable_step};
use std::collections::VecDeque;

/// Lines of the step that failed that are looked at.
const MAX_LINES: usize = 200;
/// How much of a command or a line is shown, in characters.
const MAX_SHOWN_CHARS: usize = 200;
/// The exit code of what the kernel killed, mostly for want of memory.
const EXIT_KILLED: i64 = 137;
/// The exit code of a shell that did not find a program.
const EXIT_NOT_FOUND: i64 = 127;
/// Prefixes of lines that are not the cause: the engine's, and the end of npm's output.
const IGNORED_PREFIXES: [&str; 6] = [
    "---> ",
    "Step ",
    "at ",
    "Node.js v",
    "npm error A complete log",
    "npm error /",
];

/// Why there is no plan for these sources.
pub(super) fn refused(error: PlanError) -> StepError {
    match error {
        PlanError::Refused { .. } => StepError::Failed(Failure {
            reason: "build_refused",
            message: error.to_string(),
        }),
        PlanError::Unreadable { .. } => StepError::Broken(Error::internal(error)),
    }
}

/// The engine's line at the end of a step.
const END_OF_STEP: &str = "Removing intermediate container ";

/// The output of the present step.
#[derive(Debug, Default)]
pub(super) struct StepOutput(VecDeque<String>);

impl StepOutput {
    pub(super) fn add(&mut self, line: &str) {
        if line.starts_with("Step ") && line.contains(" : ") {
            self.0.clear();
        }
        if self.0.len() == MAX_LINES {
            self.0.pop_front();
        }
        self.0.push_back(line.to_owned());
    }

    /// The line that most likely names the cause: the first that begins as an error, else the first that mentions one,
    /// else the last.
    fn error_line(&self) -> Option<&str> {
        let lines = || {
            // The engine goes on where a step wrote no end of its last line.
            let lines = self.0.iter();
            let lines = lines.filter_map(|line| line.split(END_OF_STEP).next().map(str::trim));
            lines.filter(|line| {
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

/// A build that failed.
pub(super) struct FailedStep<'f> {
    pub(super) outcome: &'f Outcome,
    pub(super) step: Option<&'f str>,
    pub(super) code: Option<i64>,
    pub(super) message: &'f str,
    pub(super) tail: &'f StepOutput,
    /// Memory of a step, in bytes.
    pub(super) memory: u64,
}

impl FailedStep<'_> {
    /// The cause, and on the next line the step.
    pub(super) fn explain(&self) -> String {
        let cause = self.cause();
        match self.step {
            Some(step) => {
                let readable = readable_step(step);
                format!("{cause}\n{}", shown(readable.as_deref().unwrap_or(step)))
            }
            None => cause,
        }
    }

    fn cause(&self) -> String {
        if let (Outcome::Static { looked_in, .. }, Some(NO_SITE)) = (self.outcome, self.code)
            && self.step.is_some_and(|step| step.contains("index.html"))
        {
            return format!(
                "the build wrote no index.html to {}; set platformConfig.outputDir to the folder that it writes",
                looked_in.join(", ")
            );
        }
        let (Some(code), Some(step)) = (self.code, self.step) else {
            return self.message.lines().next().unwrap_or_default().to_owned();
        };
        let command = command(step);
        let error_line = self.tail.error_line();
        let error_line = error_line.map(|line| format!(": {}", shown(line)));
        let error_line = error_line.unwrap_or_default();
        match code {
            EXIT_KILLED => format!(
                "`{command}` was killed; a step of a build may use {} MB of memory",
                self.memory >> 20
            ),
            EXIT_NOT_FOUND => {
                format!("`{command}` needs a program that is not in the image{error_line}")
            }
            _ => format!("`{command}` failed with exit code {code}{error_line}"),
        }
    }
}

/// What a step runs, as a person would write it.
fn command(step: &str) -> String {
    let (_, instruction) = step.split_once(" : ").unwrap_or(("", step));
    let run = instruction.strip_prefix("RUN ").unwrap_or(instruction);
    let words: Option<Vec<String>> = serde_json::from_str(run).ok();
    match words.as_deref() {
        Some([shell, flag, script, ..]) if shell.ends_with("sh") && flag == "-c" => shown(script),
        Some(words) => shown(&words.join(" ")),
        None => shown(run),
    }
}

/// The beginning of a text, on one line: what was JSON may have any character.
fn shown(text: &str) -> String {
    let visible = |c: char| if c.is_control() { ' ' } else { c };
    let mut short: String = text.chars().take(MAX_SHOWN_CHARS).map(visible).collect();
    if text.chars().nth(MAX_SHOWN_CHARS).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    fn explain(outcome: &Outcome, step: &str, code: Option<i64>, lines: &[&str]) -> String {
        let mut tail = StepOutput::default();
        tail.add("Step 1/9 : RUN before");
        tail.add("Error: of another step");
        tail.add(step);
        for line in lines {
            tail.add(line);
        }
        let failed = FailedStep {
            outcome,
            step: Some(step),
            code,
            message: "COPY failed: no source files were specified\nmore",
            tail: &tail,
            memory: 2048 << 20,
        };
        failed.explain()
    }

    #[test]
    fn the_cause_comes_first() {
        let site = Outcome::Static {
            folder: "/site",
            spa: true,
            looked_in: vec!["dist".into(), "_site".into()],
        };
        let runs = Outcome::Runs {
            command: None,
            port: 1,
        };
        let take =
            "Step 8/11 : RUN [\"/bin/sh\",\"-c\",\"for folder … index.html\",\"sh\",\"dist\"]";
        for (outcome, step, code, lines, cause) in [
            (
                &site,
                take,
                Some(NO_SITE),
                &["there is no index.html in: dist"][..],
                "the build wrote no index.html to dist, _site; set platformConfig.outputDir to the folder that it writes",
            ),
            (
                &runs,
                "Step 5/9 : RUN npm run build",
                Some(1),
                &[
                    " ---> Running in 0123456789ab",
                    "> build",
                    "throw new Error('x')",
                    "Error: a typo in line 7",
                    "    at Object.<anonymous>",
                    "npm error code 1",
                ],
                "`npm run build` failed with exit code 1: Error: a typo in line 7",
            ),
            (
                &runs,
                "Step 5/9 : RUN [\"/bin/sh\",\"-c\",\"make all\"]",
                Some(2),
                &[
                    "make: *** No rule to make target 'all'.Removing intermediate container 0123456789ab",
                ],
                "`make all` failed with exit code 2: make: *** No rule to make target 'all'.",
            ),
            (
                &runs,
                "Step 5/9 : RUN [\"/bin/sh\",\"-c\",\"a\\n\\u001b[2Jb\"]",
                Some(2),
                &[],
                "`a  [2Jb` failed with exit code 2",
            ),
            (
                &runs,
                "Step 5/9 : RUN [\"a\",\"b c\"]",
                Some(137),
                &[],
                "`a b c` was killed; a step of a build may use 2048 MB of memory",
            ),
            (
                &runs,
                "Step 5/9 : RUN vite build",
                Some(127),
                &["/bin/sh: 1: vite: not found"],
                "`vite build` needs a program that is not in the image: /bin/sh: 1: vite: not found",
            ),
            (
                &runs,
                "Step 2/3 : COPY missing /x",
                None,
                &[],
                "COPY failed: no source files were specified",
            ),
        ] {
            let explained = explain(outcome, step, code, lines);
            let readable = readable_step(step).unwrap_or_else(|| step.to_owned());
            assert_eq!(explained, format!("{cause}\n{readable}"));
        }
    }
}
