//! `/v2/projects/{project_id}/logs` and `/v1/projects/{project_id}/logs`

use crate::support::{deploy_site, fields, new_project};
use estrade_store::log_blocks::{NewLogBlock, insert_block};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

on_both_backends! {
    lines_are_grouped_by_release;
    the_query_is_checked;
    the_first_version_is_a_list;
    the_stream_resumes_after_the_last_line;
    the_stream_ends_with_the_project;
}

const PATH: &str = "/v2/projects/shop/logs";
const OLD_PATH: &str = "/v1/projects/shop/logs";
/// A moment in nanoseconds, so many seconds after the beginning of 2100: lines of long ago would be removed by the
/// server meanwhile, since they are too old.
const fn at(seconds: i64) -> i64 {
    (YEAR_2100 + seconds) * 1_000_000_000
}

const YEAR_2100: i64 = 4_102_444_800;
const LIMIT: Duration = Duration::from_secs(20);

fn release(digit: char) -> String {
    digit.to_string().repeat(24)
}

/// Stores lines as the server does: a block of what an instance of a release wrote.
async fn store(app: &TestApp, project: &str, digit: char, lines: &[(i64, &str)]) {
    let (mut raw, mut previous) = (Vec::new(), 0);
    for (at, text) in lines {
        raw.extend((at - previous).to_be_bytes());
        raw.push(u8::from(text.starts_with('!')));
        raw.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
        raw.extend(text.as_bytes());
        previous = *at;
    }
    let mut data = vec![1];
    data.extend(zstd::bulk::compress(&raw, 3).unwrap());
    let block = NewLogBlock {
        project: project.parse().unwrap(),
        release: release(digit).parse().unwrap(),
        instance: "x".into(),
        first_at: lines[0].0,
        last_at: lines[lines.len() - 1].0,
        lines: u32::try_from(lines.len()).unwrap(),
        data,
    };
    let now = app.core().now();
    let stored = app.core().db.transact(move |tx| {
        let block = block.clone();
        Box::pin(async move { insert_block(tx, &block, now).await })
    });
    assert!(stored.await.unwrap());
}

async fn lines_are_grouped_by_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    // Public clients cannot read an empty body.
    let nothing = ada.get(PATH).await.assert(200).json();
    assert_eq!(nothing, json!({"data": []}));
    let [five, six, seven] = [at(5), at(6), at(7) + 1].map(|at| at.to_string());
    let old = [(at(5), "one"), (at(6), "!two \"2\"")];
    store(app, &project, 'a', &old).await;
    store(app, &project, 'b', &[(at(7) + 1, "Three")]).await;
    let all = ada.get(&format!("{PATH}?direction=forward")).await;
    let entry = |text: &str, stream: &str| json!({"_entry": text, "type": stream}).to_string();
    let first = json!({"metaData": {"releaseId": release('a')}, "values": [
        [five, entry("one", "stdout")],
        [six, entry("!two \"2\"", "stderr")],
    ]});
    let second = json!({"metaData": {"releaseId": release('b')}, "values": [
        [seven, entry("Three", "stdout")],
    ]});
    assert_eq!(all.assert(200).json(), json!({"data": [first, second]}));
    let newest = ada.get(PATH).await.assert(200).json();
    assert_eq!(newest["data"][0], second);
    assert_eq!(newest["data"][1]["values"][0][0], six);
    let second = |seconds| YEAR_2100 + seconds;
    let (only_six, from_seven) = (
        format!("start={0}&end={0}", second(6)),
        format!("last_lines=99999&follow=false&start={}", second(7)),
    );
    for (query, time) in [
        (&*only_six, &*six),
        ("search=THREE", &*seven),
        ("releaseId=aaaaaaaaaaaaaaaaaaaaaaaa&last_lines=1", &*six),
        (
            "start=&end=&search=&direction=&last_lines=&releaseId=&follow=",
            &*seven,
        ),
        ("last_lines=false&search=three", &*seven),
        ("last_lines=true&search=three", &*seven),
        ("last_lines=99999999999999999999&search=three", &*seven),
        (&from_seven, &*seven),
    ] {
        let found = ada.get(&format!("{PATH}?{query}")).await.assert(200).json();
        let values = found["data"][0]["values"].as_array().unwrap();
        let found: Vec<_> = values.iter().map(|line| line[0].clone()).collect();
        assert_eq!(found, [time], "{query}");
    }
    let (too_late, too_early) = (format!("start={}", second(8)), format!("end={}", second(4)));
    for query in [
        &*too_late,
        &too_early,
        "search=four",
        "last_lines=0",
        "releaseId=cccccccccccccccccccccccc",
    ] {
        let found = ada.get(&format!("{PATH}?{query}")).await.assert(200).json();
        assert_eq!(found, nothing, "{query}");
    }
    // A viewer may read this too.
    let team = app.new_team(&ada, "Shop").await;
    let (owner, eve) = (ada.in_team(&team), app.new_account("eve").await);
    app.join(&team, &ada, &eve, "viewer").await;
    let theirs = new_project(&owner, "theirs").await;
    store(app, &theirs, 'a', &[(at(1), "x")]).await;
    let path = "/v2/projects/theirs/logs";
    eve.in_team(&team).get(path).await.assert(200);
    eve.get(path).await.refused(404, "not_found");
}

