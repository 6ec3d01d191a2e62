//! What a user's Dockerfile is built on. An engine also finds images by the beginning of their ids, and
//! those that were built for others: neither may be asked for.

use crate::error::{Result, refused};
use crate::settings::BuildArg;
use std::collections::HashMap;

/// Refuses a Dockerfile that could take files out of somebody else's image.
pub(crate) fn check(path: &str, text: &str, args: &[BuildArg]) -> Result<()> {
    let mut global: HashMap<String, String> = HashMap::new();
    let mut stages: Vec<String> = Vec::new();
    let mut before_first = true;
    for line in instructions(path, text)? {
        let (word, rest) = split_word(&line);
        let (word, rest) = match word.to_ascii_uppercase().as_str() {
            // What it adds is carried out by whoever builds on it.
            "ONBUILD" => split_word(rest),
            _ => (word, rest),
        };
        match word.to_ascii_uppercase().as_str() {
            "ARG" if before_first => {
                for arg in rest.split_ascii_whitespace() {
                    let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
                    let given = args.iter().find(|given| given.name() == name);
                    let value = given.map_or(value, BuildArg::value);
                    let value = value.trim_matches(['"', '\'']);
                    global.insert(name.to_owned(), value.to_owned());
                }
            }
            "FROM" => {
                before_first = false;
                let mut words = rest
                    .split_ascii_whitespace()
                    .filter(|word| !word.starts_with("--"));
                let named = words.next().unwrap_or_default();
                let base = expand(named, &global)
                    .ok_or_else(|| refused(path, format!("FROM {named}: its variables must be set by an ARG before the first FROM")))?;
                if !stages.iter().any(|stage| stage.eq_ignore_ascii_case(&base)) {
                    require_named(path, &base)?;
                }
                let stage = words.nth(1).unwrap_or_default();
                stages.push(stage.to_owned());
            }
            "COPY" | "ADD" | "RUN" => {
                let flags = rest
                    .split_ascii_whitespace()
                    .take_while(|word| word.starts_with("--"));
                for flag in flags {
                    check_flag(path, flag, &stages)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn check_flag(path: &str, flag: &str, stages: &[String]) -> Result<()> {
    let from = match flag.split_once("from=") {
        Some((before, from)) if before.ends_with(['-', ',']) => from,
        _ => return Ok(()),
    };
    let from = from.split(',').next().unwrap_or_default();
    let from = from.trim_matches(['"', '\'']);
    let is_stage = stages.iter().any(|stage| stage.eq_ignore_ascii_case(from));
    let is_number = from
        .parse::<usize>()
        .is_ok_and(|number| number < stages.len());
    if is_stage || is_number {
        return Ok(());
    }
    if from.contains('$') {
        return Err(refused(
            path,
            format!("{flag}: write the name of a stage or an image, without variables"),
        ));
    }
    require_named(path, from)
}

/// Refuses what an engine would find by an image's id, or among those that were built here.
fn require_named(path: &str, base: &str) -> Result<()> {
    let name = ["docker.io/", "index.docker.io/"]
        .iter()
        .find_map(|registry| base.strip_prefix(registry))
        .unwrap_or(base);
    let is_id = name.starts_with("sha256:")
        || (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
    let is_built = name.starts_with("estrade-") && is_of_project(name);
    if is_id || is_built || name.is_empty() {
        return Err(refused(
            path,
            format!(
                "`{base}` is not the name of an image that may be used; write it with its tag, as in node:22-slim"
            ),
        ));
    }
    Ok(())
}

/// `estrade-<installation>/<project>`, or the layers of builds.
fn is_of_project(name: &str) -> bool {
    let rest = name.split_once('/').map_or("", |(_, rest)| rest);
    let rest = rest.split([':', '@']).next().unwrap_or_default();
    rest == "layers" || (rest.len() == 24 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The value of a text with variables; none when one of them is not known.
fn expand(text: &str, variables: &HashMap<String, String>) -> Option<String> {
    let text = text.trim_matches(['"', '\'']);
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('$') {
        out.push_str(before);
        let (name, default, after) = if let Some(braced) = after.strip_prefix('{') {
            let (inside, after) = braced.split_once('}')?;
            let (name, default) = inside.split_once(":-").unzip();
            (name.unwrap_or(inside), default, after)
        } else {
            let end = after
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(after.len());
            (&after[..end], None, &after[end..])
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if name.is_empty() || !name.chars().all(plain) {
            return None;
        }
        let value = variables.get(name).filter(|value| !value.is_empty());
        out.push_str(value.map(String::as_str).or(default)?);
        rest = after;
    }
    out.push_str(rest);
    // A value could bring new ones.
    (!out.contains(['$', '\\'])).then_some(out)
}

/// The instructions of a Dockerfile, each on one line.
fn instructions(path: &str, text: &str) -> Result<Vec<String>> {
    let mut all = Vec::new();
    let mut line = String::new();
    for part in text.lines() {
        if let Some(comment) = part.trim_start().strip_prefix('#') {
            // Another sign for "goes on" would make this reader see other lines than the engine does.
            if all.is_empty()
                && comment
                    .trim_start()
                    .to_ascii_lowercase()
                    .starts_with("escape")
            {
                return Err(refused(path, "the directive `escape` is not supported"));
            }
            continue;
        }
        // As the engine joins lines: nothing comes between them, and nothing is lost.
        let part = part.trim_end();
        if part.is_empty() {
            continue;
        }
        if let Some(begun) = part.strip_suffix('\\') {
            line.push_str(begun);
            continue;
        }
        line.push_str(part);
        all.push(std::mem::take(&mut line));
    }
    if !line.is_empty() {
        all.push(line);
    }
    Ok(all)
}

fn split_word(line: &str) -> (&str, &str) {
    let line = line.trim_start();
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;
    use serde_json::json;

    fn ok(text: &str, args: &serde_json::Value) -> bool {
        let sent = json!({ "build": { "args": args } });
        let settings = Settings::from_release(None, sent.as_object().unwrap()).unwrap();
        check("Dockerfile", text, settings.build_args()).is_ok()
    }

    #[test]
    fn names_are_fine_however_they_are_written() {
        for text in [
            "FROM node:22-slim\nCOPY . .\n",
            "FROM scratch",
            "# syntax=x\nFROM --platform=linux/amd64 golang:1.25 AS build\nFROM debian\nCOPY --from=build /a /b\nCOPY --from=0 /a /b",
            "ARG TAG=22\nARG BASE=node\nFROM ${BASE}:$TAG\n",
            "ARG BASE\nFROM ${BASE:-debian:12}",
            "FROM registry.example:5000/team/app:1 \\\n  AS one\nFROM one\n",
            "FROM estrade-test/base:2",
            "FROM a:1\nCOPY --chown=1:1 --from=nginx:1.27 /etc /etc\nRUN echo --from=abcd",
        ] {
            assert!(ok(text, &json!([])), "{text}");
        }
    }

    #[test]
    fn nobody_builds_on_what_is_somebody_elses() {
        let built = "estrade-0123456789ab/0123456789abcdef01234567:0123456789abcdef01234567";
        for text in [
            "FROM ea8a".to_owned(),
            "from EA8A as x".to_owned(),
            format!("FROM sha256:{}", "a".repeat(64)),
            format!("FROM {built}"),
            format!("FROM docker.io/{built}"),
            format!("FROM a:1\nCOPY --from={built} /a /b"),
            "FROM estrade-0123/layers:1-0".to_owned(),
            "FROM a:1\nCOPY --from=ea8a /a /b".to_owned(),
            "FROM a:1\nCOPY \\\n# comment\n\n --chown=1 --from=ea8a /a /b".to_owned(),
            "FROM a:1\nONBUILD COPY --from=ea8a /a /b".to_owned(),
            "FROM a:1\nRUN --mount=type=bind,from=ea8a,target=/x true".to_owned(),
            "FROM a:1\nARG X=ea8a\nCOPY --from=$X /a /b".to_owned(),
            "ARG X=ea8a\nFROM $X".to_owned(),
            "ARG X\nARG Y=a8a\nFROM e${Y}".to_owned(),
            "FROM $NEVER".to_owned(),
            "ARG X='$Y'\nFROM $X".to_owned(),
            "FROM \"ea8a\"".to_owned(),
            "# escape=`\nFROM a:1".to_owned(),
            "FROM a:1\nCOPY --from=7 /a /b".to_owned(),
            "FROM estrade-01/0123456789ab\\\ncdef01234567:1".to_owned(),
            "FR\\\nOM ea8a".to_owned(),
            "FROM a:1\nCOPY --fr\\ \nom=ea8a /a /b".to_owned(),
        ] {
            assert!(!ok(&text, &json!([])), "{text}");
        }
        assert!(!ok("ARG X=debian\nFROM $X", &json!(["X=ea8a"])));
        assert!(ok("ARG X=debian\nFROM $X", &json!(["X=node:22"])));
    }
}
