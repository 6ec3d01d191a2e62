//! Answers that come as a whole: passed on, metered, kept, made up.

use crate::support::{
    KEY, MODEL, RESERVATION, SECRET, TestGateway, chat, chat_response, error_code, provider_at,
};
use estrade_mock_upstream::{Action, MockUpstream, json, send};
use estrade_model::provider::Preference;
use http::Method;
use serde_json::{Value, json as value};

#[tokio::test]
async fn a_call_is_passed_on_and_metered() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(12, 34))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let body = chat(r#" , "odd" : [1e999,"\u00e9"] "#);
    let mut request = gateway
        .caller()
        .request(Method::POST, "/api/w1/v1/chat/completions/", &body);
    request
        .headers_mut()
        .insert("openai-beta", "assistants=v2".parse().unwrap());
    request
        .headers_mut()
        .insert("x-private", "1".parse().unwrap());
    let response = gateway.caller().call(request).await;

    assert_eq!(response.status, 200);
    assert_eq!(response.text(), chat_response(12, 34));
    assert_eq!(response.header("x-estrade-provider"), "acme");
    assert_eq!(response.header("x-estrade-upstream-model"), "large-v1");
    assert_eq!(response.header("x-estrade-attempts"), "1");
    assert_eq!(response.header("content-type"), "application/json");
    for gone in [
        "server",
        "set-cookie",
        "openai-organization",
        "x-ratelimit-limit-requests",
    ] {
        assert_eq!(response.header(gone), "", "{gone}");
    }
    let asked = &provider.requests()[0];
    assert_eq!(asked.body, body.replace(MODEL, "large-v1"));
    assert!(
        asked
            .head
            .starts_with("POST /v1/chat/completions HTTP/1.1\r\n"),
        "{}",
        asked.head
    );
    assert!(
        asked
            .head
            .contains(&format!("authorization: Bearer {SECRET}\r\n")),
        "{}",
        asked.head
    );
    assert!(
        asked.head.contains("openai-beta: assistants=v2\r\n"),
        "{}",
        asked.head
    );
    for never in [KEY, "cookie", "x-private", "gateway\r\n"] {
        assert!(!asked.head.contains(never), "{}", asked.head);
    }

    let (reservation, call) = gateway.ledger.wait(1).await.remove(0);
    assert_eq!(reservation, RESERVATION);
    assert_eq!(response.header("x-estrade-call"), call.id.to_string());
    assert_eq!(
        (call.status, call.attempts, &*call.model, &*call.provider),
        (200, 1, MODEL, "acme")
    );
    assert_eq!((call.tokens.prompt, call.tokens.completion), (12, 34));
    assert_eq!(call.cost.nanos(), 12 * 1000 + 34 * 2000);
    assert!(!call.partial && !call.estimated && !call.cached && !call.streamed);
    assert!(call.ttfb_us > 0 && call.latency_us >= call.ttfb_us);
    // The most it could have cost: a token per byte, a quarter of them once more in vain, and what
    // fits into the model.
    let bytes = i64::try_from(body.len()).unwrap();
    let most = (bytes + (bytes + 3) / 4) * 1000 + 1000 * 2000;
    assert_eq!(gateway.ledger.max_cost().nanos(), most);
}

#[tokio::test]
async fn connections_are_used_again_and_dead_ones_are_replaced() {
    let provider = MockUpstream::new(|number| {
        let mut acts = json(200, &chat_response(1, 1));
        if number == 2 {
            acts.push(Action::Close);
        }
        acts
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for round in 0..6 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (
                response.status.as_u16(),
                response.header("x-estrade-attempts")
            ),
            (200, "1"),
            "{round}"
        );
    }
    assert_eq!(provider.connections(), 2);
    assert_eq!(gateway.relay.idle_connections(), 1);
}

