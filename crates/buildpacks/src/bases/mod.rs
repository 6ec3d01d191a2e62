//! What a user's Dockerfile is built on. An engine also finds images by the beginning of their ids, and
//! those that were built for others: neither may be asked for, by the Dockerfile or by what an image does
//! when somebody builds on it (`ONBUILD`).
//!
//! An image is looked at before the build. So that nobody can put another one in its place meanwhile, the
//! Dockerfile that the engine gets names the images by the ids that they had then.
//!
//! The engine also downloads what `ADD` names by a URL, from the network of its machine, where services listen that
//! are nobody else's business. So `ADD` takes files of the sources only.

mod buildkit;
mod lines;
mod options;
mod reader;
#[cfg(test)]
mod tests;
mod triggers;

pub use lines::{Base, Bases, BuildStage, PinnedDockerfile};
pub use triggers::check_triggers;

use crate::error::Result;
use crate::settings::BuildArg;
pub(crate) use reader::Reading;

/// Finds out what a user's Dockerfile builds on; refuses one that could take files out of somebody else's image, or
/// from the network of the engine's machine.
pub(crate) fn check(path: &str, text: &str, args: &[BuildArg]) -> Result<Reading> {
    reader::read_bases(path, text, args, false)
}

/// The same for one that was made here, on images that the operator may have named in any way.
pub(crate) fn check_own(path: &str, text: &str) -> Result<Bases> {
    Ok(reader::read_bases(path, text, &[], true)?.bases)
}
