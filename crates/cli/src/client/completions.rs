//! `estrade completions` and `estrade man`: what shells and `man` read, made from the same definition as the help.

use super::session::Session;
use clap::{Args, Command};
use clap_complete::Shell;
use estrade_client::ClientError;
use std::path::PathBuf;

/// `estrade completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade completions bash > ~/.local/share/bash-completion/completions/estrade
  estrade completions fish > ~/.config/fish/completions/estrade.fish")]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// `estrade man`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade man | man -l -
  estrade man --dir ~/.local/share/man/man1")]
pub struct ManArgs {
    /// Write a page for every command to this directory instead
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

/// Prints what a shell reads; `definition` is that of the command line.
pub fn run(
    args: &CompletionsArgs,
    session: &Session<'_>,
    mut definition: Command,
) -> anyhow::Result<()> {
    refuse_json(session)?;
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut definition, "estrade", &mut script);
    crate::printer::write(&script)?;
    Ok(())
}

/// What shells and `man` read is no JSON, and `--json` promises some.
fn refuse_json(session: &Session<'_>) -> estrade_client::Result<()> {
    if session.output.is_json() {
        let reason = "--json prints one document, and this prints none; leave it out";
        return Err(ClientError::Usage(reason.to_owned()));
    }
    Ok(())
}

pub fn write_man_pages(
    args: &ManArgs,
    session: &Session<'_>,
    definition: Command,
) -> anyhow::Result<()> {
    refuse_json(session)?;
    let Some(directory) = &args.dir else {
        let mut page = Vec::new();
        clap_mangen::Man::new(definition).render(&mut page)?;
        crate::printer::write(&page)?;
        return Ok(());
    };
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(definition, directory)?;
    session
        .output
        .printer
        .note(format_args!("wrote the pages to {}", directory.display()));
    Ok(())
}
