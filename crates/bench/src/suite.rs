//! A suite: its parts, one after the other, and one report.

use crate::Options;
use crate::cores::Cores;
use crate::report::Report;
use anyhow::Context;
use std::fs;
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Instant;

/// What every part of a suite needs.
pub(crate) struct Bench<'o> {
    pub(crate) options: &'o Options,
    pub(crate) cores: Cores,
    pub(crate) report: Report,
}

/// A part of a suite.
pub(crate) type Part = fn(&mut Bench<'_>) -> anyhow::Result<()>;

/// Runs the parts that are wanted; fails when a target is missed.
pub(crate) fn run(
    name: &'static str,
    parts: &[(&str, Part)],
    options: &Options,
) -> anyhow::Result<ExitCode> {
    empty(options)?;
    let cores = Cores::divide(options.unpinned)?;
    let mut bench = Bench {
        options,
        cores,
        report: Report::new(name, cores.count()),
    };
    let wanted = |name: &str| options.only.as_ref().is_none_or(|only| name.contains(only));
    for (name, part) in parts.iter().filter(|(name, _)| wanted(name)) {
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
