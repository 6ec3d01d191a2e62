//! The playground: a model answers a person who does not have the secret.

use super::support::{ECHO, between, new_key, person, play, say, workspace_of};
use estrade_mock_upstream::{Action, MockUpstream, event, json as json_answer, stream_head};
use estrade_testkit::{Call, PanelClient, TestApp, on_both_backends};
use futures_util::StreamExt;
use http::Method;
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    a_person_calls_a_model_without_the_secret;
    the_playground_refuses_what_the_key_would_be_refused;
    a_budget_ends_the_playground_and_the_key_alike;
    a_stream_reaches_the_browser_and_ends_with_it;
    a_stream_ends_with_the_session;
}

/// The same as its script does.
async fn play_stream(app: &TestApp, panel: &mut PanelClient, target: &str, model: &str) -> Call {
    let csrf = panel.csrf().await;
    let body = format!(
        "csrf={csrf}&target={target}&model={}&prompt=hi",
        model.replace('/', "%2F")
    );
    app.stranger()
        .call(Method::POST, "/panel/playground")
        .header("cookie", &panel.cookie_header())
        .header("origin", panel.origin())
        .header("sec-fetch-site", "same-origin")
        .header("accept", "text/event-stream")
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes(body)
}

/// A provider whose answers cost 0.001 a token.
async fn provide(app: &TestApp, upstream: &MockUpstream, price: &str) {
    let new = json!({
        "name": "acme", "baseURL": format!("http://{}/v1", upstream.address), "retries": 0,
        "models": [{"id": "acme/large", "price": {"prompt": "0", "completion": price}}],
    });
    app.admin()
        .await
        .ai()
        .post("/v1/providers", &new)
        .await
        .assert(201);
}

async fn a_person_calls_a_model_without_the_secret(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let none = ada.get("/panel/playground").await.assert(200).text();
    assert!(none.contains("A key is needed first"));
    let (id, _) = new_key(&mut ada, "ci-bot", &[]).await;
    let target = format!("{id}.{}", workspace_of(&user, &id).await);
    let page = ada
        .get(&format!("/panel/playground?key={id}"))
        .await
        .assert(200)
        .text();
    assert!(page.contains(&target) && page.contains(ECHO));
    let page = play(&mut ada, &target, ECHO, "good morning")
        .await
        .assert(200)
        .text();
    assert!(
        page.contains("You said: good morning") && page.contains("See the call"),
        "{page}"
    );
    // The conversation goes on.
    let history = between(&page, "name=\"history\" value=\"", "\"");
    let history = history.replace("&#34;", "\"").replace("&quot;", "\"");
    let form = [
        ("target", target.as_str()),
        ("model", ECHO),
        ("prompt", "and again"),
        ("history", &history),
    ];
    let page = ada
        .post("/panel/playground", &form)
        .await
        .assert(200)
        .text();
    assert!(page.contains("You said: good morning") && page.contains("You said: and again"));
    // It is a call of the key.
    let calls = ada.get(&format!("/panel/calls?key={id}")).await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
    app.note_uses().await;
    let read = user.ai().get(&format!("/v1/keys/{id}")).await.json();
    assert!(read["lastUsedAt"].is_string());
}

async fn the_playground_refuses_what_the_key_would_be_refused(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let (id, key) = new_key(
        &mut ada,
        "ci-bot",
        &[("models", "other/model"), ("rpm", "3")],
    )
    .await;
    let workspace = workspace_of(&user, &id).await;
    let target = format!("{id}.{workspace}");
    // A model that it may not use.
    let refused = say(app, &key, ECHO).await.assert(403).json();
    let page = play(&mut ada, &target, ECHO, "hi").await.assert(403).text();
    let message = refused["error"]["message"]
        .as_str()
        .unwrap()
        .replace('\'', "&#39;");
    assert!(
        page.to_lowercase().contains(&message.to_lowercase()),
        "{message}: {page}"
    );
    // The limit counts both alike: two are gone, the third is the last.
    play(&mut ada, &target, ECHO, "hi").await.assert(403);
    play(&mut ada, &target, ECHO, "hi").await.assert(429);
    say(app, &key, ECHO).await.assert(429);
    // Switched off, in another workspace, deleted.
    ada.post(
        &format!("/panel/keys/{id}/enabled"),
        &[("enabled", "false")],
    )
    .await
    .assert(303);
    let page = play(&mut ada, &target, ECHO, "hi").await.assert(403).text();
    assert!(page.contains("This key is switched off"), "{page}");
    let stream = play_stream(app, &mut ada, &target, ECHO)
        .await
        .await
        .assert(403);
    assert_eq!(stream.json()["error"]["code"], "disabled");
    ada.post(&format!("/panel/keys/{id}/enabled"), &[("enabled", "true")])
        .await
        .assert(303);
    play(&mut ada, &format!("{id}.{id}"), ECHO, "hi")
        .await
        .assert(403);
    play(&mut ada, "nonsense", ECHO, "hi").await.assert(422);
    play(&mut ada, &target, ECHO, "  ").await.assert(422);
    ada.post(&format!("/panel/keys/{id}/delete"), &[])
        .await
        .assert(303);
    play(&mut ada, &target, ECHO, "hi").await.assert(404);
}

