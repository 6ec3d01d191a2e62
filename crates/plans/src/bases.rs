//! What a user's Dockerfile is built on. An engine also finds images by the beginning of their ids, and
//! those that were built for others: neither may be asked for, by the Dockerfile or by what an image does
//! when somebody builds on it (`ONBUILD`).
//!
//! An image is looked at before the build. So that nobody can put another one in its place meanwhile, the
//! Dockerfile that the engine gets names the images by the ids that they had then.

use crate::error::{Result, refused};
use crate::settings::BuildArg;
use estrade_model::built_image::{is_built, without_registry};
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;

/// Means an image without anything in it, which is nobody's.
const NOTHING: &str = "scratch";

/// The images that a user's Dockerfile builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bases {
    text: String,
    bases: Vec<Base>,
}

/// One `FROM` with the name of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Base {
    image: String,
    /// The instruction before and after the name.
    around: (String, String),
    /// Its lines in the Dockerfile.
    lines: Range<usize>,
}

impl Bases {
    /// The images' names, each once.
    pub fn names(&self) -> BTreeSet<&str> {
        self.bases.iter().map(|base| base.image.as_str()).collect()
    }

    /// The Dockerfile, with ids instead of names.
    pub fn pin(&self, ids: &HashMap<String, String>) -> String {
        let mut out: Vec<String> = self.text.lines().map(str::to_owned).collect();
        for base in &self.bases {
            let Some(id) = ids.get(&base.image) else {
                continue;
            };
            let (before, after) = &base.around;
            for (at, line) in base.lines.clone().zip(&mut out[base.lines.clone()]) {
                // Empty lines keep the numbers of those that follow.
                *line = if at == base.lines.start {
                    format!("{before}{id}{after}")
                } else {
                    String::new()
                };
            }
        }
        out.join("\n") + "\n"
    }
}

/// Refuses an image that takes files out of somebody else's when it is built on.
pub fn check_triggers(image: &str, triggers: &[String]) -> Result<()> {
    for trigger in triggers {
        let (_, rest) = split_word(trigger);
        for flag in flags(rest) {
            // The stages of the Dockerfile are not its business.
            check_flag(image, flag, &[])?;
        }
    }
    Ok(())
}

/// Finds out what a Dockerfile builds on; refuses one that could take files out of somebody else's image.
pub(crate) fn check(path: &str, text: &str, args: &[BuildArg]) -> Result<Bases> {
    let mut global: HashMap<String, String> = HashMap::new();
    let mut stages: Vec<String> = Vec::new();
    let mut bases = Vec::new();
    let mut before_first = true;
    for Instruction { text: line, lines } in instructions(path, text)? {
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
                    if !base.eq_ignore_ascii_case(NOTHING) {
                        bases.push(Base {
                            around: around(&line, named),
                            image: base,
                            lines,
                        });
                    }
                }
                let stage = words.nth(1).unwrap_or_default();
                stages.push(stage.to_owned());
            }
            "COPY" | "ADD" | "RUN" => {
                for flag in flags(rest) {
                    check_flag(path, flag, &stages)?;
                }
            }
            _ => {}
        }
    }
    let text = text.to_owned();
    Ok(Bases { text, bases })
}

/// What is before and after a word of an instruction that is not its first, and no option.
fn around(line: &str, named: &str) -> (String, String) {
    let (begun, rest) = line.split_at(line.len() - split_word(line).1.len());
    let options: usize = rest
        .split_inclusive(char::is_whitespace)
        .take_while(|word| word.trim().is_empty() || word.starts_with("--"))
        .map(str::len)
        .sum();
    let (options, rest) = rest.split_at(options);
    (
        format!("{begun}{options}"),
        rest.strip_prefix(named).unwrap_or_default().to_owned(),
    )
}

fn flags(rest: &str) -> impl Iterator<Item = &str> {
    rest.split_ascii_whitespace()
        .take_while(|word| word.starts_with("--"))
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
    let name = without_registry(base);
    let is_id = name.starts_with("sha256:")
        || (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_hexdigit()));
    if is_id || is_built(name) || name.is_empty() {
        return Err(refused(
            path,
            format!(
                "`{base}` is not the name of an image that may be used; write it with its tag, as in node:22-slim"
            ),
        ));
    }
    Ok(())
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

/// An instruction of a Dockerfile on one line, and where it was.
struct Instruction {
    text: String,
    lines: Range<usize>,
}

fn instructions(path: &str, text: &str) -> Result<Vec<Instruction>> {
    let mut all: Vec<Instruction> = Vec::new();
    let mut line = String::new();
    let mut first = 0;
    for (at, part) in text.lines().enumerate() {
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
        if line.is_empty() {
            first = at;
        }
        if let Some(begun) = part.strip_suffix('\\') {
            line.push_str(begun);
            continue;
        }
        line.push_str(part);
        all.push(Instruction {
            text: std::mem::take(&mut line),
            lines: first..at + 1,
        });
    }
    if !line.is_empty() {
        all.push(Instruction {
            text: line,
            lines: first..text.lines().count(),
        });
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
    fn images_are_pinned_where_they_are_named() {
        let text = "# syntax=x
ARG TAG=22
FROM --platform=linux/amd64  node:$TAG AS build
RUN a \\
  # FROM x
  b
from scratch
FROM \\
  nginx:1.27 \\
  as web
COPY --from=build /a /b
FROM build";
        let bases = check("Dockerfile", text, &[]).unwrap();
        let names: Vec<_> = bases.names().into_iter().collect();
        assert_eq!(names, ["nginx:1.27", "node:22"]);
        let ids = [("node:22", "sha256:aa"), ("nginx:1.27", "sha256:bb")];
        let ids = ids.map(|(name, id)| (name.to_owned(), id.to_owned()));
        assert_eq!(
            bases.pin(&ids.into()),
            "# syntax=x
ARG TAG=22
FROM --platform=linux/amd64  sha256:aa AS build
RUN a \\
  # FROM x
  b
from scratch
FROM   sha256:bb   as web


COPY --from=build /a /b
FROM build
"
        );
    }

    #[test]
    fn what_an_image_does_to_those_who_build_on_it_is_looked_at() {
        let check = |trigger: &str| check_triggers("evil:1", &[trigger.to_owned()]).is_ok();
        for fine in [
            "COPY . /app",
            "RUN make",
            "COPY --from=nginx:1 /a /b",
            "ENV A=--from=ea8a",
        ] {
            assert!(check(fine), "{fine}");
        }
        for bad in [
            "COPY --from=ea8a /a /b",
            "copy --chown=1 --from=sha256:ab /a /b",
            "COPY --from=0 /a /b",
            "ADD --from=$X /a /b",
            "RUN --mount=type=bind,from=ea8a,target=/x true",
        ] {
            assert!(!check(bad), "{bad}");
        }
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
