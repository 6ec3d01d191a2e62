//! Disks, scale, plan, switches, deletion and networks.

use super::support::{ada_with_shop, new_project, signed_in};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    disks_are_made_resized_and_deleted;
    settings_are_changed;
    a_project_is_deleted_by_its_name;
    networks_are_made_and_deleted;
    a_token_for_a_project_is_made_from_its_settings;
}

async fn disks_are_made_resized_and_deleted(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let disks = "/panel/projects/shop/disks";
    let page = panel.get(disks).await.assert(200).text();
    assert!(page.contains("No disks yet") && page.contains("0 of 5 GB"));
    let form = [("name", "media"), ("size", "2")];
    panel.post(disks, &form).await.assert(303);
    let page = panel.get(disks).await.assert(200).text();
    assert!(page.contains("media") && page.contains("2 of 5 GB") && page.contains("not mounted"));
    panel.post(disks, &form).await.assert(409);
    let page = panel
        .post(disks, &[("name", "more"), ("size", "4")])
        .await
        .assert(400)
        .text();
    assert!(
        page.contains("ask for less") && page.contains("value=\"more\""),
        "{page}"
    );
    panel
        .post(disks, &[("name", "more"), ("size", "0")])
        .await
        .assert(400);
    let resize = format!("{disks}/media/resize");
    panel.post(&resize, &[("size", "3")]).await.assert(303);
    panel.post(&resize, &[("size", "1")]).await.assert(400);
    let read = ada
        .get("/v1/projects/shop/disks/media")
        .await
        .assert(200)
        .json();
    assert_eq!(read["disk"]["size"], 3);
    let delete = format!("{disks}/media/delete");
    assert!(
        panel
            .get(&delete)
            .await
            .assert(200)
            .text()
            .contains("Delete the disk media?")
    );
    panel.post(&delete, &[]).await.assert(303);
    panel.post(&delete, &[]).await.assert(404);
    ada.get("/v1/projects/shop/disks/media")
        .await
        .refused(404, "not_found");
}

async fn settings_are_changed(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let settings = "/panel/projects/shop/settings";
    let page = panel.get(settings).await.assert(200).text();
    for text in [
        "standard-1x",
        "performance-2x",
        "Zero downtime",
        "Read-only file system",
        "Not offered",
        "default",
    ] {
        assert!(page.contains(text), "{text}");
    }
    let at = |rest: &str| format!("{settings}/{rest}");
    panel
        .post(&at("scale"), &[("scale", "3")])
        .await
        .assert(303);
    panel
        .post(&at("plan"), &[("plan", "standard-1x")])
        .await
        .assert(303);
    for switch in ["zero-downtime", "default-subdomain"] {
        panel
            .post(&at("switch"), &[("switch", switch), ("on", "false")])
            .await
            .assert(303);
    }
    panel
        .post(&at("switch"), &[("switch", "read-only"), ("on", "true")])
        .await
        .assert(303);
    let read = ada.get("/v1/projects/shop").await.json();
    let project = &read["project"];
    assert_eq!(
        (&project["scale"], &project["planID"]),
        (&json!(3), &json!("standard-1x"))
    );
    assert_eq!(project["zeroDowntime"], false);
    assert_eq!(project["defaultSubdomain"], false);
    assert_eq!(project["readOnlyRootFilesystem"], true);
    for scale in ["11", "-1", "many"] {
        panel
            .post(&at("scale"), &[("scale", scale)])
            .await
            .assert(400);
    }
    panel
        .post(&at("plan"), &[("plan", "huge")])
        .await
        .assert(400);
    panel
        .post(&at("switch"), &[("switch", "warp"), ("on", "true")])
        .await
        .assert(400);
    let refused = panel
        .post("/panel/projects/shop/restart", &[])
        .await
        .assert(409)
        .text();
    assert!(refused.contains("deploy one first"), "{refused}");
    let page = panel.get(&at("off")).await.assert(200).text();
    assert!(page.contains("Switch shop off?") && page.contains("name=\"scale\" value=\"0\""));
    panel
        .post(&at("scale"), &[("scale", "0")])
        .await
        .assert(303);
    assert!(panel.get(settings).await.text().contains("Switch on"));
    ada.post(
        "/v1/projects/shop/disks",
        &json!({"name": "media", "size": 8}),
    )
    .await
    .assert(201);
    let page = panel
        .post(&at("plan"), &[("plan", "nano")])
        .await
        .assert(409)
        .text();
    assert!(page.contains("delete a disk first"), "{page}");
}

