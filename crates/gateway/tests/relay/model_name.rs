//! The model in a response has the id that the caller asked for; the provider's name of it is in a header.

use crate::support::{MODEL, TestGateway, chat, error_code, provider_at};
use estrade_mock_upstream::{Action, MockUpstream, chunk, done, json, send, stream_head};
use http::Method;
use serde_json::{Value, json as value};
use std::time::Duration;

const STREAM: &str = r#","stream":true"#;
const NAMED: &str = "x-estrade-upstream-model";

/// A response of a provider that calls the model otherwise, also where that is none of our business.
fn embeddings(name: &str) -> String {
    format!(
        r#"{{"object":"list","data":[{{"embedding":[0.5],"model":"{name}","text":"\"model\":\"{name}\""}}], "model" : "{name}","usage":{{"prompt_tokens":3,"total_tokens":3,"model":"{name}"}}}}"#
    )
}

fn assert_renamed(text: &str, name: &str) {
    let wanted = embeddings(name).replace(
        &format!(r#""model" : "{name}""#),
        &format!(r#""model" : "{MODEL}""#),
    );
    assert_eq!(text, wanted);
}

#[tokio::test]
async fn a_response_has_the_id_that_was_asked_for() {
    // Longer, shorter, the same, and what is asked for: some answer with a version of it.
    let names = ["large-v1-2026-11-18", "l", "acme/LARGE", "large-v1", MODEL];
    let provider = MockUpstream::new(move |number| json(200, &embeddings(names[number]))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for name in names {
        let body = format!(r#"{{"model":"{MODEL}","input":"x"}}"#);
        let response = gateway.caller().post("/v1/embeddings", &body).await;
        assert_renamed(response.text(), name);
        let length = response.body.len().to_string();
        assert_eq!(response.header("content-length"), length);
        let wanted = if name == MODEL { "large-v1" } else { name };
        assert_eq!(response.header(NAMED), wanted);
    }
    let tokens = gateway.ledger.wait(5).await;
    assert!(tokens.iter().all(|(_, call)| call.tokens.prompt == 3));
}

#[tokio::test]
async fn a_response_that_comes_in_parts_has_it_wherever_it_is_split() {
    const NAME: &str = "large-v1-2026-11-18";
    let from = embeddings(NAME).find(r#" "model" :"#).unwrap();
    let provider = MockUpstream::new(move |number| {
        let body = embeddings(NAME);
        let (one, two) = body.split_at(from + number);
        let length = body.len();
        vec![
            send(format!(
                "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{one}"
            )),
            Action::Sleep(Duration::from_millis(3)),
            send(two),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("good", |key, _| key.cache = true);
    let ask = async |number: usize| {
        let body = format!(r#"{{"model":"{MODEL}","input":"{number}"}}"#);
        gateway.caller().post("/v1/embeddings", &body).await
    };
    for number in 0..36 {
        assert_renamed(ask(number).await.text(), NAME);
    }
    // What is kept is what was sent.
    let again = ask(3).await;
    assert_eq!(again.header("x-estrade-cache"), "hit");
    assert_renamed(again.text(), NAME);
}

fn event(name: &str, said: &str) -> String {
    let delta = value!({"content": said, "model": name});
    let event = value!({"id": "c", "object": "x", "choices": [{"index": 0, "delta": delta}]});
    let event = event.to_string();
    let more = format!(r#""model":"{name}","system_fingerprint":"f""#);
    format!("data: {},{more}}}\n\n", &event[..event.len() - 1])
}

#[tokio::test]
async fn every_event_has_the_id_that_was_asked_for() {
    const NAME: &str = "large-v1-2026-11-18";
    let words = [
        "Hel",
        "lo",
        "",
        " there",
        "\"model\":\"x\"",
        "and",
        "so",
        "on",
    ];
    let provider = MockUpstream::new(move |number| {
        let mut acts = vec![stream_head()];
        let events = words.map(|word| event(NAME, word));
        match number {
            // Each alone, as most providers do.
            0 => acts.extend(
                events
                    .iter()
                    .flat_map(|event| [chunk(event), Action::Sleep(Duration::from_millis(5))]),
            ),
            // All at once.
            1 => acts.push(chunk(&events.concat())),
            // Anywhere.
            _ => {
                let all = events.concat();
                let parts = all.as_bytes().chunks(number * 7);
                acts.extend(parts.map(|part| chunk(std::str::from_utf8(part).unwrap())));
            }
        }
        acts.push(chunk(&usage(NAME)));
        acts.push(done());
        acts
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for number in 0..9 {
        let mut coming = gateway.caller().stream(&chat(STREAM)).await;
        assert_eq!(coming.response.headers()[NAMED], "large-v1");
        let (text, whole) = coming.rest().await;
        assert!(whole);
        let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data
            .filter(|data| *data != "[DONE]")
            .map(|data| serde_json::from_str(data).unwrap())
            .collect();
        let said: Vec<_> = events
            .iter()
            .map(|event| event["choices"][0]["delta"]["content"].as_str().unwrap())
            .collect();
        assert_eq!(said, words, "{number}");
        for event in &events {
            assert_eq!(event["model"], MODEL, "{number}");
            assert_eq!(event["choices"][0]["delta"]["model"], NAME, "{number}");
        }
    }
    let calls = gateway.ledger.wait(9).await;
    assert!(calls.iter().all(|(_, call)| call.tokens.total() == 15));
}

fn usage(name: &str) -> String {
    let event = value!({"model": name, "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 8}});
    format!("data: {event}\n\n")
}

#[tokio::test]
async fn events_that_name_it_rightly_pass_byte_for_byte() {
    let text: String = ["a", "b", "c"].map(|word| event(MODEL, word)).concat();
    let sent = text.clone();
    let provider = MockUpstream::new(move |_| vec![stream_head(), chunk(&sent), done()]).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let (got, _) = gateway.caller().stream(&chat(STREAM)).await.rest().await;
    assert_eq!(got, format!("{text}data: [DONE]\n\n"));
}

#[tokio::test]
async fn a_compressed_response_passes_as_it_is() {
    // Not what was asked for, and not ours to read; whatever its bytes look like.
    let body = r#"{"model":"large-v1-2026"}"#;
    let provider = MockUpstream::new(move |number| {
        let length = body.len();
        let (one, two) = body.split_at(if number == 0 { length } else { 12 });
        vec![
            send(format!(
                "HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {length}\r\n\r\n{one}"
            )),
            Action::Sleep(Duration::from_millis(20)),
            send(two),
        ]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for _ in 0..2 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (response.text(), response.header("content-encoding")),
            (body, "gzip")
        );
        assert_eq!(response.header("content-length"), body.len().to_string());
        assert_eq!(response.header(NAMED), "large-v1");
    }
}

#[tokio::test]
async fn a_model_is_read_by_its_id() {
    let gateway = TestGateway::new(&[provider_at("acme", "127.0.0.1:9".parse().unwrap())]).await;
    gateway.add_key("narrow", |key, _| {
        key.models = Some(vec!["estrade/echo".into()].into());
    });
    let get = async |key: &str, path: &str| {
        let caller = gateway.caller_with(key);
        caller.call(caller.request(Method::GET, path, "")).await
    };
    let list = get("good", "/api/w1/v1/models").await;
    let list: Value = serde_json::from_str(list.text()).unwrap();
    for path in [
        "/api/w1/v1/models/acme/large",
        "/api/w1/v1/models/acme%2Flarge",
        "/api/v1/w1/models/acme%2flarge/",
    ] {
        let response = get("good", path).await;
        assert_eq!(response.header("content-type"), "application/json");
        let model: Value = serde_json::from_str(response.text()).unwrap();
        assert_eq!(model["id"], MODEL);
        assert!(list["data"].as_array().unwrap().contains(&model), "{path}");
        let hidden = get("narrow", path).await;
        assert_eq!(hidden.status, 404, "{path}");
        assert_eq!(error_code(&hidden.body), "model_not_found");
        assert_eq!(get("nobody", path).await.status, 401);
    }
    assert_eq!(
        get("narrow", "/api/w1/v1/models/estrade/echo").await.status,
        200
    );
    assert_eq!(get("good", "/api/w1/v1/models/acme").await.status, 404);
}
