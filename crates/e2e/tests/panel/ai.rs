//! Workspaces, keys, usage, calls and the playground.

use estrade_mock_upstream::{Action, MockUpstream, event, json as json_answer, stream_head};
use estrade_testkit::{ApiResponse, Call, PanelClient, TestApp, User, on_both_backends};
use futures_util::StreamExt;
use http::Method;
use serde_json::{Value, json};

on_both_backends! {
    a_key_is_made_used_switched_rotated_and_deleted;
    workspaces_are_made_renamed_limited_and_deleted;
    forms_are_shown_again_with_what_was_typed;
    who_may_only_look_changes_nothing;
    others_do_not_find_what_is_not_theirs;
    usage_and_calls_show_what_was_used;
    lists_go_on_page_by_page;
    a_person_calls_a_model_without_the_secret;
    the_playground_refuses_what_the_key_would_be_refused;
    a_budget_ends_the_playground_and_the_key_alike;
    a_stream_reaches_the_browser_and_ends_with_it;
    hostile_texts_are_inert;
}

const PASSWORD: &str = "correct horse battery";
const ECHO: &str = "estrade/echo";
const HOSTILE: &str = "<script>alert(1)</script><img src=x onerror=alert(2)>";

async fn person(app: &TestApp, name: &str) -> (User, PanelClient) {
    let user = app.new_account_with(name, PASSWORD).await;
    let mut panel = app.panel();
    panel.sign_in(&user.email, PASSWORD).await;
    (user, panel)
}

/// What stands between two texts.
#[track_caller]
fn between(text: &str, before: &str, after: &str) -> String {
    assert!(text.contains(before), "{before} is not in {text}");
    let (_, rest) = text.split_once(before).expect("it is there");
    rest.split_once(after).expect("an end").0.to_owned()
}

fn secret(page: &ApiResponse) -> String {
    between(&page.text(), "id=\"key-secret\">", "<")
}

/// Makes a key in the workspace `main` with the form; its id and its secret.
async fn new_key(panel: &mut PanelClient, name: &str, more: &[(&str, &str)]) -> (String, String) {
    let mut form = vec![("name", name), ("more_workspaces", "main")];
    form.extend(more);
    let page = panel.post("/panel/keys/new", &form).await.assert(200);
    let id = between(&page.text(), "/panel/playground?key=", "\"");
    (id, secret(&page))
}

async fn workspace_of(user: &User, key: &str) -> String {
    let read = user.ai().get(&format!("/v1/keys/{key}")).await.assert(200);
    read.field("/workspaces/0/_id")
}

async fn say(app: &TestApp, secret: &str, model: &str) -> ApiResponse {
    let body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
    let call = app.stranger().ai().post("/v1/chat/completions", &body);
    call.bearer(secret).await
}

/// Sends the form of the playground.
async fn play(panel: &mut PanelClient, target: &str, model: &str, prompt: &str) -> ApiResponse {
    let form = [("target", target), ("model", model), ("prompt", prompt)];
    panel.post("/panel/playground", &form).await
}

