//! What a user's Dockerfile is built on. An engine also finds images by the beginning of their ids, and
//! those that were built for others: neither may be asked for, by the Dockerfile or by what an image does
//! when somebody builds on it (`ONBUILD`).
//!
//! An image is looked at before the build. So that nobody can put another one in its place meanwhile, the
//! Dockerfile that the engine gets names the images by the ids that they had then.
//!
//! The engine also downloads what `ADD` names by a URL, from the network of its machine, where services listen that
//! are nobody else's business. So `ADD` takes files of the sources only.

use crate::error::{Result, refused};
use crate::instructions::{Instruction, read_all, words};
use crate::settings::BuildArg;
use estrade_model::built_image::{is_built, without_registry};
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

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
    /// `FROM` or `COPY --from` with the name of an image, and what is before and after the name.
    Image {
        before: String,
        name: String,
        after: String,
        begins_stage: bool,
    },
    /// `FROM scratch`
    Scratch(String),
    Other(String),
}

impl Line {
    /// An instruction that copies from the image whose name is there.
    fn copied(before: &str, line: &Instruction, at: Range<usize>) -> Self {
        Self::Image {
            before: format!("{before}{} {}", line.keyword, &line.rest[..at.start]),
            after: line.rest[at.end..].to_owned(),
            name: line.rest[at].to_owned(),
            begins_stage: false,
        }
    }
}

/// An image that a Dockerfile names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Base<'b> {
    /// Its name, as it is written.
    pub name: &'b str,
    /// Whether a stage begins with it, which carries out its triggers; else files are copied from it.
    pub begins_stage: bool,
}

impl Bases {
    /// The images, each once.
    pub fn images(&self) -> Vec<Base<'_>> {
        let mut images: BTreeMap<&str, bool> = BTreeMap::new();
        for line in &self.lines {
            if let Line::Image {
                name, begins_stage, ..
            } = line
            {
                *images.entry(name).or_default() |= begins_stage;
            }
        }
        let base = |(name, begins_stage)| Base { name, begins_stage };
        images.into_iter().map(base).collect()
    }

    /// The Dockerfile, with ids instead of names, and with a label at the beginning of each stage. All layers of a
    /// stage stand on the label's, so an engine uses them as cache only for builds with the same label.
    pub fn pin(&self, ids: &HashMap<String, String>, label: &str) -> String {
        let mut out = String::new();
        for line in &self.lines {
            let begins_stage = match line {
                Line::Image {
                    before,
                    name,
                    after,
                    begins_stage,
                } => {
                    let id = ids.get(name).unwrap_or(name);
                    out.extend([before, id, after].map(String::as_str));
                    *begins_stage
                }
                Line::Scratch(line) => {
                    out.push_str(line);
                    true
                }
                Line::Other(line) => {
                    out.push_str(line);
                    false
                }
            };
            out.push('\n');
            if begins_stage {
                out.extend(["LABEL ", label, "\n"]);
            }
        }
        out
    }
}

/// Refuses an image that takes files out of somebody else's, or from the network of the engine's machine, when it is
/// built on. Returns the names of images that it copies from.
pub fn check_triggers(image: &str, triggers: &[String]) -> Result<Vec<String>> {
    let mut images = Vec::new();
    for trigger in triggers {
        let (inner, from) = check_trigger(image, trigger)?;
        images.extend(from.map(|at| inner.rest[at].to_owned()));
    }
    Ok(images)
}

/// An instruction for those who build on an image, and where the name of an image is that it copies from.
fn check_trigger(path: &str, trigger: &str) -> Result<(Instruction, Option<Range<usize>>)> {
    let inner = Instruction::read(path, trigger)?;
    if matches!(inner.keyword, "FROM" | "ONBUILD") {
        let keyword = inner.keyword;
        return Err(refused(
            path,
            format!("ONBUILD cannot be followed by {keyword}"),
        ));
    }
    // Who is built on does not know the stages of the others.
    let from = check_options(path, &inner, &[], false)?;
    Ok((inner, from))
}

/// Finds out what a user's Dockerfile builds on; refuses one that could take files out of somebody else's image, or
/// from the network of the engine's machine.
pub(crate) fn check(path: &str, text: &str, args: &[BuildArg]) -> Result<Bases> {
    read_bases(path, text, args, false)
}

/// The same for one that was made here, on images that the operator may have named in any way.
pub(crate) fn check_own(path: &str, text: &str) -> Result<Bases> {
    read_bases(path, text, &[], true)
}

