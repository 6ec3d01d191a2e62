//! `/v1/projects`

use crate::support::{assert_id, assert_time, column, deploy_site, fields, new_project};
use estrade_service::gc::rows;
use estrade_store::{StoreError, former_names};
use estrade_testkit::{TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

on_both_backends! {
    the_list_has_the_fields_of_the_specification;
    creating_returns_200_with_the_project;
    name_platform_and_plan_are_required;
    the_plans_of_the_table_and_no_others;
    every_platform_and_no_other;
    names_of_projects;
    a_name_is_unique_across_the_installation;
    a_project_is_read_by_name_and_by_id;
    a_deleted_project_is_gone_and_its_owner_can_make_it_again;
    the_name_of_a_deleted_project_is_reserved_for_its_owner;
    a_purged_name_is_free_at_once;
    the_names_of_a_deleted_team_are_free;
    nobody_can_reserve_all_names;
    scaling;
    restart_and_resize;
    is_a_name_free;
}

async fn the_list_has_the_fields_of_the_specification(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let empty = ada.get("/v1/projects").await.assert(200);
    assert_eq!(empty.json(), json!({"projects": []}));
    for (name, platform) in [("first", "django"), ("second", "docker")] {
        let new = json!({"name": name, "platform": platform, "planID": "micro"});
        ada.post("/v1/projects", &new).await.assert(200);
    }
    let list = ada.get("/v1/projects").await.assert(200).json();
    assert_eq!(fields(&list), ["projects"]);
    assert_eq!(column(&list["projects"], "project_id"), ["second", "first"]);
    assert_eq!(column(&list["projects"], "type"), ["docker", "django"]);
    let project = &list["projects"][0];
    assert_id(&project["_id"]);
    assert_time(&project["created_at"]);
    assert_eq!(project["planID"], "micro");
    assert_eq!(project["scale"], 1);
    assert_eq!(project["status"], "ACTIVE");
    // And what public clients read besides.
    assert_eq!(project["url"], "http://second.localhost:8080");
    assert_eq!(project["network"]["name"], "default");
    assert_eq!(project["bundlePlanID"], "standard");
    assert_eq!(project["isDeployed"], false);
}

async fn creating_returns_200_with_the_project(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({
        "name": "shop", "platform": "node", "planID": "standard-1x", "bundlePlanID": "pro",
        "network": "default", "readOnlyRootFilesystem": true, "unknown": {"is": "ignored"},
    });
    let made = ada.post("/v1/projects", &new).await.assert(200).json();
    assert_eq!(fields(&made), ["project", "projectID"]);
    assert_eq!(made["projectID"], made["project"]["_id"]);
    assert_eq!(made["project"]["project_id"], "shop");
    assert_eq!(made["project"]["bundlePlanID"], "pro");
    let read = ada.get("/v1/projects/shop").await.assert(200).json();
    assert_eq!(read["project"]["readOnlyRootFilesystem"], true);
    for (field, value) in [("bundlePlanID", "gold"), ("network", "elsewhere")] {
        let mut bad = new.clone();
        bad["name"] = "other".into();
        bad[field] = value.into();
        let response = ada.post("/v1/projects", &bad).await;
        response.refused(400, "invalid").naming(field);
    }
}

async fn name_platform_and_plan_are_required(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let whole = json!({"name": "shop", "platform": "static", "planID": "nano"});
    for field in ["name", "platform", "planID"] {
        for value in [None, Some(Value::Null), Some(json!(1)), Some(json!([]))] {
            let mut new = whole.clone();
            match value {
                None => drop(new.as_object_mut().unwrap().remove(field)),
                Some(value) => new[field] = value,
            }
            let response = ada.post("/v1/projects", &new).await;
            response.refused(400, "invalid").naming(field);
        }
    }
    let list = ada.get("/v1/projects").await.assert(200).json();
    assert_eq!(list, json!({"projects": []}));
}

async fn the_plans_of_the_table_and_no_others(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let table = [
        ("nano", 512, 1, 2),
        ("micro", 1024, 1, 5),
        ("standard-1x", 2048, 2, 10),
        ("standard-2x", 4096, 2, 20),
        ("performance-1x", 6144, 4, 40),
        ("performance-2x", 8192, 4, 60),
    ];
    let me = ada.get("/v1/me").await.assert(200).json();
    let plans = &me["plans"]["projects"];
    // Each has an alias, for clients that look for ids of that form.
    assert_eq!(plans.as_object().unwrap().len(), 2 * table.len());
    for (plan, memory, cpus, disk) in table {
        let new = json!({"name": format!("on-{plan}"), "platform": "static", "planID": plan});
        let made = ada.post("/v1/projects", &new).await.assert(200);
        assert_eq!(made.field("/project/planID"), plan);
        assert_eq!(plans[plan]["memoryMB"], memory);
        assert_eq!(plans[plan]["cpus"], cpus);
        assert_eq!(plans[plan]["diskGB"], disk);
    }
    for plan in ["Nano", "", "nano ", "standard-3x"] {
        let new = json!({"name": "other", "platform": "static", "planID": plan});
        let response = ada.post("/v1/projects", &new).await;
        response
            .refused(400, "invalid")
            .naming("planID")
            .naming("performance-2x");
    }
}

async fn every_platform_and_no_other(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let all = "static docker node next react vue angular python django flask php laravel go dotnet";
    for platform in all.split(' ') {
        let new = json!({"name": format!("my-{platform}"), "platform": platform, "planID": "nano"});
        let made = ada.post("/v1/projects", &new).await.assert(200);
        assert_eq!(made.field("/project/type"), platform);
    }
    for platform in ["ruby", "Static", ""] {
        let new = json!({"name": "other", "platform": platform, "planID": "nano"});
        let response = ada.post("/v1/projects", &new).await.refused(400, "invalid");
        let response = response.naming("platform");
        for known in all.split(' ') {
            assert!(response.message().contains(known), "{}", response.message());
        }
    }
}

async fn names_of_projects(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let long = "n".repeat(50);
    for good in [
        "abc",
        "a-b",
        "0-9",
        "a--b",
        "n23456789012345678901234",
        &long,
    ] {
        new_project(&ada, good).await;
    }
    let too_long = "n".repeat(51);
    let bad = [
        "",
        "ab",
        &too_long,
        "-ab",
        "ab-",
        "Abc",
        "a_b",
        "a.b",
        "a b",
        "abc\n",
        "\nabc",
        "äbc",
        "abc\u{0}",
        "www",
        "api",
        "panel",
        "console",
        "update-envs",
        "update-port",
        "xn--abc",
        "0123456789abcdef01234567",
        "../..",
    ];
    for name in bad {
        let new = json!({"name": name, "platform": "static", "planID": "nano"});
        let response = ada.post("/v1/projects", &new).await;
        response.refused(400, "invalid").naming("name");
    }
}

async fn a_name_is_unique_across_the_installation(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    let new = json!({"name": "shop", "platform": "node", "planID": "micro"});
    for user in [&ada, &bob] {
        let response = user.post("/v1/projects", &new).await;
        response.refused(409, "project_exists");
    }
    let list = bob.get("/v1/projects").await.assert(200).json();
    assert_eq!(list, json!({"projects": []}));
}

async fn a_project_is_read_by_name_and_by_id(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let by_name = ada.get("/v1/projects/shop").await.assert(200).json();
    let by_id = ada.get(&format!("/v1/projects/{id}")).await.assert(200);
    assert_eq!(by_name, by_id.json());
    let project = &by_name["project"];
    assert_eq!(project["_id"], id.as_str());
    assert_eq!(project["envs"], json!([]));
    assert_eq!(project["isDeployed"], false);
    assert_eq!(project["currentRelease"], Value::Null);
    assert_eq!(project["readOnlyRootFilesystem"], false);
    for field in ["defaultSubdomain", "zeroDowntime"] {
        assert!(project[field].is_boolean(), "{field}");
    }
    for field in ["hourlyPrice", "reservedDiskSpace"] {
        assert!(project[field].is_u64(), "{field}");
    }
    let release = deploy_site(&ada, "shop").await;
    let after = ada.get("/v1/projects/shop").await.assert(200).json();
    assert_eq!(after["project"]["isDeployed"], true);
    assert_eq!(after["project"]["currentRelease"], release.as_str());
    for unknown in [
        "other",
        "0123456789abcdef01234567",
        "SHOP",
        "a",
        "%00",
        "%ff",
    ] {
        let response = ada.get(&format!("/v1/projects/{unknown}")).await;
        response.refused(404, "not_found");
    }
}

async fn a_deleted_project_is_gone_and_its_owner_can_make_it_again(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let id = new_project(&ada, "shop").await;
    let release = deploy_site(&ada, "shop").await;
    ada.delete("/v1/projects/shop").await.assert_empty(200);
    ada.delete("/v1/projects/shop")
        .await
        .refused(404, "not_found");
    for path in [
        "/v1/projects/shop".to_owned(),
        format!("/v1/projects/{id}"),
        "/v1/projects/shop/releases".to_owned(),
        format!("/v1/releases/{release}"),
        format!("/v2/releases/{release}/source"),
    ] {
        ada.get(&path).await.refused(404, "not_found");
    }
    let again = new_project(&ada, "shop").await;
    assert_ne!(again, id);
    ada.delete(&format!("/v1/projects/{again}"))
        .await
        .assert_empty(200);
}

/// What somebody is told who wants a name.
async fn ask_for_name(user: &User, name: &str) -> (u16, Value) {
    let available = user
        .get(&format!("/v1/projects/{name}/check-availability"))
        .await;
    let new = json!({"name": name, "platform": "static", "planID": "micro"});
    let made = user.post("/v1/projects", &new).await;
    assert_eq!(made.status(), available.status());
    (made.status(), made.json())
}

async fn the_name_of_a_deleted_project_is_reserved_for_its_owner(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let team = ada.in_team(&app.new_team(&ada, "crew").await);
    new_project(&ada, "shop").await;
    let (_, taken) = ask_for_name(&bob, "shop").await;
    ada.delete("/v1/projects/shop").await.assert_empty(200);
    for stranger in [&bob, &team] {
        // Exactly as if it were still there.
        assert_eq!(ask_for_name(stranger, "shop").await, (409, taken.clone()));
    }
    assert_eq!(taken["data"]["code"], "project_exists");
    app.core().clock.advance(Duration::from_hours(30 * 24 - 1));
    assert_eq!(ask_for_name(&bob, "shop").await.0, 409);
    assert_eq!(ask_for_name(&ada, "shop").await.0, 200);
    ada.delete("/v1/projects/shop").await.assert_empty(200);
    app.core().clock.advance(Duration::from_hours(2));
    assert_eq!(ask_for_name(&bob, "shop").await.0, 409, "30 days anew");
    app.core().clock.advance(Duration::from_hours(30 * 24));
    assert_eq!(ask_for_name(&bob, "shop").await.0, 200);
    assert_eq!(ask_for_name(&ada, "shop").await.0, 409);
    // Long after, nothing is remembered of it.
    let rows = "SELECT COUNT(*) FROM former_names";
    let count = async || app.core().db.read(rows).fetch_one::<i64>().await.unwrap();
    rows::sweep(app.core(), &CancellationToken::new()).await;
    assert_eq!(count().await, 1);
    app.core().clock.advance(Duration::from_hours(366 * 24));
    rows::sweep(app.core(), &CancellationToken::new()).await;
    assert_eq!(count().await, 0);
}

async fn a_purged_name_is_free_at_once(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    ada.delete("/v1/projects/shop?purge=perhaps")
        .await
        .refused(400, "invalid")
        .naming("purge");
    bob.delete("/v1/projects/shop?purge=true")
        .await
        .refused(404, "not_found");
    ada.delete("/v1/projects/shop?purge=true")
        .await
        .assert_empty(200);
    assert_eq!(ask_for_name(&bob, "shop").await.0, 200);
    bob.delete("/v1/projects/shop?purge=false")
        .await
        .assert_empty(200);
    assert_eq!(ask_for_name(&ada, "shop").await.0, 409);
}

async fn the_names_of_a_deleted_team_are_free(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let id = app.new_team(&ada, "crew").await;
    let team = ada.in_team(&id);
    new_project(&team, "shop").await;
    team.delete("/v1/projects/shop").await.assert_empty(200);
    assert_eq!(ask_for_name(&bob, "shop").await.0, 409);
    ada.delete(&format!("/v2/teams/{id}")).await;
    assert_eq!(ask_for_name(&bob, "shop").await.0, 200);
}

async fn nobody_can_reserve_all_names(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "first").await;
    ada.delete("/v1/projects/first").await.assert_empty(200);
    let (owner, now) = (ada.account.parse().unwrap(), app.core().now());
    let more = app.core().db.transact(move |tx| {
        Box::pin(async move {
            for number in 0..1000 {
                let (name, at) = (format!("name-{number}"), now.after(Duration::from_secs(1)));
                let until = now.after(Duration::from_hours(24));
                former_names::insert_former_name(tx, &name, owner, until, at, 1000).await?;
            }
            Ok::<_, StoreError>(())
        })
    });
    more.await.unwrap();
    assert_eq!(ask_for_name(&bob, "name-7").await.0, 409);
    assert_eq!(ask_for_name(&bob, "first").await.0, 200);
}

