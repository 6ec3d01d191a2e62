//! A Dockerfile as lines, some of which name images.

use crate::instructions::Instruction;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

/// A user's Dockerfile, and the images that it builds on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bases {
    pub(super) lines: Vec<Line>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Line {
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
    pub(super) fn copied(before: &str, line: &Instruction, at: Range<usize>) -> Self {
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
