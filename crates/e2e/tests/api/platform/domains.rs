//! `/v1/domains`

use crate::support::{assert_id, assert_time, column, fields, new_project};
use estrade_model::ProjectId;
use estrade_service::platform::domains::check_due;
use estrade_store::domains::{list_active_domains, read_active_domains};
use estrade_store::{Change, ChangeKind};
use estrade_testkit::{Setup, TestApp, User, on_both_backends};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

on_both_backends! {
    a_domain_says_what_to_set_in_dns;
    the_token_in_a_txt_record_proves_a_domain;
    a_cname_to_the_project_proves_a_domain;
    a_cname_to_a_name_that_changed_hands_proves_nothing;
    a_check_says_what_is_missing;
    checks_are_not_repeated_at_once;
    pending_domains_are_checked_without_being_asked;
    only_one_owner_of_a_name_is_active;
    without_verification_a_domain_is_active_at_once with private;
    names_that_nobody_can_have;
    a_deleted_project_takes_its_domains_along with private;
    routes_change_with_domains;
    lists_are_of_one_owner_or_one_project;
    a_domain_that_was_changed_is_not_deleted_by_mistake;
    a_project_has_a_limited_number_of_domains;
    the_name_may_be_called_domain;
}

fn private() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

async fn add(user: &User, project: &str, name: &str) -> Value {
    let new = json!({"name": name, "project": project});
    let made = user.post("/v1/domains", &new).await.assert(201).json();
    made["domain"].clone()
}

fn path(domain: &Value) -> String {
    format!("/v1/domains/{}", domain["_id"].as_str().unwrap())
}

async fn check(app: &TestApp, user: &User, domain: &Value) -> Value {
    // Past the time in which a check is not repeated.
    app.core().clock.advance(Duration::from_secs(4));
    let path = format!("{}/check", path(domain));
    user.get(&path).await.assert(200).json()["domain"].clone()
}

fn txt(domain: &Value) -> (String, String) {
    let record = &domain["records"][0];
    let text = |field: &str| record[field].as_str().unwrap().to_owned();
    (text("name"), text("value"))
}

async fn active(app: &TestApp) -> Vec<String> {
    let all = list_active_domains(&app.core().db, None, 1000).await;
    let name = |row: &estrade_store::domains::ActiveDomain| row.name.to_string();
    all.unwrap().iter().map(name).collect()
}

async fn a_domain_says_what_to_set_in_dns(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "WWW.Example.com").await;
    let names = [
        "_id",
        "checkedAt",
        "createdAt",
        "name",
        "problem",
        "project",
        "records",
        "status",
        "verifiedAt",
    ];
    assert_eq!(fields(&domain), names);
    assert_id(&domain["_id"]);
    assert_time(&domain["createdAt"]);
    assert_eq!(domain["name"], "www.example.com");
    assert_eq!(domain["status"], "PENDING");
    assert_eq!(
        domain["project"],
        json!({"_id": project, "project_id": "shop"})
    );
    let token = domain["records"][0]["value"].as_str().unwrap();
    assert_eq!(token.len(), 32);
    assert_eq!(
        domain["records"],
        json!([
            {"type": "TXT", "name": "_estrade.www.example.com", "value": token},
            {"type": "CNAME", "name": "www.example.com", "value": "shop.localhost"},
        ])
    );
    let read = ada.get(&path(&domain)).await.assert(200).json();
    assert_eq!(read, json!({"domain": domain}));
    let by_id = add(&ada, &project, "bücher.example").await;
    assert_eq!(by_id["name"], "xn--bcher-kva.example");
    assert_ne!(txt(&by_id).1, token, "each domain has its own token");
    let again = json!({"name": "www.example.com", "project": "shop"});
    ada.post("/v1/domains", &again)
        .await
        .refused(409, "domain_exists");
    assert_eq!(active(app).await, [""; 0]);
}

async fn the_token_in_a_txt_record_proves_a_domain(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let (name, token) = txt(&domain);
    app.dns().add_txt(&name, &["v=spf1 -all"]);
    app.dns().add_txt(&name, &[&token[1..]]);
    app.dns().add_txt(&name, &[&format!("{token} ")]);
    app.dns().add_txt("www.example.com", &[&token]);
    assert_eq!(check(app, &ada, &domain).await["status"], "PENDING");
    // A long text is several strings; they count as one.
    app.dns().add_txt(&name, &[&token[..7], &token[7..]]);
    let checked = check(app, &ada, &domain).await;
    assert_eq!(checked["status"], "ACTIVE");
    assert_eq!(checked["problem"], Value::Null);
    assert_time(&checked["verifiedAt"]);
    assert_eq!(active(app).await, ["www.example.com"]);
    let project: ProjectId = project.parse().unwrap();
    let of_project = read_active_domains(&app.core().db, project).await.unwrap();
    assert_eq!(of_project.len(), 1);
    // Proved once, it stays.
    app.dns().remove(&name);
    assert_eq!(check(app, &ada, &domain).await["status"], "ACTIVE");
    ada.delete(&path(&domain)).await.assert_empty(204);
    ada.delete(&path(&domain)).await.refused(404, "not_found");
    assert_eq!(active(app).await, [""; 0]);
}

