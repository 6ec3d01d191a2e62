//! `/v1/projects/{project_id}/releases`, `/v2/projects/{project_id}/releases`, `/v1/releases`

use crate::support::{
    assert_id, assert_time, column, deploy, deploy_site, ended, fields, hold, new_project, site,
};
use estrade_testkit::{Api, TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

on_both_backends! {
    get_with_a_body_creates_a_release;
    get_without_a_body_lists;
    post_creates_a_release;
    the_list_is_the_envelope_of_the_specification;
    a_release_is_read_alone;
    states_follow_each_other;
    a_container_platform_fails_and_leaves_the_live_release_alone;
    exactly_one_source;
    port_and_type_are_checked;
    what_the_maker_says_is_kept;
    a_project_runs_one_release_at_a_time_and_cancel_stops_it;
    waiting_ends_with_the_state_or_with_time;
    too_late_to_cancel;
    roll_back;
    no_rollback_to_what_is_current_never_ready_or_gone;
}

const PATH: &str = "/v2/projects/shop/releases";

async fn get_with_a_body_creates_a_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let made = ada.get(PATH).json(&site()).await.assert(200);
    assert_eq!(fields(&made.json()), ["releaseID"]);
    assert_id(&made.json()["releaseID"]);
    assert_eq!(made.header("cache-control"), "no-store");
    // Any content type is read as JSON here, and so is none.
    for kind in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json",
    ] {
        let call = ada.get(PATH).header("content-type", kind).json(&site());
        call.await.assert(200);
    }
    ada.get(PATH).bytes(site().to_string()).await.assert(200);
    let body = site().to_string();
    let token = ada.token();
    let chunked = format!(
        "GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n\
         transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len(),
    );
    let made = app.raw(Api::Platform, chunked).await.assert(200);
    assert_id(&made.json()["releaseID"]);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 6);
    // A body that is no release is an error, not a list.
    for bad in ["{}", "[]", "x", " "] {
        ada.get(PATH).bytes(bad).await.refused(400, "invalid");
    }
}

async fn get_without_a_body_lists(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    let v1 = ada
        .get("/v1/projects/shop/releases")
        .await
        .assert(200)
        .json();
    assert_eq!(ada.get(PATH).await.assert(200).json(), v1);
    let token = ada.token();
    for length in ["", "content-length: 0\r\n"] {
        let request = format!(
            "GET {PATH} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n{length}\r\n"
        );
        assert_eq!(app.raw(Api::Platform, request).await.assert(200).json(), v1);
    }
    let page = ada
        .get(&format!("{PATH}?page=2&count=1"))
        .await
        .assert(200)
        .json();
    assert_eq!(page["releases"], json!([]));
    assert_eq!(page["total"], 1);
}

async fn post_creates_a_release(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let made = ada.post(PATH, &site()).await.assert(201);
    assert_eq!(fields(&made.json()), ["releaseID"]);
    assert_eq!(made.header("cache-control"), "no-store");
    let by_id = format!("/v2/projects/{id}/releases");
    ada.post(&by_id, &site()).await.assert(201);
    ada.call("POST".parse().unwrap(), PATH)
        .bytes(site().to_string())
        .await
        .assert(201);
    let call = ada.post(PATH, &site()).header("content-type", "text/plain");
    call.await.refused(415, "unsupported_media_type");
    ada.post_empty(PATH).await.refused(400, "invalid");
    let response = ada.post("/v2/projects/other/releases", &site()).await;
    response.refused(404, "not_found");
}

