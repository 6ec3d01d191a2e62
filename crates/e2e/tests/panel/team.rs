//! Teams, invitations, the audit log, and a project that moves.

use crate::admin::administrator;
use estrade_testkit::{ApiResponse, PanelClient, TestApp, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    a_team_is_made_and_somebody_without_an_account_joins;
    an_invitation_of_a_member_makes_no_account;
    an_invitation_is_for_one_person;
    roles_are_changed_and_members_removed;
    an_old_sign_in_is_confirmed_before_people_are_let_in;
    the_audit_log_is_shown_and_filtered;
    a_project_moves_to_a_team;
    what_people_type_is_shown_as_text;
    the_scope_switch_leads_to_every_team;
}

const PASSWORD: &str = "correct horse battery";

async fn signed_in(app: &TestApp, name: &str) -> PanelClient {
    let mut browser = app.panel();
    let email = format!("{name}@example.com");
    browser.sign_in(&email, PASSWORD).await;
    browser
}

/// Makes a team; returns its id.
async fn new_team(browser: &mut PanelClient, name: &str) -> String {
    let made = browser.post("/panel/team/new", &[("name", name)]).await;
    let made = made.assert(303);
    let (path, team) = made.header("location").split_once("?team=").unwrap();
    assert_eq!(path, "/panel/team");
    team.to_owned()
}

/// The path of the link that a page shows.
fn link_of(page: &ApiResponse) -> String {
    let text = page.text();
    let (_, rest) = text.split_once("/panel/join?token=").expect("a link");
    let token: String = rest.chars().take_while(|c| *c != '<').collect();
    format!("/panel/join?token={token}")
}

async fn invite(browser: &mut PanelClient, team: &str, email: &str, role: &str) -> String {
    let path = format!("/panel/team/invite?team={team}");
    let page = browser
        .post(&path, &[("email", email), ("role", role)])
        .await;
    link_of(&page.assert(200))
}

/// Follows the link that the API gives out to its page.
async fn open(browser: &mut PanelClient, link: &str) -> (String, ApiResponse) {
    let sent = browser.get(link).await.assert(303);
    let path = sent.header("location").to_owned();
    let page = browser.get(&path).await.assert(200);
    (path, page)
}

async fn a_team_is_made_and_somebody_without_an_account_joins(app: &TestApp) {
    let mut ada = administrator(app).await;
    let empty = ada.get("/panel/team").await.assert(200).text();
    assert!(empty.contains("You are in no team yet"), "{empty}");
    ada.post("/panel/team/new", &[("name", "")])
        .await
        .assert(400);
    let team = new_team(&mut ada, "The Analysts").await;
    let page = format!("/panel/team?team={team}");
    let shown = ada.get(&page).await.assert(200).text();
    assert!(
        shown.contains("The Analysts") && shown.contains("Nobody is invited"),
        "{shown}"
    );
    let link = invite(&mut ada, &team, "new@example.com", "viewer").await;
    assert!(ada.get(&page).await.text().contains("new@example.com"));
    let mut new = app.panel();
    let (path, offer) = open(&mut new, &link).await;
    let offer = offer.text();
    assert!(
        offer.contains("Join The Analysts") && offer.contains("new@example.com"),
        "{offer}"
    );
    let form = |password: &'static str, repeated: &'static str| {
        [
            ("name", "New Person"),
            ("password", password),
            ("repeated", repeated),
        ]
    };
    let refused = new
        .send(&path, &form("correct horse", "other"))
        .await
        .assert(400);
    assert!(
        refused.text().contains("New Person"),
        "what was typed stays"
    );
    new.send(&path, &form("short", "short")).await.assert(400);
    let joined = new.send(&path, &form(PASSWORD, PASSWORD)).await.assert(303);
    assert_eq!(
        joined.header("location"),
        format!("/panel/projects?team={team}")
    );
    // Signed in, and a viewer: reads, but does not change.
    let members = new.get(&page).await.assert(200).text();
    assert!(
        members.contains("New Person") && !members.contains("Open invitations"),
        "{members}"
    );
    new.get(&format!("/panel/audit?team={team}"))
        .await
        .assert(403);
    new.get(&format!("/panel/team/invite?team={team}"))
        .await
        .assert(403);
    let form = [("email", "other@example.com"), ("role", "viewer")];
    new.post(&format!("/panel/team/invite?team={team}"), &form)
        .await
        .assert(403);
    // The link has ended.
    let mut late = app.panel();
    late.get(&path).await.assert(404);
    late.get("/panel/join?token=<script>").await.assert(404);
}