/// The record of the former owner still leads to the name, which is all that it proves.
async fn a_cname_to_a_name_that_changed_hands_proves_nothing(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let host = "www.example.com";
    app.dns().add_cname(host, "shop.localhost");
    let adas_domain = async || {
        new_project(&ada, "shop").await;
        let domain = add(&ada, "shop", host).await;
        check(app, &ada, &domain).await
    };
    assert_eq!(adas_domain().await["status"], "ACTIVE");
    ada.delete("/v1/projects/shop").await.assert_empty(200);
    assert_eq!(active(app).await, [""; 0]);
    // Ada's own name is hers, but the new project does not inherit the domain.
    let domain = adas_domain().await;
    assert_eq!(domain["status"], "ACTIVE", "{domain}");
    ada.delete("/v1/projects/shop?purge=true")
        .await
        .assert_empty(200);

    new_project(&bob, "shop").await;
    assert_eq!(active(app).await, [""; 0], "nothing is inherited");
    let domain = add(&bob, "shop", host).await;
    let checked = check(app, &bob, &domain).await;
    assert_eq!(checked["status"], "PENDING", "{checked}");
    let problem = checked["problem"].as_str().unwrap();
    assert!(problem.contains("only the TXT record counts"), "{problem}");
    // Nor by having it twice.
    bob.delete("/v1/projects/shop").await.assert_empty(200);
    new_project(&bob, "shop").await;
    let domain = add(&bob, "shop", host).await;
    let checked = check(app, &bob, &domain).await;
    assert_eq!(checked["status"], "PENDING", "{checked}");
    let (name, value) = txt(&domain);
    app.dns().add_txt(&name, &[&value]);
    assert_eq!(check(app, &bob, &domain).await["status"], "ACTIVE");
}

async fn a_cname_to_the_project_proves_a_domain(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let dns = app.dns();
    for (name, target, status) in [
        ("direct.example.com", "Shop.LOCALHOST", "ACTIVE"),
        ("chain.example.com", "alias.example.net", "ACTIVE"),
        ("loop.example.com", "loop2.example.com", "PENDING"),
        ("other.example.com", "shop2.localhost", "PENDING"),
        ("below.example.com", "x.shop.localhost", "PENDING"),
        ("above.example.com", "localhost", "PENDING"),
        (
            "suffix.example.com",
            "shop.localhost.example.com",
            "PENDING",
        ),
        ("prefix.example.com", "myshop.localhost", "PENDING"),
    ] {
        dns.add_cname(name, target);
        dns.remove("alias.example.net");
        dns.add_cname("alias.example.net", "alias2.example.net");
        dns.remove("alias2.example.net");
        dns.add_cname("alias2.example.net", "shop.localhost");
        dns.remove("loop2.example.com");
        dns.add_cname("loop2.example.com", "loop.example.com");
        let domain = add(&ada, "shop", name).await;
        let checked = check(app, &ada, &domain).await;
        assert_eq!(checked["status"], status, "{checked}");
    }
}

async fn a_check_says_what_is_missing(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let problem = async || {
        let checked = check(app, &ada, &domain).await;
        assert_time(&checked["checkedAt"]);
        checked["problem"].as_str().unwrap().to_owned()
    };
    assert_eq!(
        problem().await,
        "there is no TXT record at _estrade.www.example.com; there is no CNAME record at www.example.com"
    );
    app.dns().add_txt("_estrade.www.example.com", &["old"]);
    app.dns().add_cname("www.example.com", "elsewhere.example");
    assert_eq!(
        problem().await,
        "the TXT record at _estrade.www.example.com holds another value; the CNAME record at www.example.com leads elsewhere"
    );
    app.dns().set_silent(true);
    let started = Instant::now();
    assert!(problem().await.starts_with("DNS did not answer"));
    assert!(started.elapsed() < Duration::from_secs(10));
}