async fn a_budget_ends_the_playground_and_the_key_alike(app: &TestApp) {
    let upstream = MockUpstream::new(|_| {
        json_answer(200, &json!({"id": "c", "object": "chat.completion", "model": "acme/large",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}}).to_string())
    })
    .await;
    provide(app, &upstream, "1000").await;
    let (user, mut ada) = person(app, "ada").await;
    let (id, key) = new_key(
        &mut ada,
        "ci-bot",
        &[("budget", "0.025"), ("period", "total")],
    )
    .await;
    let workspace = workspace_of(&user, &id).await;
    let target = format!("{id}.{workspace}");
    let form = [
        ("target", target.as_str()),
        ("model", "acme/large"),
        ("prompt", "hi"),
        ("max_tokens", "10"),
    ];
    // Each call costs 0.010: the key pays one, the person the next, and there is no room for a third of either.
    let body = json!({"model": "acme/large", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10});
    let call = || {
        app.stranger()
            .ai()
            .post("/v1/chat/completions", &body)
            .bearer(&key)
    };
    call().await.assert(200);
    let page = ada
        .post("/panel/playground", &form)
        .await
        .assert(200)
        .text();
    assert!(
        page.contains("cost 0.010") || page.contains("cost 0.01"),
        "{page}"
    );
    let refused = ada
        .post("/panel/playground", &form)
        .await
        .assert(402)
        .text();
    assert!(refused.contains("budget"), "{refused}");
    call().await.assert(402);
    assert_eq!(upstream.count(), 2);
    let page = ada.get(&format!("/panel/keys/{id}")).await.text();
    assert!(
        page.contains("<b>0.020</b>") || page.contains("<b>0.02</b>"),
        "{page}"
    );
    let calls = ada.get("/panel/calls?status=402").await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
}

async fn a_stream_reaches_the_browser_and_ends_with_it(app: &TestApp) {
    let upstream =
        MockUpstream::new(|_| vec![stream_head(), event("12345678"), Action::AwaitClose]).await;
    provide(app, &upstream, "0").await;
    let (user, mut ada) = person(app, "ada").await;
    let (id, _) = new_key(&mut ada, "ci-bot", &[]).await;
    let target = format!("{id}.{}", workspace_of(&user, &id).await);
    let whole = play_stream(app, &mut ada, &target, ECHO)
        .await
        .await
        .assert(200);
    assert_eq!(whole.header("content-type"), "text/event-stream");
    let text = whole.text();
    assert!(
        text.ends_with("data: [DONE]\n\n") && text.contains("\"usage\":{"),
        "{text}"
    );
    let response = play_stream(app, &mut ada, &target, "acme/large")
        .await
        .stream()
        .await;
    assert_eq!(response.status(), 200);
    let mut body = response.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("12345678"));
    assert_eq!(upstream.open(), 1);
    drop(body);
    assert!(
        upstream.wait_for_open(0).await,
        "the provider is left alone"
    );
    // Neither a foreign site nor a form without its token starts a call.
    let forged = play_stream(app, &mut ada, &target, ECHO).await;
    forged
        .header("sec-fetch-site", "same-site")
        .await
        .assert(403);
    let forged = play_stream(app, &mut ada, &target, ECHO).await;
    forged
        .bytes(format!("target={target}&model=estrade%2Fecho&prompt=hi"))
        .await
        .assert(403);
    let calls = ada.get(&format!("/panel/calls?key={id}")).await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
}

async fn a_stream_ends_with_the_session(app: &TestApp) {
    let upstream =
        MockUpstream::new(|_| vec![stream_head(), event("12345678"), Action::AwaitClose]).await;
    provide(app, &upstream, "0").await;
    let (user, mut ada) = person(app, "ada").await;
    let (id, _) = new_key(&mut ada, "ci-bot", &[]).await;
    let target = format!("{id}.{}", workspace_of(&user, &id).await);
    let call = play_stream(app, &mut ada, &target, "acme/large").await;
    let response = call.stream().await;
    assert_eq!(response.status(), 200);
    let mut body = response.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("12345678"));
    assert_eq!(upstream.open(), 1);
    ada.post("/panel/sign-out", &[]).await.assert(303);
    // The provider would go on for ever.
    let rest = async {
        let mut rest = Vec::new();
        while let Some(chunk) = body.next().await {
            rest.extend_from_slice(&chunk.unwrap());
        }
        String::from_utf8(rest).unwrap()
    };
    let rest = tokio::time::timeout(Duration::from_secs(10), rest).await;
    let rest = rest.expect("the stream ends");
    assert!(rest.contains("Your session has ended"), "{rest}");
    assert!(
        upstream.wait_for_open(0).await,
        "the provider is left alone"
    );
}
