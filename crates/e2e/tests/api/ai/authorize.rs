//! `/v1/keys/authorize`

use crate::support::new_key;
use estrade_testkit::{Api, TestApp, on_both_backends};
use http::Method;
use serde_json::json;

on_both_backends! {
    any_method_and_any_body;
    a_good_key_is_let_in_with_its_headers;
    the_workspace_may_be_named;
    what_is_no_key_is_401;
}

const PATH: &str = "/v1/keys/authorize";

async fn any_method_and_any_body(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = new_key(&ada, "ci-bot").await;
    // Cold and warm answers are made by different code; twice is both.
    for _ in 0..2 {
        for method in [
            "GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS", "PROPFIND",
        ] {
            let method: Method = method.parse().unwrap();
            let call = || ada.call(method.clone(), PATH);
            call().bearer(&key).await.assert_empty(200);
            let body = call()
                .bearer(&key)
                .bytes("{ not json")
                .header("content-type", "text/plain");
            body.await.assert_empty(200);
            call().anonymous().await.assert_empty(401);
        }
        let head = ada.call(Method::HEAD, PATH).bearer(&key).await;
        assert_eq!((head.status(), head.body().len()), (200, 0));
        ada.get(&format!("{PATH}/"))
            .bearer(&key)
            .await
            .assert_empty(200);
        ada.get(&format!("{PATH}?x=y"))
            .bearer(&key)
            .await
            .assert_empty(200);
    }
}

async fn a_good_key_is_let_in_with_its_headers(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let new = json!({"name": "ci-bot", "workspaces": ["main", "Größe"]});
    let made = ada.post("/v1/keys", &new).await.assert(201);
    let spaces = made.json();
    let spaces = ["/workspaces/0/_id", "/workspaces/1/_id"]
        .map(|at| spaces.pointer(at).unwrap().as_str().unwrap().to_owned());
    for _ in 0..2 {
        let response = ada
            .get(PATH)
            .bearer(&made.field("/key"))
            .await
            .assert_empty(200);
        assert_eq!(response.header("x-key-id"), made.field("/_id"));
        assert_eq!(response.header("x-workspaces"), spaces.join(","));
    }
}

async fn the_workspace_may_be_named(app: &TestApp) {
    let (ada, bob) = (
        app.new_account("ada").await.ai(),
        app.new_account("bob").await.ai(),
    );
    let (id, key) = new_key(&ada, "ci-bot").await;
    let read = ada.get(&format!("/v1/keys/{id}")).await.json();
    let space = read["workspaces"][0]["_id"].as_str().unwrap();
    let (others, _) = new_key(&bob, "ci-bot").await;
    let others = bob.get(&format!("/v1/keys/{others}")).await.json();
    let foreign = others["workspaces"][0]["_id"].as_str().unwrap();
    for good in ["main", space] {
        ada.get(PATH)
            .bearer(&key)
            .header("x-workspace", good)
            .await
            .assert_empty(200);
    }
    for bad in ["other", foreign, "MAIN", "", "é"] {
        let response = ada.get(PATH).bearer(&key).header("x-workspace", bad).await;
        assert_eq!(
            response.assert_empty(403).header("x-error-code"),
            "wrong_workspace"
        );
    }
}

async fn what_is_no_key_is_401(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = new_key(&ada, "ci-bot").await;
    let forged = {
        let (head, signature) = key.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { "B" } else { "A" };
        format!("{head}.{flipped}{}", &signature[1..])
    };
    for _ in 0..2 {
        // An account token never opens what a key opens.
        for token in [
            ada.token(),
            forged.as_str(),
            "x",
            "a.b.c",
            &key[..key.len() - 5],
        ] {
            let response = ada.get(PATH).bearer(token).await.assert_empty(401);
            assert_eq!(response.header("www-authenticate"), "Bearer");
            assert!(!response.has_header("x-key-id"));
        }
        let twice = format!(
            "GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {key}\r\nauthorization: Bearer {key}\r\n\r\n"
        );
        app.raw(Api::Ai, twice).await.assert_empty(401);
    }
}