async fn the_query_is_checked(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    for query in [
        "start=x",
        "end=1.5",
        "direction=up",
        "releaseId=1",
        "last_lines=-1",
        "last_lines=yes",
        "start=1&start=2",
        "follow=1",
    ] {
        let refused = ada.get(&format!("{PATH}?{query}")).await;
        let message = refused.refused(400, "invalid").message();
        let named = format!("{}: ", query.split('=').next().unwrap());
        assert!(message.starts_with(&named), "{message}");
    }
    let bad = ada.get(&format!("{PATH}?follow=true"));
    let bad = bad.header("last-event-id", "7").await;
    bad.refused(400, "invalid").naming("Last-Event-ID");
    ada.get("/v2/projects/other/logs?follow=true")
        .await
        .refused(404, "not_found");
}

async fn the_first_version_is_a_list(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    assert_eq!(ada.get(OLD_PATH).await.assert(200).json(), json!([]));
    let lines = [(at(5) + 7, "one"), (at(6), "!two")];
    store(app, &project, 'a', &lines).await;
    let first =
        json!({"type": "stdout", "datetime": "2100-01-01T00:00:05.000000007Z", "message": "one"});
    let second =
        json!({"type": "stderr", "datetime": "2100-01-01T00:00:06.000000000Z", "message": "!two"});
    let from_five = format!("?since={}", YEAR_2100 + 5);
    for absent in ["", "?since=", "?since=undefined", "?since=null", &from_five] {
        let all = ada.get(&format!("{OLD_PATH}{absent}")).await.assert(200);
        assert_eq!(all.json(), json!([first, second]), "{absent}");
    }
    let six = (YEAR_2100 + 6).to_string();
    for after in [&*six, first["datetime"].as_str().unwrap()] {
        let rest = ada.get(&format!("{OLD_PATH}?since={after}")).await.json();
        assert_eq!(rest, json!([second]), "{after}");
    }
    let bad = ada.get(&format!("{OLD_PATH}?since=yesterday")).await;
    bad.refused(400, "invalid").naming("since");
}

async fn open(user: &User, query: &str, after: Option<&str>) -> reqwest::Response {
    let mut call = user.get(&format!("{PATH}?follow=true{query}"));
    if let Some(after) = after {
        call = call.header("last-event-id", after);
    }
    let stream = call.stream().await;
    assert_eq!(stream.status(), 200);
    let kind = stream.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    stream
}

/// Reads server-sent events until `count` of them have come, or to the end: each with its id.
async fn read(stream: &mut reqwest::Response, count: usize) -> Vec<(String, Value)> {
    let mut text = String::new();
    let read = async {
        while text.matches("data:").count() < count || !text.ends_with("\n\n") {
            match stream.chunk().await.unwrap() {
                Some(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
                None => break,
            }
        }
    };
    timeout(LIMIT, read).await.expect("lines in time");
    let frames = text.split("\n\n").filter(|frame| frame.contains("data:"));
    let parse = |frame: &str| {
        let line = |name: &str| {
            let line = frame.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {frame}"))
                .trim()
                .to_owned()
        };
        (line("id:"), serde_json::from_str(&line("data:")).unwrap())
    };
    frames.map(parse).collect()
}

fn entries(lines: &[(String, Value)]) -> Vec<&str> {
    lines
        .iter()
        .map(|(_, line)| line["_entry"].as_str().unwrap())
        .collect()
}

async fn the_stream_resumes_after_the_last_line(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let lines = [
        (at(20), "one"),
        (at(21), "!two"),
        (at(22), "three\nwith more"),
    ];
    store(app, &project, 'a', &lines).await;
    let mut stream = open(&ada, "", None).await;
    let first = read(&mut stream, 3).await;
    assert_eq!(entries(&first), ["one", "!two", "three\nwith more"]);
    assert_eq!(
        first[1].1,
        json!({"releaseId": release('a'), "time": at(21).to_string(), "type": "stderr", "_entry": "!two"})
    );
    assert_eq!(fields(&first[0].1), ["_entry", "releaseId", "time", "type"]);
    store(app, &project, 'b', &[(at(10), "four")]).await;
    assert_eq!(entries(&read(&mut stream, 1).await), ["four"]);
    let rest = read(&mut open(&ada, "", Some(&first[1].0)).await, 2).await;
    assert_eq!(entries(&rest), ["three\nwith more", "four"]);
    let last = read(&mut open(&ada, "&last_lines=1", None).await, 1).await;
    assert_eq!(entries(&last), ["four"]);
    let found = read(&mut open(&ada, "&search=TWO", None).await, 1).await;
    assert_eq!(entries(&found), ["!two"]);
}

async fn the_stream_ends_with_the_project(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let mut stream = open(&ada, "", None).await;
    store(app, &project, 'a', &[(at(1), "one")]).await;
    assert_eq!(entries(&read(&mut stream, 1).await), ["one"]);
    ada.delete("/v1/projects/shop").await.assert(200);
    assert!(read(&mut stream, 1).await.is_empty());
}