fn read_bases(path: &str, text: &str, args: &[BuildArg], trusted: bool) -> Result<Bases> {
    let mut reader = Reader {
        path,
        args,
        trusted,
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
    /// Whether the names of images are the operator's.
    trusted: bool,
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
            "ONBUILD" => {
                // A later stage may begin with this one.
                let (inner, from) = check_trigger(self.path, &line.rest)?;
                if let Some(at) = from {
                    return Ok(Line::copied("ONBUILD ", &inner, at));
                }
            }
            _ => {
                // A stage can be named once it is complete.
                let complete = self.stages.len().saturating_sub(1);
                let stages = &self.stages[..complete];
                if let Some(at) = check_options(self.path, line, stages, self.trusted)? {
                    return Ok(Line::copied("", line, at));
                }
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
        if is_stage {
            return Ok(Line::Other(format!("{before}{base}{after}")));
        }
        if base.eq_ignore_ascii_case(NOTHING) {
            return Ok(Line::Scratch(format!("{before}{base}{after}")));
        }
        if !self.trusted {
            require_named(self.path, &base)?;
        }
        Ok(Line::Image {
            before,
            name: base,
            after,
            begins_stage: true,
        })
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

/// Looks at what an instruction is told before its arguments begin, and at what `ADD` adds; `stages` are those that are
/// complete. Returns where the name of an image is that files are copied from.
fn check_options(
    path: &str,
    line: &Instruction,
    stages: &[String],
    trusted: bool,
) -> Result<Option<Range<usize>>> {
    let keyword = line.keyword;
    if !matches!(keyword, "COPY" | "ADD" | "RUN") {
        return Ok(None);
    }
    let mut image = None;
    let mut named = false;
    let mut at = 0;
    for word in words(&line.rest).take_while(|word| word.starts_with("--")) {
        let wrong = |why: &str| refused(path, format!("{keyword} {word}: {why}"));
        at += line.rest[at..].find(word).unwrap_or(0) + word.len();
        // Engines read options byte by byte: 0x85 and 0xA0 in the encoding of another letter end one there.
        if !word.bytes().all(|byte| byte.is_ascii_graphic()) || word.contains(['\\', '"', '\'']) {
            return Err(wrong("write it in ASCII, without quotes and backslashes"));
        }
        let (name, value) = word[2..].split_once('=').unwrap_or((&word[2..], ""));
        match name {
            "from" if std::mem::replace(&mut named, true) => {
                return Err(wrong("is there twice"));
            }
            "from" => {
                if is_image(path, value, stages, trusted)? {
                    image = Some(at - value.len()..at);
                }
            }
            "mount" if keyword == "RUN" => {
                let parts = value.split(',').filter_map(|part| part.split_once('='));
                for (_, from) in parts.filter(|(key, _)| key.eq_ignore_ascii_case("from")) {
                    is_image(path, from, stages, trusted)?;
                }
            }
            "network" | "security" if keyword == "RUN" => {}
            _ if keyword != "RUN" && OPTIONS.contains(&name) => {}
            _ => return Err(wrong("is not known")),
        }
    }
    if keyword == "ADD" {
        check_added(path, &line.rest[at..])?;
    }
    Ok(image)
}

/// Whether files are copied from an image, not from a stage.
fn is_image(path: &str, from: &str, stages: &[String], trusted: bool) -> Result<bool> {
    let is_stage = stages.iter().any(|stage| stage.eq_ignore_ascii_case(from));
    let is_number = from
        .parse::<usize>()
        .is_ok_and(|number| number < stages.len());
    if is_stage && !from.is_empty() || is_number {
        return Ok(false);
    }
    if !from.chars().all(is_of_names) {
        return Err(refused(
            path,
            format!("{from}: write the name of a stage or an image, without variables"),
        ));
    }
    if !trusted {
        require_named(path, from)?;
    }
    Ok(true)
}

/// Refuses what `ADD` would download.
fn check_added(path: &str, rest: &str) -> Result<()> {
    let rest = rest.trim_matches([' ', '\t']);
    let list: Vec<Cow<'_, str>> = if rest.starts_with('[') {
        // An engine takes the first value and leaves out the rest, or takes all of it for words.
        serde_json::from_str(rest).map_err(|_| {
            refused(
                path,
                format!("ADD {rest}: write the files as words, or as one JSON array of texts"),
            )
        })?
    } else {
        words(rest).map(Cow::Borrowed).collect()
    };
    let sources = list.split_last().map_or(&[][..], |(_, sources)| sources);
    for source in sources {
        let wrong = |why: &str| Err(refused(path, format!("ADD {source}: {why}")));
        if source.contains(['$', '\\', '"', '\'']) {
            return wrong(
                "write the file without variables, quotes and backslashes, or use COPY for it",
            );
        }
        if is_remote(source) {
            return wrong(
                "only files of the sources can be added; download it in a RUN step, for example with curl",
            );
        }
    }
    Ok(())
}

/// Whether any engine takes this for something to be downloaded: a URL, or a Git repository in one of its spellings.
fn is_remote(source: &str) -> bool {
    let source = source.trim().to_ascii_lowercase();
    let has_user = source
        .split_once('@')
        .is_some_and(|(user, host)| !user.contains('/') && host.contains(':'));
    let repository = source.split(['#', '?']).next().unwrap_or_default();
    let repository = repository.trim_end_matches('/');
    source.contains("://")
        || has_user
        || source.starts_with("git@")
        || source.starts_with("github.com/")
        || repository
            .rsplit_once('.')
            .is_some_and(|(_, ending)| ending == "git")
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
COPY --chown=1:1 --from=tools:1  /a tools:1
ONBUILD COPY --from=tools:1 /c /d
FROM build";
        let bases = check("Dockerfile", text, &[]).unwrap();
        let base = |name, begins_stage| Base { name, begins_stage };
        assert_eq!(
            bases.images(),
            [
                base("nginx:1.27", true),
                base("node:22", true),
                base("tools:1", false)
            ]
        );
        let ids = [
            ("node:22", "sha256:aa"),
            ("nginx:1.27", "sha256:bb"),
            ("tools:1", "sha256:cc"),
        ];
        let ids = ids.map(|(name, id)| (name.to_owned(), id.to_owned()));
        // The label is the first of every stage, so that no layer is shared with builds of another one.
        assert_eq!(
            bases.pin(&ids.into(), "of=me"),
            "ARG TAG=22
FROM --platform=linux/amd64 sha256:aa AS build
LABEL of=me
RUN a   b
FROM scratch
LABEL of=me
FROM sha256:bb AS web
LABEL of=me
COPY --from=build /a /b
COPY --chown=1:1 --from=sha256:cc  /a tools:1
ONBUILD COPY --from=sha256:cc /c /d
FROM build
"
        );
    }

    #[test]
    fn nothing_is_added_from_the_network_of_the_engine() {
        for bad in [
            "http://127.0.0.1/x",
            "https://a.example/x.tar",
            "HTTP://127.0.0.1/x",
            "ftp://a.example/x",
            "--chown=1:1 http://127.0.0.1/x",
            "--checksum=sha256:ab --chmod=644\thttp://127.0.0.1/x",
            "a.txt http://127.0.0.1/x",
            "git@github.com:a/b.git",
            "me@host:a/b",
            "git://a.example/b",
            "ssh://git@a.example/b",
            "github.com/a/b",
            "a.example/b.git",
            "a.example/b.git#main:docs",
            "$URL",
            "${URL}",
            "ht${NOTHING}tp://127.0.0.1/x",
            "h\\ttp://127.0.0.1/x",
            "\"http://127.0.0.1/x\"",
            "ht\"\"tp://127.0.0.1/x",
            "'http'://127.0.0.1/x",
            "--chown=àhttp://127.0.0.1/x",
            "--chown=\u{c5}http://127.0.0.1/x",
            "--chown=\u{85}http://127.0.0.1/x",
            "--chown=\u{a0}http://127.0.0.1/x",
        ] {
            for text in [
                format!("ADD {bad} /x"),
                format!("add {bad} /x"),
                format!("ADD \\\n# why\n  {bad} \\\n /x"),
                format!("ADD {bad} a.txt /x"),
                format!("ONBUILD ADD {bad} /x"),
                format!("onbuild add {bad} /x"),
            ] {
                let text = format!("FROM a:1\nARG URL=http://127.0.0.1/x\n{text}\n");
                assert!(!ok(&text, &json!([])), "{text}");
            }
            let trigger = format!("ADD {bad} /x");
            assert!(check_triggers("evil:1", &[trigger]).is_err(), "{bad}");
        }
        for bad in [
            r#"["http://127.0.0.1/x", "/x"]"#,
            r#"["\u0068ttp://127.0.0.1/x", "/x"]"#,
            r#"["$URL", "/x"]"#,
            r#"["http://127.0.0.1/x", "/x"] more"#,
            r#"["a", 1]"#,
            r#"--chown=1:1 [ "a", "https://a.example", "/x" ]"#,
        ] {
            let text = format!("FROM a:1\nADD {bad}");
            assert!(!ok(&text, &json!([])), "{text}");
        }
        for fine in [
            ". /app",
            "--chown=1:1 a.tar.gz b.txt $HOME/",
            r#"["a b.txt", "http", "/x y/"]"#,
            "src/@scope/a /x",
            "*.json ./",
        ] {
            let text = format!("FROM a:1\nADD {fine}\nRUN curl http://a.example/x\nCOPY $A /b");
            assert!(ok(&text, &json!([])), "{text}");
        }
    }

    #[test]
    fn what_an_image_does_to_those_who_build_on_it_is_looked_at() {
        let check = |trigger: &str| check_triggers("evil:1", &[trigger.to_owned()]).is_ok();
        let copies = ["RUN make", "COPY --chown=1 --from=nginx:1 /a /b"].map(str::to_owned);
        assert_eq!(check_triggers("fine:1", &copies).unwrap(), ["nginx:1"]);
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
            "FROM a:1\nCOPY --from=b:1 --from=c:1 / /b".to_owned(),
        ] {
            assert!(!ok(&text, &json!([])), "{text}");
        }
        assert!(!ok("ARG X=debian\nFROM $X", &json!(["X=ea8a"])));
        assert!(ok("ARG X=debian\nFROM $X", &json!(["X=node:22"])));
    }
}