async fn the_list_is_the_envelope_of_the_specification(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({"name": "shop", "platform": "node", "planID": "nano"});
    ada.post("/v1/projects", &new).await.assert(200);
    let path = "/v1/projects/shop/releases";
    let list = ada.get(path).await.assert(200).json();
    assert_eq!(
        list,
        json!({"platform": "node", "readyReleasesCount": 0, "releases": [], "total": 0,
               "currentRelease": null})
    );
    let first = deploy_site(&ada, "shop").await;
    let failed = deploy(
        &ada,
        "shop",
        &json!({"files": [{"path": "a.js", "data": ""}]}),
    )
    .await;
    assert_eq!(ended(&ada, &failed).await["state"], "FAILED");
    let list = ada.get(path).await.assert(200).json();
    assert_eq!(list["platform"], "node");
    assert_eq!(list["readyReleasesCount"], 1);
    assert_eq!(list["total"], 2);
    assert_eq!(list["currentRelease"], first.as_str());
    assert_eq!(column(&list["releases"], "_id"), [failed, first]);
    assert_eq!(column(&list["releases"], "tag"), ["v2", "v1"]);
    for release in list["releases"].as_array().unwrap() {
        assert_id(&release["_id"]);
        assert_eq!(release["type"], "DEPLOY");
        assert_time(&release["createdAt"]);
    }
    assert_eq!(column(&list["releases"], "state"), ["FAILED", "READY"]);
    let page = ada
        .get(&format!("{path}?page=2&count=1"))
        .await
        .assert(200)
        .json();
    assert_eq!(column(&page["releases"], "tag"), ["v1"]);
    assert_eq!(page["total"], 2);
    ada.get(&format!("{path}?count=1000000")).await.assert(200);
    ada.get("/v1/projects/other/releases")
        .await
        .refused(404, "not_found");
}

async fn a_release_is_read_alone(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let id = deploy_site(&ada, "shop").await;
    let read = ada
        .get(&format!("/v1/releases/{id}"))
        .await
        .assert(200)
        .json();
    assert_eq!(fields(&read), ["release"]);
    let release = &read["release"];
    assert_eq!(release["_id"], id.as_str());
    assert_eq!(release["type"], "DEPLOY");
    assert_eq!(release["state"], "READY");
    assert_eq!(release["tag"], "v1");
    assert_eq!(release["projectType"], "static");
    assert_eq!(release["port"], 80);
    assert_eq!(release["sourceAvailable"], true);
    assert_eq!(release["current"], true);
    assert_time(&release["createdAt"]);
    assert_time(&release["finishedAt"]);
    assert!(release.get("failReason").is_none());
    for unknown in ["0123456789abcdef01234567", "x", "0123456789ABCDEF01234567"] {
        let response = ada.get(&format!("/v1/releases/{unknown}")).await;
        response.refused(404, "not_found");
    }
}

async fn states_follow_each_other(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    deploy_site(&ada, "shop").await;
    let events = ada.get("/v1/projects/shop/events").await.assert(200).json();
    let mut seen = column(&events["data"], "status");
    seen.reverse();
    assert_eq!(seen, ["PENDING", "BUILDING", "DEPLOYING", "READY"]);
}

async fn a_container_platform_fails_and_leaves_the_live_release_alone(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let live = deploy_site(&ada, "shop").await;
    let mut node = site();
    node["type"] = "node".into();
    for body in [node, json!({"type": "docker", "image": "nginx:1.27"})] {
        let release = deploy(&ada, "shop", &body).await;
        let release = ended(&ada, &release).await;
        assert_eq!(release["state"], "FAILED");
        assert_eq!(release["failReason"], "container_runtime_unavailable");
        assert_eq!(release["projectType"], body["type"]);
        assert!(release["failMessage"].as_str().unwrap().len() > 20);
        assert_eq!(release["current"], false);
    }
    let read = ada.get("/v1/projects/shop").await.json();
    assert_eq!(read["project"]["currentRelease"], live.as_str());
    assert_eq!(read["project"]["status"], "ACTIVE");
}

async fn exactly_one_source(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let files = json!([{"path": "a", "data": ""}]);
    for bad in [
        json!({}),
        json!({"files": []}),
        json!({"files": null}),
        json!({"files": {}}),
        json!({"files": "a"}),
        json!({"files": [1]}),
        json!({"files": [["a", "b"]]}),
        json!({"files": [{"path": "a"}]}),
        json!({"files": [{"data": "a"}]}),
        json!({"files": [{"path": 1, "data": ""}]}),
        json!({"files": files, "image": "nginx"}),
        json!({"files": files, "sourceID": "0123456789abcdef01234567"}),
        json!({"type": "docker", "image": ""}),
        json!({"type": "docker", "image": "a b"}),
        json!({"type": "docker", "image": "é"}),
        json!({"type": "static", "image": "nginx"}),
    ] {
        ada.post(PATH, &bad).await.refused(400, "invalid");
        ada.get(PATH).json(&bad).await.refused(400, "invalid");
    }
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 0);
}

