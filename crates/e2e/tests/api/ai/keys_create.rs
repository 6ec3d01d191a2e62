//! `POST /v1/keys`: the specification, rule by rule.

use crate::support::{assert_id, assert_time, column, fields, new_key};
use estrade_service::UnknownWorkspace;
use estrade_testkit::{Setup, TestApp, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    success_is_201_with_the_fields_of_the_specification;
    empty_or_missing_workspaces_are_400;
    no_valid_authentication_is_401;
    a_key_of_the_same_name_is_409;
    names_are_3_to_15_characters;
    names_have_only_the_characters_of_the_pattern;
    workspaces_come_back_in_order_without_duplicates;
    a_workspace_that_is_not_there_is_made;
    a_workspace_that_is_not_there_is_refused_where_configured with reject_unknown;
    limits_are_stored_and_read_back;
    limits_that_are_none_are_400;
    every_key_begins_alike;
}

const PATH: &str = "/v1/keys";

async fn success_is_201_with_the_fields_of_the_specification(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let new = json!({"name": "ci-bot", "workspaces": ["main", "other"], "unknown": 1});
    let made = ada.ai().post(PATH, &new).await.assert(201);
    assert_eq!(made.header("content-type"), "application/json");
    let key = made.json();
    for field in ["_id", "createdBy", "enabled", "key", "name", "workspaces"] {
        assert!(key.get(field).is_some(), "{field}");
    }
    assert_id(&key["_id"]);
    assert_eq!(key["name"], "ci-bot");
    assert_eq!(key["enabled"], true);
    assert_eq!(column(&key["workspaces"], "name"), ["main", "other"]);
    for workspace in key["workspaces"].as_array().unwrap() {
        assert_eq!(fields(workspace), ["_id", "name"]);
        assert_id(&workspace["_id"]);
    }
    assert_eq!(key["createdBy"], json!({"fullname": "ada of Example"}));
    assert_eq!(key["key"].as_str().unwrap().split('.').count(), 3, "a JWT");
    assert_time(&key["createdAt"]);
}

async fn empty_or_missing_workspaces_are_400(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    for bad in [
        json!({"name": "ci-bot"}),
        json!({"name": "ci-bot", "workspaces": []}),
        json!({"name": "ci-bot", "workspaces": null}),
        json!({"name": "ci-bot", "workspaces": "main"}),
        json!({"name": "ci-bot", "workspaces": {"main": true}}),
        json!({"name": "ci-bot", "workspaces": [1]}),
        json!({"name": "ci-bot", "workspaces": [null]}),
        json!({"name": "ci-bot", "workspaces": [""]}),
        json!({"name": "ci-bot", "workspaces": ["main", "x".repeat(51)]}),
        json!({"name": "ci-bot", "workspaces": ["a\nb"]}),
        json!({"name": "ci-bot", "workspaces": (0..101).map(|i| format!("w{i}")).collect::<Vec<_>>()}),
    ] {
        ada.post(PATH, &bad)
            .await
            .refused(400, "invalid")
            .naming("workspaces");
    }
    assert_eq!(ada.get(PATH).await.json(), json!([]));
    assert_eq!(
        ada.get("/v1/workspaces").await.json(),
        json!({"workspaces": []})
    );
}

async fn no_valid_authentication_is_401(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let (_, key) = new_key(&ada, "ci-bot").await;
    let new = json!({"name": "other", "workspaces": ["main"]});
    let token = ada.token().to_owned();
    let altered = {
        let (head, signature) = token.rsplit_once('.').unwrap();
        let flipped = if signature.starts_with('A') { 'B' } else { 'A' };
        format!("{head}.{flipped}{}", &signature[1..])
    };
    let unsigned = format!("{}.", token.rsplit_once('.').unwrap().0);
    for header in [
        None,
        Some(String::new()),
        Some("Bearer".into()),
        Some("Bearer ".into()),
        Some(token.clone()),
        Some(format!("Basic {token}")),
        Some(format!("Token {token}")),
        Some(format!("Bearer {altered}")),
        Some(format!("Bearer {unsigned}")),
        Some("Bearer null".into()),
        Some(format!("Bearer {token} x")),
        // The key itself opens inference, not management.
        Some(format!("Bearer {key}")),
    ] {
        let mut call = ada.post(PATH, &new).anonymous();
        if let Some(value) = &header {
            call = call.header("authorization", value);
        }
        let response = call.await.refused(401, "unauthenticated");
        assert_eq!(response.header("www-authenticate"), "Bearer");
        // The credential is looked at before the body.
        let bad = ada
            .call("POST".parse().unwrap(), PATH)
            .bytes("{")
            .anonymous();
        bad.await.refused(401, "unauthenticated");
    }
    for scheme in ["bearer", "BEARER", "Bearer "] {
        let call = ada
            .get(PATH)
            .header("authorization", &format!("{scheme} {token}"));
        call.await.assert(200);
    }
    assert_eq!(column(&ada.get(PATH).await.json(), "name"), ["ci-bot"]);
}

