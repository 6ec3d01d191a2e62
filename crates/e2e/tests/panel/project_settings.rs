//! Environment, domains, disks, settings and networks of projects.

use estrade_testkit::{ApiResponse, PanelClient, Setup, TestApp, User, on_both_backends};
use serde_json::{Value, json};

on_both_backends! {
    values_are_hidden_until_one_is_asked_for;
    a_change_of_variables_is_reviewed_and_saved;
    a_pasted_file_is_compared_and_its_mistakes_are_named;
    a_change_that_somebody_else_was_faster_with_is_shown_again;
    hostile_names_and_values_are_text;
    a_domain_shows_its_records_and_is_checked_and_deleted;
    a_domain_of_another_project_is_not_found;
    a_domain_that_serves_shows_its_certificate with private;
    disks_are_made_resized_and_deleted;
    settings_are_changed;
    a_project_is_deleted_by_its_name;
    networks_are_made_and_deleted;
    viewers_see_and_change_nothing;
    things_of_strangers_are_not_found;
}

const PASSWORD: &str = "correct horse battery";
const ENVIRONMENT: &str = "/panel/projects/shop/environment";
const REVIEW: &str = "/panel/projects/shop/environment/review";

fn private() -> Setup {
    Setup::with(|setup| setup.settings.domains.verify = false)
}

async fn signed_in(app: &TestApp, name: &str) -> (User, PanelClient) {
    let user = app.new_account_with(name, PASSWORD).await;
    let mut panel = app.panel();
    panel.sign_in(&user.email, PASSWORD).await;
    (user, panel)
}

async fn new_project(user: &User, name: &str) {
    let new = json!({"name": name, "platform": "node", "planID": "micro"});
    user.post("/v1/projects", &new).await.assert(200);
}

async fn ada_with_shop(app: &TestApp) -> (User, PanelClient) {
    let (ada, panel) = signed_in(app, "ada").await;
    new_project(&ada, "shop").await;
    (ada, panel)
}

async fn set_envs(user: &User, envs: &[(&str, &str)]) {
    let variables: Vec<Value> = envs
        .iter()
        .map(|(key, value)| json!({"key": key, "value": value}))
        .collect();
    let body = json!({"project": "shop", "variables": variables});
    user.post("/v1/projects/update-envs", &body)
        .await
        .assert(201);
}

async fn envs(user: &User) -> Vec<(String, String)> {
    let read = user.get("/v1/projects/shop").await.assert(200).json();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let list = read["project"]["envs"].as_array().unwrap().clone();
    list.iter()
        .map(|env| (text(&env["key"]), text(&env["value"])))
        .collect()
}

fn owned(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs
        .iter()
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// The value of a hidden field, as a browser reads it.
fn field(page: &str, name: &str) -> String {
    let start = format!("name=\"{name}\" value=\"");
    let (_, rest) = page.split_once(&start).expect("a field of this name");
    let value = rest.split('"').next().unwrap();
    let entities = [
        ("&#34;", "\""),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&lt;", "<"),
        ("&#62;", ">"),
        ("&gt;", ">"),
        ("&#38;", "&"),
        ("&amp;", "&"),
    ];
    let decode = |text: String, (entity, plain): (&str, &str)| text.replace(entity, plain);
    entities.into_iter().fold(value.to_owned(), decode)
}

/// Presses the button of the review page.
async fn save(panel: &mut PanelClient, review: &str) -> ApiResponse {
    let (changes, state) = (field(review, "changes"), field(review, "state"));
    let form = [("changes", changes.as_str()), ("state", &state)];
    panel.post(ENVIRONMENT, &form).await
}

async fn values_are_hidden_until_one_is_asked_for(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("No variables yet"), "{page}");
    set_envs(&ada, &[("ALPHA", "xyzzy-1"), ("BETA", "xyzzy-2")]).await;
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("ALPHA") && page.contains("BETA"));
    assert!(!page.contains("xyzzy"), "no value is on the page");
    let shown = format!("{ENVIRONMENT}?show=BETA");
    let page = panel.get(&shown).await.assert(200).text();
    assert!(page.contains("xyzzy-2") && !page.contains("xyzzy-1"));
}

