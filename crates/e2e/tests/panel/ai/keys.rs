//! Keys and workspaces: made, changed, switched, rotated and deleted.

use super::support::{ECHO, between, new_key, new_key_at, person, say, secret, workspace_of};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    a_key_is_made_used_switched_rotated_and_deleted;
    a_switch_comes_back_to_the_list_as_it_was_filtered;
    workspaces_are_made_renamed_limited_and_deleted;
    forms_are_shown_again_with_what_was_typed;
}

async fn a_key_is_made_used_switched_rotated_and_deleted(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let empty = ada.get("/panel/keys").await.assert(200).text();
    assert!(empty.contains("No keys yet"));
    let limits = [
        ("rpm", "600"),
        ("budget", "50"),
        ("period", "monthly"),
        ("expires", "2999-12-31"),
        ("models", ECHO),
    ];
    let (id, key) = new_key(&mut ada, "ci-bot", &limits).await;
    say(app, &key, ECHO).await.assert(200);
    let read = user.ai().get(&format!("/v1/keys/{id}")).await.json();
    assert_eq!(
        (&read["rpm"], &read["models"]),
        (&json!(600), &json!([ECHO]))
    );
    assert_eq!(
        read["budget"],
        json!({"amount": "50.00", "period": "monthly"})
    );
    assert_eq!(read["expiresAt"], "2999-12-31T23:59:59.999Z");
    // Shown once: no other page has it.
    let path = format!("/panel/keys/{id}");
    let pages = [
        "/panel/keys",
        &path,
        "/panel/playground",
        "/panel/usage",
        "/panel/calls",
        "/panel/audit",
    ];
    for page in pages {
        let text = ada.get(page).await.text();
        assert!(!text.contains(&key), "{page}");
    }
    let page = ada.get(&path).await.assert(200).text();
    for part in [
        "600 a minute",
        "of 50.00 a month",
        "http://127.0.0.1:3100/api/",
        "OpenAI(",
    ] {
        assert!(page.contains(part), "{part}: {page}");
    }
    // Switched off and on.
    let switch = format!("{path}/enabled");
    ada.post(&switch, &[("enabled", "false")]).await.assert(303);
    let list = ada.get("/panel/keys").await.text();
    assert!(list.contains("Key ci-bot was disabled") && list.contains("aria-checked=\"false\""));
    say(app, &key, ECHO).await.assert(403);
    ada.post(&switch, &[("enabled", "true")]).await.assert(303);
    say(app, &key, ECHO).await.assert(200);
    // Changed: what is emptied is no limit any more, and what was not touched stays.
    let change = [
        ("name", "ci-bot 2"),
        ("workspaces", "main"),
        ("expires", "2999-12-31"),
        ("tpm", "9000"),
    ];
    ada.post(&path, &change).await.assert(303);
    let read = user.ai().get(&format!("/v1/keys/{id}")).await.json();
    assert_eq!(
        (&read["name"], &read["tpm"], &read["rpm"]),
        (&json!("ci-bot 2"), &json!(9000), &Value::Null)
    );
    assert_eq!(
        (&read["models"], &read["budget"]),
        (&Value::Null, &Value::Null)
    );
    // Rotated.
    ada.get(&format!("{path}/rotate")).await.assert(200);
    let rotated = ada
        .post(&format!("{path}/rotate"), &[("grace", "0")])
        .await
        .assert(200);
    let new = secret(&rotated);
    assert_ne!(new, key);
    say(app, &key, ECHO).await.assert(401);
    say(app, &new, ECHO).await.assert(200);
    let again = ada
        .post(&format!("{path}/rotate"), &[("grace", "3600")])
        .await
        .assert(200);
    say(app, &new, ECHO).await.assert(200);
    ada.post(&format!("{path}/rotate"), &[("grace", "7")])
        .await
        .assert(400);
    // Deleted.
    let question = ada.get(&format!("{path}/delete")).await.assert(200).text();
    assert!(question.contains("Delete key ci-bot 2?"));
    ada.post(&format!("{path}/delete"), &[]).await.assert(303);
    say(app, &secret(&again), ECHO).await.assert(401);
    ada.get(&path).await.assert(404);
}

async fn a_switch_comes_back_to_the_list_as_it_was_filtered(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let (older, _) = new_key(&mut ada, "older", &[]).await;
    let (newer, _) = new_key(&mut ada, "newer", &[]).await;
    let workspace = workspace_of(&user, &older).await;
    let made = ada.post("/panel/team/new", &[("name", "Shop")]).await;
    let made = made.assert(303).header("location").to_owned();
    let (_, team) = made.split_once("?team=").unwrap();
    let form = format!("/panel/keys/new?team={team}");
    let (shared, _) = new_key_at(&mut ada, &form, "shared", &[]).await;
    let of_workspace = format!("/panel/keys?workspace={workspace}");
    let pages = [
        (of_workspace.clone(), &older),
        (format!("{of_workspace}&before={newer}"), &older),
        (format!("/panel/keys?before={newer}"), &older),
        (format!("/panel/keys?team={team}"), &shared),
        (format!("/panel/keys/{newer}"), &newer),
    ];
    for (page, key) in pages {
        let (switch, from) = switch_of(&ada.get(&page).await.assert(200).text(), key);
        let form = [("enabled", "false"), ("from", from.as_str())];
        let back = ada.post(&switch, &form).await.assert(303);
        assert_eq!(back.header("location"), page);
        let shown = ada.get(&page).await.assert(200).text();
        assert!(shown.contains("was disabled"), "{shown}");
    }
    // Nobody is sent anywhere else.
    let switch = format!("/panel/keys/{older}/enabled");
    for from in [
        "",
        "list",
        "//evil.example",
        "/panel/keys//evil.example",
        "/panel/sign-out",
    ] {
        let form = [("enabled", "true"), ("from", from)];
        let back = ada.post(&switch, &form).await.assert(303);
        assert_eq!(back.header("location"), "/panel/keys", "{from}");
    }
}

