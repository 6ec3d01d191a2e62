//! Steps of a build as a person would write them, for build logs and messages: a plan's own scripts by what they do,
//! commands without the JSON that they are passed in.

use crate::context::{SPLIT_NODE_MODULES, SPLIT_VENDOR};
use crate::dockerfile::MAKE_USER;
use crate::node::TAKE;

/// `Step 3/9 : RUN ["a","b"]` as `Step 3/9 : RUN a b`; none for a line that is readable as it is, or no step.
///
/// It stays one line: JSON has control characters as text, and a step of its owner may have any of them.
pub fn readable_step(line: &str) -> Option<String> {
    Some(written_out(line)?.replace(char::is_control, " "))
}

fn written_out(line: &str) -> Option<String> {
    let (number, instruction) = line.split_once(" : ")?;
    let run = instruction.strip_prefix("RUN ")?.trim();
    if !number.starts_with("Step ") {
        return None;
    }
    if run == MAKE_USER {
        return Some(format!("{number} : make the user that the app runs as"));
    }
    if run == SPLIT_NODE_MODULES || run == SPLIT_VENDOR {
        return Some(format!(
            "{number} : set the files of the app apart from its dependencies"
        ));
    }
    let words: Vec<String> = serde_json::from_str(run).ok()?;
    match words.as_slice() {
        [_, _, script, _, folders @ ..] if script == TAKE => Some(format!(
            "{number} : take the site from {}",
            folders.join(", or ")
        )),
        [shell, flag, line, ..] if shell.ends_with("sh") && flag == "-c" => {
            let line = line.strip_prefix("exec ").unwrap_or(line);
            Some(format!("{number} : RUN {line}"))
        }
        words => Some(format!("{number} : RUN {}", words.join(" "))),
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
            (MAKE_USER.to_owned(), "make the user that the app runs as"),
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
        for same in [
            "Step 1/9 : FROM node:22-slim AS build",
            "Step 2/9 : RUN npm ci",
            "> vite build : RUN [\"a\"]",
            "---> 0123456789ab",
        ] {
            assert_eq!(readable_step(same), None, "{same}");
        }
    }
}
