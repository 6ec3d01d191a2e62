//! What a user's Dockerfile is built on. An engine also finds images by the beginning of their ids, and
//! those that were built for others: neither may be asked for, by the Dockerfile or by what an image does
//! when somebody builds on it (`ONBUILD`).
//!
//! An image is looked at before the build. So that nobody can put another one in its place meanwhile, the
//! Dockerfile that the engine gets names the images by the ids that they had then.

use crate::error::{Result, refused};
use crate::instructions::{Instruction, read_all, words};
use crate::settings::BuildArg;
use estrade_model::built_image::{is_built, without_registry};
use std::collections::{BTreeSet, HashMap};

/// Means an image without anything in it, which is nobody's.
const NOTHING: &str = "scratch";
/// What `COPY` and `ADD` can be told, besides where from.
const OPTIONS: [&str; 8] = [
    "chown",
    "chmod",
    "link",
    "parents",
    "exclude",
    "checksum",
    "keep-git-dir",
    "unpack",
];

/// A user's Dockerfile, and the images that it builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bases {
    lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Line {
    /// `FROM` with the name of an image, and what is before and after the name.
    From(String, String, String),
    Other(String),
}

impl Bases {
    /// The images' names, each once.
    pub fn names(&self) -> BTreeSet<&str> {
        let names = self.lines.iter().filter_map(|line| match line {
            Line::From(_, name, _) => Some(name.as_str()),
            Line::Other(_) => None,
        });
        names.collect()
    }

    /// The Dockerfile, with ids instead of names.
    pub fn pin(&self, ids: &HashMap<String, String>) -> String {
        let mut out = String::new();
        for line in &self.lines {
            match line {
                Line::From(before, name, after) => {
                    let id = ids.get(name).unwrap_or(name);
                    out.extend([before, id, after].map(String::as_str));
                }
                Line::Other(line) => out.push_str(line),
            }
            out.push('\n');
        }
        out
    }
}

/// Refuses an image that takes files out of somebody else's when it is built on.
pub fn check_triggers(image: &str, triggers: &[String]) -> Result<()> {
    triggers
        .iter()
        .try_for_each(|trigger| check_trigger(image, trigger))
}

fn check_trigger(path: &str, trigger: &str) -> Result<()> {
    let inner = Instruction::read(path, trigger)?;
    if matches!(inner.keyword, "FROM" | "ONBUILD") {
        let keyword = inner.keyword;
        return Err(refused(
            path,
            format!("ONBUILD cannot be followed by {keyword}"),
        ));
    }
    // Who is built on does not know the stages of the others.
    check_options(path, &inner, &[])
}

/// Finds out what a Dockerfile builds on; refuses one that could take files out of somebody else's image.
pub(crate) fn check(path: &str, text: &str, args: &[BuildArg]) -> Result<Bases> {
    let mut reader = Reader {
        path,
        args,
        global: HashMap::new(),
        stages: Vec::new(),
    };
    let lines = read_all(path, text)?;
    let lines: Result<Vec<_>> = lines.iter().map(|line| reader.read(line)).collect();
    Ok(Bases { lines: lines? })
}

struct Reader<'d> {
    path: &'d str,
    args: &'d [BuildArg],
    /// Arguments from before the first stage; none: not known here.
    global: HashMap<String, Option<String>>,
    /// Names of stages so far, the one that is being built last.
    stages: Vec<String>,
}

