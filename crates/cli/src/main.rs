//! The `estrade` binary: reads arguments and configuration, and runs one command.

use clap::Parser;
use estrade_cli::args::{Cli, Command};
use estrade_cli::commands;
use estrade_cli::config::{self, Environment};
use estrade_cli::printer::Printer;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// A wrong option, file or variable: nothing was done, and a person has to look.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        // Help and version come this way too, with exit code 0.
        Err(answer) => {
            // Nobody is left to tell when even this cannot be printed.
            let _ = answer.print();
            return ExitCode::from(u8::try_from(answer.exit_code()).unwrap_or(USAGE_ERROR));
        }
    };
    let printer = Printer::new(cli.quiet);
    let loaded = match config::load(cli.flags(), &Environment::of_process()) {
        Ok(loaded) => loaded,
        Err(error) => {
            printer.error(error);
            return ExitCode::from(USAGE_ERROR);
        }
    };
    if !loaded.unknown_variables.is_empty() {
        let names = loaded.unknown_variables.join(", ");
        printer.warning(format_args!(
            "ignored, because no setting has this name: {names}"
        ));
    }
    let config = loaded.config;
    let outcome = match cli.command {
        Command::Config(args) => commands::config::run(&args, &config, &printer),
        Command::Serve(_) | Command::Account(_) | Command::Token(_) | Command::Openapi(_) => {
            Err(anyhow::anyhow!("this build does not have that command yet"))
        }
    };
    outcome.unwrap_or_else(|error| {
        printer.error(format_args!("{error:#}"));
        ExitCode::FAILURE
    })
}
