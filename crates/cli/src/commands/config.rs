//! `estrade config`: shows what is in force.

use crate::args::ConfigArgs;
use crate::config::{Config, REFERENCE};
use crate::printer::Printer;
use anyhow::Context;
use std::process::ExitCode;

/// Prints the effective configuration, or the reference, as a configuration file.
pub fn run(args: &ConfigArgs, config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    if args.reference {
        printer.data(REFERENCE.trim_end())?;
    } else {
        let text = toml::to_string(config).context("the configuration cannot be printed")?;
        printer.data(text.trim_end())?;
    }
    Ok(ExitCode::SUCCESS)
}
