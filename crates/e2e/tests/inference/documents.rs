//! The document says of inference what is served.

use crate::support::{ECHO, code, key, workspace};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    every_documented_path_is_served_and_says_what_it_returns;
}

async fn every_documented_path_is_served_and_says_what_it_returns(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "some").await;
    let workspace = workspace(&ada).await;
    let id = workspace.rsplit('/').next().unwrap();
    let document = ada.get("/openapi.json").await.assert(200).json();
    let mut paths = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        if !path.starts_with("/api/") {
            continue;
        }
        paths += 1;
        let path = path
            .replace("{workspace}", id)
            .replace("{id}", "estrade%2Fecho");
        let (about, get) = match item.get("post") {
            Some(about) => (about, false),
            None => (&item["get"], true),
        };
        let known = |status: &str| about["responses"].get(status).is_some();
        let body = json!({"model": ECHO, "messages": [{"role": "user", "content": "a"}], "input": "a", "prompt": "a"});
        let ask = |body: &Value| {
            let stranger = app.stranger().ai();
            if get {
                stranger.get(&path)
            } else {
                stranger.post(&path, body)
            }
        };
        ask(&body).bearer(&key).await.assert(200);
        let refused = ask(&body).await.assert(401);
        assert_ne!(code(&refused), "");
        assert!(known("200") && known("401") && known("503"), "{path}");
        if !get {
            let unknown = ask(&json!({"model": "acme/none"})).bearer(&key).await;
            assert_eq!(code(&unknown.assert(404)), "model_not_found");
            ask(&json!([])).bearer(&key).await.assert(400);
            assert!(
                known("404") && known("400") && known("402") && known("429"),
                "{path}"
            );
        }
    }
    assert_eq!(paths, 5);
}
