//! The tool behind `./bench`: one sub-command per suite, and the reference servers they compare with.
//!
//! A suite starts the real `estrade` binary on loopback, puts load on it and on a reference in the
//! same run, and judges ratios: absolute numbers differ from machine to machine.

#![expect(
    clippy::cast_precision_loss,
    reason = "counts and nanoseconds of a short run fit into 52 bits"
)]

mod api;
mod builds;
mod child;
mod cli;
mod cluster;
mod containers;
mod cores;
mod disk;
mod edge;
mod gateway;
mod http;
mod installation;
mod load;
mod panel;
mod postgres;
mod random;
mod reference;
mod report;
mod stats;
mod suite;

use clap::{Parser, Subcommand};
use std::path::PathBuf;
use std::process::ExitCode;

// The product's allocator, so that the reference servers have no other.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(name = "estrade-bench")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// The two APIs: durable writes, reads, key checks, memory, start.
    Api(Options),
    /// The edge: static files against nginx and caddy, many projects, deploys.
    Edge(Options),
    /// Inference: calls and streams beside nginx as a proxy and another gateway.
    Gateway(Options),
    /// The panel: the time of its pages with many projects and keys, on both backends.
    Panel(Options),
    /// The command line client: deploys of folders that the server mostly has, beside b3sum and rsync.
    Cli(Options),
    /// Three nodes on one database and one bucket: what they do together against one, and how soon they agree.
    Cluster(Options),
    /// Builds: the sample with Vite and React beside `docker build` of a Dockerfile for it.
    Builds(Options),
    /// Projects that run: releases beside the engine alone, the proxy beside nginx, memory.
    Containers(Options),
    /// A provider that streams.
    #[command(hide = true)]
    ServeStream(gateway::upstream::Pace),
    /// A bare hyper server that answers an empty 200.
    #[command(hide = true)]
    ServeEmpty,
    /// A minimal hyper server that lists the projects of one owner.
    #[command(hide = true)]
    ServeProjects(reference::ProjectsOf),
}

/// What every suite takes.
#[derive(clap::Args)]
struct Options {
    /// The estrade binary to measure.
    #[arg(long, value_name = "FILE")]
    server: PathBuf,
    /// An earlier estrade binary, measured in the same rounds where that is possible: in `streams`.
    #[arg(long, value_name = "FILE")]
    before: Option<PathBuf>,
    /// A directory for data, emptied first and removed at the end; its disk is the one measured.
    #[arg(long, value_name = "DIR")]
    work: PathBuf,
    /// Where the results go, as JSON.
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// Rounds of each measurement; the median counts.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Only the parts whose name contains this.
    #[arg(long, value_name = "TEXT")]
    only: Option<String>,
    /// Where the facts are, in `api`.
    #[arg(long, value_enum, default_value_t = Database::Sqlite)]
    database: Database,
    /// Keys in the large database.
    #[arg(long, default_value_t = 1_000_000, hide = true)]
    keys: u64,
    /// Projects on the large edge.
    #[arg(long, default_value_t = 10_000, hide = true)]
    projects: usize,
    /// Let server and load share all cores.
    #[arg(long, hide = true)]
    unpinned: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Database {
    Sqlite,
    Postgres,
}

fn main() -> anyhow::Result<ExitCode> {
    match Cli::parse().command {
        Command::Api(options) => api::run(&options),
        Command::Edge(options) => edge::run(&options),
        Command::Gateway(options) => gateway::run(&options),
        Command::Panel(options) => panel::run(&options),
        Command::Cli(options) => cli::run(&options),
        Command::Cluster(options) => cluster::run(&options),
        Command::Builds(options) => builds::run(&options),
        Command::Containers(options) => containers::run(&options),
        Command::ServeStream(pace) => gateway::upstream::serve(pace).map(|()| ExitCode::SUCCESS),
        Command::ServeEmpty => reference::serve_empty().map(|()| ExitCode::SUCCESS),
        Command::ServeProjects(of) => reference::serve_projects(&of).map(|()| ExitCode::SUCCESS),
    }
}
