//! `./bench api`: the two APIs.

mod authorize;
mod creates;
mod idle;
mod postgres;
mod projects;
mod seed;
mod start;

use crate::suite::{self, Part};
use crate::{Database, Options};
use std::process::ExitCode;

const PARTS: [(&str, Part); 4] = [
    ("idle", idle::run),
    ("creates", creates::run),
    ("projects", projects::run),
    ("authorize", authorize::run),
];

const POSTGRES_PARTS: [(&str, Part); 2] =
    [("creates", postgres::creates), ("reads", postgres::reads)];

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    match options.database {
        Database::Sqlite => suite::run("api", &PARTS, options),
        Database::Postgres => suite::run("api", &POSTGRES_PARTS, options),
    }
}
