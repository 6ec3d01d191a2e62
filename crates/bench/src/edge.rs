//! `./bench edge`: what was deployed, as clients get it.

mod deploys;
mod files;
mod many;
mod peers;

use crate::Options;
use crate::suite::{self, Part};
use std::process::ExitCode;

const PARTS: [(&str, Part); 3] = [
    ("files", files::run),
    ("deploys", deploys::run),
    ("many", many::run),
];

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("edge", &PARTS, options)
}