async fn a_project_is_deleted_by_its_name(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let delete = "/panel/projects/shop/delete";
    let page = panel.get(delete).await.assert(200).text();
    assert!(page.contains("Delete shop?"));
    for typed in ["", "Shop", "shopp"] {
        panel.post(delete, &[("name", typed)]).await.assert(400);
    }
    ada.get("/v1/projects/shop").await.assert(200);
    let gone = panel.post(delete, &[("name", "shop")]).await.assert(303);
    assert_eq!(gone.header("location"), "/panel/projects");
    ada.get("/v1/projects/shop").await.refused(404, "not_found");
    let eve = app.new_account("eve").await;
    let available = "/v1/projects/shop/check-availability";
    assert_eq!(
        eve.get(available).await.status(),
        409,
        "the name is reserved"
    );
    new_project(&ada, "shop").await;
    panel
        .post(delete, &[("name", "shop"), ("purge", "yes")])
        .await
        .assert(303);
    assert_eq!(eve.get(available).await.status(), 200, "the name is free");
}

async fn networks_are_made_and_deleted(app: &TestApp) {
    let (ada, mut panel) = signed_in(app, "ada").await;
    let page = panel.get("/panel/networks").await.assert(200).text();
    assert!(page.contains("default") && !page.contains("/delete\""));
    panel
        .post("/panel/networks", &[("name", "backend")])
        .await
        .assert(303);
    panel
        .post("/panel/networks", &[("name", "backend")])
        .await
        .assert(409);
    panel
        .post("/panel/networks", &[("name", "!")])
        .await
        .assert(400);
    let page = panel.get("/panel/networks").await.assert(200).text();
    let delete = page
        .split('"')
        .find(|text| text.ends_with("/delete"))
        .unwrap();
    let question = panel.get(delete).await.assert(200).text();
    assert!(question.contains("Delete the network backend?"));
    panel.post(delete, &[]).await.assert(303);
    panel.post(delete, &[]).await.assert(404);
    let left = ada.get("/v1/networks").await.json();
    assert_eq!(left["networks"].as_array().unwrap().len(), 1);
}

async fn a_token_for_a_project_is_made_from_its_settings(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let settings = panel.get("/panel/projects/shop/settings").await.assert(200);
    let link = "/panel/tokens/new?project=shop";
    assert!(settings.text().contains(link));
    let project = ada.get("/v1/projects/shop").await.field("/project/_id");
    // The list offers the newest ones; this one is offered behind them, too.
    for number in 0..200 {
        new_project(&ada, &format!("newer-{number}")).await;
    }
    let chosen = format!("value=\"{project}\" selected");
    let page = panel.get(link).await.assert(200).text();
    assert!(page.contains(&chosen), "{page}");
    assert!(page.contains("value=\"project\" checked"), "{page}");
    let page = panel.get("/panel/tokens/new").await.assert(200).text();
    assert!(!page.contains(&project));
    let form = [("name", " "), ("lifetime", "30d"), ("scope", "project")];
    let form = [&form[..], &[("project", &project)]].concat();
    let page = panel.post("/panel/tokens/new", &form).await.assert(400);
    assert!(page.text().contains(&chosen), "it stays chosen");
    panel
        .get("/panel/tokens/new?project=no-such-project")
        .await
        .assert(404);
}
