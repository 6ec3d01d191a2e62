//! The list, a new project and its overview.

use super::support::{Person, deploy, new_project};
use estrade_model::Timestamp;
use estrade_store::traffic::{TrafficStep, TrafficSums, add_traffic};
use estrade_testkit::{EdgeClient, TestApp, eventually, on_both_backends};
use serde_json::json;

on_both_backends! {
    a_new_person_is_told_what_to_do;
    a_project_is_created_with_the_form;
    a_project_may_be_called_new;
    what_is_wrong_is_shown_beside_the_field;
    the_list_goes_on_where_the_page_ended;
    requests_are_plotted_before_and_after_they_are_recorded;
    a_time_to_respond_that_is_too_long_to_be_measured_is_not_shown_as_the_bound;
    a_viewer_sees_and_changes_nothing;
}

async fn a_new_person_is_told_what_to_do(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    let page = ada.get("/panel/projects").await.assert(200).text();
    assert!(
        page.contains("No project yet") && page.contains("estrade deploy"),
        "{page}"
    );
    assert!(page.contains("href=\"/panel/new-project\""));
    let page = ada.get("/panel/projects?q=none").await.assert(200).text();
    assert!(page.contains("Nothing found"), "{page}");
    ada.get("/panel/projects/unknown").await.assert(404);
    ada.get("/panel/projects?before=x").await.assert(400);
}

async fn a_project_is_created_with_the_form(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    let form = ada.get("/panel/new-project").await.assert(200).text();
    for choice in ["value=\"static\"", "value=\"nano\"", "value=\"default\""] {
        assert!(form.contains(choice), "{choice}");
    }
    let fields = [
        ("name", "shop"),
        ("platform", "static"),
        ("plan", "micro"),
        ("network", "default"),
    ];
    let made = ada.post("/panel/new-project", &fields).await.assert(303);
    assert_eq!(made.header("location"), "/panel/projects/shop/deploy");
    let read = ada.user.get("/v1/projects/shop").await.assert(200);
    assert_eq!(read.field("/project/planID"), "micro");
    let overview = ada.get("/panel/projects/shop").await.assert(200).text();
    assert!(
        overview.contains("Ready for its first release"),
        "{overview}"
    );
    let list = ada.get("/panel/projects").await.assert(200).text();
    assert!(
        list.contains("Not deployed") && list.contains("1 project"),
        "{list}"
    );
    for tab in ["releases", "logs", "deploy"] {
        ada.get(&format!("/panel/projects/shop/{tab}"))
            .await
            .assert(200);
    }
}

async fn a_project_may_be_called_new(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "new", "static").await;
    let page = ada.get("/panel/projects/new").await.assert(200).text();
    assert!(page.contains("Ready for its first release"), "{page}");
    ada.get("/panel/projects/new/settings").await.assert(200);
}

async fn what_is_wrong_is_shown_beside_the_field(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    let send = async |name: &str, plan: &str| {
        let fields = [
            ("name", name),
            ("platform", "static"),
            ("plan", plan),
            ("network", "default"),
        ];
        ada.post("/panel/new-project", &fields).await
    };
    let taken = send("shop", "nano").await.assert(409).text();
    assert!(
        taken.contains("id=\"e-name\"") && taken.contains("value=\"shop\""),
        "{taken}"
    );
    let bad = send("<script>alert(1)</script>", "nano")
        .await
        .assert(400)
        .text();
    assert!(
        bad.contains("id=\"e-name\"") && !bad.contains("<script>alert"),
        "{bad}"
    );
    let plan = send("other", "gigantic").await.assert(400).text();
    assert!(
        plan.contains("class=\"problem\"") && !plan.contains("id=\"e-name\""),
        "{plan}"
    );
    // Nothing without the token of the session.
    let unsigned = ada.unsigned(http::Method::POST, "/panel/new-project");
    let unsigned = unsigned.header("content-type", "application/x-www-form-urlencoded");
    unsigned
        .bytes("name=sneaky&platform=static&plan=nano")
        .await
        .assert(403);
    ada.user.get("/v1/projects/sneaky").await.assert(404);
}

async fn the_list_goes_on_where_the_page_ended(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    for number in 0..52 {
        new_project(&ada.user, &format!("site-{number:02}"), "static").await;
    }
    let first = ada.get("/panel/projects").await.assert(200).text();
    assert!(
        first.contains("52 projects") && first.contains(">site-51<") && first.contains(">site-02<")
    );
    assert!(!first.contains(">site-01<"));
    let next = super::support::between(&first, "class=\"pager\"", "rel=\"next\"");
    let next = super::support::between(next, "href=\"", "\"")
        .replace("&amp;", "&")
        .replace("&#38;", "&");
    let second = ada.get(&next).await.assert(200).text();
    assert!(second.contains(">site-01<") && second.contains(">site-00<"));
    assert!(!second.contains(">site-02<") && !second.contains("class=\"pager\""));
    let found = ada.get("/panel/projects?q=TE-4").await.assert(200).text();
    let names = (0..52).map(|number| format!(">site-{number:02}<"));
    assert_eq!(names.filter(|name| found.contains(name)).count(), 10);
    assert!(
        found.contains(">site-40<") && found.contains(">site-49<"),
        "{found}"
    );
    // Neither a pattern nor markup.
    for odd in ["%25", "_", "%22%3E%3Cmark%3E"] {
        let found = ada
            .get(&format!("/panel/projects?q={odd}"))
            .await
            .assert(200)
            .text();
        assert!(
            found.contains("Nothing found") && !found.contains("<mark>"),
            "{found}"
        );
    }
}

