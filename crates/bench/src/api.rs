//! `./bench api`: the two APIs.

mod authorize;
mod creates;
mod disk;
mod idle;
mod projects;
mod seed;
mod site;
mod start;

use crate::Options;
use crate::cores::Cores;
use crate::report::Report;
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

/// What every part of the suite needs.
struct Bench<'o> {
    options: &'o Options,
    cores: Cores,
    report: Report,
}

/// A part of the suite.
type Part = fn(&mut Bench<'_>) -> anyhow::Result<()>;

const PARTS: [(&str, Part); 4] = [
    ("idle", idle::run),
    ("creates", creates::run),
    ("projects", projects::run),
    ("authorize", authorize::run),
];

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    empty(options)?;
    let cores = Cores::divide(options.unpinned)?;
    let mut bench = Bench {
        options,
        cores,
        report: Report::new("api", cores.count()),
    };
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    for (name, part) in PARTS.into_iter().filter(|(name, _)| wanted(name)) {
        let began = Instant::now();
        part(&mut bench).with_context(|| format!("measuring {name}"))?;
        let seconds = began.elapsed().as_secs_f64();
        writeln!(io::stderr(), "{name} measured in {seconds:.0} s")?;
    }
    bench.report.publish(&options.out)?;
    fs::remove_dir_all(&options.work)?;
    Ok(ExitCode::from(u8::from(!bench.report.passed())))
}

fn empty(options: &Options) -> anyhow::Result<()> {
    match fs::remove_dir_all(&options.work) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    Ok(fs::create_dir_all(&options.work)?)
}
