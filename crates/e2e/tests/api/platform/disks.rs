//! `/v1/projects/{project_id}/disks`, and the disks of a release

use crate::support::{
    assert_id, assert_time, column, deploy, deploy_site, ended, fields, new_project, site,
};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};
use tokio::task::JoinSet;

on_both_backends! {
    a_disk_is_made_listed_and_deleted;
    disks_of_a_project_share_what_the_plan_has;
    a_disk_is_read_and_made_larger;
    names_and_sizes_are_checked;
    a_release_mounts_disks_that_are_there;
    a_disk_in_use_is_kept;
    a_project_takes_its_disks_along;
}

const DISKS: &str = "/v1/projects/shop/disks";

async fn add(user: &User, name: &str, size: Value) -> Value {
    let new = json!({"name": name, "size": size});
    let made = user.post(DISKS, &new).await.assert(201).json();
    assert_eq!(fields(&made), ["disk"]);
    made["disk"].clone()
}

async fn names(user: &User) -> Vec<String> {
    let list = user.get(DISKS).await.assert(200).json();
    assert_eq!(fields(&list), ["disks"]);
    column(&list["disks"], "name")
}

async fn reserved(user: &User) -> Value {
    let project = user.get("/v1/projects/shop").await.assert(200).json();
    project["project"]["reservedDiskSpace"].clone()
}

fn mounting(disks: Value) -> Value {
    let mut release = site();
    release["disks"] = disks;
    release
}

async fn a_disk_is_made_listed_and_deleted(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    assert_eq!(names(&ada).await, [""; 0]);
    assert_eq!(reserved(&ada).await, 0);
    let before = ada.get("/v1/projects/shop").await.header("etag").to_owned();
    let media = add(&ada, "media", json!(1)).await;
    assert_eq!(fields(&media), ["_id", "createdAt", "name", "size"]);
    assert_id(&media["_id"]);
    assert_time(&media["createdAt"]);
    assert_eq!(
        (&media["name"], &media["size"]),
        (&json!("media"), &json!(1))
    );
    add(&ada, "db", json!("1")).await;
    assert_eq!(names(&ada).await, ["db", "media"]);
    let by_id = ada.get(&format!("/v1/projects/{project}/disks")).await;
    assert_eq!(by_id.assert(200).json()["disks"][1], media);
    assert_eq!(reserved(&ada).await, 2);
    // The project shows its disks' sizes, so it has changed with them.
    let call = ada
        .get("/v1/projects/shop")
        .header("if-none-match", &before);
    call.await.assert(200);
    let again = json!({"name": "media", "size": 1});
    ada.delete(&format!("{DISKS}/db")).await.assert(204);
    ada.post(DISKS, &again).await.refused(409, "disk_exists");
    ada.delete(&format!("{DISKS}/db"))
        .await
        .refused(404, "not_found");
    assert_eq!(names(&ada).await, ["media"]);
    assert_eq!(reserved(&ada).await, 1);
    // Another project may have one of the same name.
    new_project(&ada, "blog").await;
    ada.post("/v1/projects/blog/disks", &again)
        .await
        .assert(201);
    let events = ada.get("/v1/projects/shop/events").await.json();
    assert_eq!(
        column(&events["data"], "action"),
        ["disk_delete", "disk_create", "disk_create"]
    );
}

async fn disks_of_a_project_share_what_the_plan_has(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let new = |size: Value| json!({"name": "big", "size": size});
    for too_much in [json!(3), json!("3"), json!(u64::MAX), json!(i64::MAX)] {
        let refused = ada.post(DISKS, &new(too_much)).await;
        // Public clients look for that word.
        refused
            .refused(400, "invalid")
            .naming("size")
            .naming("not_enough_storage_space");
    }
    add(&ada, "small", json!(1)).await;
    let refused = ada.post(DISKS, &new(json!(2))).await;
    refused
        .refused(400, "invalid")
        .naming("not_enough_storage_space");
    add(&ada, "other", json!(1)).await;
    let resize = json!({"planID": "micro"});
    ada.post("/v1/projects/shop/resize", &resize)
        .await
        .assert(200);
    ada.post(DISKS, &new(json!(3))).await.assert(201);
    ada.post(DISKS, &json!({"name": "last", "size": 1}))
        .await
        .refused(400, "invalid");
    let smaller = json!({"planID": "nano"});
    ada.post("/v1/projects/shop/resize", &smaller)
        .await
        .refused(409, "disks_too_large");
    // Many at once do not get more than there is.
    for name in ["big", "small", "other"] {
        ada.delete(&format!("{DISKS}/{name}")).await.assert(204);
    }
    let mut at_once = JoinSet::new();
    for n in 0..12 {
        let (ada, new) = (ada.clone(), json!({"name": format!("d{n}"), "size": 1}));
        at_once.spawn(async move { ada.post(DISKS, &new).await.status() });
    }
    let mut made = 0;
    for status in at_once.join_all().await {
        assert!(matches!(status, 201 | 400), "{status}");
        made += u32::from(status == 201);
    }
    assert_eq!(made, 5);
    assert_eq!(reserved(&ada).await, 5);
}

