//! `/v1/admin/nodes`

use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    an_administrator_lists_the_nodes
    nobody_else_does
}

async fn an_administrator_lists_the_nodes(app: &TestApp) {
    let root = app.admin().await;
    let list = root.get("/v1/admin/nodes").await.assert(200).json();
    let nodes = list["nodes"].as_array().unwrap();
    assert_eq!(nodes.len(), 1, "{list}");
    let node = &nodes[0];
    assert_eq!(node["_id"].as_str().unwrap().len(), 24);
    assert_ne!(node["hostname"], "");
    assert_eq!(node["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(node["state"], "alive");
    assert_eq!(node["isThisNode"], true);
    assert_eq!(node["hasEngine"], false);
    let addresses = json!({
        "platform": app.address(estrade_testkit::Api::Platform).to_string(),
        "ai": app.address(estrade_testkit::Api::Ai).to_string(),
        "edge": app.edge().to_string(),
    });
    assert_eq!(node["addresses"], addresses);
    for time in ["startedAt", "lastSeenAt"] {
        let at: estrade_model::Timestamp = node[time].as_str().unwrap().parse().unwrap();
        let age = app.core().now().millis() - at.millis();
        assert!((-1000..60_000).contains(&age), "{time}: {node}");
    }
    let metrics = root.get("/metrics").await.assert(200).text();
    assert!(metrics.contains("\nestrade_nodes_alive 1\n"), "{metrics}");
}

async fn nobody_else_does(app: &TestApp) {
    let path = "/v1/admin/nodes";
    let ada = app.new_account("ada").await;
    ada.get(path).await.refused(403, "no_permission");
    app.stranger()
        .get(path)
        .await
        .refused(401, "unauthenticated");
    let root = app.admin().await;
    let read = json!({"name": "reads", "scope": "read"});
    let made = root.post("/v1/api-token", &read).await.assert(201);
    let reader = root.with_token(&made.field("/api_token"));
    reader.get(path).await.refused(403, "insufficient_scope");
}
