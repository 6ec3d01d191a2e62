//! Ten thousand projects with a hundred files each: does size cost speed, memory or the start?

use crate::http::{self, Connection};
use crate::installation::{Running, Site};
use crate::load::{self, Once, Repeat};
use crate::random::Random;
use crate::report::{Row, Target, Unit, thousands};
use crate::stats::median;
use crate::suite::Bench;
use anyhow::{anyhow, bail, ensure};
use serde_json::json;
use std::fmt::Write as _;
use std::thread::sleep;
use std::time::{Duration, Instant};

const FILES: usize = 100;
const SIZE: usize = 1024;
const SPAN: Duration = Duration::from_secs(2);
/// Different requests of a window.
const SPREAD: usize = 200_000;
/// Connections that releases are sent on.
const CONNECTIONS: usize = 8;
/// How long the releases may take.
const TIMEOUT: Duration = Duration::from_mins(15);

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let projects = bench.options.projects;
    let site = Site::new(bench, "many")?;
    let server = site.serve_everywhere(bench)?;
    seed(&server, &site, projects)?;
    server.child.stop()?;

    let began = Instant::now();
    let server = site.serve(bench)?;
    let request = |project: usize, file: usize| {
        format!(
            "GET /{} HTTP/1.1\r\nHost: many-{project}.localhost\r\n\r\n",
            file_name(file)
        )
    };
    let first = http::send(server.edge, &request(projects / 2, 1))?;
    ensure!(first.status == 200, "status {}", first.status);
    let start = began.elapsed().as_secs_f64() * 1000.0;

    let mut random = Random::new(3);
    let mut any = |most: usize| usize::try_from(random.next() % most as u64).unwrap_or_default();
    let spread: Vec<_> = (0..SPREAD)
        .map(|_| request(any(projects), any(FILES)))
        .collect();
    let mut spread = Repeat::new(spread, Some(SIZE));
    // Every site is visited once before anything is measured: how long that takes is told beside it.
    let began_visits = Instant::now();
    let mut visits = Once::new((0..projects).map(|project| request(project, 0)), SIZE);
    load::send_all(server.edge, &mut visits)?;
    let visited = began_visits.elapsed().as_secs_f64() * 1000.0 / projects as f64;
    let mut one = Repeat::new((0..FILES).map(|file| request(0, file)), Some(SIZE));
    let (mut ratios, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..bench.options.rounds {
        let one = server.measure(server.edge, SPAN, &mut one)?;
        let spread = server.measure(server.edge, SPAN, &mut spread)?;
        ratios.push(spread.per_cpu() / one.per_cpu());
        rates.push((one.per_cpu(), spread.per_cpu()));
    }
    let memory = server.child.memory()? as f64 / f64::from(1 << 20);
    server.child.stop()?;

    let count = thousands(projects as f64);
    let row = Row::judged(
        format!("{count} projects against one"),
        median(ratios),
        Unit::Times,
        Target::AtLeast(0.5),
    );
    bench.report.add(row.note(format!(
        "{} and {} per CPU-second",
        thousands(median(rates.iter().map(|rate| rate.1))),
        thousands(median(rates.iter().map(|rate| rate.0))),
    )));
    let row = Row::fact("… the first visit of a site", visited, Unit::Milliseconds);
    bench.report.add(row.note("64 at once, on average"));
    bench.report.add(Row::judged(
        "… memory after that",
        memory,
        Unit::Mebibytes,
        Target::AtMost(200.0),
    ));
    bench.report.add(Row::judged(
        "… start to first file",
        start,
        Unit::Milliseconds,
        Target::AtMost(1000.0),
    ));
    Ok(())
}

/// Half of the files are worth compressing.
fn file_name(file: usize) -> String {
    let kind = if file.is_multiple_of(2) {
        "html"
    } else {
        "bin"
    };
    format!("part-{file}.{kind}")
}

fn seed(server: &Running, site: &Site, projects: usize) -> anyhow::Result<()> {
    post_all(server, projects, |number| {
        let body =
            json!({"name": format!("many-{number}"), "platform": "static", "planID": "nano"});
        ("/v1/projects".to_owned(), body.to_string())
    })?;
    post_all(server, projects, release)?;
    let (database, began) = (site.open()?, Instant::now());
    let sql = "SELECT count(*) FROM releases WHERE state = 'READY'";
    while database.query_row(sql, [], |row| row.get::<_, i64>(0))? < i64::try_from(projects)? {
        if began.elapsed() > TIMEOUT {
            bail!("the releases do not become READY");
        }
        sleep(Duration::from_millis(100));
    }
    Ok(())
}

fn release(project: usize) -> (String, String) {
    let file = |file: usize| {
        let mut random = Random::new((project * FILES + file) as u64);
        let mut data = String::with_capacity(SIZE + 16);
        while data.len() < SIZE {
            // Numbers repeat a little, so that compressing them pays.
            let _ = write!(data, "item {} ", random.next() % 100_000);
        }
        data.truncate(SIZE);
        json!({"path": file_name(file), "data": data})
    };
    let files: Vec<_> = (0..FILES).map(file).collect();
    (
        format!("/v2/projects/many-{project}/releases"),
        json!({ "files": files }).to_string(),
    )
}

/// Posts `count` bodies, each made when it is its turn, on a few connections.
fn post_all(
    server: &Running,
    count: usize,
    make: fn(usize) -> (String, String),
) -> anyhow::Result<()> {
    let post_some = |first: usize| {
        let mut connection = Connection::open(server.platform)?;
        for number in (first..count).step_by(CONNECTIONS) {
            let (path, body) = make(number);
            let request = http::request("POST", &path, Some(&server.token), Some(&body));
            let response = connection.exchange(&request)?;
            let text = String::from_utf8_lossy(&response.body);
            ensure!(response.status < 300, "status {}: {text}", response.status);
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..CONNECTIONS)
            .map(|first| scope.spawn(move || post_some(first)))
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().map_err(|_| anyhow!("a thread broke off"))?)
    })
}