/// Where the switch of a key on a page leads, and what it says of the page.
fn switch_of(page: &str, key: &str) -> (String, String) {
    let action = format!("/panel/keys/{key}/enabled");
    let (_, rest) = page.split_once(&action).expect("a switch");
    let query = rest.split('"').next().unwrap();
    let from = between(rest, "name=\"from\" value=\"", "\"");
    (format!("{action}{query}"), from.replace("&#38;", "&"))
}

async fn workspaces_are_made_renamed_limited_and_deleted(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    assert!(
        ada.get("/panel/workspaces")
            .await
            .assert(200)
            .text()
            .contains("No workspaces yet")
    );
    let made = ada
        .post("/panel/workspaces", &[("name", "main")])
        .await
        .assert(303);
    let path = made.header("location").to_owned();
    ada.post("/panel/workspaces", &[("name", "main")])
        .await
        .assert(422);
    ada.post("/panel/workspaces", &[("name", "No")])
        .await
        .assert(422);
    ada.post("/panel/workspaces", &[("name", "other")])
        .await
        .assert(303);
    let settings = [
        ("name", "core"),
        ("budget", "25"),
        ("period", "daily"),
        ("rpm", "60"),
        ("preference", "price"),
    ];
    ada.post(&path, &settings).await.assert(303);
    let api = path.replace("/panel", "/v1");
    let read = user.ai().get(&api).await.assert(200).json();
    let read = &read["workspace"];
    assert_eq!((&read["name"], &read["rpm"]), (&json!("core"), &json!(60)));
    assert_eq!(
        (&read["budget"]["period"], &read["preference"]),
        (&json!("daily"), &json!("price"))
    );
    let taken = ada
        .post(&path, &[("name", "other")])
        .await
        .assert(422)
        .text();
    assert!(
        taken.contains("a workspace named `other` exists")
            || taken.contains("A workspace named `other` exists")
    );
    let page = ada.get(&path).await.assert(200).text();
    assert!(page.contains("of 25.00 a day"), "{page}");
    // In use it stays.
    let (key, _) = new_key(&mut ada, "ci-bot", &[("workspaces", "core")]).await;
    let list = ada.get("/panel/workspaces").await.text();
    assert!(list.contains("core") && list.contains("25.00"));
    let kept = ada
        .post(&format!("{path}/delete"), &[])
        .await
        .assert(409)
        .text();
    assert!(kept.contains("still uses this workspace"));
    let of_workspace = path.replace("/panel/workspaces/", "/panel/keys?workspace=");
    assert!(
        ada.get(&of_workspace)
            .await
            .assert(200)
            .text()
            .contains("ci-bot")
    );
    ada.post(&format!("/panel/keys/{key}/delete"), &[])
        .await
        .assert(303);
    ada.post(&format!("{path}/delete"), &[]).await.assert(303);
    ada.get(&path).await.assert(404);
}

async fn forms_are_shown_again_with_what_was_typed(app: &TestApp) {
    let (_, mut ada) = person(app, "ada").await;
    for (field, value, problem) in [
        ("name", "a/b", "Name: may only contain"),
        ("rpm", "0", "Requests per minute: must be a whole number"),
        ("budget", "lots", "Budget: must be an amount"),
        ("expires", "2001-01-01", "must be in the future"),
        ("expires", "soon", "Expiry: must be a day"),
    ] {
        let mut form = vec![("more_workspaces", "main, second"), ("tpm", "777")];
        form.push((field, value));
        if field != "name" {
            form.push(("name", "ci-bot"));
        }
        let page = ada.post("/panel/keys/new", &form).await.assert(422).text();
        assert!(page.contains(problem), "{problem}: {page}");
        assert!(page.contains("value=\"main, second\"") && page.contains("value=\"777\""));
    }
    let page = ada
        .post("/panel/keys/new", &[("name", "ci-bot")])
        .await
        .assert(422)
        .text();
    assert!(page.contains("select at least one workspace"));
    new_key(&mut ada, "ci-bot", &[]).await;
    let form = [("name", "ci-bot"), ("more_workspaces", "main")];
    let page = ada.post("/panel/keys/new", &form).await.assert(422).text();
    assert!(
        page.contains("a key with this name exists")
            || page.contains("A key with this name exists")
    );
}
