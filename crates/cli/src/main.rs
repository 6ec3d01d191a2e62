//! The `estrade` binary: reads arguments and configuration, and runs one command.

#[cfg(not(feature = "server"))]
use client_process::{is_refusal, prepare, run};
use estrade_cli::args::{self, Command};
use estrade_cli::client;
use estrade_cli::config::{self, Environment};
use estrade_cli::printer::Printer;
#[cfg(feature = "server")]
use estrade_cli::server_process::{is_refusal, prepare, run};
use std::process::ExitCode;

/// A wrong option, file or variable: nothing was done, and a person has to look.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    prepare();
    let cli = match args::parse() {
        Ok(cli) => cli,
        // Help and version come this way too, with exit code 0.
        Err(error) => {
            // Nobody is left to tell when even this cannot be printed.
            let _ = error.print();
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(USAGE_ERROR));
        }
    };
    if let Command::Client(command) = &cli.command {
        return client::run(command, &cli.server, cli.quiet, args::command);
    }
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
    let outcome = run(&cli.command, &config, &printer);
    outcome.unwrap_or_else(|error| {
        printer.error(format_args!("{error:#}"));
        if is_refusal(&error) {
            ExitCode::from(USAGE_ERROR)
        } else {
            ExitCode::FAILURE
        }
    })
}

/// The commands that need no server.
#[cfg(not(feature = "server"))]
mod client_process {
    use estrade_cli::args::Command;
    use estrade_cli::commands;
    use estrade_cli::config::Config;
    use estrade_cli::printer::Printer;
    use std::process::ExitCode;

    pub(crate) fn prepare() {}

    pub(crate) fn run(
        command: &Command,
        config: &Config,
        printer: &Printer,
    ) -> anyhow::Result<ExitCode> {
        match command {
            Command::Config(args) => commands::config::run(args, config, printer),
            // It ran before the configuration was read.
            Command::Client(_) => Ok(ExitCode::SUCCESS),
        }
    }

    pub(crate) fn is_refusal(_: &anyhow::Error) -> bool {
        false
    }
}
