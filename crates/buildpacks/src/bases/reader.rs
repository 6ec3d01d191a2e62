//! Reading the instructions of a Dockerfile: its arguments, stages and the images that they begin with.

use super::lines::{Bases, Line};
use super::options::{Options, check_options, is_name_char, is_word_char, require_named};
use super::triggers::check_trigger;
use crate::error::{Result, refused};
use crate::instructions::{Instruction, read_all, words};
use crate::settings::BuildArg;
use std::collections::HashMap;

/// The empty image, which is nobody's.
const SCRATCH: &str = "scratch";

/// What a Dockerfile builds on.
pub(crate) struct Reading {
    pub(crate) bases: Bases,
    /// What is left out of it, for the log.
    pub(crate) notes: Vec<&'static str>,
}

pub(super) fn read_bases(
    path: &str,
    text: &str,
    args: &[BuildArg],
    trusted: bool,
) -> Result<Reading> {
    let mut reader = Reader {
        path,
        args,
        trusted,
        global: HashMap::new(),
        stages: Vec::new(),
        notes: Vec::new(),
    };
    let lines = read_all(path, text)?;
    let lines: Result<Vec<_>> = lines.iter().map(|line| reader.read(line)).collect();
    Ok(Reading {
        bases: Bases { lines: lines? },
        notes: reader.notes,
    })
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
    /// What is left out, each once.
    notes: Vec<&'static str>,
}

impl Reader<'_> {
    fn read(&mut self, line: &Instruction) -> Result<Line> {
        match line.keyword {
            "ARG" if self.stages.is_empty() => {
                self.arguments(&line.rest)?;
                Ok(Line::Other(line.to_string()))
            }
            "FROM" => self.from(&line.rest),
            // A later stage may begin with this one.
            "ONBUILD" => {
                let checked = check_trigger(self.path, &line.rest)?;
                Ok(self.written("ONBUILD ", checked))
            }
            _ => {
                // A stage can be named once it is complete.
                let complete = self.stages.len().saturating_sub(1);
                let stages = &self.stages[..complete];
                let checked = check_options(self.path, line, stages, self.trusted)?;
                Ok(self.written("", checked))
            }
        }
    }

    fn written(&mut self, before: &str, checked: Options) -> Line {
        for note in checked.notes {
            if !self.notes.contains(&note) {
                self.notes.push(note);
            }
        }
        match checked.image {
            Some(at) => Line::copied(before, &checked.line, at),
            None => Line::Other(format!("{before}{}", checked.line)),
        }
    }

    fn arguments(&mut self, rest: &str) -> Result<()> {
        for word in words(rest) {
            let (name, value) = word.split_once('=').unwrap_or((word, ""));
            if name.is_empty() || !name.chars().all(is_word_char) {
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
                let platform = platform
                    .filter(|it| it.chars().all(|c| is_word_char(c) || "/.-${}".contains(c)));
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
        if !base.chars().all(is_name_char) {
            return Err(wrong("is not the name of an image"));
        }
        let after = match stage {
            Some(stage) => {
                let rest = stage.chars().all(|c| is_word_char(c) || "-.".contains(c));
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
        if base.eq_ignore_ascii_case(SCRATCH) {
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
                let end = after.find(|c| !is_word_char(c)).unwrap_or(after.len());
                (&after[..end], None, &after[end..])
            };
            if name.is_empty() || !name.chars().all(is_word_char) {
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
