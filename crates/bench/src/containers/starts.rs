//! A release of an image that is there, beside the engine alone with the same image.

use super::engine::Engine;
use super::{IMAGE, Stage, release, small_server, stage};
use crate::http;
use crate::installation::Running;
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::ensure;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

const ROUNDS: usize = 15;
const TIMEOUT: Duration = Duration::from_mins(1);
/// Asking without a pause would take the machine from what is measured.
const POLL_INTERVAL: Duration = Duration::from_millis(2);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let engine = Engine::find()?;
    let Stage { things, server } = stage(bench, &engine, "starts", true)?;
    server.create("starts", "docker", "nano")?;
    server.deploy_body("starts", &release(&small_server("first")))?;
    let network = things.network()?;
    let (mut ours, mut bare) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        ours.push(released(&server, &format!("release-{number}"))?);
        // The one before it is gone: nothing else happens while the other is measured.
        things.wait_for(1)?;
        bare.push(started(&engine, &network, &format!("bare-{number}"))?);
    }
    server.child.stop()?;
    let (ours, bare) = (median(ours), median(bare));
    let rows = [
        Row::fact(
            "create and start by hand, to first 200",
            bare,
            Unit::Milliseconds,
        )
        .note("median; the engine's API and a client, no Estrade"),
        Row::fact(
            "release accepted to first 200 over the edge",
            ours,
            Unit::Milliseconds,
        )
        .note("median; the same image, command and network, in turns"),
        Row::judged(
            "… against by hand",
            ours / bare,
            Unit::Times,
            Target::AtMost(3.0),
        ),
    ];
    for row in rows {
        bench.report.add(row);
    }
    Ok(())
}

/// Milliseconds from "accepted" until clients get a release.
fn released(server: &Running, marker: &str) -> anyhow::Result<f64> {
    let body = release(&small_server(marker)).to_string();
    let path = "/v2/projects/starts/releases";
    let request = http::request("POST", path, Some(&server.token), Some(&body));
    let response = http::send(server.platform, &request)?;
    let began = Instant::now();
    ensure!(response.status == 201, "status {}", response.status);
    wait(server.edge, "starts.localhost", marker, began)
}

/// Milliseconds until a container answers that the engine was told to run.
fn started(engine: &Engine, network: &str, marker: &str) -> anyhow::Result<f64> {
    let began = Instant::now();
    let container = engine.run(network, IMAGE, &small_server(marker))?;
    let took = wait(container.address, "localhost", marker, began);
    engine.remove(&container)?;
    took
}

/// Asks until the response is the marker; milliseconds since `began`.
fn wait(address: SocketAddr, host: &str, marker: &str, began: Instant) -> anyhow::Result<f64> {
    let request = format!("GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    loop {
        let response = http::send(address, &request);
        if response.is_ok_and(|page| page.status == 200 && page.body == marker.as_bytes()) {
            return Ok(began.elapsed().as_secs_f64() * 1000.0);
        }
        ensure!(began.elapsed() < TIMEOUT, "{marker} does not answer");
        std::thread::sleep(POLL_INTERVAL);
    }
}
