//! `./bench builds`: a release that is built, beside `docker build` of a Dockerfile written by hand for the same sources.
//!
//! Both builds have the same base image, network, memory and processors, and take turns. Their steps differ, so neither
//! uses layers of the other.

use crate::Options;
use crate::containers::engine::{Engine, Things};
use crate::http;
use crate::installation::{Running, Site};
use crate::report::{Row, Target, Unit};
use crate::stats::median;
use crate::suite::{self, Bench, Part};
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PARTS: [(&str, Part); 1] = [("vite-react", vite_react)];

/// The image that `./bench` has given the engine.
const IMAGE: &str = "estrade-test/apps:1";
const SAMPLE: &str = "tests/apps/vite-react";
const FILES: [&str; 5] = [
    "index.html",
    "package-lock.json",
    "package.json",
    "src/main.jsx",
    "vite.config.js",
];
/// What a person would write.
const DOCKERFILE: &str = "FROM estrade-test/apps:1 AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY . .
RUN npm run build
FROM scratch
COPY --from=build /app/dist /site
";
const BUILT: &str = "estrade-bench/built:1";
const MEMORY_MB: u64 = 2048;
const CPUS: u64 = 2;
const COLD_ROUNDS: usize = 3;
const WARM_ROUNDS: usize = 7;
const TIMEOUT: Duration = Duration::from_mins(10);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    suite::run("builds", &PARTS, options)
}

/// How long a release took, in milliseconds since it was accepted.
struct Built {
    first_step: f64,
    ready: f64,
}

fn vite_react(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let engine = Engine::find()?;
    let site = Site::new(bench, "builds")?;
    configure(&site, &engine)?;
    let server = site.serve_everywhere(bench)?;
    let things = Things::of(&engine, &site)?;
    server.create("builds", "auto", "nano")?;
    let mut sources = Sources::new(&site)?;
    // The first one makes the owner's network.
    released(&server, &sources, true)?;
    let network = things.network()?;
    // The server removes a network that nothing is in, and a build by hand is in none between two of its steps.
    let holder = ["sleep".to_owned(), "3600".to_owned()];
    let holder = engine.run(&network, IMAGE, &holder)?;

    let measure = |sources: &mut Sources, rounds: usize, cache: bool| -> anyhow::Result<_> {
        let (mut ours, mut steps, mut bare) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds {
            sources.change()?;
            let built = released(&server, sources, cache)?;
            ours.push(built.ready);
            steps.push(built.first_step);
            bare.push(by_hand(&engine, sources, &network, cache)?);
        }
        Ok((median(ours), median(steps), median(bare)))
    };
    let cold = measure(&mut sources, COLD_ROUNDS, false)?;
    // What is measured next has layers to begin with.
    sources.change()?;
    by_hand(&engine, &sources, &network, true)?;
    released(&server, &sources, true)?;
    let warm = measure(&mut sources, WARM_ROUNDS, true)?;
    server.child.stop()?;
    engine.remove(&holder)?;
    engine.remove_image(BUILT)?;

    for (name, (ours, first_step, bare)) in [("cold", cold), ("after a one-line change", warm)] {
        let rows = [
            Row::fact(
                format!("{name}: docker build by hand"),
                bare,
                Unit::Milliseconds,
            ),
            Row::fact(
                format!("{name}: release accepted to READY"),
                ours,
                Unit::Milliseconds,
            ),
            Row::judged(
                format!("{name}: … against by hand"),
                (ours - first_step) / bare,
                Unit::Times,
                Target::AtMost(1.25),
            )
            .note("from the first build step on; what comes before it has a line of its own"),
            Row::judged(
                format!("{name}: release accepted to first build step"),
                first_step,
                Unit::Milliseconds,
                Target::AtMost(300.0),
            ),
        ];
        for row in rows {
            bench.report.add(row);
        }
    }
    Ok(())
}

fn configure(site: &Site, engine: &Engine) -> anyhow::Result<()> {
    let file = site.directory.join("estrade.toml");
    let mut config = fs::read_to_string(&file)?;
    // Writing to a string cannot fail.
    let _ = write!(
        config,
        "[docker]\nhost = \"unix://{}\"\nfirewall = false\nfree_disk_gb = 0\n\
         build_memory_mb = {MEMORY_MB}\nbuild_cpus = {CPUS}\n\
         [docker.images]\nnode = \"{IMAGE}\"\nreact = \"{IMAGE}\"\n",
        engine.socket().display()
    );
    Ok(fs::write(file, config)?)
}