async fn an_invitation_of_a_member_makes_no_account(app: &TestApp) {
    for name in ["eve", "bob"] {
        app.new_account_with(name, PASSWORD).await;
    }
    let mut eve = signed_in(app, "eve").await;
    let team = new_team(&mut eve, "The Analysts").await;
    let form = eve.get(&format!("/panel/team/invite?team={team}")).await;
    let form = form.assert(200).text();
    assert!(form.contains("asks the administrator"), "{form}");
    let mut pages = Vec::new();
    for email in ["bob@example.com", "ceo@example.com"] {
        let link = invite(&mut eve, &team, email, "viewer").await;
        let mut stranger = app.panel();
        let (path, page) = open(&mut stranger, &link).await;
        let form = [
            ("name", "Eve"),
            ("password", PASSWORD),
            ("repeated", PASSWORD),
        ];
        let refused = stranger.send(&path, &form).await.assert(403);
        for shown in [page.text(), refused.text()] {
            let sentence =
                "ask the administrator for an account for this address, then open this link again";
            assert!(shown.contains(sentence), "{shown}");
            assert!(!shown.contains("Create account"), "{shown}");
            pages.push(shown.replace(email, "EMAIL").replace(&path, "PATH"));
        }
    }
    // Whether an address has an account is not told.
    pages.dedup();
    assert_eq!(pages.len(), 1, "{pages:#?}");
    let form = [("email", "ceo@example.com"), ("password", PASSWORD)];
    app.panel().send("/panel/sign-in", &form).await.assert(401);
}

async fn an_invitation_is_for_one_person(app: &TestApp) {
    for name in ["ada", "eve"] {
        app.new_account_with(name, PASSWORD).await;
    }
    let bob_account = app.new_account_with("bob", PASSWORD).await;
    let mut ada = signed_in(app, "ada").await;
    let team = new_team(&mut ada, "The Analysts").await;
    let link = invite(&mut ada, &team, "bob@example.com", "developer").await;
    let (path, page) = open(&mut app.panel(), &link).await;
    let sign_in = format!("/panel/sign-in?next={path}");
    assert!(page.text().contains(&sign_in), "{}", page.text());
    // Whose address it is not gets nothing, whatever they send.
    let mut eve = signed_in(app, "eve").await;
    let page = eve.get(&path).await.assert(200).text();
    assert!(
        page.contains("You are signed in as eve@example.com"),
        "{page}"
    );
    eve.post(&format!("{path}/accept"), &[]).await.assert(404);
    let form = [
        ("name", "Eve"),
        ("password", PASSWORD),
        ("repeated", PASSWORD),
    ];
    app.panel().send(&path, &form).await.assert(403);
    let mut bob = signed_in(app, "bob").await;
    bob.send(&format!("{path}/accept"), &[]).await.assert(403);
    bob.post(&format!("{path}/accept"), &[]).await.assert(303);
    let page = bob
        .get(&format!("/panel/team?team={team}"))
        .await
        .assert(200);
    assert!(page.text().contains("You are a member of The Analysts now"));
    // Used up: it does not bring back what it granted.
    let member = format!(
        "/panel/team/members/{}/role?team={team}",
        bob_account.account
    );
    ada.post(&member, &[("role", "viewer")]).await.assert(303);
    let page = bob.get(&path).await.assert(404).text();
    assert!(page.contains("This invitation has ended"), "{page}");
    let again = bob.post(&format!("{path}/accept"), &[]).await.assert(404);
    assert!(again.text().contains("This invitation has ended"));
    let new_key = format!("/panel/keys/new?team={team}");
    bob.get(&new_key).await.assert(403);
    // Withdrawn before it is used.
    let link = invite(&mut ada, &team, "eve@example.com", "viewer").await;
    let page = ada.get(&format!("/panel/team?team={team}")).await.text();
    let (_, rest) = page.split_once("/panel/team/invitations/").unwrap();
    let id: String = rest.chars().take(24).collect();
    let withdraw = format!("/panel/team/invitations/{id}/delete?team={team}");
    ada.get(&withdraw).await.assert(200);
    bob.post(&withdraw, &[]).await.assert(403);
    ada.post(&withdraw, &[]).await.assert(303);
    let sent = eve.get(&link).await.assert(303);
    eve.get(sent.header("location")).await.assert(404);
}

