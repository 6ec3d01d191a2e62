//! `./bench cluster`: three nodes that share a PostgreSQL, a master key and a bucket, against one of them in the same
//! run, and how soon all of them know what one was told.
//!
//! All nodes have the server's cores, so what counts is work per CPU-second of the nodes. PostgreSQL and the bucket's
//! server are not counted: on one machine they say nothing about how many nodes one of them can serve.

mod agreement;
mod throughput;

use crate::Options;
use crate::installation::{Running, Site};
use crate::postgres;
use crate::suite::{self, Bench, Part};
use anyhow::Context;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const PARTS: [(&str, Part); 2] = [
    ("throughput", throughput::run),
    ("agreement", agreement::run),
];

const NODES: usize = 3;

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("cluster", &PARTS, options)
}

/// Three nodes of a new installation.
struct Cluster {
    nodes: Vec<Running>,
}

impl Cluster {
    fn start(bench: &Bench<'_>, name: &str) -> anyhow::Result<Self> {
        let database = postgres::create_database(name)?;
        let key = bench.options.work.join(format!("{name}.key"));
        let bucket = bucket(name)?;
        let settings = format!(
            "database_url = {database:?}\nmaster_key_file = {:?}\n{bucket}",
            key.display().to_string(),
        );
        let mut nodes: Vec<Running> = Vec::new();
        for number in 0..NODES {
            let site = Site::with_settings(bench, &format!("{name}-{number}"), &settings)?;
            let mut node = site.serve(bench)?;
            if let Some(first) = nodes.first() {
                node.token.clone_from(&first.token);
            }
            nodes.push(node);
        }
        Ok(Self { nodes })
    }

    /// CPU time of all nodes.
    fn cpu(&self) -> anyhow::Result<Duration> {
        self.nodes.iter().map(|node| node.child.cpu()).sum()
    }

    fn stop(self) -> anyhow::Result<()> {
        self.nodes
            .into_iter()
            .try_for_each(|node| node.child.stop())
    }
}

fn variable(name: &str) -> anyhow::Result<String> {
    std::env::var(name).with_context(|| format!("{name} is not set; ./bench cluster sets it"))
}

/// A prefix of its own in the bucket that `./bench` makes.
fn bucket(name: &str) -> anyhow::Result<String> {
    #[expect(clippy::disallowed_methods, reason = "for a name that is new")]
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis();
    let url = format!("s3://{}/{name}-{now}", variable("ESTRADE_TEST_S3_BUCKET")?);
    Ok(format!(
        "[blobs]\nurl = {url:?}\nendpoint = {:?}\naccess_key_id = {:?}\nsecret_access_key = {:?}\n",
        variable("ESTRADE_TEST_S3_ENDPOINT")?,
        variable("ESTRADE_TEST_S3_KEY")?,
        variable("ESTRADE_TEST_S3_SECRET")?,
    ))
}
