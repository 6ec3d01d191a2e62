//! `./bench api --database postgres`: durable key creations beside `pgbench` with the same inserts, lists and reads beside
//! SQLite mode.

use crate::http;
use crate::installation::{NewKeys, Running, Site};
use crate::load::{Repeat, Sample};
use crate::postgres::{create_database, query};
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::{Context, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const SPAN: Duration = Duration::from_secs(3);
const READ_SPAN: Duration = Duration::from_secs(2);
/// Connections of `pgbench`: as many as the load has.
const CONNECTIONS: &str = "64";
/// Keys of the account that lists and reads them.
const KEYS: usize = 1000;
/// What a key is for the database: the three inserts of the product, with values of the same sizes. The counter of the
/// owner's keys and the look at the workspace are left out.
const SCRIPT: &str = "\\set high random(0, 2147483647)
\\set low random(0, 2147483647)
\\set more random(0, 2147483647)
BEGIN;
INSERT INTO keys (id, owner_id, name, enabled, secret_hash, created_by, created_at, token_exp, cache, expires_at, models,
                  rpm, tpm, budget_nanos, budget_period, version)
VALUES (lpad(to_hex(CAST(:high AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:low AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:more AS BIGINT)), 8, '0'), 'OWNER',
        'p' || CAST(:high AS TEXT) || '-' || CAST(:low AS TEXT), TRUE, decode(md5(CAST(:high AS TEXT)) || md5(CAST(:low AS TEXT)), 'hex'), 'OWNER', 1700000000000,
        NULL, FALSE, NULL, NULL, NULL, NULL, NULL, NULL, 1);
INSERT INTO key_workspaces (key_id, position, workspace_id)
VALUES (lpad(to_hex(CAST(:high AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:low AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:more AS BIGINT)), 8, '0'), 0, 'WORKSPACE');
INSERT INTO audit (owner_id, id, at, kind, action, subject, name, detail, fields, account_id, token_id, email, by_session,
                   address, request_id)
VALUES ('OWNER', lpad(to_hex(CAST(:more AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:high AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:low AS BIGINT)), 8, '0'), 1700000000000,
        'key', 'key.create', lpad(to_hex(CAST(:high AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:low AS BIGINT)), 8, '0') || lpad(to_hex(CAST(:more AS BIGINT)), 8, '0'),
        'p' || CAST(:high AS TEXT) || '-' || CAST(:low AS TEXT), '', '', 'OWNER', 'OWNER', 'admin@localhost', FALSE, '127.0.0.1',
        '0123456789abcdef01234567');
COMMIT;
";

/// Both on all cores, in turn, on one server and in the same tables.
pub(super) fn creates(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let url = create_database("creates")?;
    let site = Site::with_database(bench, "postgres-creates", &url)?;
    let server = site.serve_everywhere(bench)?;
    server.create_keys(1)?;
    let script = site.directory.join("keys.sql");
    let owner = query(&url, "SELECT id FROM accounts LIMIT 1")?;
    let workspace = query(&url, "SELECT id FROM workspaces LIMIT 1")?;
    fs::write(
        &script,
        SCRIPT
            .replace("OWNER", &owner)
            .replace("WORKSPACE", &workspace),
    )?;

    let mut keys = NewKeys::endless(&server.token, "b");
    let (mut samples, mut transactions) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        query(&url, "CHECKPOINT")?;
        transactions.push(pgbench(&url, &script)?);
        query(&url, "CHECKPOINT")?;
        samples.push(server.measure(server.ai, SPAN, &mut keys)?);
    }
    server.child.stop()?;
    let stored = query(&url, "SELECT count(*) FROM keys WHERE name LIKE 'b%'")?;
    ensure!(
        stored == keys.made.to_string(),
        "{stored} keys are stored, {} were acknowledged",
        keys.made
    );

    let of = |value: fn(&Sample) -> f64| median(samples.iter().map(value));
    let pairs = samples.iter().zip(&transactions);
    let ratio = median(pairs.map(|(sample, transactions)| sample.rate() / transactions));
    let theirs = median(transactions.iter().copied());
    bench.report.add(Row::fact(
        "pgbench, the same inserts, 64 connections",
        theirs,
        Unit::PerSecond,
    ));
    let ours = Row::fact(
        "PostgreSQL: durable key creations",
        of(Sample::rate),
        Unit::PerSecond,
    );
    bench.report.add(ours.note(format!(
        "p50 {:.2} ms, p99 {:.2} ms",
        of(|sample| sample.p50),
        of(|sample| sample.p99)
    )));
    bench.report.add(Row::judged(
        "… against that",
        ratio,
        Unit::Times,
        Target::AtLeast(0.5),
    ));
    Ok(())
}

