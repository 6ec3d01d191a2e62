//! Two hundred projects that run and do nothing.

use super::engine::Engine;
use super::{Stage, release, small_server, stage};
use crate::http;
use crate::installation::Running;
use crate::report::{Row, Target, Unit};
use crate::suite::Bench;
use anyhow::{Context, ensure};
use serde_json::json;
use std::fs;
use std::thread::sleep;
use std::time::Duration;

const PROJECTS: usize = 200;
/// What an instance and its keeper in the engine take of the machine, roughly.
const INSTANCE_MEMORY: u64 = 24 << 20;
/// What the machine needs beside them.
const RESERVED_MEMORY: u64 = 2 << 30;
/// What the server may still do after the last release.
const SETTLE_DELAY: Duration = Duration::from_secs(20);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let engine = Engine::find()?;
    let Stage { things, server } = stage(bench, &engine, "many", true)?;
    let room = available()?.saturating_sub(RESERVED_MEMORY) / INSTANCE_MEMORY;
    let running = usize::try_from(room)?.clamp(1, PROJECTS);
    for number in 0..PROJECTS {
        let name = format!("many-{number}");
        server.create(&name, "docker", "nano")?;
        server.deploy_body(&name, &release(&small_server(&name)))?;
        if number >= running {
            switch_off(&server, &name)?;
        }
    }
    things.wait_for(running)?;
    sleep(SETTLE_DELAY);
    let memory = server.child.memory()? as f64 / f64::from(1 << 20);
    server.child.stop()?;
    let row = Row::judged(
        format!("memory with {PROJECTS} idle projects"),
        memory,
        Unit::Mebibytes,
        Target::AtMost(80.0),
    );
    let note = match PROJECTS - running {
        0 => "one instance each, all running".to_owned(),
        off => format!("one instance each; {off} switched off, because this machine holds no more"),
    };
    bench.report.add(row.note(note));
    Ok(())
}

fn switch_off(server: &Running, name: &str) -> anyhow::Result<()> {
    let path = format!("/v1/projects/{name}/actions/scale");
    let response = http::post(server.platform, &path, &server.token, &json!({"scale": 0}))?;
    ensure!(response.status == 200, "status {}", response.status);
    Ok(())
}

/// Bytes of memory that programs may still have.
fn available() -> anyhow::Result<u64> {
    let info = fs::read_to_string("/proc/meminfo")?;
    let line = info
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    Ok(kib
        .context("/proc/meminfo has no MemAvailable")?
        .parse::<u64>()?
        * 1024)
}
