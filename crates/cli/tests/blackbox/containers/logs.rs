//! `estrade logs` of a project that runs.

use super::{delete_all, docker_of, home_on};
use crate::client::Person;
use crate::support::{Reaped, TIMEOUT};
use estrade_testkit::Docker;
use reqwest::Method;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// A release that writes a line at its start, another one with control sequences, and one every second.
fn image(version: u64) -> Value {
    let script = format!(
        "printf 'begun {version}\\nError {version}\\033]0;owned\\007: first\\n'; mkdir /tmp/www; \
         (while sleep 1; do echo tick {version}; done) & exec busybox httpd -f -p 8000 -h /tmp/www"
    );
    json!({
        "type": "docker", "image": Docker::BASE, "port": 8000, "args": ["sh", "-c", script],
    })
}

async fn release(person: &Person, version: u64) {
    let path = "/v2/projects/shop/releases";
    let made = person
        .server
        .platform(Method::POST, path, image(version))
        .await;
    let id = made.assert(201).json()["releaseID"].clone();
    let path = format!(
        "/v1/releases/{}?wait=READY&timeout=60",
        id.as_str().unwrap()
    );
    let ended = person
        .server
        .platform(Method::GET, &path, Value::Null)
        .await;
    assert_eq!(ended.json()["release"]["state"], "READY", "{}", ended.text);
}

/// The lines that a command prints, once one has these words.
fn lines_with(person: &Person, args: &[&str], words: &str) -> Vec<String> {
    let args = [&["logs", "-p", "shop"], args].concat();
    let begun = Instant::now();
    loop {
        let ran = person.run(&args);
        let lines: Vec<_> = ran.assert(0).stdout.lines().map(str::to_owned).collect();
        if lines.iter().any(|line| line.contains(words)) {
            return lines;
        }
        assert!(begun.elapsed() < TIMEOUT, "no {words:?} in {lines:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// The lines without their times.
fn texts(lines: &[String]) -> Vec<&str> {
    let text = |line: &'_ String| line.find(' ').map(|at| at + 1);
    lines
        .iter()
        .map(|line| &line[text(line).unwrap()..])
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn logs_are_searched_cut_and_followed() {
    let socket = Docker::socket();
    let person = Person::with_server(home_on(&socket));
    let docker = docker_of(&person.home, &socket);
    let new = json!({"name": "shop", "platform": "docker", "planID": "nano"});
    let made = person
        .server
        .platform(Method::POST, "/v1/projects", new)
        .await;
    made.assert(200);
    release(&person, 1).await;
    lines_with(&person, &[], "tick 1");
    release(&person, 2).await;
    let all = lines_with(&person, &[], "tick 2");
    assert!(texts(&all).contains(&"begun 1"), "{all:?}");

    let found = lines_with(&person, &["--search", "eRRor"], "Error 2");
    assert_eq!(texts(&found), ["Error 1: first", "Error 2: first"]);
    let first = lines_with(&person, &["--release", "v1"], "begun 1");
    assert!(
        texts(&first).iter().all(|text| text.contains('1')),
        "{first:?}"
    );
    let newest = lines_with(&person, &["--lines", "2"], "tick 2");
    assert_eq!(newest.len(), 2);
    // From the second of a line on: that line, and none of an earlier second.
    let begun = all.iter().find(|line| line.ends_with("begun 2")).unwrap();
    let time = begun.split(' ').next().unwrap();
    let since = lines_with(&person, &["--since", time], "begun 2");
    assert!(
        since.iter().all(|line| line[..19] >= time[..19]),
        "{since:?}"
    );
    let since = lines_with(&person, &["--since", "1h", "--search", "begun"], "begun 2");
    assert_eq!(texts(&since), ["begun 1", "begun 2"]);

    let mut command = person.command(&["logs", "-f", "-p", "shop", "--search", "tick", "-n", "1"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = Reaped(child.unwrap());
    let lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let followed: Vec<_> = lines.take(4).map(Result::unwrap).collect();
    assert_eq!(texts(&followed), ["tick 2"; 4]);
    let mut times: Vec<_> = followed.iter().map(|line| &line[..24]).collect();
    times.dedup();
    assert_eq!(times.len(), 4, "{followed:?}");
    drop(child);
    delete_all(&person.server, &docker).await;
    person.server.stop();
}