async fn scaling(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let path = "/v1/projects/shop/actions/scale";
    for scale in [0, 1, 10] {
        ada.post(path, &json!({"scale": scale}))
            .await
            .assert_empty(200);
        let list = ada.get("/v1/projects").await.assert(200).json();
        assert_eq!(list["projects"][0]["scale"], scale);
        assert_eq!(list["projects"][0]["status"], "ACTIVE");
    }
    for bad in [
        json!(11),
        json!(-1),
        json!("1"),
        json!(1.5),
        json!(null),
        json!(5_000_000_000_u64),
    ] {
        let response = ada.post(path, &json!({"scale": bad})).await;
        response.refused(400, "invalid").naming("scale");
    }
    ada.post(path, &json!({}))
        .await
        .refused(400, "invalid")
        .naming("scale");
    let read = ada.get("/v1/projects/shop").await.json();
    assert_eq!(read["project"]["scale"], 10);
    let response = ada
        .post("/v1/projects/other/actions/scale", &json!({"scale": 1}))
        .await;
    response.refused(404, "not_found");
}

async fn restart_and_resize(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    ada.post_empty("/v1/projects/shop/actions/restart")
        .await
        .assert_empty(200);
    ada.post("/v1/projects/shop/resize", &json!({"planID": "micro"}))
        .await
        .assert_empty(200);
    let read = ada.get("/v1/projects/shop").await.json();
    assert_eq!(read["project"]["planID"], "micro");
    for bad in [json!({"planID": "huge"}), json!({"planID": 1}), json!({})] {
        let response = ada.post("/v1/projects/shop/resize", &bad).await;
        response.refused(400, "invalid").naming("planID");
    }
    ada.post_empty("/v1/projects/other/actions/restart")
        .await
        .refused(404, "not_found");
    let response = ada
        .post("/v1/projects/other/resize", &json!({"planID": "micro"}))
        .await;
    response.refused(404, "not_found");
}

async fn is_a_name_free(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    for user in [&ada, &bob] {
        user.get("/v1/projects/shop/check-availability")
            .await
            .assert_empty(409);
        user.get("/v1/projects/shop2/check-availability")
            .await
            .assert_empty(200);
        user.get("/v1/projects/www/check-availability")
            .await
            .refused(400, "invalid");
    }
}
