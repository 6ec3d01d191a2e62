//! `estrade openapi`: the document of an API, without a server.

use crate::args::{Api, OpenapiArgs};
use crate::printer::Printer;
use anyhow::Context;
use std::process::ExitCode;

/// Prints the OpenAPI document of one API.
pub fn run(args: &OpenapiArgs, printer: &Printer) -> anyhow::Result<ExitCode> {
    let document = match args.api {
        Api::Platform => estrade_server::platform::document(),
        Api::Ai => estrade_server::ai::document(),
    };
    printer.data(
        document
            .to_pretty_json()
            .context("the document cannot be printed")?,
    )?;
    Ok(ExitCode::SUCCESS)
}