/// The sample, and how often a line of it was changed.
struct Sources {
    folder: PathBuf,
    changes: usize,
}

impl Sources {
    /// A copy that may be changed, with the Dockerfile beside it, which a release does not use.
    fn new(site: &Site) -> anyhow::Result<Self> {
        let folder = site.directory.join("sources");
        fs::create_dir_all(folder.join("src"))?;
        for file in FILES {
            fs::copy(Path::new(SAMPLE).join(file), folder.join(file))
                .with_context(|| format!("{SAMPLE}/{file}: run this in the root of the project"))?;
        }
        fs::write(folder.join("Dockerfile"), DOCKERFILE)?;
        Ok(Self { folder, changes: 0 })
    }

    fn change(&mut self) -> anyhow::Result<()> {
        self.changes += 1;
        let file = self.folder.join("src/main.jsx");
        let mut text = fs::read_to_string(Path::new(SAMPLE).join("src/main.jsx"))?;
        let _ = writeln!(text, "\nconsole.log(\"change {}\");", self.changes);
        Ok(fs::write(file, text)?)
    }

    /// The body of a release of them.
    fn release(&self, cache: bool) -> anyhow::Result<Value> {
        let file = |path: &&str| -> anyhow::Result<Value> {
            let data = fs::read_to_string(self.folder.join(path))?;
            Ok(json!({"path": path, "data": data}))
        };
        let files: Vec<Value> = FILES.iter().map(file).collect::<anyhow::Result<_>>()?;
        Ok(json!({"files": files, "build": {"cache": cache}}))
    }

    /// A tar of them.
    fn context(&self) -> anyhow::Result<Vec<u8>> {
        let packed = Command::new("tar")
            .arg("-C")
            .arg(&self.folder)
            .args(["-c", "."])
            .output()?;
        ensure!(packed.status.success(), "tar: {}", packed.status);
        Ok(packed.stdout)
    }
}

/// Deploys the sources and waits until they are READY.
fn released(server: &Running, sources: &Sources, cache: bool) -> anyhow::Result<Built> {
    let body = sources.release(cache)?;
    let made = http::post(
        server.platform,
        "/v2/projects/builds/releases",
        &server.token,
        &body,
    )?;
    let accepted = Instant::now();
    let text = String::from_utf8_lossy(&made.body);
    ensure!(made.status == 201, "status {}: {text}", made.status);
    let release = made.json()?["releaseID"]
        .as_str()
        .context("no release")?
        .to_owned();
    let read = |path: String| http::get(server.platform, &path, Some(&server.token))?.json();
    let mut first_step = None;
    loop {
        if first_step.is_none() {
            let log = read(format!("/v2/releases/{release}/build-logs"))?;
            if log.to_string().contains("Step 1/") {
                first_step = Some(millis(accepted));
            }
        }
        let seen = read(format!("/v1/releases/{release}"))?;
        match seen["release"]["state"].as_str() {
            Some("READY") => break,
            Some("FAILED" | "CANCELED" | "TIMEDOUT") => anyhow::bail!("{seen}"),
            _ => {}
        }
        ensure!(accepted.elapsed() < TIMEOUT, "it does not end: {seen}");
        sleep(POLL_INTERVAL);
    }
    let ready = millis(accepted);
    let first_step = first_step.context("the log has no first step")?;
    Ok(Built { first_step, ready })
}

/// Milliseconds of `docker build`.
fn by_hand(engine: &Engine, sources: &Sources, network: &str, cache: bool) -> anyhow::Result<f64> {
    let memory = MEMORY_MB << 20;
    let query = format!(
        "t={BUILT}&rm=true&forcerm=true&nocache={}&networkmode={network}&memory={memory}&memswap={memory}\
         &cpuperiod=100000&cpuquota={}",
        !cache,
        CPUS * 100_000
    );
    let began = Instant::now();
    engine.build(&query, &sources.context()?)?;
    Ok(millis(began))
}

fn millis(since: Instant) -> f64 {
    since.elapsed().as_secs_f64() * 1000.0
}
