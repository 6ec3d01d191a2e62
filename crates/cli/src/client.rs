//! The commands that talk to a server: arguments, requests, output.
//!
//! One module per group of commands, each with its arguments and a function that runs them. They reach the server
//! through [`session::Session`] and print through [`output::Output`], so that `--json`, `--quiet` and the rules about
//! terminals hold everywhere.

pub mod api;
pub mod args;
pub mod browser_login;
pub mod cancellation;
pub mod chat;
pub mod completions;
pub mod context;
pub mod deploy;
pub mod disks;
pub mod domains;
pub mod env;
pub mod failure;
pub mod format;
pub mod input;
pub mod interrupts;
pub mod keys;
pub mod login;
pub mod logs;
pub mod open_browser;
pub mod options;
pub mod output;
pub mod progress;
pub mod projects;
pub mod prompt;
pub mod redeploy;
pub mod release_watch;
pub mod releases;
pub mod selection;
pub mod session;
pub mod shell;
pub mod teams;
pub mod terminal;
pub mod tokens;
pub mod workspaces;

use crate::printer::Printer;
use args::ClientCommand;
use options::ServerOptions;
use session::Session;
use std::process::ExitCode;

/// Runs a command; its exit code says what kind of failure there was.
///
/// `definition` makes that of the whole command line, for what is written from it.
pub fn run(
    command: &ClientCommand,
    options: &ServerOptions,
    quiet: bool,
    definition: fn() -> clap::Command,
) -> ExitCode {
    let printer = Printer::new(quiet);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    let outcome = match runtime {
        Ok(runtime) => {
            let outcome = runtime.block_on(dispatch(command, options, printer, definition));
            // After Ctrl-C a thread may still read a slow disk or wait for an answer: it does not hold the process.
            runtime.shutdown_background();
            outcome
        }
        Err(error) => Err(error.into()),
    };
    outcome.unwrap_or_else(|error| failure::report(&error, &printer))
}

async fn dispatch(
    command: &ClientCommand,
    options: &ServerOptions,
    printer: Printer,
    definition: fn() -> clap::Command,
) -> anyhow::Result<ExitCode> {
    let session = Session::new(options, printer);
    match command {
        ClientCommand::Login(args) => return login::log_in(args, &session).await,
        ClientCommand::Logout(args) => login::log_out(args, &session).await?,
        ClientCommand::Context(command) => context::run(command, &session)?,
        ClientCommand::Projects(command) => projects::run(command, &session).await?,
        ClientCommand::Deploy(args) if args.watch => return redeploy::run(args, &session).await,
        ClientCommand::Deploy(args) => return deploy::run(args, &session).await,
        ClientCommand::Releases(command) => return releases::run(command, &session).await,
        ClientCommand::Env(command) => env::run(command, &session).await?,
        ClientCommand::Logs(args) => logs::run(args, &session).await?,
        ClientCommand::Shell(args) => return shell::run(args, &session).await,
        ClientCommand::Domains(command) => domains::run(command, &session).await?,
        ClientCommand::Disks(command) => disks::run(command, &session).await?,
        ClientCommand::Keys(command) => keys::run(command, &session).await?,
        ClientCommand::Workspaces(command) => workspaces::run(command, &session).await?,
        ClientCommand::Models => workspaces::list_models(&session).await?,
        ClientCommand::Usage(args) => workspaces::show_usage(args, &session).await?,
        ClientCommand::Chat(args) => chat::run(args, &session).await?,
        ClientCommand::Tokens(command) => tokens::run(command, &session).await?,
        ClientCommand::Teams(command) => teams::run(command, &session).await?,
        ClientCommand::Api(args) => return api::run(args, &session).await,
        ClientCommand::Completions(args) => completions::run(args, &session, definition())?,
        ClientCommand::Man(args) => completions::write_man_pages(args, &session, definition())?,
    }
    Ok(ExitCode::SUCCESS)
}