async fn requests_are_plotted_before_and_after_they_are_recorded(app: &TestApp) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    deploy(&ada.user, "shop", &json!({})).await;
    let mut visitor = EdgeClient::connect(app.edge(), "shop.localhost").await;
    for _ in 0..3 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    // A request is counted when its response is written, a moment after the visitor has read it.
    let counts = |text: &'static str| {
        let ada = &ada;
        async move {
            let list = ada.get("/panel/projects").await.assert(200).text();
            list.contains(text)
        }
    };
    let three = "3 requests in the last 24 hours";
    eventually("three requests are counted", || counts(three)).await;
    app.traffic().record().await.unwrap();
    // What is recorded is not counted twice.
    assert_eq!(visitor.get("/missing").await.status, 404);
    let four = "4 requests in the last 24 hours";
    eventually("the fourth request is counted", || counts(four)).await;
    app.traffic().record().await.unwrap();
    app.traffic().record().await.unwrap();
    assert!(counts(four).await);
    for range in ["1h", "24h", "7d"] {
        let page = ada
            .get(&format!("/panel/projects/shop?range={range}"))
            .await
            .assert(200)
            .text();
        let card = super::support::between(&page, "<h2>Requests</h2>", "</section>");
        assert!(
            card.contains("<b>4</b>") && card.contains("<svg"),
            "{range}: {card}"
        );
        assert!(page.contains("<h2>Latency</h2>"));
    }
    ada.get("/panel/projects/shop?range=1y").await.assert(400);
}

async fn a_time_to_respond_that_is_too_long_to_be_measured_is_not_shown_as_the_bound(
    app: &TestApp,
) {
    let ada = Person::sign_in(app, "ada").await;
    new_project(&ada.user, "shop", "static").await;
    deploy(&ada.user, "shop", &json!({})).await;
    let read = ada.user.get("/v1/projects/shop").await.assert(200);
    let id = read.field("/project/_id");
    // 90 responses between 100 ms and a second, and `slow` that took longer.
    let record = async |slow: u64| {
        let mut sums = TrafficSums {
            requests: 90 + slow,
            ..TrafficSums::default()
        };
        (sums.times[8], sums.times[9]) = (90, slow);
        let now = app.core().now().millis();
        let step = TrafficStep {
            project: id.parse().unwrap(),
            step: 60,
            at: Timestamp::from_millis(now - now.rem_euclid(60_000)),
            sums,
        };
        let added = app.core().db.transact(move |tx| {
            let step = step.clone();
            Box::pin(async move { add_traffic(tx, &[step]).await })
        });
        added.await.expect("recorded traffic");
        let page = ada.get("/panel/projects/shop").await.assert(200).text();
        super::support::between(&page, "<h2>Latency</h2>", "</section>").to_owned()
    };
    let cut = "what takes longer than 1 s counts as 1 s";
    let card = record(0).await;
    assert!(
        card.contains("<b>545 ms · 995 ms</b>") && !card.contains(cut),
        "{card}"
    );
    let card = record(20).await;
    assert!(
        card.contains("ms · over 1 s</b>") && card.contains(cut),
        "{card}"
    );
}

async fn a_viewer_sees_and_changes_nothing(app: &TestApp) {
    let (ada, eve) = (
        Person::sign_in(app, "ada").await,
        Person::sign_in(app, "eve").await,
    );
    let team = app.new_team(&ada.user, "crew").await;
    app.join(&team, &ada.user, &eve.user, "viewer").await;
    let (ada, eve) = (ada.in_team(&team), eve.in_team(&team));
    new_project(&ada.user, "shop", "static").await;
    let release = deploy(&ada.user, "shop", &json!({})).await;
    deploy(&ada.user, "shop", &json!({})).await;
    let path = format!("/panel/projects/shop/releases/{release}");
    for (page, button) in [
        ("/panel/projects", "New project"),
        ("/panel/projects/shop", "/deploy"),
        ("/panel/projects/shop/releases", "Roll back"),
        (&*path, "Roll back"),
    ] {
        let ours = ada.get(page).await.assert(200).text();
        let theirs = eve.get(page).await.assert(200).text();
        assert!(
            ours.contains(button) && !theirs.contains(button),
            "{page}: {theirs}"
        );
    }
    for page in [
        "/panel/new-project",
        "/panel/projects/shop/deploy",
        &format!("{path}/rollback"),
    ] {
        eve.get(page).await.assert(403);
    }
    let fields = [
        ("name", "evil"),
        ("platform", "static"),
        ("plan", "nano"),
        ("network", ""),
    ];
    eve.post("/panel/new-project", &fields).await.assert(403);
    eve.post(&format!("{path}/rollback"), &[]).await.assert(403);
    eve.post(&format!("{path}/cancel"), &[]).await.assert(403);
    eve.upload("/panel/projects/shop/deploy", "", b"PK")
        .await
        .assert(403);
    let source = eve.get(&format!("{path}/source")).await;
    source.assert(403);
    // To others nothing of it exists.
    let mallory = Person::sign_in(app, "mallory").await;
    for page in [
        "/panel/projects/shop",
        "/panel/projects/shop/releases",
        "/panel/projects/shop/logs",
        &*path,
    ] {
        mallory.get(page).await.assert(404);
    }
    mallory
        .in_team(&team)
        .get("/panel/projects")
        .await
        .assert(403);
}