async fn names_and_sizes_are_checked(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let long = "a".repeat(51);
    for name in ["", "A", "a b", "a/b", "-a", "a_b", "..", &long] {
        let new = json!({"name": name, "size": 1});
        let refused = ada.post(DISKS, &new).await;
        refused.refused(400, "invalid").naming("name");
    }
    for size in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("x"),
        json!(null),
        json!([1]),
    ] {
        let new = json!({"name": "a", "size": size});
        let refused = ada.post(DISKS, &new).await;
        refused.refused(400, "invalid").naming("size");
    }
    for bad in [json!({"name": "a"}), json!({"size": 1}), json!({})] {
        ada.post(DISKS, &bad).await.refused(400, "invalid");
    }
    for path in ["x", "A%20B", "..%2f", "%00"] {
        let refused = ada.delete(&format!("{DISKS}/{path}")).await;
        assert_eq!(refused.status(), 404, "{}", refused.describe());
    }
    assert_eq!(names(&ada).await, [""; 0]);
}

async fn a_release_mounts_disks_that_are_there(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    new_project(&ada, "blog").await;
    let path = "/v2/projects/shop/releases";
    let media = json!([{"name": "media", "mountTo": "/app/media"}]);
    let unknown = mounting(media.clone());
    ada.post(path, &unknown).await.refused(400, "disk_unknown");
    let image = json!({"image": "nginx:1.27", "type": "docker", "disks": media});
    ada.post(path, &image).await.refused(400, "disk_unknown");
    let new = json!({"name": "media", "size": 1});
    ada.post("/v1/projects/blog/disks", &new).await.assert(201);
    ada.post(path, &unknown).await.refused(400, "disk_unknown");
    for (bad, field) in [
        (json!([{"name": "media", "mountTo": "app"}]), "mountTo"),
        (json!([{"name": "media", "mountTo": "/a/../b"}]), "mountTo"),
        (json!([{"name": "media", "path": "/proc/x"}]), "mountTo"),
        (json!([{"name": "x y", "mountTo": "/app"}]), "name"),
        (json!({"media": "/app"}), "disks"),
    ] {
        let refused = ada.post(path, &mounting(bad)).await;
        refused.refused(400, "invalid").naming(field);
    }
    let list = ada.get("/v1/projects/shop/releases").await.json();
    assert_eq!(list["total"], 0, "a refusal leaves nothing behind");
    add(&ada, "media", json!(1)).await;
    let release = deploy(&ada, "shop", &unknown).await;
    assert_eq!(ended(&ada, &release).await["state"], "READY");
}

async fn a_disk_in_use_is_kept(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    add(&ada, "media", json!(1)).await;
    add(&ada, "spare", json!(1)).await;
    let disks = json!([{"name": "media", "mountTo": "/app/media"}]);
    let media = format!("{DISKS}/media");
    let release = deploy(&ada, "shop", &mounting(disks)).await;
    // Also before it serves: it will want its disk.
    ada.delete(&media).await.refused(409, "disk_in_use");
    assert_eq!(ended(&ada, &release).await["state"], "READY");
    ada.delete(&media).await.refused(409, "disk_in_use");
    ada.delete(&format!("{DISKS}/spare")).await.assert(204);
    assert_eq!(names(&ada).await, ["media"]);
    // One that did not come to serve does not count.
    let failing =
        json!({"image": "nginx", "type": "docker", "disks": [{"name": "media", "mountTo": "/m"}]});
    deploy_site(&ada, "shop").await;
    let failed = deploy(&ada, "shop", &failing).await;
    ended(&ada, &failed).await;
    ada.delete(&media).await.assert(204);
}

async fn a_project_takes_its_disks_along(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    add(&ada, "media", json!(1)).await;
    ada.delete("/v1/projects/shop").await.assert(200);
    ada.get(DISKS).await.refused(404, "not_found");
    new_project(&ada, "shop").await;
    assert_eq!(names(&ada).await, [""; 0]);
    assert_eq!(reserved(&ada).await, 0);
}

async fn a_disk_is_read_and_made_larger(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let made = add(&ada, "media", json!(1)).await;
    let media = format!("{DISKS}/media");
    let read = ada.get(&media).await.assert(200).json();
    assert_eq!(read, json!({"disk": made}));
    let project = ada.get("/v1/projects/shop").await.json();
    assert_eq!(project["project"]["disks"], json!([made]));
    for missing in ["other", "No-Name", "%00"] {
        let path = format!("{DISKS}/{missing}");
        ada.get(&path).await.refused(404, "not_found");
        let resize = json!({"size": 2});
        let refused = ada.post(&format!("{path}/resize"), &resize).await;
        refused.refused(404, "not_found");
    }
    let resize = format!("{media}/resize");
    for size in [json!(2), json!("2")] {
        let grown = ada.post(&resize, &json!({ "size": size })).await;
        assert_eq!(grown.assert(200).json()["disk"]["size"], 2);
    }
    assert_eq!(reserved(&ada).await, 2);
    let refused = ada.post(&resize, &json!({"size": 1})).await;
    refused.refused(400, "disk_smaller").naming("smaller");
    let refused = ada.post(&resize, &json!({"size": 3})).await;
    refused
        .refused(400, "invalid")
        .naming("not_enough_storage_space");
    for bad in [json!({}), json!({"size": 0}), json!({"size": "much"})] {
        let refused = ada.post(&resize, &bad).await;
        refused.refused(400, "invalid").naming("size");
    }
    let plan = json!({"planID": "micro"});
    ada.post("/v1/projects/shop/resize", &plan)
        .await
        .assert(200);
    let grown = ada.post(&resize, &json!({"size": 5})).await.assert(200);
    assert_eq!(grown.json()["disk"]["_id"], made["_id"]);
    assert_eq!(reserved(&ada).await, 5);
    // The next one finds no room.
    let new = json!({"name": "more", "size": 1});
    ada.post(DISKS, &new).await.refused(400, "invalid");
}
