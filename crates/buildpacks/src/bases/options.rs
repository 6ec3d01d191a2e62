//! Options and sources of `COPY`, `ADD` and `RUN`: where files may come from.

use super::buildkit::{Meaning, meaning};
use crate::error::{Result, refused};
use crate::instructions::{Instruction, words};
use estrade_model::built_image::{is_built, without_registry};
use std::borrow::Cow;
use std::ops::Range;

/// What an instruction is told before its arguments begin.
#[derive(Debug)]
pub(super) struct Options {
    /// The instruction without the options that are left out.
    pub(super) line: Instruction,
    /// Where the name of an image is in it that files are copied from.
    pub(super) image: Option<Range<usize>>,
    /// What the log says of those that are left out.
    pub(super) notes: Vec<&'static str>,
}

/// Looks at what an instruction is told before its arguments begin, and at what `ADD` adds; `stages` are those that are
/// complete.
pub(super) fn check_options(
    path: &str,
    line: &Instruction,
    stages: &[String],
    trusted: bool,
) -> Result<Options> {
    let (line, notes) = leave_out(path, line)?;
    let mut image = None;
    let mut named = false;
    let mut at = 0;
    for word in options(&line) {
        at += line.rest[at..].find(word).unwrap_or(0) + word.len();
        let Some(from) = word.strip_prefix("--from") else {
            continue;
        };
        if std::mem::replace(&mut named, true) {
            let keyword = line.keyword;
            return Err(refused(path, format!("{keyword} {word}: is there twice")));
        }
        let from = from.strip_prefix('=').unwrap_or(from);
        if is_image(path, from, stages, trusted)? {
            image = Some(at - from.len()..at);
        }
    }
    if line.keyword == "ADD" {
        check_added(path, &line.rest[at..])?;
    }
    Ok(Options { line, image, notes })
}

/// The words of an instruction that are options.
fn options(line: &Instruction) -> impl Iterator<Item = &str> {
    let may_have = matches!(line.keyword, "COPY" | "ADD" | "RUN");
    words(&line.rest).take_while(move |word| may_have && word.starts_with("--"))
}

/// The instruction with those options only that every engine knows, and what the log says of the others.
fn leave_out(path: &str, line: &Instruction) -> Result<(Instruction, Vec<&'static str>)> {
    let keyword = line.keyword;
    let (mut kept, mut notes) = (Vec::new(), Vec::new());
    let (mut count, mut at) = (0, 0);
    for word in options(line) {
        let wrong = |why: &str| refused(path, format!("{keyword} {word}: {why}"));
        count += 1;
        at += line.rest[at..].find(word).unwrap_or(0) + word.len();
        // Engines read options byte by byte: 0x85 and 0xA0 in the encoding of another letter end one there.
        if !word.bytes().all(|byte| byte.is_ascii_graphic()) || word.contains(['\\', '"', '\'']) {
            return Err(wrong("write it in ASCII, without quotes and backslashes"));
        }
        let (name, value) = word[2..].split_once('=').unwrap_or((&word[2..], ""));
        if keyword != "RUN" && matches!(name, "from" | "chown") {
            kept.push(word);
            continue;
        }
        match meaning(keyword, name, value) {
            Meaning::LeftOut(note) => notes.extend(note),
            Meaning::Refused(why) => return Err(wrong(why)),
        }
    }
    if kept.len() == count {
        return Ok((line.clone(), notes));
    }
    let rest = line.rest[at..].trim_start_matches([' ', '\t']);
    if rest.is_empty() {
        return Err(refused(path, format!("{keyword}: needs arguments")));
    }
    kept.push(rest);
    let rest = kept.join(" ");
    Ok((Instruction { keyword, rest }, notes))
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
    if !from.chars().all(is_name_char) {
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
pub(super) fn require_named(path: &str, base: &str) -> Result<()> {
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

pub(super) fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_'
}

/// What a name of an image is made of.
pub(super) fn is_name_char(c: char) -> bool {
    is_word_char(c) || "./:@-".contains(c)
}