async fn roles_are_changed_and_members_removed(app: &TestApp) {
    let owner = app.new_account_with("ada", PASSWORD).await;
    let bob = app.new_account_with("bob", PASSWORD).await;
    let team = app.new_team(&owner, "Shop").await;
    app.join(&team, &owner, &bob, "viewer").await;
    let (mut ada, mut browser) = (signed_in(app, "ada").await, signed_in(app, "bob").await);
    let member = format!("/panel/team/members/{}", bob.account);
    let page = format!("{member}?team={team}");
    assert!(
        ada.get(&page)
            .await
            .assert(200)
            .text()
            .contains("bob@example.com")
    );
    browser.get(&page).await.assert(403);
    let role = format!("{member}/role?team={team}");
    browser.post(&role, &[("role", "owner")]).await.assert(403);
    ada.post(&role, &[("role", "king")]).await.assert(400);
    ada.post(&role, &[("role", "developer")]).await.assert(303);
    let list = ada.get(&format!("/panel/team?team={team}")).await.text();
    assert!(list.contains("developer"), "{list}");
    // The last owner stays.
    let own = format!("/panel/team/members/{}/remove?team={team}", owner.account);
    let refused = ada.post(&own, &[]).await.text();
    assert!(refused.contains("A team needs an owner"), "{refused}");
    let remove = format!("{member}/remove?team={team}");
    ada.get(&remove).await.assert(200);
    ada.post(&remove, &[]).await.assert(303);
    browser
        .get(&format!("/panel/team?team={team}"))
        .await
        .assert(403);
    // The name is asked for.
    let delete = format!("/panel/team/delete?team={team}");
    ada.post(&delete, &[("name", "shop")]).await.assert(400);
    ada.post(&delete, &[("name", "Shop")]).await.assert(303);
    ada.get(&delete).await.assert(403);
}

async fn an_old_sign_in_is_confirmed_before_people_are_let_in(app: &TestApp) {
    let owner = app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app, "ada").await;
    let team = new_team(&mut ada, "Shop").await;
    app.core().clock.advance(Duration::from_mins(10));
    let member = format!("/panel/team/members/{}", owner.account);
    let invite = format!("/panel/team/invite?team={team}");
    let role = format!("{member}/role?team={team}");
    let person = [("email", "bob@example.com"), ("role", "viewer")];
    for (path, form) in [(&invite, &person[..]), (&role, &[("role", "owner")])] {
        let sent = ada.get(path).await.assert(303);
        let confirm = sent.header("location").to_owned();
        assert!(
            confirm.starts_with("/panel/confirm?next=/panel/team/"),
            "{confirm}"
        );
        let refused = ada.post(path, form).await.assert(401).text();
        assert!(
            refused.contains("/panel/confirm?next=/panel/team/"),
            "{refused}"
        );
    }
    ada.get(&format!("{member}?team={team}")).await.assert(303);
    let page = ada
        .get(&format!("/panel/team?team={team}"))
        .await
        .assert(200);
    assert!(!page.text().contains("bob@example.com"));
    let form = [("secret", PASSWORD), ("next", role.as_str())];
    let back = ada.post("/panel/confirm", &form).await.assert(303);
    // The way back from a form that was not carried out is a page.
    ada.get(back.header("location")).await.assert(200);
    ada.get(&invite).await.assert(200);
    ada.post(&role, &[("role", "owner")]).await.assert(303);
    ada.post(&invite, &person).await.assert(200);
}