async fn a_key_of_the_same_name_is_409(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let (id, _) = new_key(&ada, "ci-bot").await;
    let ada = ada.ai();
    let again = json!({"name": "ci-bot", "workspaces": ["brand-new"]});
    ada.post(PATH, &again).await.refused(409, "key_exists");
    ada.post(PATH, &again).await.assert_empty(409);
    let spaces = ada.get("/v1/workspaces").await.json();
    assert_eq!(
        column(&spaces["workspaces"], "name"),
        ["main"],
        "nothing is half done"
    );
    // Another case or a space more is another name.
    for name in ["CI-bot", "ci-bot ", " ci-bot"] {
        ada.post(PATH, &json!({"name": name, "workspaces": ["main"]}))
            .await
            .assert(201);
    }
    // A disabled key keeps its name; a deleted one frees it.
    ada.put(&format!("{PATH}/{id}"), &json!({"enabled": false}))
        .await
        .assert(200);
    ada.post(PATH, &again).await.assert_empty(409);
    ada.delete(&format!("{PATH}/{id}")).await.assert_empty(204);
    ada.post(PATH, &again).await.assert(201);
    // Unique among the owner's keys, not among everyone's.
    bob.ai().post(PATH, &again).await.assert(201);
}

async fn names_are_3_to_15_characters(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    for (length, status) in [
        (0, 400),
        (1, 400),
        (2, 400),
        (3, 201),
        (15, 201),
        (16, 400),
        (500, 400),
    ] {
        let new = json!({"name": "n".repeat(length), "workspaces": ["main"]});
        let response = ada.post(PATH, &new).await;
        if status == 201 {
            response.assert(201);
        } else {
            response.refused(400, "invalid").naming("name");
        }
    }
}

async fn names_have_only_the_characters_of_the_pattern(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    for c in "._~| -".chars() {
        for name in [
            format!("a{c}b"),
            format!("{c}{c}{c}"),
            format!("ab{c}"),
            format!("{c}ab"),
        ] {
            let new = json!({"name": name, "workspaces": ["main"]});
            let made = ada.post(PATH, &new).await.assert(201);
            assert_eq!(made.field("/name"), name);
        }
    }
    for name in ["AZaz09", "0123456789abcde"] {
        ada.post(PATH, &json!({"name": name, "workspaces": ["main"]}))
            .await
            .assert(201);
    }
    for bad in [
        "abc\n",
        "\nabc",
        "a\nb",
        "abc\r\n",
        "abc\t",
        "abc\u{0}",
        "\u{0}\u{0}\u{0}",
        "käse",
        "ключ",
        "名前です",
        "a😀b",
        "abc\u{a0}",
        "abc\u{2028}",
        "a/b",
        "a\\b",
        "a+b",
        "a:b",
        "a,b",
        "a;b",
        "a@b",
        "a#b",
        "a%b",
        "a&b",
        "a=b",
        "a(b",
        "a[b",
        "a{b",
        "a<b",
        "a\"b",
        "a'b",
        "a`b",
        "a^b",
        "a*b",
        "a?b",
        "a!b",
        "a$b",
    ] {
        let new = json!({"name": bad, "workspaces": ["main"]});
        ada.post(PATH, &new)
            .await
            .refused(400, "invalid")
            .naming("name");
    }
    for bad in [
        json!(null),
        json!(123),
        json!(["abc"]),
        json!({"name": "abc"}),
        json!(true),
    ] {
        let new = json!({"name": bad, "workspaces": ["main"]});
        ada.post(PATH, &new)
            .await
            .refused(400, "invalid")
            .naming("name");
    }
    ada.post(PATH, &json!({"workspaces": ["main"]}))
        .await
        .refused(400, "invalid")
        .naming("name");
}

async fn workspaces_come_back_in_order_without_duplicates(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let new = json!({"name": "ci-bot", "workspaces": ["zeta", "alpha", "zeta", "mid", "alpha"]});
    let made = ada.post(PATH, &new).await.assert(201).json();
    assert_eq!(
        column(&made["workspaces"], "name"),
        ["zeta", "alpha", "mid"]
    );
    let id = made["_id"].as_str().unwrap();
    let read = ada.get(&format!("{PATH}/{id}")).await.assert(200).json();
    assert_eq!(read["workspaces"], made["workspaces"]);
    assert_eq!(
        ada.get(PATH).await.json()[0]["workspaces"],
        made["workspaces"]
    );
    let hundred: Vec<_> = (0..100).map(|i| format!("w{i}")).collect();
    let new = json!({"name": "hundred", "workspaces": hundred});
    let made = ada.post(PATH, &new).await.assert(201).json();
    assert_eq!(column(&made["workspaces"], "name"), hundred);
}