impl Reader<'_> {
    fn read(&mut self, line: &Instruction) -> Result<Line> {
        match line.keyword {
            "ARG" if self.stages.is_empty() => self.arguments(&line.rest)?,
            "FROM" => return self.from(&line.rest),
            "ONBUILD" => check_trigger(self.path, &line.rest)?,
            _ => {
                // A stage can be named once it is complete.
                let complete = self.stages.len().saturating_sub(1);
                check_options(self.path, line, &self.stages[..complete])?;
            }
        }
        Ok(Line::Other(line.to_string()))
    }

    fn arguments(&mut self, rest: &str) -> Result<()> {
        for word in words(rest) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name.is_empty() || !name.chars().all(is_plain) {
                return Err(refused(self.path, format!("ARG {word}: is not a name")));
            }
            let given = self.args.iter().rev().find(|given| given.name() == name);
            let value = match given {
                Some(given) => Some(given.value().to_owned()),
                None => self.value(word, value)?,
            };
            self.global.insert(name.to_owned(), value);
        }
        Ok(())
    }

    /// The value of an argument, which may be in quotes.
    fn value(&self, word: &str, value: &str) -> Result<Option<String>> {
        let inside = |quote: char| value.strip_prefix(quote)?.strip_suffix(quote);
        let (literal, value) = match (inside('\''), inside('"')) {
            (Some(value), _) => (true, value),
            (None, Some(value)) => (false, value),
            (None, None) => (false, value),
        };
        if value.contains(['\'', '"', '\\']) {
            return Err(refused(
                self.path,
                format!(
                    "ARG {word}: before the first FROM, write it without spaces and backslashes"
                ),
            ));
        }
        Ok(if literal {
            Some(value.to_owned())
        } else {
            self.expand(value)
        })
    }

    /// `FROM [--platform=…] name [AS stage]`
    fn from(&mut self, rest: &str) -> Result<Line> {
        let wrong = |why: &str| refused(self.path, format!("FROM {rest}: {why}"));
        let mut all: Vec<_> = words(rest).collect();
        let platform = match all.first().and_then(|word| word.strip_prefix("--")) {
            Some(option) => {
                let platform = option.strip_prefix("platform=");
                let platform =
                    platform.filter(|it| it.chars().all(|c| is_plain(c) || "/.-${}".contains(c)));
                platform.ok_or_else(|| wrong("only --platform can be set"))?;
                format!("{} ", all.remove(0))
            }
            None => String::new(),
        };
        let (named, stage) = match all[..] {
            [named] => (named, None),
            [named, word, stage] if word.eq_ignore_ascii_case("AS") => (named, Some(stage)),
            _ => return Err(wrong("write it as FROM image AS stage")),
        };
        let base = self
            .expand(named)
            .ok_or_else(|| wrong("its variables must be set by an ARG before the first FROM"))?;
        if !base.chars().all(is_of_names) {
            return Err(wrong("is not the name of an image"));
        }
        let after = match stage {
            Some(stage) => {
                let rest = stage.chars().all(|c| is_plain(c) || "-.".contains(c));
                if !rest || !stage.starts_with(|c: char| c.is_ascii_alphabetic()) {
                    return Err(wrong("is not the name of a stage"));
                }
                format!(" AS {stage}")
            }
            None => String::new(),
        };
        let before = format!("FROM {platform}");
        let is_stage = self.stages.iter().any(|it| it.eq_ignore_ascii_case(&base));
        self.stages.push(stage.unwrap_or_default().to_owned());
        if is_stage || base.eq_ignore_ascii_case(NOTHING) {
            return Ok(Line::Other(format!("{before}{base}{after}")));
        }
        require_named(self.path, &base)?;
        Ok(Line::From(before, base, after))
    }

    /// The value of a text with variables; none when one of them is not known.
    fn expand(&self, text: &str) -> Option<String> {
        let mut out = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            let (name, default, after) = if let Some(braced) = after.strip_prefix('{') {
                let (inside, after) = braced.split_once('}')?;
                let (name, default) = inside.split_once(":-").unzip();
                (name.unwrap_or(inside), default, after)
            } else {
                let end = after.find(|c| !is_plain(c)).unwrap_or(after.len());
                (&after[..end], None, &after[end..])
            };
            if name.is_empty() || !name.chars().all(is_plain) {
                return None;
            }
            let value = self.global.get(name).and_then(Option::as_deref);
            let value = value.filter(|value| !value.is_empty());
            out.push_str(value.or(default)?);
            rest = after;
        }
        out.push_str(rest);
        // A value could bring new ones.
        (!out.contains(['$', '\\', '{', '}'])).then_some(out)
    }
}

