//! Usage, the call log, and lists that go on.

use super::support::{ECHO, between, new_key, person, say, workspace_of};
use estrade_testkit::{PanelClient, TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    usage_and_calls_show_what_was_used;
    lists_go_on_page_by_page;
    keys_are_found_by_how_their_names_begin;
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
            // Nothing costs anything yet.
            "aria-label=\"75 % of the calls\"",
            "aria-label=\"25 % of the calls\"",
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

async fn keys_are_found_by_how_their_names_begin(app: &TestApp) {
    let (user, mut ada) = person(app, "ada").await;
    let (other, _) = person(app, "eve").await;
    let mut names: Vec<String> = (0..60).map(|number| format!("Batch {number:02}")).collect();
    names.extend(["batch~", "bat", "a_b", "a.b"].map(str::to_owned));
    for name in &names {
        let new = json!({"name": name, "workspaces": ["main"]});
        user.ai().post("/v1/keys", &new).await.assert(201);
    }
    let new = json!({"name": "batch of others", "workspaces": ["main"]});
    other.ai().post("/v1/keys", &new).await.assert(201);
    let mut found = async |query: &str| {
        let (mut path, mut found) = (format!("/panel/keys?q={query}"), Vec::new());
        loop {
            let page = ada.get(&path).await.assert(200).text();
            let Some((_, table)) = page.split_once("<tbody>") else {
                assert!(page.contains("Nothing found"), "{page}");
                return found;
            };
            let rows = table.split("<b>").skip(1);
            found.extend(rows.filter_map(|row| Some(row.split_once("</b>")?.0.to_owned())));
            let Some((_, rest)) = page.split_once("<nav class=\"pager\"") else {
                return found;
            };
            let link = between(rest, "href=\"", "\"");
            path = link.replace("&amp;", "&").replace("&#38;", "&");
        }
    };
    let batches = found("baTCH").await;
    assert_eq!(batches[..60], names[..60], "each once, by name");
    assert_eq!(batches[60..], ["batch~"]);
    assert_eq!(found("bat").await.len(), 62);
    // Neither a wildcard nor what PostgreSQL refuses is special.
    assert_eq!(found("a_").await, ["a_b"]);
    for nothing in ["atch", "%25", "_", "batch+60", "%00", "%C3%A9", "%3Cb%3E"] {
        assert!(found(nothing).await.is_empty(), "{nothing}");
    }
    for bad in ["x", "0123456789abcdef0123456%C3%A9"] {
        ada.get(&format!("/panel/keys?q=b&before={bad}"))
            .await
            .assert(400);
    }
}
