//! A Dockerfile as lines, some of which name images.

use crate::dockerfile::CACHE_FOLDER;
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
    fn begins_stage(&self) -> bool {
        match self {
            Self::Image { begins_stage, .. } => *begins_stage,
            Self::Scratch(_) => true,
            Self::Other(line) => line.starts_with("FROM "),
        }
    }

    /// Whether the stage `build` of a Dockerfile of ours begins here.
    fn is_build(&self) -> bool {
        const NAME: &str = " AS build";
        match self {
            Self::Image {
                after,
                begins_stage,
                ..
            } => *begins_stage && after == NAME,
            Self::Other(line) => line.starts_with("FROM ") && line.ends_with(NAME),
            Self::Scratch(_) => false,
        }
    }

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

    /// The stage `build` of a Dockerfile of ours.
    pub fn build_stage(&self) -> Option<BuildStage<'_>> {
        let mut base = None;
        let begin = self.lines.iter().filter(|line| line.begins_stage());
        for (number, line) in begin.enumerate() {
            if let Line::Image { name, .. } = line {
                base = Some(name.as_str());
            }
            if line.is_build() {
                return base.map(|base| BuildStage { number, base });
            }
        }
        None
    }

    /// The Dockerfile, with ids instead of names, and with a label at the beginning of each stage. All layers of a
    /// stage stand on the label's, so an engine uses them as cache only for builds with the same label.
    ///
    /// `cache` is an image on top of the base of the stage `build`, with what an earlier build kept in
    /// [`CACHE_FOLDER`]. The stage begins with it, so that nothing is copied; one that begins with an earlier stage copies the
    /// folder.
    pub fn pin(
        &self,
        ids: &HashMap<String, String>,
        label: &str,
        cache: Option<&str>,
    ) -> PinnedDockerfile {
        let (mut out, mut steps) = (String::new(), Vec::new());
        for line in &self.lines {
            let cache = cache.filter(|_| line.is_build());
            let begins_stage = match line {
                Line::Image {
                    before,
                    name,
                    after,
                    begins_stage,
                } => {
                    let id = cache.unwrap_or_else(|| ids.get(name).unwrap_or(name));
                    out.extend([before.as_str(), id, after.as_str()]);
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
            steps.push(out.lines().count());
            if let (Line::Other(_), Some(cache)) = (line, cache) {
                let copy = format!("COPY --from={cache} {CACHE_FOLDER}/ {CACHE_FOLDER}/\n");
                out.push_str(&copy);
            }
            if begins_stage {
                out.extend(["LABEL ", label, "\n"]);
            }
        }
        PinnedDockerfile { text: out, steps }
    }
}

/// The stage of a Dockerfile of ours in which packages are installed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuildStage<'b> {
    /// Its number among the stages, from 0.
    pub number: usize,
    /// The name of the image that it stands on.
    pub base: &'b str,
}

/// A Dockerfile as an engine gets it.
#[derive(Debug, PartialEq, Eq)]
pub struct PinnedDockerfile {
    pub text: String,
    /// Which step each instruction has become, from 1.
    steps: Vec<usize>,
}

impl PinnedDockerfile {
    /// Which step an instruction of the plan has become; both from 1.
    pub fn step_of(&self, instruction: usize) -> Option<usize> {
        self.steps.get(instruction.checked_sub(1)?).copied()
    }
}
