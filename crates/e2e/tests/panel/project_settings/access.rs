//! Who sees and changes what, and texts that mean harm.

use super::support::{
    ENVIRONMENT, REVIEW, ada_with_shop, envs, new_project, owned, save, set_envs, signed_in,
};
use estrade_testkit::{TestApp, on_both_backends};

on_both_backends! {
    hostile_names_and_values_are_text;
    viewers_see_and_change_nothing;
    things_of_strangers_are_not_found;
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