async fn checks_are_not_repeated_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let path = format!("{}/check", path(&domain));
    let ask = || async { ada.get(&path).await.assert(200) };
    tokio::join!(ask(), ask(), ask(), ask(), ask());
    ask().await;
    assert_eq!(app.dns().questions("_estrade.www.example.com"), 1);
    check(app, &ada, &domain).await;
    assert_eq!(app.dns().questions("_estrade.www.example.com"), 2);
}

async fn pending_domains_are_checked_without_being_asked(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let (name, token) = txt(&domain);
    let (dns, core) = (app.dns(), app.core());
    // Less and less often: after 10, 20, 40, … seconds.
    for (wait, questions) in [
        (9, 0),
        (2, 1),
        (9, 1),
        (2, 2),
        (19, 2),
        (2, 3),
        (39, 3),
        (2, 4),
    ] {
        core.clock.advance(Duration::from_secs(wait));
        check_due(core).await.unwrap();
        assert_eq!(dns.questions(&name), questions, "after {wait} s more");
    }
    dns.add_txt(&name, &[&token]);
    core.clock.advance(Duration::from_secs(81));
    check_due(core).await.unwrap();
    let read = ada.get(&path(&domain)).await.json();
    assert_eq!(read["domain"]["status"], "ACTIVE");
    // What is forgotten is not asked for ever; a person still can.
    let forgotten = add(&ada, "shop", "forgotten.example.com").await;
    core.clock.advance(Duration::from_hours(31 * 24));
    for _ in 0..3 {
        check_due(core).await.unwrap();
        core.clock.advance(Duration::from_hours(31 * 24));
    }
    assert_eq!(dns.questions("_estrade.forgotten.example.com"), 1);
    check(app, &ada, &forgotten).await;
    assert_eq!(dns.questions("_estrade.forgotten.example.com"), 2);
}

async fn only_one_owner_of_a_name_is_active(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    new_project(&bob, "squat").await;
    // A squatter who waits keeps nobody away.
    let squatted = add(&bob, "squat", "www.example.com").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let (name, token) = txt(&domain);
    assert_ne!(token, txt(&squatted).1);
    app.dns().add_txt(&name, &[&token]);
    assert_eq!(check(app, &bob, &squatted).await["status"], "PENDING");
    assert_eq!(check(app, &ada, &domain).await["status"], "ACTIVE");
    // Even one who could prove it now has to wait until it is free.
    app.dns().add_txt(&name, &[&txt(&squatted).1]);
    let checked = check(app, &bob, &squatted).await;
    assert_eq!(checked["status"], "PENDING");
    assert!(
        checked["problem"]
            .as_str()
            .unwrap()
            .contains("another project")
    );
    let carol = app.new_account("carol").await;
    new_project(&carol, "third").await;
    let new = json!({"name": "www.example.com", "project": "third"});
    carol
        .post("/v1/domains", &new)
        .await
        .refused(409, "domain_taken");
    ada.delete(&path(&domain)).await.assert(204);
    assert_eq!(check(app, &bob, &squatted).await["status"], "ACTIVE");
}

async fn without_verification_a_domain_is_active_at_once(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "intranet.corp").await;
    assert_eq!(domain["status"], "ACTIVE");
    assert_eq!(active(app).await, ["intranet.corp"]);
    assert_eq!(check(app, &ada, &domain).await["status"], "ACTIVE");
    assert_eq!(app.dns().questions("_estrade.intranet.corp"), 0);
    let bob = app.new_account("bob").await;
    new_project(&bob, "other").await;
    let new = json!({"name": "Intranet.corp", "project": "other"});
    bob.post("/v1/domains", &new)
        .await
        .refused(409, "domain_taken");
}

async fn names_that_nobody_can_have(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for name in ["shop.localhost", "x.y.localhost", "A.LocalHost"] {
        let new = json!({"name": name, "project": "shop"});
        ada.post("/v1/domains", &new).await.refused(400, "reserved");
    }
    for bad in [
        json!("localhost"),
        json!("127.0.0.1"),
        json!("*.example.com"),
        json!("example.com."),
        json!("http://example.com"),
        json!("a b.com"),
        json!(""),
        json!(7),
        json!(null),
    ] {
        let new = json!({"name": bad, "project": "shop"});
        let response = ada.post("/v1/domains", &new).await;
        response.refused(400, "invalid").naming("name");
    }
    for project in ["nothing", "0123456789abcdef01234567", "?"] {
        let new = json!({"name": "example.com", "project": project});
        ada.post("/v1/domains", &new)
            .await
            .refused(404, "not_found");
    }
    assert_eq!(
        ada.get("/v1/domains").await.json(),
        json!({"total": 0, "domains": []})
    );
}