async fn the_audit_log_is_shown_and_filtered(app: &TestApp) {
    let user = app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app, "ada").await;
    let new = json!({"name": "shop", "platform": "static", "planID": "nano"});
    let made = user.post("/v1/projects", &new).await.assert(200);
    let project = made.field("/projectID");
    let page = ada.get("/panel/audit").await.assert(200).text();
    for text in [
        "<b>A project was created</b>",
        "shop",
        "<b>Somebody signed in</b>",
        "127.0.0.1",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let page = ada
        .get("/panel/audit?action=project")
        .await
        .assert(200)
        .text();
    assert!(page.contains("<b>A project was created</b>"));
    assert!(!page.contains("<b>Somebody signed in</b>"), "{page}");
    let query = format!("/panel/audit?subject={project}&action=project.create");
    assert!(
        ada.get(&query)
            .await
            .assert(200)
            .text()
            .contains("<b>A project was created</b>")
    );
    let page = ada
        .get("/panel/audit?action=domain.create")
        .await
        .assert(200)
        .text();
    assert!(page.contains("Nothing matches"), "{page}");
    let page = ada
        .get("/panel/audit?to=2020-01-01")
        .await
        .assert(200)
        .text();
    assert!(page.contains("Nothing matches"));
    let page = ada
        .get("/panel/audit?from=yesterday")
        .await
        .assert(200)
        .text();
    assert!(page.contains("A day is written as"), "{page}");
    ada.get("/panel/audit?before=x").await.assert(400);
    let others = app.new_account_with("bob", PASSWORD).await;
    let mut bob = signed_in(app, "bob").await;
    let page = bob
        .get(&format!("/panel/audit?subject={project}"))
        .await
        .text();
    assert!(page.contains("Nothing matches"), "{}", others.email);
}

async fn a_project_moves_to_a_team(app: &TestApp) {
    let user = app.new_account_with("ada", PASSWORD).await;
    let team = app.new_team(&user, "Shop").await;
    let new = json!({"name": "shop", "platform": "static", "planID": "nano"});
    user.post("/v1/projects", &new).await.assert(200);
    let mut ada = signed_in(app, "ada").await;
    let page = ada
        .get("/panel/projects/shop/move")
        .await
        .assert(200)
        .text();
    assert!(page.contains(&team), "{page}");
    let moved = ada
        .post("/panel/projects/shop/move", &[("to", &team)])
        .await;
    let moved = moved.assert(303);
    assert_eq!(
        moved.header("location"),
        format!("/panel/projects/shop?team={team}")
    );
    user.get("/v1/projects/shop").await.assert(404);
    let in_team = user.clone().in_team(&team);
    in_team.get("/v1/projects/shop").await.assert(200);
    ada.get("/panel/projects/shop/move").await.assert(404);
}

async fn what_people_type_is_shown_as_text(app: &TestApp) {
    app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app, "ada").await;
    let evil = "<img src=x onerror=alert(1)>";
    let team = new_team(&mut ada, evil).await;
    let link = invite(&mut ada, &team, "new@example.com", "viewer").await;
    let (_, offer) = open(&mut app.panel(), &link).await;
    let mut pages = vec![offer];
    for path in ["/panel/team", "/panel/audit", "/panel/team/delete"] {
        pages.push(ada.get(&format!("{path}?team={team}")).await.assert(200));
    }
    pages.push(ada.get("/panel/team").await.assert(200));
    let query =
        "/panel/audit?action=%3Cimg%20src%3Dx%3E&account=%22%3E%3Cimg&subject=%3Cimg&from=%3Cimg";
    pages.push(ada.get(query).await.assert(200));
    for page in pages {
        assert!(!page.text().contains("<img"), "{}", page.text());
    }
}

async fn the_scope_switch_leads_to_every_team(app: &TestApp) {
    let user = app.new_account_with("ada", PASSWORD).await;
    let mut ada = signed_in(app, "ada").await;
    let oldest = app.new_team(&user, "The Oldest").await;
    for number in 0..19 {
        app.new_team(&user, &format!("Team {number}")).await;
    }
    let page = ada.get("/panel/projects").await.assert(200).text();
    assert!(page.contains("The Oldest") && !page.contains("All teams"));
    app.new_team(&user, "The Newest").await;
    let page = ada.get("/panel/projects").await.assert(200).text();
    assert!(page.contains("The Newest") && !page.contains("The Oldest"));
    assert!(page.contains("All teams"), "{page}");
    let teams = ada.get("/panel/team").await.assert(200).text();
    assert!(teams.contains("The Oldest"), "{teams}");
    // Among its own pages it has its name.
    let page = ada.get(&format!("/panel/projects?team={oldest}")).await;
    assert!(page.assert(200).text().contains("Scope: The Oldest"));
}