async fn a_workspace_that_is_not_there_is_made(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let label = "A Workspace (Größe) ✓";
    let new = json!({"name": "ci-bot", "workspaces": [label]});
    let made = ada.post(PATH, &new).await.assert(201).json();
    let list = ada.get("/v1/workspaces").await.assert(200).json();
    assert_eq!(list["workspaces"][0]["_id"], made["workspaces"][0]["_id"]);
    assert_eq!(list["workspaces"][0]["name"], label);
    let new = json!({"name": "second", "workspaces": [label]});
    let second = ada.post(PATH, &new).await.assert(201).json();
    assert_eq!(second["workspaces"], made["workspaces"]);
}

fn reject_unknown() -> Setup {
    Setup::with(|setup| setup.settings.unknown_workspace = UnknownWorkspace::Reject)
}

async fn a_workspace_that_is_not_there_is_refused_where_configured(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    ada.post("/v1/workspaces", &json!({"name": "main"}))
        .await
        .assert(200);
    let new = json!({"name": "ci-bot", "workspaces": ["main", "other"]});
    ada.post(PATH, &new)
        .await
        .refused(400, "unknown_workspace")
        .naming("other");
    assert_eq!(ada.get(PATH).await.json(), json!([]));
    let (id, _) = new_key(&ada, "ci-bot").await;
    let path = format!("{PATH}/{id}");
    let update = json!({"name": "renamed", "workspaces": ["other"]});
    ada.put(&path, &update)
        .await
        .refused(409, "unknown_workspace");
    let read = ada.get(&path).await.json();
    assert_eq!(read["name"], "ci-bot", "nothing is half done");
    let spaces = ada.get("/v1/workspaces").await.json();
    assert_eq!(column(&spaces["workspaces"], "name"), ["main"]);
}

async fn limits_are_stored_and_read_back(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    let limits = json!({
        "expiresAt": "2099-01-02T03:04:05.006Z", "models": ["openai/gpt-4o-mini", "estrade/echo"],
        "rpm": 60, "tpm": 100_000, "budget": {"amount": "12.50", "period": "monthly"},
    });
    let mut new = limits.clone();
    new["name"] = "ci-bot".into();
    new["workspaces"] = json!(["main"]);
    let made = ada.post(PATH, &new).await.assert(201).json();
    let id = made["_id"].as_str().unwrap();
    let read = ada.get(&format!("{PATH}/{id}")).await.json();
    for (field, value) in limits.as_object().unwrap() {
        assert_eq!(&made[field], value, "{field}");
        assert_eq!(&read[field], value, "{field}");
    }
    let (id, _) = new_key(&ada, "unlimited").await;
    let read = ada.get(&format!("{PATH}/{id}")).await.json();
    for field in ["expiresAt", "models", "rpm", "tpm", "budget", "lastUsedAt"] {
        assert_eq!(read[field], Value::Null, "{field}");
    }
}

async fn limits_that_are_none_are_400(app: &TestApp) {
    let ada = app.new_account("ada").await.ai();
    for (field, bad) in [
        ("rpm", json!(0)),
        ("rpm", json!(-1)),
        ("rpm", json!(1.5)),
        ("rpm", json!("60")),
        ("tpm", json!(0)),
        ("tpm", json!(5_000_000_000_u64)),
        ("expiresAt", json!("tomorrow")),
        ("expiresAt", json!(1)),
        ("expiresAt", json!("2000-01-01T00:00:00.000Z")),
        ("models", json!("estrade/echo")),
        ("models", json!([""])),
        ("models", json!([1])),
        ("budget", json!({})),
        ("budget", json!({"amount": "1"})),
        ("budget", json!(["1", "daily"])),
        ("budget", json!({"amount": 1.5, "period": "daily"})),
        ("budget", json!({"amount": "1", "period": "hourly"})),
        ("budget", json!({"amount": "-1", "period": "daily"})),
        ("budget", json!({"amount": "x", "period": "daily"})),
        (
            "budget",
            json!({"amount": "99999999999999999999", "period": "daily"}),
        ),
    ] {
        let mut new = json!({"name": "ci-bot", "workspaces": ["main"]});
        new[field] = bad;
        ada.post(PATH, &new)
            .await
            .refused(400, "invalid")
            .naming(field);
    }
    assert_eq!(ada.get(PATH).await.json(), json!([]));
}

async fn every_key_begins_alike(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (_, one) = new_key(&ada, "one").await;
    let (_, two) = new_key(&ada, "two").await;
    // {"typ":"estrade-key+jwt" in base64, for leak scanners.
    let prefix = "eyJ0eXAiOiJlc3RyYWRlLWtleStqd3Qi";
    assert!(one.starts_with(prefix) && two.starts_with(prefix));
    assert_ne!(one, two);
    assert!(!ada.token().starts_with(prefix));
}
