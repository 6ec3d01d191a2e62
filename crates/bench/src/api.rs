//! `./bench api`: the two APIs.

mod authorize;
mod creates;
mod idle;
mod projects;
mod seed;
mod start;

use crate::Options;
use crate::suite::{self, Part};
use std::process::ExitCode;

const PARTS: [(&str, Part); 4] = [
    ("idle", idle::run),
    ("creates", creates::run),
    ("projects", projects::run),
    ("authorize", authorize::run),
];

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("api", &PARTS, options)
}
