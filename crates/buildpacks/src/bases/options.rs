//! Options and sources of `COPY`, `ADD` and `RUN`: where files may come from.

use crate::error::{Result, refused};
use crate::instructions::{Instruction, words};
use estrade_model::built_image::{is_built, without_registry};
use std::borrow::Cow;
use std::ops::Range;

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

/// Looks at what an instruction is told before its arguments begin, and at what `ADD` adds; `stages` are those that are
/// complete. Returns where the name of an image is that files are copied from.
pub(super) fn check_options(
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
