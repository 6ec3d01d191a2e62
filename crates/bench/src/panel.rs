//! `./bench panel`: the time that the server takes for a page of the panel, for an account with 10,000 projects,
//! 100,000 keys and 1,000,000 calls, on both database backends.

mod pages;
mod visitor;

use crate::Options;
use crate::http;
use crate::installation::{Running, Site};
use crate::load::{self, Traffic};
use crate::postgres::{create_database, settle};
use crate::report::{Row, Target, Unit, thousands};
use crate::suite::{self, Bench, Part};
use anyhow::{Context, ensure};
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;
use visitor::Visitor;

const PARTS: [(&str, Part); 2] = [("sqlite", sqlite), ("postgres", postgres)];

/// Keys of the account.
const KEYS: usize = 100_000;
/// How many of them made calls.
const CALLING_KEYS: usize = 100;
/// Calls of each of these.
const CALLS: usize = 10_000;
/// How long each page is asked for.
const SPAN: Duration = Duration::from_secs(1);
/// Half of the requests for a page are answered within so many milliseconds.
const MAX_P50: f64 = 10.0;
/// And 99 of 100 within so many.
const MAX_P99: f64 = 50.0;
/// The largest page, without compression.
const MAX_PAGE: usize = 1 << 20;

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("panel", &PARTS, options)
}

fn sqlite(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "panel-sqlite")?;
    measure(bench, &site, "SQLite", || Ok(()))
}

fn postgres(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let url = create_database("panel")?;
    let site = Site::with_database(bench, "panel-postgres", &url)?;
    measure(bench, &site, "PostgreSQL", || settle(&url))
}

fn measure(
    bench: &mut Bench<'_>,
    site: &Site,
    backend: &str,
    settle: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let server = site.serve(bench)?;
    let keys = usize::try_from(bench.options.keys)?.min(KEYS);
    let team = seed(&server, bench.options.projects, keys)?;
    settle()?;
    let visitor = Visitor::sign_in(bench, site, &server)?;
    let mut slowest = (0.0, String::new());
    for path in pages::list(&visitor, bench.options.projects, &team)? {
        let mut traffic = visitor.visits(&path);
        let sample = server.measure_alone(SPAN, &mut traffic);
        let sample = sample.with_context(|| format!("{path} on {backend}"))?;
        let name = format!("{backend}: {}", pages::name(&path));
        let row = Row::judged(
            name,
            sample.p50,
            Unit::Milliseconds,
            Target::AtMost(MAX_P50),
        );
        let note = format!(
            "p50 of {}; p99 {:.2} ms",
            thousands(sample.answered),
            sample.p99
        );
        bench.report.add(row.note(note));
        if sample.p99 > slowest.0 {
            slowest = (sample.p99, path);
        }
    }
    let (p99, path) = slowest;
    let name = format!("{backend}: slowest p99");
    let row = Row::judged(name, p99, Unit::Milliseconds, Target::AtMost(MAX_P99));
    bench.report.add(row.note(pages::name(&path)));
    server.child.stop()?;
    Ok(())
}

/// What the account has: over HTTP, so that it is the same on both backends. Returns the id of its team.
fn seed(server: &Running, projects: usize, keys: usize) -> anyhow::Result<String> {
    let body = |number| json!({"name": project(number), "platform": "static", "planID": "nano"});
    let request = |number| ("/v1/projects", body(number).to_string());
    let mut posts = Posts::new(&server.token, (0..projects).map(request));
    load::send_all(server.platform, &mut posts)?;
    // Some have been deployed more than once.
    for number in [0, projects / 2, projects - 1] {
        for version in 0..3 {
            let page = format!("<h1>Version {version}</h1>");
            server.deploy(&project(number), &[("index.html", &page)])?;
        }
    }
    let tokens = server.create_keys(keys)?;
    let call = json!({"model": "estrade/echo", "messages": [{"role": "user", "content": "hello"}]});
    let request = |_| ("/v1/chat/completions", call.to_string());
    for key in tokens.iter().rev().take(CALLING_KEYS) {
        let mut calls = Posts::new(key, (0..CALLS.min(keys)).map(request));
        load::send_all(server.ai, &mut calls)?;
    }
    let domain = json!({"name": "shop.example.com", "project": project(projects / 2)});
    let made = http::post(server.platform, "/v1/domains", &server.token, &domain)?;
    ensure!(made.status == 201, "a domain: status {}", made.status);
    let team = json!({"name": "Bench"});
    let made = http::post(server.platform, "/v2/teams", &server.token, &team)?;
    ensure!(made.status == 200, "a team: status {}", made.status);
    let id = made.json()?["_id"].as_str().map(str::to_owned);
    id.context("the id of a team")
}

/// The name of a project.
fn project(number: usize) -> String {
    format!("bench-{number:05}")
}

/// Bodies to be posted, each once.
struct Posts<I> {
    token: String,
    bodies: I,
}

impl<I> Posts<I> {
    fn new(token: &str, bodies: I) -> Self {
        Self {
            token: token.to_owned(),
            bodies,
        }
    }
}

impl<I: Iterator<Item = (&'static str, String)>> Traffic for Posts<I> {
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let Some((path, body)) = self.bodies.next() else {
            return false;
        };
        let request = crate::http::request("POST", path, Some(&self.token), Some(&body));
        out.extend_from_slice(request.as_bytes());
        true
    }

    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        let text = || String::from_utf8_lossy(body).into_owned();
        ensure!(matches!(status, 200 | 201), "status {status}: {}", text());
        Ok(())
    }
}
