//! Requests that instances answer are noted like all others.

use crate::backend::ok;
use crate::stage::{HOST, Stage};
use crate::visitor::Modern;
use estrade_edge::metrics::EdgeMetrics;
use estrade_fixtures::eventually;
use estrade_mock_upstream::{Action, MockUpstream, send};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use serde_json::Value;
use std::fs;

#[tokio::test]
async fn every_request_is_in_the_access_log_and_in_the_numbers() {
    let stage = Stage::start().await;
    let app = MockUpstream::with_script(|_, asked| match asked.head.split(' ').nth(1) {
        Some("/cut") => vec![
            send("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n12"),
            Action::Close,
        ],
        Some("/never") => vec![Action::AwaitClose],
        Some("/garbage") => vec![send("?"), Action::Close],
        _ => vec![ok("four")],
    })
    .await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    let agent = [("User-Agent", "me"), ("Referer", "there")];
    visitor
        .request("GET", "/express?q", &agent, b"")
        .await
        .unwrap();
    visitor.request("HEAD", "/head", &agent, b"").await.unwrap();
    visitor
        .request("POST", "/hyper?q", &agent, b"x")
        .await
        .unwrap();
    visitor
        .request("POST", "/garbage", &agent, b"x")
        .await
        .unwrap();
    let modern = Modern::new(stage.address);
    let response = modern.request(reqwest::Method::GET, "/modern").send().await;
    response.unwrap().bytes().await.unwrap();
    for method in ["GET", "POST"] {
        let mut visitor = stage.visitor().await;
        visitor
            .request(method, "/cut", &agent, b"")
            .await
            .unwrap_err();
        let mut visitor = stage.visitor().await;
        let before = app.count();
        visitor.send(method, "/never", &agent, b"").await;
        eventually("it is asked", || async { app.count() > before }).await;
    }
    let lines = || fs::read_to_string(stage.access_log()).unwrap_or_default();
    eventually("all are noted", || async { lines().lines().count() == 9 }).await;
    let mut noted: Vec<_> = lines()
        .lines()
        .map(|line| {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["project"], "app");
            assert_eq!(line["client"], "127.0.0.1");
            assert!(line["host"].as_str().unwrap().starts_with(HOST));
            if line["path"] != "/modern" {
                assert_eq!(
                    (&line["agent"], &line["referer"]),
                    (&"me".into(), &"there".into())
                );
            }
            format!(
                "{} {} {} {}",
                line["path"], line["method"], line["status"], line["bytes"]
            )
        })
        .collect();
    noted.sort_unstable();
    // How long the page of a failure is says the page.
    let page = noted
        .iter()
        .position(|line| line.starts_with("\"/garbage\""))
        .unwrap();
    assert!(noted.remove(page).starts_with("\"/garbage\" \"POST\" 502 "));
    assert_eq!(
        noted,
        [
            r#""/cut" "GET" 200 2"#,
            r#""/cut" "POST" 200 2"#,
            r#""/express" "GET" 200 4"#,
            r#""/head" "HEAD" 200 0"#,
            r#""/hyper" "POST" 200 4"#,
            r#""/modern" "GET" 200 4"#,
            r#""/never" "GET" 499 0"#,
            r#""/never" "POST" 499 0"#,
        ]
    );
    let mut registry = Registry::default();
    registry.register_collector(Box::new(EdgeMetrics::new(&stage.edge)));
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert!(
        text.contains("estrade_edge_upstream_refused_total 0\n"),
        "{text}"
    );
    for (status, count) in [("2xx", 6), ("4xx", 2), ("5xx", 1)] {
        let line =
            format!("estrade_edge_requests_total{{project=\"app\",status=\"{status}\"}} {count}\n");
        assert!(text.contains(&line), "{text}");
    }
    stage.finish().await;
}
