//! `/v1/networks`

use crate::support::{assert_id, assert_time, column, fields};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    every_owner_has_a_default_network;
    a_project_joins_a_network_by_name_or_id;
    a_network_that_nobody_uses_can_be_deleted;
}

async fn every_owner_has_a_default_network(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    for owner in [app.admin().await, ada.clone(), ada.in_team(&team)] {
        let list = owner.get("/v1/networks").await.assert(200).json();
        assert_eq!(column(&list["networks"], "name"), ["default"]);
        assert_eq!(fields(&list["networks"][0]), ["_id", "createdAt", "name"]);
        assert_id(&list["networks"][0]["_id"]);
        assert_time(&list["networks"][0]["createdAt"]);
    }
    let response = ada.post("/v1/networks", &json!({"name": "default"})).await;
    response.assert(409);
}

async fn a_project_joins_a_network_by_name_or_id(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let made = ada
        .post("/v1/networks", &json!({"name": "backend"}))
        .await
        .assert(200);
    let id = made.field("/network/_id");
    ada.post("/v1/networks", &json!({"networkName": "front"}))
        .await
        .assert(200);
    ada.post("/v1/networks", &json!({"name": "backend"}))
        .await
        .assert(409);
    let list = ada.get("/v1/networks").await.json();
    assert_eq!(
        column(&list["networks"], "name"),
        ["front", "backend", "default"]
    );
    for (name, network) in [("one", "backend"), ("two", id.as_str())] {
        let new = json!({"name": name, "platform": "static", "planID": "nano", "network": network});
        let made = ada.post("/v1/projects", &new).await.assert(200).json();
        assert_eq!(
            made["project"]["network"],
            json!({"_id": id, "name": "backend"})
        );
    }
    for network in ["backend", id.as_str()] {
        let new =
            json!({"name": "six", "platform": "static", "planID": "nano", "network": network});
        let response = bob.post("/v1/projects", &new).await;
        response.refused(400, "invalid").naming("network");
    }
    for bad in [
        json!({}),
        json!({"name": "ab"}),
        json!({"name": "A B"}),
        json!({"name": 1}),
    ] {
        ada.post("/v1/networks", &bad)
            .await
            .refused(400, "invalid")
            .naming("name");
    }
}

async fn a_network_that_nobody_uses_can_be_deleted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let made = ada.post("/v1/networks", &json!({"name": "backend"})).await;
    let made = made.assert(200).json()["network"].clone();
    let path = format!("/v1/networks/{}", made["_id"].as_str().unwrap());
    let read = ada.get(&path).await.assert(200).json();
    assert_eq!(read, json!({"network": made}));
    let new = json!({"name": "shop", "platform": "static", "planID": "nano", "network": "backend"});
    ada.post("/v1/projects", &new).await.assert(200);
    let refused = ada.delete(&path).await;
    refused.refused(409, "network_in_use").naming("project");
    ada.delete("/v1/projects/shop").await.assert(200);
    ada.delete(&path).await.assert_empty(204);
    ada.delete(&path).await.refused(404, "not_found");
    ada.get(&path).await.refused(404, "not_found");
    ada.get("/v1/networks/backend")
        .await
        .refused(404, "not_found");
    let list = ada.get("/v1/networks").await.json();
    assert_eq!(column(&list["networks"], "name"), ["default"]);
    let default = list["networks"][0]["_id"].as_str().unwrap();
    let refused = ada.delete(&format!("/v1/networks/{default}")).await;
    refused.refused(409, "network_default").naming("default");
    // Deleting is for admins.
    let team = app.new_team(&ada, "Shop").await;
    let (owner, bob) = (ada.in_team(&team), app.new_account("bob").await);
    app.join(&team, &ada, &bob, "developer").await;
    let made = owner
        .post("/v1/networks", &json!({"name": "backend"}))
        .await;
    let path = format!("/v1/networks/{}", made.assert(200).field("/network/_id"));
    bob.in_team(&team).get(&path).await.assert(200);
    let refused = bob.in_team(&team).delete(&path).await;
    refused.refused(403, "no_permission");
    owner.delete(&path).await.assert_empty(204);
}
