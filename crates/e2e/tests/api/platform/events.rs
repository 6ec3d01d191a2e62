//! `/v1/projects/{project_id}/events`

use crate::support::{assert_id, assert_time, column, deploy_site, fields, new_project};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::timeout;

on_both_backends! {
    what_happened_is_listed_newest_first;
    the_stream_resumes_after_the_last_event;
    the_stream_brings_what_happens_now_and_ends_with_the_project;
    an_account_has_a_limited_number_of_streams;
}

const PATH: &str = "/v1/projects/shop/events";

async fn scale(user: &User, scale: u32) {
    let path = "/v1/projects/shop/actions/scale";
    user.post(path, &json!({"scale": scale})).await.assert(200);
}

async fn what_happened_is_listed_newest_first(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    ada.get(PATH).await.assert_empty(204);
    scale(&ada, 3).await;
    let release = deploy_site(&ada, "shop").await;
    ada.post_empty("/v1/projects/shop/actions/restart")
        .await
        .assert(200);
    let list = ada.get(PATH).await.assert(200).json();
    assert_eq!(fields(&list), ["data"]);
    let data = &list["data"];
    let actions = [
        "restart", "release", "release", "release", "release", "scale",
    ];
    assert_eq!(column(data, "action"), actions);
    let event = &data[1];
    assert_eq!(
        fields(event),
        ["action", "id", "release", "status", "tag", "timestamp"]
    );
    assert_eq!(event["status"], "READY");
    assert_eq!(event["release"], release.as_str());
    assert_eq!(event["tag"], "v1");
    assert_id(&event["id"]);
    assert_time(&event["timestamp"]);
    assert_eq!(data[5]["status"], "3");
    assert_eq!(data[5]["release"], Value::Null);
    let mut ids = column(data, "id");
    ids.reverse();
    assert!(ids.is_sorted());
    let page = ada
        .get(&format!("{PATH}?page=2&count=2"))
        .await
        .assert(200)
        .json();
    assert_eq!(page["data"][0], data[2]);
    assert_eq!(page["data"].as_array().unwrap().len(), 2);
    ada.get("/v1/projects/other/events")
        .await
        .refused(404, "not_found");
    ada.get("/v1/projects/other/events/stream")
        .await
        .refused(404, "not_found");
}

/// Reads server-sent events until `count` of them have come, or to the end.
async fn read_events(stream: &mut reqwest::Response, count: usize) -> Vec<Value> {
    let mut text = String::new();
    let read = async {
        while text.matches("data:").count() < count || !text.ends_with("\n\n") {
            match stream.chunk().await.unwrap() {
                Some(chunk) => text.push_str(std::str::from_utf8(&chunk).unwrap()),
                None => break,
            }
        }
    };
    timeout(Duration::from_secs(20), read)
        .await
        .expect("events in time");
    let frames = text.split("\n\n").filter(|frame| frame.contains("data:"));
    let parse = |frame: &str| {
        let line = |name: &str| {
            let line = frame.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name} in {frame}"))
                .trim()
                .to_owned()
        };
        let event: Value = serde_json::from_str(&line("data:")).unwrap();
        assert_eq!(event["id"], line("id:"));
        assert_eq!(event["action"], line("event:"));
        event
    };
    frames.map(parse).collect()
}

async fn open(user: &User, after: Option<&str>) -> reqwest::Response {
    let mut call = user.get("/v1/projects/shop/events/stream");
    if let Some(after) = after {
        call = call.header("last-event-id", after);
    }
    let stream = call.stream().await;
    assert_eq!(stream.status(), 200);
    let kind = stream.headers()["content-type"].to_str().unwrap();
    assert!(kind.starts_with("text/event-stream"), "{kind}");
    stream
}

async fn the_stream_resumes_after_the_last_event(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for count in 1..=5 {
        scale(&ada, count).await;
    }
    let list = ada.get(PATH).await.json();
    let mut expected = list["data"].as_array().unwrap().clone();
    expected.reverse();
    let whole = read_events(&mut open(&ada, None).await, 5).await;
    assert_eq!(whole, expected);
    let third = expected[2]["id"].as_str().unwrap();
    let rest = read_events(&mut open(&ada, Some(third)).await, 2).await;
    assert_eq!(rest, expected[3..]);
    for bad in ["x", "0123456789abcdef0123456", "12"] {
        let call = ada
            .get("/v1/projects/shop/events/stream")
            .header("last-event-id", bad);
        call.await.refused(400, "invalid").naming("Last-Event-ID");
    }
}

async fn the_stream_brings_what_happens_now_and_ends_with_the_project(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut stream = open(&ada, None).await;
    let (events, ()) = tokio::join!(read_events(&mut stream, 1), scale(&ada, 2));
    assert_eq!(events[0]["status"], "2");
    deploy_site(&ada, "shop").await;
    let events = read_events(&mut stream, 4).await;
    let status: Vec<_> = events
        .iter()
        .map(|event| event["status"].as_str().unwrap())
        .collect();
    assert_eq!(status, ["PENDING", "BUILDING", "DEPLOYING", "READY"]);
    ada.delete("/v1/projects/shop").await.assert(200);
    assert_eq!(read_events(&mut stream, 1).await, Vec::<Value>::new());
}

async fn an_account_has_a_limited_number_of_streams(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    let mut streams = Vec::new();
    for _ in 0..32 {
        streams.push(open(&ada, None).await);
    }
    for path in [
        "/v1/projects/shop/events/stream",
        "/v2/projects/shop/logs?follow=true",
    ] {
        let refused = ada.get(path).await.refused(429, "too_many_streams");
        assert_eq!(refused.header("retry-after"), "1");
    }
    // Another account is not affected.
    new_project(&bob, "shop-of-bob").await;
    let of_bob = bob.get("/v1/projects/shop-of-bob/events/stream");
    assert_eq!(of_bob.stream().await.status(), 200);
    drop(streams.pop());
    let again = async {
        while ada
            .get("/v1/projects/shop/events/stream")
            .stream()
            .await
            .status()
            != 200
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let again = timeout(Duration::from_secs(20), again).await;
    again.expect("a closed stream makes room");
}
