//! `./bench cli`: the command line client, as a person waits for it.

mod client;
mod folder;
mod relay;
mod sync;
mod update;

use crate::Options;
use crate::suite::{self, Part};
use std::process::ExitCode;

const PARTS: [(&str, Part); 2] = [("update", update::run), ("first", sync::run)];

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("cli", &PARTS, options)
}
