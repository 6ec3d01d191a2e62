//! What an image does when somebody builds on it (`ONBUILD`).

use super::options::check_options;
use crate::error::{Result, refused};
use crate::instructions::Instruction;
use std::ops::Range;

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
pub(super) fn check_trigger(
    path: &str,
    trigger: &str,
) -> Result<(Instruction, Option<Range<usize>>)> {
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
