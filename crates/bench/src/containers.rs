//! `./bench containers`: projects that run, beside the engine alone and nginx as a proxy.

pub(crate) mod engine;
mod many;
mod proxy;
mod ready;
mod starts;

use crate::Options;
use crate::installation::{Running, Site};
use crate::suite::{self, Bench, Part};
use engine::{Engine, Things};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::process::ExitCode;

const PARTS: [(&str, Part); 4] = [
    ("starts", starts::run),
    ("ready", ready::run),
    ("proxy", proxy::run),
    ("many", many::run),
];

/// The image of everything that runs here.
const IMAGE: &str = "estrade-test/base:2";
/// Where it listens.
const PORT: u16 = 8000;

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("containers", &PARTS, options)
}

/// A server on an engine, and what it has there. The server has to end first (so it is named last where this
/// is taken apart): else it would make anew what is removed.
struct Stage<'e> {
    things: Things<'e>,
    server: Running,
}

/// Starts a server on this engine, on the server's cores or on all of them.
fn stage<'e>(
    bench: &Bench<'_>,
    engine: &'e Engine,
    name: &str,
    everywhere: bool,
) -> anyhow::Result<Stage<'e>> {
    let site = installation(bench, engine, name)?;
    let server = if everywhere {
        site.serve_everywhere(bench)?
    } else {
        site.serve(bench)?
    };
    let things = Things::of(engine, &site)?;
    Ok(Stage { things, server })
}

fn installation(bench: &Bench<'_>, engine: &Engine, name: &str) -> anyhow::Result<Site> {
    let site = Site::new(bench, name)?;
    let file = site.directory.join("estrade.toml");
    let mut config = fs::read_to_string(&file)?;
    // Writing to a string cannot fail.
    let _ = write!(
        config,
        "[docker]\nhost = \"unix://{}\"\nfirewall = false\nfree_disk_gb = 0\n",
        engine.socket().display()
    );
    fs::write(file, config)?;
    Ok(site)
}

/// A server that begins to listen a few milliseconds after it was started, and says `marker`.
fn small_server(marker: &str) -> Vec<String> {
    shell(&format!("echo -n {marker} >/tmp/www/index.html"))
}

/// The same after some preparation by the shell.
fn shell(first: &str) -> Vec<String> {
    let script =
        format!("mkdir -p /tmp/www && {first} && exec busybox httpd -f -p {PORT} -h /tmp/www");
    ["sh", "-c", &script].map(str::to_owned).to_vec()
}

/// The body of a release that runs this.
fn release(command: &[String]) -> Value {
    json!({"type": "docker", "image": IMAGE, "port": PORT, "args": command})
}
