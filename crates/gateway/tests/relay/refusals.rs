//! What is refused before a provider is asked.

use crate::support::{
    MODEL, TIMEOUT, TestGateway, chat, chat_response, error_code, provider_at, until,
};
use estrade_mock_upstream::{MockUpstream, json};
use http::Method;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

#[tokio::test]
async fn keys_are_checked_before_anything_else() {
    let gateway = TestGateway::new(&[]).await;
    for (key, status, code) in [
        ("", 401, "missing_key"),
        ("wrong", 401, "invalid_key"),
        ("off", 403, "key_disabled"),
        ("many", 400, "workspace_required"),
        ("down", 503, "keys_unavailable"),
    ] {
        let response = gateway.caller_with(key).chat("not even json").await;
        assert_eq!(
            (response.status.as_u16(), &*error_code(&response.body)),
            (status, code),
            "{key}"
        );
        assert_eq!(
            response.header("www-authenticate"),
            if status == 401 { "Bearer" } else { "" }
        );
        assert_eq!(response.header("x-estrade-call"), "");
    }
    assert!(gateway.ledger.rows().is_empty());
    let cold = gateway.caller_with("cold").chat("{}").await;
    assert_eq!(cold.status, 400, "it was looked up");
}

#[tokio::test]
async fn bad_requests_are_refused_and_noted() {
    let gateway = TestGateway::new(&[provider_at("acme", "127.0.0.1:9".parse().unwrap())]).await;
    gateway.add_key("few", |key, _| {
        key.models = Some(["estrade/echo".to_owned()].into());
    });
    let deep = format!(r#"{{"model":"{MODEL}","x":{}"#, "[".repeat(10_000));
    for (key, body, status, code) in [
        ("good", "", 400, "invalid_json"),
        ("good", "{\"model\":", 400, "invalid_json"),
        ("good", &*deep, 400, "invalid_json"),
        ("good", "{}", 400, "model_required"),
        ("good", r#"{"model":"a","model":"b"}"#, 400, "invalid_value"),
        (
            "good",
            r#"{"model":"nobody/knows"}"#,
            404,
            "model_not_found",
        ),
        ("few", &*chat(""), 403, "model_not_allowed"),
        (
            "few",
            r#"{"model":"nobody/knows"}"#,
            403,
            "model_not_allowed",
        ),
    ] {
        let response = gateway.caller_with(key).chat(body).await;
        assert_eq!(
            (response.status.as_u16(), &*error_code(&response.body)),
            (status, code),
            "{body:.60}"
        );
        let (_, call) = gateway.ledger.rows().pop().unwrap();
        assert_eq!(
            (call.status, response.header("x-estrade-call")),
            (status, &*call.id.to_string())
        );
        assert_eq!(
            (call.cost.nanos(), call.attempts, &*call.provider),
            (0, 0, "")
        );
    }
    gateway.ledger.wait(8).await;
}

#[tokio::test]
async fn paths_and_methods_are_refused_in_the_same_shape() {
    let gateway = TestGateway::new(&[]).await;
    let caller = gateway.caller();
    let response = caller
        .call(caller.request(Method::GET, "/v1/chat/completions", ""))
        .await;
    assert_eq!(
        (response.status.as_u16(), response.header("allow")),
        (405, "POST")
    );
    assert_eq!(error_code(&response.body), "method_not_allowed");
    let response = caller.post("/api/w1/v1/models", "").await;
    assert_eq!(
        (response.status.as_u16(), response.header("allow")),
        (405, "GET, HEAD")
    );
    let response = caller.post("/api/w1/v1/audio/speech", "").await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (404, "not_found")
    );
    // Without a key nothing is learned.
    for path in ["/api/w1/v1/models", "/api/w1/v1/audio/speech"] {
        let response = gateway.caller_with("").post(path, "").await;
        assert_eq!(response.status, 401, "{path}");
    }
}

#[tokio::test]
async fn a_body_that_is_too_large_is_not_read() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.max_body = 10_000;
    })
    .await;
    let caller = gateway.caller();
    // Announced: refused before a byte of it was sent.
    let head = "POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer good\r\n";
    let mut stream = caller
        .raw(&format!("{head}content-length: 104857600\r\n\r\n"))
        .await;
    assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 413"));
    // Not announced: refused when it is.
    let mut stream = caller
        .raw(&format!("{head}transfer-encoding: chunked\r\n\r\n"))
        .await;
    let chunk = format!("1000\r\n{}\r\n", "x".repeat(4096));
    for _ in 0..10 {
        let _ = stream.write_all(chunk.as_bytes()).await;
    }
    assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 413"));
    let fits = chat(&format!(r#","x":"{}""#, "x".repeat(9000)));
    assert_eq!(caller.chat(&fits).await.status, 200);
    assert!(
        gateway.ledger.wait(3).await[..2]
            .iter()
            .all(|(_, call)| call.status == 413)
    );
}

#[tokio::test]
async fn all_bodies_together_are_bounded() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.max_bodies = 300_000;
    })
    .await;
    let caller = gateway.caller();
    let large = chat(&format!(r#","x":"{}""#, "x".repeat(200_000)));
    let whole = caller.raw_chat(&large);
    let half = caller.raw(&whole[..190_000]).await;
    until("the first is held", || {
        gateway.gateway.body_bytes() > 180_000
    })
    .await;
    let mut second = caller.raw(&whole).await;
    assert!(read_some(&mut second).await.starts_with("HTTP/1.1 503"));
    assert_eq!(
        caller.chat(&chat("")).await.status,
        200,
        "there is room for small ones"
    );
    drop(half);
    gateway.ledger.wait(3).await;
    assert_eq!(caller.chat(&large).await.status, 200, "room was given back");
}

#[tokio::test]
async fn large_bodies_of_one_owner_are_bounded() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.max_owner_bodies = 300_000;
    })
    .await;
    let caller = gateway.caller();
    let large = chat(&format!(r#","x":"{}""#, "x".repeat(200_000)));
    let whole = caller.raw_chat(&large);
    let half = caller.raw(&whole[..190_000]).await;
    until("the first is held", || {
        gateway.gateway.body_bytes() > 180_000
    })
    .await;
    let mut second = caller.raw(&whole).await;
    assert!(read_some(&mut second).await.starts_with("HTTP/1.1 429"));
    assert_eq!(caller.chat(&chat("")).await.status, 200);
    drop(half);
    gateway.ledger.wait(3).await;
    assert_eq!(caller.chat(&large).await.status, 200, "room was given back");
}

#[tokio::test]
async fn many_small_bodies_are_bounded_as_well() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.max_bodies = 50_000;
    })
    .await;
    let caller = gateway.caller();
    let small = chat(&format!(r#","x":"{}""#, "x".repeat(4000)));
    let whole = caller.raw_chat(&small);
    let mut halves = Vec::new();
    for _ in 0..13 {
        halves.push(caller.raw(&whole[..whole.len() - 10]).await);
    }
    until("they are held", || gateway.gateway.body_bytes() > 46_000).await;
    let refused = caller.chat(&small).await;
    assert_eq!(
        (refused.status.as_u16(), &*error_code(&refused.body)),
        (503, "overloaded")
    );
    drop(halves);
    gateway.ledger.wait(14).await;
    assert_eq!(caller.chat(&small).await.status, 200, "room was given back");
}

#[tokio::test]
async fn a_body_that_does_not_come_is_given_up() {
    let gateway = TestGateway::with(&[], |options| {
        options.body_idle_timeout = Duration::from_millis(200);
    })
    .await;
    let caller = gateway.caller();
    let whole = caller.raw_chat(&chat(""));
    let mut stream = caller.raw(&whole[..whole.len() - 10]).await;
    assert!(read_some(&mut stream).await.starts_with("HTTP/1.1 408"));
    let stream = caller.raw(&whole[..whole.len() - 10]).await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(stream);
    let rows = gateway.ledger.wait(2).await;
    assert_eq!(rows[0].1.status, 408);
    assert!(matches!(rows[1].1.status, 400 | 408 | 499), "{rows:?}");
}

async fn read_some(stream: &mut tokio::net::TcpStream) -> String {
    let mut bytes = vec![0; 4096];
    let read = tokio::time::timeout(TIMEOUT, stream.read(&mut bytes)).await;
    let length = read.unwrap().unwrap();
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

#[tokio::test]
async fn fields_that_change_model_routing_or_price_are_refused_by_name() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let mut open = provider_at("open", provider.address);
    open.models[0].id = "acme/open".to_owned();
    open.fields.pass = vec!["service_tier".to_owned(), "tools.web_search".to_owned()];
    let mut strict = provider_at("strict", provider.address);
    strict.models[0].id = "acme/strict".to_owned();
    strict.fields.strict = true;
    strict.fields.pass = vec!["top_k".to_owned()];
    let mut both = open.clone();
    both.name = "both".to_owned();
    both.models[0].id = MODEL.to_owned();
    let providers = [provider_at("acme", provider.address), open, strict];
    let gateway = TestGateway::new(&providers).await;
    let caller = gateway.caller();
    let refused = async |model: &str, more: &str, field: &str| {
        let asked = provider.count();
        let body = chat(more).replace(MODEL, model);
        let response = caller.chat(&body).await;
        assert_eq!(response.status, 400, "{body}");
        assert_eq!(error_code(&response.body), "field_not_allowed", "{body}");
        let said: serde_json::Value = serde_json::from_slice(&response.body).unwrap();
        assert_eq!(said["error"]["param"], field, "{body}");
        assert!(said["error"]["message"].as_str().unwrap().contains(field));
        assert_eq!(provider.count(), asked, "it is not sent");
    };
    for field in [
        "models",
        "fallbacks",
        "route",
        "service_tier",
        "max_new_tokens",
        "provider",
        "transforms",
        "plugins",
        "web_search_options",
    ] {
        refused(MODEL, &format!(r#","{field}":["x"]"#), field).await;
    }
    let tier = r#","service_tier":"flex""#;
    refused("acme/open", r#","models":["x"]"#, "models").await;
    refused("acme/strict", r#","my_own":1"#, "my_own").await;
    refused("acme/strict", tier, "service_tier").await;
    let passes = async |model: &str, more: &str| {
        let body = chat(more).replace(MODEL, model);
        assert_eq!(caller.chat(&body).await.status, 200, "{body}");
        assert!(provider.requests().last().unwrap().body.contains(more));
    };
    passes(MODEL, r#","my_own":{"models":1},"top_k":4,"route":null"#).await;
    passes("acme/open", tier).await;
    passes("acme/strict", r#","top_k":4,"temperature":1,"tools":[]"#).await;
    let function = r#"{"type":"function","function":{"name":"web_search"}}"#;
    let tools = format!(r#","tools":[{function},{{"type":"web_search"}}]"#);
    refused(MODEL, &tools, "tools[1].type").await;
    refused("acme/strict", &tools, "tools[1].type").await;
    passes(MODEL, &format!(r#","tools":[{function}]"#)).await;
    passes("acme/open", &tools).await;
    // Of several providers only those are asked that may be sent it.
    gateway
        .gateway
        .set_providers(&[provider_at("acme", provider.address), both], false)
        .unwrap();
    passes(MODEL, tier).await;
    let call = gateway.ledger.rows().pop().unwrap().1;
    assert_eq!((&*call.provider, call.attempts), ("both", 1));
}

#[tokio::test]
async fn a_provider_that_may_not_be_sent_a_request_does_not_replace_the_last_resort() {
    let bad = MockUpstream::new(|number| match number {
        0..5 => json(503, "{}"),
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let good = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let mut suitable = provider_at("suitable", bad.address);
    suitable.retries = 0;
    suitable.fields.pass = vec!["service_tier".to_owned()];
    let gateway = TestGateway::new(&[suitable, provider_at("other", good.address)]).await;
    for _ in 0..5 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(response.header("x-estrade-provider"), "other");
    }
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(response.header("x-estrade-attempts"), "1", "it has a pause");
    let response = gateway
        .caller()
        .chat(&chat(r#","service_tier":"flex""#))
        .await;
    assert_eq!(response.status, 200, "{}", response.text());
    assert_eq!(response.header("x-estrade-provider"), "suitable");
}

#[tokio::test]
async fn what_multiplies_the_cost_is_reserved_for() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let most = async |more: &str| {
        assert_eq!(gateway.caller().chat(&chat(more)).await.status, 200);
        gateway.ledger.max_cost().nanos()
    };
    // Two millionths for each token of a response.
    let (one, five) = (most(r#","max_tokens":100,"n":1"#).await, 5 * 100 * 2000);
    let many = most(r#","max_tokens":100,"n":5"#).await;
    assert_eq!(many - one, five - 100 * 2000);
    let best = most(r#","max_tokens":100,"n":1,"best_of":5"#).await;
    assert!(best > five, "{best}");
    for bad in [
        r#","max_tokens":1.5"#,
        r#","max_completion_tokens":"9""#,
        r#","n":0.5"#,
    ] {
        let response = gateway.caller().chat(&chat(bad)).await;
        assert_eq!(response.status, 400, "{bad}");
        assert_eq!(error_code(&response.body), "invalid_value", "{bad}");
    }
}
