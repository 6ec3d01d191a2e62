//! Steps of a build as a person would write them, for build logs and messages: a plan's own scripts by what they do,
//! commands without the JSON that they are passed in.

use crate::context::{SPLIT_NODE_MODULES, SPLIT_VENDOR};
use crate::dockerfile::MAKE_USER;
use crate::dotnet::START;
use crate::go::CERTIFICATES;
use crate::node::TAKE;
use crate::php::{APACHE, PRODUCTION, TIME_ZONE};

/// What the log has where a value is masked.
const MASK: &str = "***";
/// Scripts of plans, and what they do.
const SCRIPTS: [(&str, &str); 6] = [
    (MAKE_USER, "make the user that the app runs as"),
    (SPLIT_NODE_MODULES, APART),
    (SPLIT_VENDOR, APART),
    (CERTIFICATES, "take the certificates of public authorities"),
    (APACHE, "configure Apache for the port and the folder"),
    (PRODUCTION, "use PHP's settings for production"),
];
const APART: &str = "set the files of the app apart from its dependencies";
/// The same of scripts with arguments, which follow it.
const SCRIPTS_WITH_ARGUMENTS: [(&str, &str); 3] = [
    (TAKE, "take the site from"),
    (TIME_ZONE, "set the time zone of PHP to"),
    (START, "dotnet"),
];

/// What a step does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It runs what somebody could type.
    Command(String),
    /// It runs a script of the plan. Says what for, to be read behind "to".
    Ours(String),
}

/// `Step 3/9 : RUN ["a","b"]` as `Step 3/9 : RUN a b`; none for a line that is readable as it is, or no step.
///
/// It stays one line: JSON has control characters as text, and a step of its owner may have any of them.
pub fn readable_step(line: &str) -> Option<String> {
    Some(written_out(line)?.replace(char::is_control, " "))
}

fn written_out(line: &str) -> Option<String> {
    let (number, instruction) = line.split_once(" : ")?;
    if !number.starts_with("Step ") {
        return None;
    }
    if let Some(words) = instruction.strip_prefix("CMD ") {
        let words: Vec<String> = serde_json::from_str(words).ok()?;
        return Some(format!("{number} : CMD {}", readable_words(&words)));
    }
    let run = instruction.strip_prefix("RUN ")?.trim();
    match read(run) {
        Action::Ours(what) => Some(format!("{number} : {what}")),
        Action::Command(command) if command == run => None,
        Action::Command(command) => Some(format!("{number} : RUN {command}")),
    }
}

/// What a step does, for messages.
pub(crate) fn action_of(step: &str) -> Action {
    let (_, instruction) = step.split_once(" : ").unwrap_or(("", step));
    read(
        instruction
            .strip_prefix("RUN ")
            .unwrap_or(instruction)
            .trim(),
    )
}

/// Whether this step takes a site from the folders in which it may be.
pub(crate) fn is_take(step: &str) -> bool {
    let (_, instruction) = step.split_once(" : ").unwrap_or(("", step));
    let words = instruction.strip_prefix("RUN ").unwrap_or_default();
    let words: Vec<String> = serde_json::from_str(words).unwrap_or_default();
    words.get(2).is_some_and(|script| is_same(script, TAKE))
}

/// Words as a person would type them.
pub(crate) fn readable_words<S: AsRef<str>>(words: &[S]) -> String {
    match words_of(words) {
        Action::Command(text) | Action::Ours(text) => text,
    }
}

fn read(run: &str) -> Action {
    let known = SCRIPTS.iter().find(|(script, _)| is_same(run, script));
    if let Some((_, what)) = known {
        return Action::Ours((*what).to_owned());
    }
    match serde_json::from_str::<Vec<String>>(run) {
        Ok(words) => words_of(&words),
        Err(_) => Action::Command(run.to_owned()),
    }
}

fn words_of<S: AsRef<str>>(words: &[S]) -> Action {
    let words: Vec<&str> = words.iter().map(AsRef::as_ref).collect();
    match words.as_slice() {
        [shell, "-c", script, rest @ ..] if shell.ends_with("sh") => {
            let known = SCRIPTS_WITH_ARGUMENTS
                .iter()
                .find(|(known, _)| is_same(script, known));
            // The first of the others is the name of the script.
            let arguments = rest.get(1..).unwrap_or_default();
            match known {
                Some((START, program)) => {
                    Action::Command(format!("{program} {}", arguments.join(" ")))
                }
                Some((_, what)) => Action::Ours(format!("{what} {}", arguments.join(", or "))),
                None => Action::Command(script.strip_prefix("exec ").unwrap_or(script).to_owned()),
            }
        }
        words => Action::Command(words.join(" ")),
    }
}

/// Whether this is a script of ours, in which the log may mask what happens to be a secret of the user.
fn is_same(text: &str, script: &str) -> bool {
    let mut parts = text.split(MASK);
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = script.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        last = Some(part);
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    match last {
        None => rest.is_empty(),
        // Nothing but masks is everything.
        Some(last) => script.ends_with(last) && text.len() * 2 > script.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn steps_are_shown_as_people_write_them() {
        let take = json!(["/bin/sh", "-c", TAKE, "sh", "dist", "my site"]);
        for (run, shown) in [
            (take.to_string(), "take the site from dist, or my site"),
            (
                take.to_string().replace("folder", MASK),
                "take the site from dist, or my site",
            ),
            (MAKE_USER.to_owned(), "make the user that the app runs as"),
            (
                MAKE_USER.replace("estrade", MASK),
                "make the user that the app runs as",
            ),
            (
                APACHE.to_owned(),
                "configure Apache for the port and the folder",
            ),
            (
                json!(["/bin/sh", "-c", TIME_ZONE, "sh", "Europe/Berlin"]).to_string(),
                "set the time zone of PHP to Europe/Berlin",
            ),
            (
                SPLIT_NODE_MODULES.to_owned(),
                "set the files of the app apart from its dependencies",
            ),
            (
                r#"["/bin/sh","-c","make all && ls"]"#.to_owned(),
                "RUN make all && ls",
            ),
            (
                r#"["vite","build","--outDir","web"]"#.to_owned(),
                "RUN vite build --outDir web",
            ),
            (
                r#"["/bin/sh","-c","a\nStep 4/9 : RUN b\u001b[2J\u0085"]"#.to_owned(),
                "RUN a Step 4/9 : RUN b [2J ",
            ),
        ] {
            let line = readable_step(&format!("Step 3/9 : RUN {run}"));
            assert_eq!(line.unwrap(), format!("Step 3/9 : {shown}"));
        }
        let start = json!(["/bin/sh", "-c", START, "sh", "Shop.dll"]);
        for (words, shown) in [
            (start.to_string(), "dotnet Shop.dll"),
            (r#"["node","server.js"]"#.to_owned(), "node server.js"),
            (
                r#"["/bin/sh","-c","exec gunicorn -b :$PORT"]"#.to_owned(),
                "gunicorn -b :$PORT",
            ),
        ] {
            let line = readable_step(&format!("Step 9/9 : CMD {words}"));
            assert_eq!(line.unwrap(), format!("Step 9/9 : CMD {shown}"));
        }
        for same in [
            "Step 1/9 : FROM node:22-slim AS build",
            "Step 2/9 : RUN npm ci",
            "Step 2/9 : RUN ***",
            "> vite build : RUN [\"a\"]",
            "---> 0123456789ab",
        ] {
            assert_eq!(readable_step(same), None, "{same}");
        }
    }
}