/// The same as its script does.
async fn play_stream(app: &TestApp, panel: &mut PanelClient, target: &str, model: &str) -> Call {
    let csrf = panel.csrf().await;
    let body = format!(
        "csrf={csrf}&target={target}&model={}&prompt=hi",
        model.replace('/', "%2F")
    );
    app.stranger()
        .call(Method::POST, "/panel/playground")
        .header("cookie", &panel.cookie_header())
        .header("origin", panel.origin())
        .header("sec-fetch-site", "same-origin")
        .header("accept", "text/event-stream")
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes(body)
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

async fn usage_and_calls_show_what_was_used(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    assert!(
        ada.get("/panel/usage")
            .await
            .assert(200)
            .text()
            .contains("Nothing was used yet")
    );
    assert!(
        ada.get("/panel/calls")
            .await
            .assert(200)
            .text()
            .contains("No workspaces yet")
    );
    let (id, key) = new_key(&mut ada, "ci-bot", &[]).await;
    let (other, second) = new_key(&mut ada, "second", &[]).await;
    for _ in 0..3 {
        say(app, &key, ECHO).await.assert(200);
    }
    let call = say(app, &second, "no/such-model")
        .await
        .assert(404)
        .header("x-estrade-call")
        .to_owned();
    for by in ["hour", "day", "week", "month"] {
        let page = ada
            .get(&format!("/panel/usage?by={by}"))
            .await
            .assert(200)
            .text();
        for part in [
            "<b>4</b>",
            "ci-bot",
            "second",
            ECHO,
            "<svg",
            "aria-label=\"Calls by model\"",
        ] {
            assert!(page.contains(part), "{by} {part}");
        }
    }
    ada.get("/panel/usage?by=year").await.assert(400);
    let one = ada
        .get(&format!("/panel/usage?key={id}"))
        .await
        .assert(200)
        .text();
    assert!(one.contains("<b>3</b>"));
    let csv = ada.get("/panel/usage.csv?by=hour").await.assert(200);
    assert_eq!(csv.header("content-type"), "text/csv; charset=utf-8");
    let rows: Vec<_> = csv.text().lines().map(str::to_owned).collect();
    assert_eq!(
        rows[0],
        "from,model,calls,prompt_tokens,completion_tokens,cost"
    );
    assert!(
        rows.iter().any(|row| row.contains(",estrade/echo,3,")),
        "{rows:?}"
    );
    // Calls, with filters.
    let shown = async |ada: &mut PanelClient, query: &str| {
        let page = ada
            .get(&format!("/panel/calls?{query}"))
            .await
            .assert(200)
            .text();
        page.matches("<td class=\"mono\">").count()
    };
    assert_eq!(shown(&mut ada, "").await, 4);
    assert_eq!(shown(&mut ada, &format!("key={id}")).await, 3);
    assert_eq!(shown(&mut ada, "status=404").await, 1);
    assert_eq!(shown(&mut ada, "model=estrade%2Fecho").await, 3);
    assert_eq!(shown(&mut ada, "to=2020-01-01T00%3A00").await, 0);
    assert_eq!(shown(&mut ada, "from=2020-01-01").await, 4);
    ada.get("/panel/calls?status=x").await.assert(400);
    let workspace = workspace_of(&user, &other).await;
    let page = ada
        .get(&format!("/panel/calls/{workspace}/{call}"))
        .await
        .assert(200)
        .text();
    for part in ["no/such-model", "404", "second", "none was asked"] {
        assert!(page.contains(part), "{part}");
    }
    ada.get(&format!("/panel/calls/{workspace}/{workspace}"))
        .await
        .assert(404);
    // What was used stays when a key goes.
    ada.post(&format!("/panel/keys/{other}/delete"), &[])
        .await
        .assert(303);
    let page = ada.get("/panel/usage").await.assert(200).text();
    assert!(page.contains("deleted key") && page.contains("<b>4</b>"));
    let models = ada.get("/panel/models").await.assert(200).text();
    assert!(models.contains(ECHO));
}

async fn lists_go_on_page_by_page(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let mut first = String::new();
    for number in 0..60 {
        let new =
            json!({"name": format!("key {number}"), "workspaces": ["main", format!("w{number}")]});
        let made = user.ai().post("/v1/keys", &new).await.assert(201);
        first = made.field("/key");
    }
    let workspace = user
        .ai()
        .get("/v1/keys?count=1")
        .await
        .field("/0/workspaces/0/_id");
    let path = format!("/api/{workspace}/v1/chat/completions");
    let body = json!({"model": ECHO, "messages": [{"role": "user", "content": "hi"}]});
    for _ in 0..60 {
        app.stranger()
            .ai()
            .post(&path, &body)
            .bearer(&first)
            .await
            .assert(200);
    }
    for list in [
        "/panel/keys".to_owned(),
        format!("/panel/keys?workspace={workspace}"),
        "/panel/workspaces".to_owned(),
        format!("/panel/calls?workspace={workspace}"),
    ] {
        let (mut path, mut rows, mut pages) = (list.clone(), 0, 0);
        loop {
            let page = ada.get(&path).await.assert(200).text();
            let table = between(&page, "<tbody>", "</tbody>");
            rows += table.matches("<tr>").count();
            pages += 1;
            let Some((_, rest)) = page.split_once("<nav class=\"pager\"") else {
                break;
            };
            path = between(rest, "href=\"", "\"")
                .replace("&amp;", "&")
                .replace("&#38;", "&");
        }
        let expected = if list == "/panel/workspaces" { 61 } else { 60 };
        assert_eq!((rows, pages), (expected, 2), "{list}");
    }
}

async fn a_person_calls_a_model_without_the_secret(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let none = ada.get("/panel/playground").await.assert(200).text();
    assert!(none.contains("A key is needed first"));
    let (id, _) = new_key(&mut ada, "ci-bot", &[]).await;
    let target = format!("{id}.{}", workspace_of(&user, &id).await);
    let page = ada
        .get(&format!("/panel/playground?key={id}"))
        .await
        .assert(200)
        .text();
    assert!(page.contains(&target) && page.contains(ECHO));
    let page = play(&mut ada, &target, ECHO, "good morning")
        .await
        .assert(200)
        .text();
    assert!(
        page.contains("You said: good morning") && page.contains("See the call"),
        "{page}"
    );
    // The conversation goes on.
    let history = between(&page, "name=\"history\" value=\"", "\"");
    let history = history.replace("&#34;", "\"").replace("&quot;", "\"");
    let form = [
        ("target", target.as_str()),
        ("model", ECHO),
        ("prompt", "and again"),
        ("history", &history),
    ];
    let page = ada
        .post("/panel/playground", &form)
        .await
        .assert(200)
        .text();
    assert!(page.contains("You said: good morning") && page.contains("You said: and again"));
    // It is a call of the key.
    let calls = ada.get(&format!("/panel/calls?key={id}")).await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
    app.note_uses().await;
    let read = user.ai().get(&format!("/v1/keys/{id}")).await.json();
    assert!(read["lastUsedAt"].is_string());
}

async fn the_playground_refuses_what_the_key_would_be_refused(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let (id, key) = new_key(
        &mut ada,
        "ci-bot",
        &[("models", "other/model"), ("rpm", "3")],
    )
    .await;
    let workspace = workspace_of(&user, &id).await;
    let target = format!("{id}.{workspace}");
    // A model that it may not use.
    let refused = say(app, &key, ECHO).await.assert(403).json();
    let page = play(&mut ada, &target, ECHO, "hi").await.assert(403).text();
    let message = refused["error"]["message"]
        .as_str()
        .unwrap()
        .replace('\'', "&#39;");
    assert!(
        page.to_lowercase().contains(&message.to_lowercase()),
        "{message}: {page}"
    );
    // The limit counts both alike: two are gone, the third is the last.
    play(&mut ada, &target, ECHO, "hi").await.assert(403);
    play(&mut ada, &target, ECHO, "hi").await.assert(429);
    say(app, &key, ECHO).await.assert(429);
    // Switched off, in another workspace, deleted.
    ada.post(
        &format!("/panel/keys/{id}/enabled"),
        &[("enabled", "false")],
    )
    .await
    .assert(303);
    let page = play(&mut ada, &target, ECHO, "hi").await.assert(403).text();
    assert!(page.contains("This key is switched off"), "{page}");
    let stream = play_stream(app, &mut ada, &target, ECHO)
        .await
        .await
        .assert(403);
    assert_eq!(stream.json()["error"]["code"], "disabled");
    ada.post(&format!("/panel/keys/{id}/enabled"), &[("enabled", "true")])
        .await
        .assert(303);
    play(&mut ada, &format!("{id}.{id}"), ECHO, "hi")
        .await
        .assert(403);
    play(&mut ada, "nonsense", ECHO, "hi").await.assert(422);
    play(&mut ada, &target, ECHO, "  ").await.assert(422);
    ada.post(&format!("/panel/keys/{id}/delete"), &[])
        .await
        .assert(303);
    play(&mut ada, &target, ECHO, "hi").await.assert(404);
}

/// A provider whose answers cost 0.001 a token.
async fn provide(app: &TestApp, upstream: &MockUpstream, price: &str) {
    let new = json!({
        "name": "acme", "baseURL": format!("http://{}/v1", upstream.address), "retries": 0,
        "models": [{"id": "acme/large", "price": {"prompt": "0", "completion": price}}],
    });
    app.admin()
        .await
        .ai()
        .post("/v1/providers", &new)
        .await
        .assert(201);
}

async fn a_budget_ends_the_playground_and_the_key_alike(app: &TestApp) {
    let upstream = MockUpstream::new(|_| {
        json_answer(200, &json!({"id": "c", "object": "chat.completion", "model": "acme/large",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": 3, "completion_tokens": 10, "total_tokens": 13}}).to_string())
    })
    .await;
    provide(app, &upstream, "1000").await;
    let (user, mut ada) = person(app, "ada").await;
    let (id, key) = new_key(
        &mut ada,
        "ci-bot",
        &[("budget", "0.025"), ("period", "total")],
    )
    .await;
    let workspace = workspace_of(&user, &id).await;
    let target = format!("{id}.{workspace}");
    let form = [
        ("target", target.as_str()),
        ("model", "acme/large"),
        ("prompt", "hi"),
        ("max_tokens", "10"),
    ];
    // Each call costs 0.010: the key pays one, the person the next, and there is no room for a third of either.
    let body = json!({"model": "acme/large", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 10});
    let call = || {
        app.stranger()
            .ai()
            .post("/v1/chat/completions", &body)
            .bearer(&key)
    };
    call().await.assert(200);
    let page = ada
        .post("/panel/playground", &form)
        .await
        .assert(200)
        .text();
    assert!(
        page.contains("cost 0.010") || page.contains("cost 0.01"),
        "{page}"
    );
    let refused = ada
        .post("/panel/playground", &form)
        .await
        .assert(402)
        .text();
    assert!(refused.contains("budget"), "{refused}");
    call().await.assert(402);
    assert_eq!(upstream.count(), 2);
    let page = ada.get(&format!("/panel/keys/{id}")).await.text();
    assert!(
        page.contains("<b>0.020</b>") || page.contains("<b>0.02</b>"),
        "{page}"
    );
    let calls = ada.get("/panel/calls?status=402").await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
}

async fn a_stream_reaches_the_browser_and_ends_with_it(app: &TestApp) {
    let upstream =
        MockUpstream::new(|_| vec![stream_head(), event("12345678"), Action::AwaitClose]).await;
    provide(app, &upstream, "0").await;
    let (user, mut ada) = person(app, "ada").await;
    let (id, _) = new_key(&mut ada, "ci-bot", &[]).await;
    let target = format!("{id}.{}", workspace_of(&user, &id).await);
    let whole = play_stream(app, &mut ada, &target, ECHO)
        .await
        .await
        .assert(200);
    assert_eq!(whole.header("content-type"), "text/event-stream");
    let text = whole.text();
    assert!(
        text.ends_with("data: [DONE]\n\n") && text.contains("\"usage\":{"),
        "{text}"
    );
    let response = play_stream(app, &mut ada, &target, "acme/large")
        .await
        .stream()
        .await;
    assert_eq!(response.status(), 200);
    let mut body = response.bytes_stream();
    let first = body.next().await.unwrap().unwrap();
    assert!(String::from_utf8_lossy(&first).contains("12345678"));
    assert_eq!(upstream.open(), 1);
    drop(body);
    assert!(
        upstream.wait_for_open(0).await,
        "the provider is left alone"
    );
    // Neither a foreign site nor a form without its token starts a call.
    let forged = play_stream(app, &mut ada, &target, ECHO).await;
    forged
        .header("sec-fetch-site", "same-site")
        .await
        .assert(403);
    let forged = play_stream(app, &mut ada, &target, ECHO).await;
    forged
        .bytes(format!("target={target}&model=estrade%2Fecho&prompt=hi"))
        .await
        .assert(403);
    let calls = ada.get(&format!("/panel/calls?key={id}")).await.text();
    assert_eq!(calls.matches("<td class=\"mono\">").count(), 2);
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
