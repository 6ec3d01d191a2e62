//! Who sees and changes what, and texts that mean harm.

use super::support::{ECHO, between, new_key, person, play, say, secret, workspace_of};
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    who_may_only_look_changes_nothing;
    others_do_not_find_what_is_not_theirs;
    hostile_texts_are_inert;
}

const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";

async fn who_may_only_look_changes_nothing(app: &TestApp) {
    let (owner, mut ada) = person(app, "ada").await;
    let (viewer, mut bob) = person(app, "bob").await;
    let team = app.new_team(&owner, "Crew").await;
    app.join(&team, &owner, &viewer, "viewer").await;
    let at = |path: &str| format!("{path}?team={team}");
    let form = [("name", "ci-bot"), ("more_workspaces", "main")];
    let page = ada.post(&at("/panel/keys/new"), &form).await.assert(200);
    let id = between(&page.text(), "/panel/playground?key=", "&");
    let workspace = workspace_of(&owner.in_team(&team), &id).await;
    let (key, space) = (
        format!("/panel/keys/{id}"),
        format!("/panel/workspaces/{workspace}"),
    );
    for path in [
        "/panel/keys",
        "/panel/workspaces",
        "/panel/usage",
        "/panel/calls",
        "/panel/models",
        "/panel/playground",
        &key,
        &space,
    ] {
        let text = bob.get(&at(path)).await.assert(200).text();
        let own = text.replace("action=\"/panel/sign-out\"", "");
        assert!(!own.contains("method=\"post\" action"), "{path}: {text}");
    }
    let target = format!("{id}.{workspace}");
    for (path, form) in [
        ("/panel/keys/new".to_owned(), &form[..]),
        (key.clone(), &form),
        (format!("{key}/enabled"), &[("enabled", "false")]),
        (format!("{key}/rotate"), &[("grace", "0")]),
        (format!("{key}/delete"), &[]),
        ("/panel/workspaces".to_owned(), &[("name", "late")]),
        (space.clone(), &[("name", "late")]),
        (format!("{space}/delete"), &[]),
        (
            "/panel/playground".to_owned(),
            &[("target", &target), ("model", ECHO), ("prompt", "hi")],
        ),
    ] {
        bob.post(&at(&path), form).await.assert(403);
    }
    bob.get(&at("/panel/keys/new")).await.assert(403);
    let read = owner
        .in_team(&team)
        .ai()
        .get(&format!("/v1/keys/{id}"))
        .await
        .json();
    assert_eq!(
        (&read["enabled"], &read["lastUsedAt"]),
        (&json!(true), &Value::Null)
    );
}

async fn others_do_not_find_what_is_not_theirs(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let (_, mut bob) = person(app, "bob").await;
    let (id, key) = new_key(&mut ada, "ci-bot", &[]).await;
    let call = say(app, &key, ECHO)
        .await
        .header("x-estrade-call")
        .to_owned();
    let workspace = workspace_of(&user, &id).await;
    ada.get(&format!("/panel/calls/{workspace}/{call}"))
        .await
        .assert(200);
    for path in [
        format!("/panel/keys/{id}"),
        format!("/panel/keys/{id}/rotate"),
        format!("/panel/keys?workspace={workspace}"),
        format!("/panel/workspaces/{workspace}"),
        format!("/panel/usage?workspace={workspace}"),
        format!("/panel/calls?workspace={workspace}"),
        format!("/panel/calls/{workspace}/{call}"),
    ] {
        bob.get(&path).await.assert(404);
    }
    for (path, form) in [
        (format!("/panel/keys/{id}/enabled"), [("enabled", "false")]),
        (format!("/panel/keys/{id}/rotate"), [("grace", "0")]),
        (format!("/panel/workspaces/{workspace}"), [("name", "mine")]),
    ] {
        bob.post(&path, &form).await.assert(404);
    }
    play(&mut bob, &format!("{id}.{workspace}"), ECHO, "hi")
        .await
        .assert(404);
    let usage = bob
        .get(&format!("/panel/usage?key={id}"))
        .await
        .assert(200)
        .text();
    assert!(usage.contains("Nothing was used yet") && !usage.contains("ci-bot"));
    say(app, &key, ECHO).await.assert(200);
}

async fn hostile_texts_are_inert(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let label: String = HOSTILE.chars().take(50).collect();
    let form = [
        ("name", "ci-bot"),
        ("more_workspaces", label.as_str()),
        ("models", HOSTILE),
        ("models", ECHO),
    ];
    let page = ada.post("/panel/keys/new", &form).await.assert(200);
    let id = between(&page.text(), "/panel/playground?key=", "\"");
    let key = secret(&page);
    let workspace = workspace_of(&user, &id).await;
    say(app, &key, HOSTILE).await.assert(404);
    say(app, &key, ECHO).await.assert(200);
    let target = format!("{id}.{workspace}");
    let mut pages = vec![
        page.text(),
        play(&mut ada, &target, ECHO, HOSTILE)
            .await
            .assert(200)
            .text(),
    ];
    pages.push(
        play(&mut ada, &target, HOSTILE, HOSTILE)
            .await
            .assert(404)
            .text(),
    );
    pages.push(
        ada.post("/panel/workspaces", &[("name", HOSTILE)])
            .await
            .assert(422)
            .text(),
    );
    pages.push(
        ada.post("/panel/keys/new", &[("name", HOSTILE), ("budget", HOSTILE)])
            .await
            .assert(422)
            .text(),
    );
    let model = "%3Cscript%3Ealert(1)%3C%2Fscript%3E";
    for path in [
        "/panel/keys".to_owned(),
        "/panel/workspaces".to_owned(),
        "/panel/usage".to_owned(),
        format!("/panel/usage?model={model}"),
        "/panel/calls".to_owned(),
        format!("/panel/calls?model={model}"),
        "/panel/playground".to_owned(),
        format!("/panel/playground?model={model}"),
        format!("/panel/models?search={model}"),
        format!("/panel/keys/new?workspace={model}"),
        format!("/panel/keys/{id}"),
        format!("/panel/keys?workspace={workspace}"),
        format!("/panel/workspaces/{workspace}"),
        format!("/panel/workspaces/{workspace}/delete"),
    ] {
        pages.push(ada.get(&path).await.assert(200).text());
    }
    for page in pages {
        for part in ["<script>alert", "<img src=x", "\" onerror"] {
            assert!(!page.contains(part), "{part}: {page}");
        }
    }
}