async fn port_and_type_are_checked(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let with = |field: &str, value: Value| {
        let mut body = site();
        body[field] = value;
        body
    };
    for port in [1, 65535] {
        let release = deploy(&ada, "shop", &with("port", json!(port))).await;
        assert_eq!(ended(&ada, &release).await["port"], port);
    }
    // Public clients send what was typed.
    let release = deploy(&ada, "shop", &with("port", json!("8000"))).await;
    assert_eq!(ended(&ada, &release).await["port"], 8000);
    for port in [
        json!(0),
        json!(65536),
        json!(-1),
        json!("0"),
        json!("http"),
        json!(80.5),
        json!([]),
    ] {
        let response = ada.post(PATH, &with("port", port)).await;
        response.refused(400, "invalid").naming("port");
    }
    for kind in [json!("ruby"), json!(1), json!("STATIC")] {
        let response = ada.post(PATH, &with("type", kind)).await;
        response.refused(400, "invalid").naming("type");
    }
    let plain = json!({"files": [{"path": "index.html", "data": ""}]});
    let release = deploy(&ada, "shop", &plain).await;
    let release = ended(&ada, &release).await;
    assert_eq!(
        (&release["port"], &release["projectType"]),
        (&json!(80), &json!("static"))
    );
}

async fn what_the_maker_says_is_kept(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let mut body = site();
    let git = json!({"branch": "main", "commit": {"message": "Größe\n"}, "tags": []});
    body["message"] = "First".into();
    body["gitInfo"] = git.clone();
    body["healthCheck"] = json!({"command": "true"});
    let call = ada
        .post(PATH, &body)
        .header("user-agent", "estrade-test/1.0");
    let id = call.await.assert(201).field("/releaseID");
    let release = ended(&ada, &id).await;
    assert_eq!(release["message"], "First");
    assert_eq!(release["gitInfo"], git);
    assert_eq!(release["client"], "estrade-test/1.0");
    body["message"] = "x".repeat(1001).into();
    ada.post(PATH, &body)
        .await
        .refused(400, "invalid")
        .naming("message");
    body["message"] = "é".repeat(1000).into();
    ada.post(PATH, &body).await.assert(201);
}

/// A project with a release that is being built, and one that waits behind it.
async fn busy_project(app: &TestApp, user: &User) -> (String, String) {
    new_project(user, "shop").await;
    let mut node = site();
    node["type"] = "node".into();
    let building = deploy(user, "shop", &node).await;
    ended(user, &building).await;
    hold(app, &building).await;
    let waiting = deploy(user, "shop", &site()).await;
    (building, waiting)
}

async fn state(user: &User, release: &str) -> String {
    let read = user
        .get(&format!("/v1/releases/{release}"))
        .await
        .assert(200);
    read.field("/release/state")
}

async fn a_project_runs_one_release_at_a_time_and_cancel_stops_it(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (building, waiting) = busy_project(app, &ada).await;
    let last = deploy(&ada, "shop", &site()).await;
    tokio::time::sleep(Duration::from_millis(700)).await;
    assert_eq!(state(&ada, &building).await, "BUILDING");
    assert_eq!(state(&ada, &waiting).await, "PENDING");
    let read = ada.get(&format!("/v1/releases/{last}")).await.json();
    assert_eq!(read["release"]["queue"], 2);

    let cancel = |id: &str| ada.post_empty(&format!("/v2/releases/{id}/cancel"));
    cancel(&waiting).await.assert_empty(200);
    assert_eq!(state(&ada, &waiting).await, "CANCELED");
    cancel(&waiting).await.refused(409, "not_cancelable");
    cancel(&building).await.assert_empty(200);
    assert_eq!(state(&ada, &building).await, "CANCELED");
    assert_eq!(ended(&ada, &last).await["state"], "READY");
}

