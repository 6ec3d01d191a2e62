//! `estrade blobs …`: moves the files of releases to another place.

use crate::args::{BlobsCommand, MigrateArgs};
use crate::client::format;
use crate::client::interrupts::Interrupts;
use crate::client::progress::ByteProgress;
use crate::config::Config;
use crate::printer::Printer;
use crate::wiring;
use anyhow::Context;
use estrade_model::error::error_chain;
use estrade_service::blob_migration::{
    self, MigrationEvent, MigrationOptions, MigrationReport, WorkDirectory,
};
use estrade_service::bootstrap;
use std::process::ExitCode;
use tokio_util::sync::CancellationToken;

/// Something is missing or damaged where files come from.
const DAMAGED: u8 = 3;

/// Runs one of the commands about the files of releases.
pub async fn run(
    command: &BlobsCommand,
    config: &Config,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    let BlobsCommand::Migrate(args) = command;
    let (from, to) = wiring::migration(config, args)?;
    let paths = wiring::paths_with(config, from);
    let (db, installation) = bootstrap::open_database(&paths).await?;
    let work = WorkDirectory::lock(&config.data_dir)?;
    let migration = blob_migration::open(&paths.blobs, &to, &work, &installation).await?;
    let options = MigrationOptions {
        parallel: args.parallel.into(),
        finish: args.finish,
        accept_damaged: args.accept_damaged,
    };
    let progress = ByteProgress::new(*printer, "copying");
    let report = |event| show(event, args, &progress, printer);
    let mut interrupts = Interrupts::listen().context("cannot listen for signals")?;
    let stop = CancellationToken::new();
    let run = blob_migration::run(&db, &migration, options, &report, &stop);
    tokio::pin!(run);
    let mut interrupted = None;
    let done = loop {
        tokio::select! {
            done = &mut run => break done,
            code = interrupts.next(), if interrupted.is_none() => {
                interrupted = Some(code);
                stop.cancel();
            }
        }
    };
    progress.clear();
    work.remove();
    match (done, interrupted) {
        (Ok(report), _) => summarise(&report, args, printer),
        (Err(error), code) => {
            printer.error(error_chain(&error));
            printer.hint("run the same command again: it goes on where this one ended, and sends nothing twice");
            Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
        }
    }
}

fn show(event: MigrationEvent, args: &MigrateArgs, progress: &ByteProgress, printer: &Printer) {
    match event {
        MigrationEvent::SwitchCancelled => printer.note(
            "an earlier run with --finish was cut off; its last step was taken back, and servers accept deploys again",
        ),
        MigrationEvent::PassBegan { number, total } => {
            let (contents, bytes) = (total.contents, format::bytes(total.bytes));
            progress.suspend(|| {
                printer.note(format_args!(
                    "pass {number}: comparing {contents} files ({bytes}) with {}",
                    args.to
                ));
            });
            progress.start(total.bytes);
        }
        MigrationEvent::Checked { bytes } => progress.add(bytes),
        MigrationEvent::SwitchBegan => progress.suspend(|| {
            printer.note("servers refuse new files from now on; copying what came in meanwhile");
        }),
    }
}

fn summarise(
    report: &MigrationReport,
    args: &MigrateArgs,
    printer: &Printer,
) -> anyhow::Result<ExitCode> {
    for damaged in &report.damaged {
        printer.data(format_args!(
            "damaged  {}  {}",
            damaged.digest, damaged.object
        ))?;
    }
    printer.data(format_args!(
        "copied {} objects, {}, in {} passes",
        report.copied_objects,
        format::bytes(report.copied_bytes),
        report.passes
    ))?;
    let to = &args.to;
    let damaged = report.damaged.len();
    if damaged > 0 {
        printer.error(format_args!(
            "{} missing or damaged in the old place, listed above by hash and object",
            format::count(damaged, "file")
        ));
    }
    if report.is_finished {
        printer.data(format_args!(
            "the files of this installation are in {to} now"
        ))?;
        printer.note(format_args!(
            "restart every server with blobs.url = \"{to}\"; until then they serve sites and refuse deploys. \
             The old place is not needed any more; no server starts with it"
        ));
    } else if damaged > 0 {
        printer.hint(
            "restore them from a backup, or deploy their projects again and delete the old releases; or add \
             --accept-damaged to leave them behind",
        );
    } else {
        printer.note(format_args!(
            "{to} has everything that was deployed until now; servers still use the old place. \
             Add --finish to copy the rest and switch"
        ));
    }
    Ok(match damaged {
        0 => ExitCode::SUCCESS,
        _ => ExitCode::from(DAMAGED),
    })
}
