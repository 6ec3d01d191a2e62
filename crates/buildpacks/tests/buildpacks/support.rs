//! Small trees of sources, and a strict reader of Dockerfiles.

use estrade_buildpacks::{BaseImages, BuildPlan, Dockerfile, PlanError, Settings, plan};
use estrade_model::platform::Platform;
use serde_json::Value;
use std::collections::BTreeMap;

/// Files of a release.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// Makes files.
pub(crate) fn files(list: &[(&str, &str)]) -> Files {
    let file = |(path, text): &(&str, &str)| ((*path).to_owned(), text.as_bytes().to_vec());
    list.iter().map(file).collect()
}

/// Plans with the settings of a request and the usual images.
pub(crate) fn planned(
    platform: Platform,
    files: &Files,
    sent: &Value,
) -> Result<BuildPlan, PlanError> {
    planned_on(platform, files, sent, &BaseImages::default())
}

/// Plans on other images.
pub(crate) fn planned_on(
    platform: Platform,
    files: &Files,
    sent: &Value,
    images: &BaseImages,
) -> Result<BuildPlan, PlanError> {
    let settings = Settings::from_release(None, sent.as_object().unwrap())?;
    plan(platform, files, &settings, images)
}

/// The text of a Dockerfile of ours.
pub(crate) fn text(plan: &BuildPlan) -> &str {
    match &plan.dockerfile {
        Dockerfile::Ours { text, .. } => text,
        Dockerfile::Theirs { path, .. } => panic!("{path} is theirs"),
    }
}

/// A text without the digests of images, which a release may have.
pub(crate) fn without_digests(text: &str) -> String {
    let mut parts = text.split("@sha256:");
    let first = parts.next().unwrap_or_default().to_owned();
    let digit = |c: char| c.is_ascii_hexdigit();
    parts.fold(first, |text, part| text + part.trim_start_matches(digit))
}

/// An instruction, as the classic builder sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Instruction {
    /// `RUN`, `COPY`, …
    pub(crate) name: String,
    /// What follows.
    pub(crate) rest: String,
    /// The words, when it is a JSON array.
    pub(crate) json: Option<Vec<String>>,
}

/// Reads a Dockerfile as strictly as we write it: one line is one instruction, nothing is continued,
/// and only instructions and flags that every builder knows are there.
pub(crate) fn read(text: &str) -> Vec<Instruction> {
    let mut instructions = Vec::new();
    for line in text.split('\n') {
        if line.is_empty() || line.starts_with("# Made by Estrade") {
            continue;
        }
        assert!(
            !line.chars().any(char::is_control),
            "control character in {line:?}"
        );
        assert!(line.len() < 65_000, "a line is too long for the builder");
        assert!(!line.ends_with('\\'), "{line:?} would be continued");
        let (name, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        let known = [
            "FROM", "ARG", "ENV", "WORKDIR", "COPY", "RUN", "USER", "EXPOSE", "CMD",
        ];
        assert!(known.contains(&name), "{line:?} begins with no instruction");
        let mut words = rest;
        while name == "COPY" && words.starts_with("--") {
            let (flag, after) = words.split_once(' ').unwrap();
            assert!(
                flag.starts_with("--from=") || flag.starts_with("--chown="),
                "{line:?}"
            );
            words = after;
        }
        assert!(name != "RUN" || !words.starts_with("--"), "{line:?}");
        assert!(
            !words.contains(" <<") && !words.starts_with("<<"),
            "here-document in {line:?}"
        );
        let json = words
            .starts_with('[')
            .then(|| serde_json::from_str(words).unwrap());
        assert!(
            name != "CMD" || json.is_some(),
            "{line:?} would run in a shell"
        );
        instructions.push(Instruction {
            name: name.to_owned(),
            rest: rest.to_owned(),
            json,
        });
    }
    instructions
}

/// The instructions of the last stage.
pub(crate) fn last_stage(instructions: &[Instruction]) -> &[Instruction] {
    let start = instructions
        .iter()
        .rposition(|instruction| instruction.name == "FROM");
    &instructions[start.unwrap()..]
}