/// The same list and the same key on both backends, in turn.
pub(super) fn reads(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let database = create_database("reads")?;
    // On all cores: the database's server needs some, too.
    let file = Site::new(bench, "sqlite-reads")?.serve_everywhere(bench)?;
    let server = Site::with_database(bench, "postgres-reads", &database)?;
    let server = server.serve_everywhere(bench)?;
    file.create_keys(KEYS)?;
    server.create_keys(KEYS)?;
    let paths: [(&str, PathOf); 2] = [
        ("list of 50 keys", |_| "/v1/keys?count=50".to_owned()),
        ("one key", |id| format!("/v1/keys/{id}")),
    ];
    for (name, path) in paths {
        let (mut on_file, mut on_server) = (traffic(&file, path)?, traffic(&server, path)?);
        let mut pairs = Vec::new();
        for _ in 0..bench.options.rounds {
            pairs.push((
                server.measure(server.ai, READ_SPAN, &mut on_server)?,
                file.measure(file.ai, READ_SPAN, &mut on_file)?,
            ));
        }
        let of = |pick: fn(&(Sample, Sample)) -> &Sample| {
            median(pairs.iter().map(|pair| pick(pair).rate()))
        };
        let ratio = median(
            pairs
                .iter()
                .map(|(ours, theirs)| ours.rate() / theirs.rate()),
        );
        let row = Row::judged(
            format!("PostgreSQL: {name}, against SQLite mode"),
            ratio,
            Unit::Times,
            Target::AtLeast(0.5),
        );
        bench.report.add(row.note(format!(
            "{}/s, {}/s",
            thousands(of(|(ours, _)| ours)),
            thousands(of(|(_, theirs)| theirs))
        )));
    }
    file.child.stop()?;
    server.child.stop()
}

/// A path for the id of a key.
type PathOf = fn(&str) -> String;

/// Requests of a path, which may have the id of a key.
fn traffic(server: &Running, path: PathOf) -> anyhow::Result<Repeat> {
    let list = http::get(server.ai, "/v1/keys?count=1", Some(&server.token))?;
    ensure!(list.status == 200, "status {} of a list", list.status);
    let list = list.json()?;
    let id = list[0]["_id"].as_str().context("no key in a list")?;
    let request = http::request("GET", &path(id), Some(&server.token), None);
    let read = http::get(server.ai, &path(id), Some(&server.token))?;
    ensure!(read.status == 200, "status {} of a key", read.status);
    Ok(Repeat::new([request], Some(read.body.len())))
}

/// Transactions per second.
fn pgbench(url: &str, script: &Path) -> anyhow::Result<f64> {
    let seconds = SPAN.as_secs().to_string();
    let run = Command::new("pgbench")
        .args(["--no-vacuum", "--protocol=prepared", "--jobs=2"])
        .args(["--client", CONNECTIONS, "--time", &seconds, "--file"])
        .arg(script)
        .arg(url)
        .output()
        .context("pgbench")?;
    let error = String::from_utf8_lossy(&run.stderr);
    ensure!(run.status.success(), "pgbench: {}: {error}", run.status);
    let text = String::from_utf8(run.stdout)?;
    let rate = text.lines().find_map(|line| line.strip_prefix("tps = "));
    let rate = rate.and_then(|rest| rest.split_whitespace().next());
    Ok(rate.context("pgbench says no rate")?.parse()?)
}