/// Looks at what an instruction is told before its arguments begin; `stages` are those that are complete.
fn check_options(path: &str, line: &Instruction, stages: &[String]) -> Result<()> {
    let keyword = line.keyword;
    if !matches!(keyword, "COPY" | "ADD" | "RUN") {
        return Ok(());
    }
    for word in words(&line.rest).take_while(|word| word.starts_with("--")) {
        let wrong = |why: &str| refused(path, format!("{keyword} {word}: {why}"));
        if word.contains(['\\', '"', '\'']) {
            return Err(wrong("write it without quotes and backslashes"));
        }
        let (name, value) = word[2..].split_once('=').unwrap_or((&word[2..], ""));
        match name {
            "from" => check_from(path, value, stages)?,
            "mount" if keyword == "RUN" => {
                let parts = value.split(',').filter_map(|part| part.split_once('='));
                for (_, from) in parts.filter(|(key, _)| key.eq_ignore_ascii_case("from")) {
                    check_from(path, from, stages)?;
                }
            }
            "network" | "security" if keyword == "RUN" => {}
            _ if keyword != "RUN" && OPTIONS.contains(&name) => {}
            _ => return Err(wrong("is not known")),
        }
    }
    Ok(())
}

fn check_from(path: &str, from: &str, stages: &[String]) -> Result<()> {
    let is_stage = stages.iter().any(|stage| stage.eq_ignore_ascii_case(from));
    let is_number = from
        .parse::<usize>()
        .is_ok_and(|number| number < stages.len());
    if is_stage && !from.is_empty() || is_number {
        return Ok(());
    }
    if !from.chars().all(is_of_names) {
        return Err(refused(
            path,
            format!("{from}: write the name of a stage or an image, without variables"),
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

fn is_plain(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What a name of an image is made of.
fn is_of_names(c: char) -> bool {
    is_plain(c) || "./:@-".contains(c)
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
            "ARG TAG=22
FROM --platform=linux/amd64 sha256:aa AS build
RUN a   b
FROM scratch
FROM sha256:bb AS web
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
            "COPY \\\n--from=ea8a / /b",
            "# x\nCOPY --from=ea8a / /b",
            "ONBUILD COPY --from=ea8a / /b",
            "FROM ea8a",
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
            "ARG V=\"22\"\nARG BASE=node:${V}\nFROM $BASE AS a\nFROM a AS b\nCOPY --from=a /x /y",
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
            // A stage is one when it is complete.
            "FROM a:1 AS ea8a\nCOPY --from=ea8a / /b".to_owned(),
            // Engines take quotes and backslashes out of options.
            "FROM a:1\nCOPY --fr\\om=ea8a / /b".to_owned(),
            "FROM a:1\nCOPY --\"from\"=ea8a / /b".to_owned(),
            "FROM a:1\nCOPY --from=ea\"\"8a / /b".to_owned(),
            "FROM a:1\nCOPY --chown=\"0 \" --from=ea8a / /b".to_owned(),
            "FROM a:1\nCOPY --chown=from=0\u{b}--from=ea8a / /b".to_owned(),
            // Lines, words and values that are cut in another place.
            "FROM a:1\nRUN true \\\u{c}\nFROM ea8a".to_owned(),
            "FROM a:1\nRUN true \\\\\nFROM ea8a".to_owned(),
            "FROM --platform=\"${N:+ node:22 as }linux/amd64\" ea8a".to_owned(),
            "FROM --platform=linux/amd64\u{b}x node:22 AS ea8a\nFROM ea8a".to_owned(),
            "ARG X=ea8a\nARG Z=\"a X=one b\"\nFROM a:1 AS one\nFROM $X".to_owned(),
            "FROM a:1\nONBUILD COPY <<E /x\nFROM a:1 AS ea8a\nE\nFROM ea8a".to_owned(),
            "FROM a:1 AS x y".to_owned(),
            "FROM a:1\nONBUILD ONBUILD COPY --from=ea8a / /b".to_owned(),
        ] {
            assert!(!ok(&text, &json!([])), "{text}");
        }
        assert!(!ok("ARG X=debian\nFROM $X", &json!(["X=ea8a"])));
        assert!(ok("ARG X=debian\nFROM $X", &json!(["X=node:22"])));
    }
}
