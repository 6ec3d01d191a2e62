//! What a process that serves needs of the system, and how its commands are run.

use crate::args::Command;
use crate::commands;
use crate::config::Config;
use crate::printer::Printer;
use anyhow::Context;
use estrade_service::bootstrap::OpenError;
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: estrade_allocator::MiMalloc = estrade_allocator::MiMalloc;

/// Comes before everything else, when there is one thread.
pub fn prepare() {
    decline_huge_pages();
    estrade_allocator::give_back_soon();
    allow_many_files();
}

/// Memory in pages of 4 KiB: in huge ones an idle server takes three times of what it uses.
fn decline_huge_pages() {
    // Where this is refused the process is larger, and no worse.
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

/// Runs one command.
pub fn run(command: &Command, config: &Config, printer: &Printer) -> anyhow::Result<ExitCode> {
    match command {
        Command::Blobs(command) => block_on(commands::blobs::run(command, config, printer)),
        Command::Config(args) => commands::config::run(args, config, printer),
        Command::Images(command) => block_on(commands::images::run(command, config, printer)),
        Command::Openapi(args) => commands::openapi::run(args, printer),
        Command::Serve(args) => block_on(commands::serve::run(args, config, printer)),
        Command::Account(command) => block_on(commands::account::run(command, config, printer)),
        Command::Token(command) => block_on(commands::token::run(command, config, printer)),
        // It ran before the configuration was read.
        Command::Client(_) => Ok(ExitCode::SUCCESS),
    }
}

/// Whether nothing was done, and a person has to look.
pub fn is_refusal(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(OpenError::Refused(_)))
}

fn block_on<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    runtime.context("cannot start the runtime")?.block_on(work)
}
