//! The first deploy of a folder, beside a copy of it by rsync.

use super::client::{Client, time};
use super::folder::Folder;
use crate::installation::Site;
use crate::report::{Row, Unit};
use crate::stats::median;
use crate::suite::Bench;
use std::path::Path;
use std::process::Command;

const FILES: usize = 200;
const SIZE: usize = 20 << 10;
const PROJECT: &str = "cli-first";

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "first")?;
    let server = site.serve_everywhere(bench)?;
    server.create_project(PROJECT)?;
    let client = Client::new(
        &bench.options.server,
        site.directory.clone(),
        &server,
        PROJECT,
    );
    let (mut deployed, mut copied) = (Vec::new(), Vec::new());
    for round in 0..bench.options.rounds {
        // Contents that the server has never seen.
        let folder = site.directory.join(format!("site-{round}"));
        let folder = Folder::create(&folder, FILES, SIZE, 100 + round as u64)?;
        deployed.push(client.deploy(&folder.path)?);
        let copy = site.directory.join(format!("copy-{round}"));
        copied.push(rsync(&folder.path, &copy)?);
    }
    let name = format!("first deploy of {FILES} files × {} KiB", SIZE >> 10);
    let row = Row::fact(name, median(deployed), Unit::Milliseconds);
    let note = "median, until the command ends: stored durably, and live";
    bench.report.add(row.note(note));
    let row = Row::fact(
        "rsync -a of the same folder",
        median(copied),
        Unit::Milliseconds,
    );
    let note = "median, to a directory on the same disk, without fsync";
    bench.report.add(row.note(note));
    server.child.stop()
}

fn rsync(from: &Path, to: &Path) -> anyhow::Result<f64> {
    // With the slash, what is in the folder is copied and not the folder.
    let from = format!("{}/", from.display());
    time(Command::new("rsync").arg("-a").arg(from).arg(to))
}
