//! What an image does when somebody builds on it (`ONBUILD`).

use super::options::{Options, check_options};
use crate::error::{Result, refused};
use crate::instructions::Instruction;

/// Refuses an image that takes files out of somebody else's, or from the network of the engine's machine, when it is
/// built on. Returns the names of images that it copies from.
pub fn check_triggers(image: &str, triggers: &[String]) -> Result<Vec<String>> {
    let mut images = Vec::new();
    for trigger in triggers {
        let checked = check_trigger(image, trigger)?;
        // The engine reads them from the image.
        if checked.line != Instruction::read(image, trigger)? {
            let keyword = checked.line.keyword;
            return Err(refused(
                image,
                format!(
                    "its ONBUILD {keyword} has options that need BuildKit; use an image without them"
                ),
            ));
        }
        images.extend(checked.image.map(|at| checked.line.rest[at].to_owned()));
    }
    Ok(images)
}

/// An instruction for those who build on an image.
pub(super) fn check_trigger(path: &str, trigger: &str) -> Result<Options> {
    let inner = Instruction::read(path, trigger)?;
    if matches!(inner.keyword, "FROM" | "ONBUILD") {
        let keyword = inner.keyword;
        return Err(refused(
            path,
            format!("ONBUILD cannot be followed by {keyword}"),
        ));
    }
    // Who is built on does not know the stages of the others.
    check_options(path, &inner, &[], false)
}
