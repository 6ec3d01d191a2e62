//! The `estrade` binary: reads arguments and configuration, and runs one command.

use anyhow::Context;
use clap::Parser;
use estrade_cli::args::{Cli, Command};
use estrade_cli::commands;
use estrade_cli::config::{self, Config, Environment};
use estrade_cli::printer::Printer;
use estrade_service::bootstrap::OpenError;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: estrade_allocator::MiMalloc = estrade_allocator::MiMalloc;

/// A wrong option, file or variable: nothing was done, and a person has to look.
const USAGE_ERROR: u8 = 2;

fn main() -> ExitCode {
    decline_huge_pages();
    estrade_allocator::give_back_soon();
    allow_many_files();
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
    let outcome = run(&cli.command, &config, &printer);
    outcome.unwrap_or_else(|error| {
        printer.error(format_args!("{error:#}"));
        match error.downcast_ref() {
            Some(OpenError::Refused(_)) => ExitCode::from(USAGE_ERROR),
            _ => ExitCode::FAILURE,
        }
    })
}

/// Memory in pages of 4 KiB: in huge ones an idle server takes three times of what it uses.
fn decline_huge_pages() {
    // Where this is refused the process is larger, and no worse.
    #[cfg(target_os = "linux")]
    let _ = rustix::thread::disable_transparent_huge_pages(true);
}

/// Connections and stored contents are open files, and the usual limit of 1024 is one that only
/// programs from the days of `select` need.
fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: maximum,
        maximum,
    };
    // Where this is refused fewer can be served at once, and no worse.
    let _ = setrlimit(Resource::Nofile, most);
}

fn run(command: &Command, config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    match command {
        Command::Config(args) => commands::config::run(args, config, printer),
        Command::Openapi(args) => commands::openapi::run(args, printer),
        Command::Serve(args) => block_on(commands::serve::run(args, config, printer)),
        Command::Account(command) => block_on(commands::account::run(command, config, printer)),
        Command::Token(command) => block_on(commands::token::run(command, config, printer)),
    }
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.context("cannot start the runtime")?.block_on(work)
}