async fn a_change_of_variables_is_reviewed_and_saved(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1"), ("B", "2")]).await;
    let form = [("change", "set"), ("key", "C"), ("value", "x\r\ny")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Added") && review.contains("2 unchanged"));
    assert_eq!(envs(&ada).await, owned(&[("A", "1"), ("B", "2")]));
    let saved = save(&mut panel, &review).await.assert(303);
    assert_eq!(saved.header("location"), ENVIRONMENT);
    let page = panel.get(ENVIRONMENT).await.assert(200).text();
    assert!(page.contains("Environment saved: 1 added"), "the toast");
    let three = [("A", "1"), ("B", "2"), ("C", "x\ny")];
    assert_eq!(envs(&ada).await, owned(&three));

    let form = [("change", "set"), ("key", "A"), ("value", "one")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Changed"));
    save(&mut panel, &review).await.assert(303);
    let form = [("change", "remove"), ("key", "B")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(review.contains("Removed"));
    save(&mut panel, &review).await.assert(303);
    assert_eq!(envs(&ada).await, owned(&[("A", "one"), ("C", "x\ny")]));

    let form = [("change", "set"), ("key", "A"), ("value", "one")];
    let same = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(same.contains("nothing to save"), "{same}");
    let nul = [("change", "set"), ("key", "A"), ("value", "a\0b")];
    let review = panel.post(REVIEW, &nul).await.assert(200).text();
    let refused = save(&mut panel, &review).await.assert(400).text();
    assert!(refused.contains("NUL"), "{refused}");
    let forged = [("changes", "nonsense"), ("state", "none")];
    panel.post(ENVIRONMENT, &forged).await.assert(400);
    assert_eq!(envs(&ada).await, owned(&[("A", "one"), ("C", "x\ny")]));
}

async fn a_pasted_file_is_compared_and_its_mistakes_are_named(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1"), ("B", "2")]).await;
    let text = "# of the shop\r\nexport A=1\r\nC='x\r\ny' # two lines\r\nD=\"a\\nb\"\r\n";
    let form = [("change", "paste"), ("text", text), ("replace", "yes")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    assert!(
        review.contains("2 added, 1 removed") && review.contains("1 unchanged"),
        "{review}"
    );
    save(&mut panel, &review).await.assert(303);
    let all = [("A", "1"), ("C", "x\ny"), ("D", "a\nb")];
    assert_eq!(envs(&ada).await, owned(&all));
    let form = [("change", "paste"), ("text", "E=5\n1F=6\nwrong <b>")];
    let page = panel.post(REVIEW, &form).await.assert(400).text();
    assert!(page.contains("Line 2:") && page.contains("Line 3:"));
    assert!(page.contains("E=5"), "what was typed is still there");
    assert!(!page.contains("<b>wrong") && !page.contains("wrong <b>"));
    let large = format!("A='{}'", "\n".repeat(140 << 10));
    let form = [("change", "paste"), ("text", large.as_str())];
    panel.post(REVIEW, &form).await.assert(413);
    assert_eq!(envs(&ada).await, owned(&all));
}

async fn a_change_that_somebody_else_was_faster_with_is_shown_again(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    set_envs(&ada, &[("A", "1")]).await;
    let form = [("change", "set"), ("key", "B"), ("value", "2")];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    set_envs(&ada, &[("A", "1"), ("B", "other"), ("C", "3")]).await;
    let again = save(&mut panel, &review).await.assert(409).text();
    assert!(again.contains("nothing of yours was saved"), "{again}");
    assert!(again.contains("Changed") && again.contains("2 unchanged"));
    let theirs = [("A", "1"), ("B", "other"), ("C", "3")];
    assert_eq!(envs(&ada).await, owned(&theirs));
    save(&mut panel, &again).await.assert(303);
    let both = [("A", "1"), ("B", "2"), ("C", "3")];
    assert_eq!(envs(&ada).await, owned(&both));
}

async fn hostile_names_and_values_are_text(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let payload = "</textarea>\"'><script>alert(1)</script>";
    set_envs(&ada, &[("A", payload)]).await;
    let inert = |page: &str| {
        assert!(!page.contains("<script>alert"), "{page}");
        assert!(!page.contains("</textarea>\""), "{page}");
    };
    inert(
        &panel
            .get(&format!("{ENVIRONMENT}?show=A"))
            .await
            .assert(200)
            .text(),
    );
    inert(
        &panel
            .get(&format!("{ENVIRONMENT}?show=%3Cscript%3Ealert"))
            .await
            .assert(200)
            .text(),
    );
    let form = [("change", "set"), ("key", "B"), ("value", payload)];
    let review = panel.post(REVIEW, &form).await.assert(200).text();
    inert(&review);
    save(&mut panel, &review).await.assert(303);
    assert_eq!(envs(&ada).await, owned(&[("A", payload), ("B", payload)]));
    let form = [("change", "set"), ("key", payload), ("value", payload)];
    inert(&panel.post(REVIEW, &form).await.assert(400).text());
    let form = [("change", "paste"), ("text", payload)];
    inert(&panel.post(REVIEW, &form).await.assert(400).text());
    let form = [("host", payload)];
    inert(
        &panel
            .post("/panel/projects/shop/domains", &form)
            .await
            .assert(400)
            .text(),
    );
    let form = [("name", payload), ("size", payload)];
    inert(
        &panel
            .post("/panel/projects/shop/disks", &form)
            .await
            .assert(400)
            .text(),
    );
    let form = [("name", payload)];
    inert(
        &panel
            .post("/panel/projects/shop/delete", &form)
            .await
            .assert(400)
            .text(),
    );
    inert(
        &panel
            .post("/panel/networks", &form)
            .await
            .assert(400)
            .text(),
    );
    let form = [("plan", payload)];
    inert(
        &panel
            .post("/panel/projects/shop/settings/plan", &form)
            .await
            .assert(400)
            .text(),
    );
}

async fn add_domain(panel: &mut PanelClient, project: &str, host: &str) -> String {
    let path = format!("/panel/projects/{project}/domains");
    let added = panel.post(&path, &[("host", host)]).await.assert(303);
    added.header("location").to_owned()
}

async fn a_domain_shows_its_records_and_is_checked_and_deleted(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    let list = "/panel/projects/shop/domains";
    let page = panel.get(list).await.assert(200).text();
    assert!(page.contains("No domain of its own yet"));
    let path = add_domain(&mut panel, "shop", " WWW.Example.com ").await;
    let page = panel.get(&path).await.assert(200).text();
    for text in [
        "www.example.com",
        "_estrade.www.example.com",
        "shop.localhost",
        "Waiting for DNS",
        "data-refresh",
    ] {
        assert!(page.contains(text), "{text}");
    }
    panel
        .post(list, &[("host", "www.example.com")])
        .await
        .assert(409);
    panel
        .post(list, &[("host", "not a host")])
        .await
        .assert(400);
    let check = format!("{path}/check");
    panel.post(&check, &[]).await.assert(303);
    let page = panel.get(&path).await.assert(200).text();
    assert!(page.contains("is not verified yet") && page.contains("there is no TXT record"));
    app.dns().add_cname("www.example.com", "shop.localhost");
    app.core().clock.advance(std::time::Duration::from_secs(4));
    panel.post(&check, &[]).await.assert(303);
    let page = panel.get(&path).await.assert(200).text();
    assert!(page.contains("It serves this project at") && !page.contains("data-refresh"));
    let page = panel.get(list).await.assert(200).text();
    assert!(page.contains("www.example.com") && page.contains("Active"));
    let delete = format!("{path}/delete");
    let page = panel.get(&delete).await.assert(200).text();
    assert!(page.contains("Delete www.example.com?"));
    let gone = panel.post(&delete, &[]).await.assert(303);
    assert_eq!(gone.header("location"), list);
    panel.get(&path).await.assert(404);
    assert_eq!(ada.get("/v1/domains").await.json()["total"], 0);
}

async fn a_domain_of_another_project_is_not_found(app: &TestApp) {
    let (ada, mut panel) = ada_with_shop(app).await;
    new_project(&ada, "blog").await;
    let path = add_domain(&mut panel, "shop", "www.example.com").await;
    let other = path.replace("/shop/", "/blog/");
    panel.get(&other).await.assert(404);
    panel.post(&format!("{other}/check"), &[]).await.assert(404);
    panel
        .post(&format!("{other}/delete"), &[])
        .await
        .assert(404);
    panel.get(&path).await.assert(200);
    panel
        .get("/panel/projects/shop/domains/nonsense")
        .await
        .assert(404);
}

async fn a_domain_that_serves_shows_its_certificate(app: &TestApp) {
    let (_, mut panel) = ada_with_shop(app).await;
    let path = add_domain(&mut panel, "shop", "www.example.com").await;
    let page = panel.get(&path).await.assert(200).text();
    assert!(
        page.contains("Active") && page.contains("TLS is off"),
        "{page}"
    );
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
    panel.post(delete, &[]).await.assert(303);
    panel.post(delete, &[]).await.assert(404);
    let left = ada.get("/v1/networks").await.json();
    assert_eq!(left["networks"].as_array().unwrap().len(), 1);
}

/// Every page that shows something, and every form with what it needs.
const PAGES: [&str; 4] = ["environment", "domains", "disks", "settings"];
const FORMS: [(&str, &[(&str, &str)]); 11] = [
    (
        "environment/review",
        &[("change", "set"), ("key", "A"), ("value", "2")],
    ),
    ("environment", &[("changes", "[]"), ("state", "none")]),
    ("domains", &[("host", "a.example.com")]),
    ("domains", &[("host", "nonsense")]),
    ("disks", &[("name", "media"), ("size", "1")]),
    ("disks/media/delete", &[]),
    ("settings/scale", &[("scale", "2")]),
    ("settings/plan", &[("plan", "nano")]),
    (
        "settings/switch",
        &[("switch", "zero-downtime"), ("on", "false")],
    ),
    ("restart", &[]),
    ("delete", &[("name", "shop")]),
];

async fn viewers_see_and_change_nothing(app: &TestApp) {
    let (ada, _) = signed_in(app, "ada").await;
    let (bob, mut panel) = signed_in(app, "bob").await;
    let team = app.new_team(&ada, "Shop").await;
    app.join(&team, &ada, &bob, "viewer").await;
    let owner = ada.in_team(&team);
    new_project(&owner, "shop").await;
    set_envs(&owner, &[("PASSWORD", "xyzzy-1")]).await;
    let in_team = |rest: &str| format!("/panel/projects/shop/{rest}?team={team}");
    for page in PAGES {
        let text = panel.get(&in_team(page)).await.assert(200).text();
        let main = text.split("<main").nth(1).unwrap();
        let main = main.split("</main>").next().unwrap();
        assert!(!main.contains("<form"), "{page}: {main}");
        assert!(
            main.contains(&format!("?team={team}")),
            "links stay in the scope"
        );
    }
    let shown = format!("{ENVIRONMENT}?show=PASSWORD&team={team}");
    let page = panel.get(&shown).await.assert(200).text();
    assert!(page.contains("PASSWORD") && !page.contains("xyzzy-1"));
    for page in ["settings/off", "delete", "disks/media/delete"] {
        panel.get(&in_team(page)).await.assert(403);
    }
    for (path, form) in FORMS {
        let refused = panel.post(&in_team(path), form).await;
        assert_eq!(refused.status(), 403, "{path}: {}", refused.text());
    }
    let network = [("name", "backend")];
    panel
        .post(&format!("/panel/networks?team={team}"), &network)
        .await
        .assert(403);
    let read = owner.get("/v1/projects/shop").await.assert(200).json();
    assert_eq!(read["project"]["envs"][0]["value"], "xyzzy-1");
    assert_eq!(read["project"]["scale"], 1);
}

async fn things_of_strangers_are_not_found(app: &TestApp) {
    ada_with_shop(app).await;
    let (_, mut eve) = signed_in(app, "eve").await;
    for page in PAGES.into_iter().chain(["settings/off", "delete"]) {
        eve.get(&format!("/panel/projects/shop/{page}"))
            .await
            .assert(404);
    }
    for (path, form) in FORMS {
        let refused = eve
            .post(&format!("/panel/projects/shop/{path}"), form)
            .await;
        assert_eq!(refused.status(), 404, "{path}: {}", refused.text());
    }
}