#[tokio::test]
async fn connections_that_nobody_needs_are_closed() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.idle_timeout = std::time::Duration::from_secs(3);
    })
    .await;
    gateway.caller().chat(&chat("")).await;
    assert_eq!(gateway.relay.idle_connections(), 1);
    let relay = gateway.relay.clone();
    tokio::time::pause();
    let tending = tokio::time::timeout(std::time::Duration::from_secs(6), relay.maintain());
    assert!(tending.await.is_err(), "it tends as long as it is polled");
    tokio::time::resume();
    assert_eq!(gateway.relay.idle_connections(), 0);
    assert!(provider.wait_for_open(0).await);
}

#[tokio::test]
async fn a_connection_that_dies_under_a_question_is_replaced_at_once() {
    // It reads the second request, and hangs up without a word.
    let provider = MockUpstream::new(|number| match number {
        1 => vec![Action::Close],
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme]).await;
    for attempts in ["1", "2"] {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (
                response.status.as_u16(),
                response.header("x-estrade-attempts")
            ),
            (200, attempts)
        );
    }
    assert_eq!(provider.requests().len(), 3);
    let (_, call) = &gateway.ledger.wait(2).await[1];
    assert_eq!((call.tokens.total(), call.estimated), (2, false));
}

#[tokio::test]
async fn a_connection_that_says_goodbye_under_a_question_is_replaced_as_well() {
    let provider = MockUpstream::new(|number| match number {
        1 => vec![
            send("HTTP/1.1 408 Late\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"),
            Action::Close,
        ],
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for attempts in ["1", "2"] {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(
            (
                response.status.as_u16(),
                response.header("x-estrade-attempts")
            ),
            (200, attempts)
        );
    }
}

#[tokio::test]
async fn a_question_that_was_worked_on_is_not_sent_again_unasked() {
    let provider = MockUpstream::new(|number| match number {
        1 => vec![
            Action::Sleep(std::time::Duration::from_millis(600)),
            Action::Close,
        ],
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme]).await;
    for status in [200, 502] {
        assert_eq!(gateway.caller().chat(&chat("")).await.status, status);
    }
    assert_eq!(provider.requests().len(), 2);
    let (_, call) = &gateway.ledger.wait(2).await[1];
    let prompt = chat("").len().div_ceil(4) as u64;
    assert_eq!((call.tokens.prompt, call.attempts), (prompt, 1));
    assert!(call.partial && call.estimated);
}

#[tokio::test]
async fn a_question_that_got_an_interim_response_is_not_sent_again_unasked() {
    let provider = MockUpstream::new(|number| match number {
        1 => vec![send("HTTP/1.1 100 Continue\r\n\r\n"), Action::Close],
        _ => json(200, &chat_response(1, 1)),
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.retries = 0;
    let gateway = TestGateway::new(&[acme]).await;
    for status in [200, 502] {
        assert_eq!(gateway.caller().chat(&chat("")).await.status, status);
    }
    assert_eq!(provider.requests().len(), 2);
    let (_, call) = &gateway.ledger.wait(2).await[1];
    let prompt = chat("").len().div_ceil(4) as u64;
    assert_eq!((call.tokens.prompt, call.attempts), (prompt, 1));
}

#[tokio::test]
async fn responses_in_chunks_and_until_the_end_are_whole() {
    let provider = MockUpstream::new(|number| {
        let body = chat_response(5, 6);
        let (one, two) = body.split_at(70);
        match number {
            0 => vec![
                send("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"),
                send(format!("{:x}\r\n{one}\r\n", one.len())),
                Action::Sleep(std::time::Duration::from_millis(5)),
                send(format!("{:X};x=y\r\n{two}\r\n0\r\nx-t: 1\r\n\r\n", two.len())),
            ],
            1 => vec![send(format!("HTTP/1.0 200 OK\r\n\r\n{body}")), Action::Close],
            _ => vec![
                send(format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{one}", body.len())),
                Action::Sleep(std::time::Duration::from_millis(5)),
                send(two),
            ],
        }
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    for round in 0..3 {
        let response = gateway.caller().chat(&chat("")).await;
        assert_eq!(response.text(), chat_response(5, 6), "{round}");
    }
    for (_, call) in gateway.ledger.wait(3).await {
        assert_eq!(
            (call.tokens.total(), call.estimated, call.partial),
            (11, false, false)
        );
    }
    assert_eq!(provider.connections(), 2, "the second one was closed");
}

#[tokio::test]
async fn without_a_usage_tokens_are_estimated() {
    let body = r#"{"choices":[{"message":{"content":"12345678"}}]}"#;
    let provider = MockUpstream::new(move |_| json(200, body)).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let asked = chat("");
    gateway.caller().chat(&asked).await;
    let call = gateway.ledger.only().await;
    assert!(call.estimated);
    assert_eq!(call.tokens.prompt, (asked.len() as u64).div_ceil(4));
    assert_eq!(call.tokens.completion, 2);
}

#[tokio::test]
async fn embeddings_and_images_have_their_paths() {
    let provider = MockUpstream::new(|_| {
        json(
            200,
            r#"{"data":[],"usage":{"prompt_tokens":3,"total_tokens":3}}"#,
        )
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    let body = format!(r#"{{"model":"{MODEL}","input":"x"}}"#);
    for path in ["embeddings", "images/generations"] {
        assert_eq!(
            gateway
                .caller()
                .post(&format!("/v1/{path}"), &body)
                .await
                .status,
            200
        );
        let asked = provider.requests();
        let expected = format!("POST /v1/{path} HTTP/1.1\r\n");
        assert!(
            asked.last().unwrap().head.starts_with(&expected),
            "{asked:?}"
        );
    }
}

#[tokio::test]
async fn a_deterministic_response_is_kept_for_its_owner() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(3, 4))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("saving", |key, _| key.cache = true);
    gateway.add_key("other", |key, _| {
        key.cache = true;
        key.owner = estrade_model::Id::generate(1, 99);
    });
    let hit = |key: &'static str, body: String| {
        let caller = gateway.caller_with(key);
        async move {
            let response = caller.chat(&body).await;
            assert_eq!(response.text(), chat_response(3, 4));
            response.header("x-estrade-cache").to_owned()
        }
    };
    let cold = || chat(r#","temperature":0"#);
    assert_eq!(hit("saving", cold()).await, "miss");
    assert_eq!(hit("saving", cold()).await, "hit");
    assert_eq!(hit("other", cold()).await, "miss");
    assert_eq!(hit("saving", chat("")).await, "", "not deterministic");
    assert_eq!(
        hit("saving", chat(r#","temperature":0,"x":1"#)).await,
        "miss"
    );
    assert_eq!(hit(KEY, cold()).await, "", "not asked for");
    let mut request = gateway
        .caller()
        .request(Method::POST, "/v1/chat/completions", &cold());
    request
        .headers_mut()
        .insert("x-estrade-cache", "on".parse().unwrap());
    let mut other = request.clone();
    assert_eq!(
        gateway
            .caller()
            .call(request)
            .await
            .header("x-estrade-cache"),
        "hit"
    );
    other
        .headers_mut()
        .insert("openai-beta", "new=v2".parse().unwrap());
    let response = gateway.caller().call(other).await;
    assert_eq!(response.header("x-estrade-cache"), "miss");
    let rows = gateway.ledger.wait(8).await;
    let (_, kept) = &rows[1];
    assert!(kept.cached && kept.cost.nanos() == 0 && kept.attempts == 0);
    assert_eq!(provider.requests().len(), 6);
}

#[tokio::test]
async fn what_is_no_whole_object_or_has_an_error_is_not_kept() {
    let bodies = [
        "",
        r#"{"choices":[{"#,
        "<html></html>",
        r#"{"error":{"message":"busy"}}"#,
        r#"{"id":"a", "error" : "busy","choices":[]}"#,
    ];
    let provider = MockUpstream::new(move |number| {
        let body = bodies[number / 4];
        if number % 4 < 2 {
            return json(200, body);
        }
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let chunk = match body {
            "" => String::new(),
            body => format!("{:x}\r\n{body}\r\n", body.len()),
        };
        vec![send(format!("{head}{chunk}0\r\n\r\n"))]
    })
    .await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("saving", |key, _| key.cache = true);
    // As a whole and in chunks, each twice.
    for number in 0..bodies.len() * 4 {
        let cold = chat(&format!(r#","temperature":0,"x":{}"#, number / 2));
        let response = gateway.caller_with("saving").chat(&cold).await;
        assert_eq!(response.text(), bodies[number / 4]);
        assert_eq!(response.header("x-estrade-cache"), "miss", "{number}");
    }
}

#[tokio::test]
async fn the_built_in_model_responds_without_a_provider() {
    let gateway = TestGateway::new(&[]).await;
    let body = r#"{"model":"estrade/echo","messages":[{"role":"user","content":"moin"}]}"#;
    let response = gateway.caller().chat(body).await;
    let said: Value = serde_json::from_slice(&response.body).unwrap();
    assert!(
        said["choices"][0]["message"]["content"]
            .as_str()
            .unwrap()
            .ends_with("moin")
    );
    assert_eq!(response.header("x-estrade-provider"), "estrade");
    let call = gateway.ledger.only().await;
    assert_eq!(
        (&*call.provider, call.cost.nanos(), call.estimated),
        ("estrade", 0, false)
    );
    let streamed = body.replace("}]", "}],\"stream\":true");
    let (text, whole) = gateway.caller().stream(&streamed).await.rest().await;
    assert!(whole && text.ends_with("data: [DONE]\n\n"), "{text}");
    assert!(gateway.ledger.wait(2).await[1].1.streamed);
    let bad = gateway.caller().chat(r#"{"model":"estrade/echo"}"#).await;
    assert_eq!(
        (bad.status.as_u16(), &*error_code(&bad.body)),
        (400, "invalid_value")
    );
}

#[tokio::test]
async fn models_are_listed_as_far_as_a_key_may_use_them() {
    let acme = provider_at("acme", "127.0.0.1:9".parse().unwrap());
    let gateway = TestGateway::new(&[acme]).await;
    gateway.add_key("few", |key, _| key.models = Some([MODEL.to_owned()].into()));
    let list = |key: &'static str| {
        let caller = gateway.caller_with(key);
        async move {
            let response = caller
                .call(caller.request(Method::GET, "/api/v1/w1/models", ""))
                .await;
            serde_json::from_slice::<Value>(&response.body).unwrap()
        }
    };
    let all = list(KEY).await;
    assert_eq!(all["object"], "list");
    assert_eq!(all["data"], all["models"]);
    assert_eq!(all["data"][0]["id"], "estrade/echo");
    assert!(
        all["data"][0]["description"]
            .as_str()
            .unwrap()
            .contains("test model")
    );
    let few = list("few").await;
    assert_eq!(few["data"].as_array().unwrap().len(), 1);
    let model = &few["data"][0];
    assert_eq!(
        (&model["id"], &model["object"]),
        (&value!(MODEL), &value!("model"))
    );
    assert_eq!(
        model["pricing"],
        value!({"prompt": "1.00", "completion": "2.00"})
    );
    assert_eq!(
        (&model["context_length"], &model["owned_by"]),
        (&value!(1000), &value!("acme"))
    );
    assert!(gateway.ledger.rows().is_empty(), "a list is no call");
    assert_eq!(
        serde_json::from_slice::<Value>(&gateway.gateway.all_models()).unwrap(),
        all
    );
}

#[tokio::test]
async fn a_workspace_gets_what_it_prefers() {
    let dear = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let cheap = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let mut second = provider_at("cheap", cheap.address);
    second.models[0].price.prompt = "0.1".parse().unwrap();
    let gateway = TestGateway::new(&[provider_at("dear", dear.address), second]).await;
    gateway.add_key("thrifty", |_, workspace| {
        workspace.preference = Preference::Price;
    });
    let response = gateway.caller_with("thrifty").chat(&chat("")).await;
    assert_eq!(response.header("x-estrade-provider"), "cheap");
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(response.header("x-estrade-provider"), "dear");
    let snapshot = gateway.gateway.snapshot();
    let counted: Vec<_> = snapshot
        .iter()
        .map(|s| (&*s.provider, s.statuses.clone(), s.tokens.total()))
        .collect();
    assert_eq!(
        counted,
        [("cheap", vec![(200, 1)], 2), ("dear", vec![(200, 1)], 2)]
    );
}