async fn waiting_ends_with_the_state_or_with_time(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (building, waiting) = busy_project(app, &ada).await;
    let path = format!("/v1/releases/{waiting}?wait=READY&timeout=1");
    let started = Instant::now();
    assert_eq!(
        ada.get(&path).await.assert(200).field("/release/state"),
        "PENDING"
    );
    assert!(started.elapsed() >= Duration::from_secs(1));
    let at_once = format!("/v1/releases/{waiting}?wait=PENDING&timeout=60");
    ada.get(&at_once).await.assert(200);

    let path = format!("/v1/releases/{waiting}?wait=READY&timeout=60");
    let cancel = format!("/v2/releases/{building}/cancel");
    let started = Instant::now();
    let (response, ()) = tokio::join!(ada.get(&path), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        ada.post_empty(&cancel).await.assert(200);
    });
    assert_eq!(response.assert(200).field("/release/state"), "READY");
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "woken, not timed out"
    );
    // A state that will not come any more.
    let path = format!("/v1/releases/{waiting}?wait=BUILDING&timeout=60");
    assert_eq!(
        ada.get(&path).await.assert(200).field("/release/state"),
        "READY"
    );
    // One that is empty counts as absent, as in every query.
    let path = format!("/v1/releases/{waiting}?wait=");
    ada.get(&path).await.assert(200);
    for bad in ["wait=DONE", "wait=READY&timeout=x", "wait=READY&timeout=-1"] {
        let response = ada.get(&format!("/v1/releases/{waiting}?{bad}")).await;
        response.refused(400, "invalid");
    }
}

async fn too_late_to_cancel(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    let cancel = format!("/v2/releases/{release}/cancel");
    ada.post_empty(&cancel).await.refused(409, "not_cancelable");
    assert_eq!(state(&ada, &release).await, "READY");
    let unknown = "/v2/releases/0123456789abcdef01234567/cancel";
    ada.post_empty(unknown).await.refused(404, "not_found");
}

async fn roll_back(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let first = deploy_site(&ada, "shop").await;
    let second = deploy(
        &ada,
        "shop",
        &json!({"files": [{"path": "b.html", "data": "b"}]}),
    )
    .await;
    ended(&ada, &second).await;
    assert_eq!(
        state(&ada, &first).await,
        "READY",
        "it stays READY when replaced"
    );
    let path = format!("/v1/releases/{first}/rollback");
    let made = ada.post_empty(&path).await.assert(200);
    assert_eq!(fields(&made.json()), ["releaseID"]);
    let third = made.field("/releaseID");
    assert!(third != first && third != second);
    let release = ended(&ada, &third).await;
    assert_eq!(release["type"], "ROLLBACK");
    assert_eq!(release["state"], "READY");
    assert_eq!(release["current"], true);
    assert_eq!(release["tag"], "v3");
    let source = |id: &str| format!("/v2/releases/{id}/source");
    assert_eq!(
        ada.get(&source(&first)).await.assert(200).body(),
        ada.get(&source(&third)).await.assert(200).body(),
    );
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["readyReleasesCount"], 3);
    assert_eq!(list["currentRelease"], third.as_str());
}

async fn no_rollback_to_what_is_current_never_ready_or_gone(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let old = deploy_site(&ada, "shop").await;
    let current = deploy_site(&ada, "shop").await;
    let mut node = site();
    node["type"] = "node".into();
    let failed = deploy(&ada, "shop", &node).await;
    ended(&ada, &failed).await;
    let rollback = |id: &str| ada.post_empty(&format!("/v1/releases/{id}/rollback"));
    rollback(&current).await.refused(409, "current");
    rollback(&failed).await.refused(409, "not_ready");
    rollback("0123456789abcdef01234567")
        .await
        .refused(404, "not_found");
    let gone = old.clone();
    let cleaned = app.core().db.transact(move |tx| {
        let gone = gone.clone();
        Box::pin(async move {
            tx.query("UPDATE releases SET artifact_id = NULL WHERE id = $1")
                .bind(gone.as_str())
                .execute()
                .await
        })
    });
    assert_eq!(cleaned.await.unwrap(), 1);
    rollback(&old).await.refused(410, "gone");
    ada.get(&format!("/v2/releases/{old}/source"))
        .await
        .refused(410, "gone");
    let read = ada.get(&format!("/v1/releases/{old}")).await.json();
    assert_eq!(read["release"]["sourceAvailable"], false);
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 3);
}