async fn a_deleted_project_takes_its_domains_along(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    ada.delete("/v1/projects/shop").await.assert(200);
    ada.get(&path(&domain)).await.refused(404, "not_found");
    assert_eq!(active(app).await, [""; 0]);
    new_project(&ada, "shop").await;
    add(&ada, "shop", "www.example.com").await;
}

async fn routes_change_with_domains(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let project = new_project(&ada, "shop").await;
    let routes = Arc::<Mutex<Vec<String>>>::default();
    let heard = Arc::clone(&routes);
    app.core().db.changes().on_change(move |change: &Change| {
        if change.kind == ChangeKind::Route {
            heard.lock().unwrap().push(change.id.clone());
        }
    });
    let count = || {
        routes
            .lock()
            .unwrap()
            .iter()
            .filter(|id| **id == project)
            .count()
    };
    let pending = add(&ada, "shop", "a.example.com").await;
    let domain = add(&ada, "shop", "b.example.com").await;
    let before = count();
    ada.delete(&path(&pending)).await.assert(204);
    assert_eq!(count(), before, "one that never served");
    let (name, token) = txt(&domain);
    app.dns().add_txt(&name, &[&token]);
    check(app, &ada, &domain).await;
    assert!(count() > before, "one that became active");
    let before = count();
    ada.delete(&path(&domain)).await.assert(204);
    assert!(count() > before, "one that was active");
}

async fn lists_are_of_one_owner_or_one_project(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    new_project(&ada, "shop").await;
    let blog = new_project(&ada, "blog").await;
    new_project(&bob, "other").await;
    add(&ada, "shop", "one.example.com").await;
    add(&ada, "blog", "two.example.com").await;
    add(&ada, "blog", "three.example.com").await;
    add(&bob, "other", "one.example.com").await;
    let all = ["three.example.com", "two.example.com", "one.example.com"];
    for (query, total, names) in [
        ("", 3, &all[..]),
        ("?project=", 3, &all[..]),
        ("?project=blog", 2, &all[..2]),
        (&format!("?project={blog}"), 2, &all[..2]),
        ("?project=shop", 1, &all[2..]),
        ("?project=blog&count=1", 2, &all[..1]),
        ("?count=1&page=2", 3, &all[1..2]),
    ] {
        let list = ada
            .get(&format!("/v1/domains{query}"))
            .await
            .assert(200)
            .json();
        assert_eq!(list["total"], total, "{query}");
        assert_eq!(column(&list["domains"], "name"), names, "{query}");
    }
    for project in ["other", "nothing", "0123456789abcdef01234567", "!"] {
        let path = format!("/v1/domains?project={project}");
        ada.get(&path).await.refused(404, "not_found");
    }
}

async fn a_domain_that_was_changed_is_not_deleted_by_mistake(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let domain = add(&ada, "shop", "www.example.com").await;
    let path = path(&domain);
    let tag = |response: &estrade_testkit::ApiResponse| response.header("etag").to_owned();
    let old = tag(&ada.get(&path).await.assert(200));
    ada.get(&path)
        .header("if-none-match", &old)
        .await
        .assert_empty(304);
    let (name, token) = txt(&domain);
    app.dns().add_txt(&name, &[&token]);
    check(app, &ada, &domain).await;
    let new = tag(&ada
        .get(&path)
        .header("if-none-match", &old)
        .await
        .assert(200));
    let stale = ada.delete(&path).header("if-match", &old).await;
    stale.refused(412, "precondition_failed");
    ada.delete(&path)
        .header("if-match", &new)
        .await
        .assert_empty(204);
}

async fn a_project_has_a_limited_number_of_domains(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    for number in 0..100 {
        add(&ada, "shop", &format!("d{number}.example.com")).await;
    }
    let new = json!({"name": "one-more.example.com", "project": "shop"});
    ada.post("/v1/domains", &new).await.refused(403, "quota");
}

async fn the_name_may_be_called_domain(app: &TestApp) {
    let ada = app.new_account("ada").await;
    new_project(&ada, "shop").await;
    let new = json!({"domain": "www.example.com", "project": "shop"});
    let made = ada.post("/v1/domains", &new).await.assert(201);
    assert_eq!(made.field("/domain/name"), "www.example.com");
    let both = json!({"domain": "a.example.com", "name": "b.example.com", "project": "shop"});
    let refused = ada.post("/v1/domains", &both).await;
    refused.refused(400, "invalid").naming("name");
}
