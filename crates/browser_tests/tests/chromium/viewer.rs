//! The last step of the first hour: somebody is invited who can look, but not change.

use crate::browser::{Browser, Javascript};
use crate::furnish::PASSWORD;
use estrade_testkit::TestApp;
use serde_json::json;

const TEAM: &str = "The Analysts";
const EMAIL: &str = "grace@example.com";
/// What changes something.
const CHANGES: &str = "main form[method=post], main [data-dialog], main a[href*='/deploy'], main a[href*='/delete'], \
    main a[href*='/rollback'], main a[href*='/new'], main a[href*='/invite'], main a[href*='/move']";
/// Sends a form that no page has, with the token that this page's forms would carry.
const FORGE: &str = "
    const form = document.createElement('form');
    form.method = 'post';
    form.action = arguments[0];
    for (const [name, value] of [['csrf', document.body.dataset.csrf], ['scale', '0']]) {
        const field = document.createElement('input');
        field.name = name;
        field.value = value;
        form.append(field);
    }
    document.body.append(form);
    form.submit();";

/// Moves a project to a new team and invites a viewer, who joins in a browser of their own.
pub(crate) async fn invite_a_viewer(
    app: &TestApp,
    owner: &Browser,
    javascript: Javascript,
    project: &str,
) {
    let team = make_team(owner).await;
    move_project(owner, project).await;
    let link = invite(owner, &team).await;
    let viewer = Browser::start(app, javascript).await;
    join(&viewer, &link, project).await;
    see_no_changes(&viewer, &team, project).await;
    let scale = format!("/panel/projects/{project}/settings/scale?team={team}");
    if javascript == Javascript::On {
        // A page of the panel has the token; the refusal that is shown now has none.
        viewer.open(&format!("/panel/projects?team={team}")).await;
        viewer.run(FORGE, vec![json!(scale)]).await;
        viewer.see("You may not do this").await;
    }
    be_refused(app, &team, project).await;
    viewer.finish().await;
    // The link is used up, and the member is there.
    owner.open(&link).await;
    owner.see("This invitation has ended").await;
    owner.open(&format!("/panel/team?team={team}")).await;
    owner.see(EMAIL).await;
}

async fn make_team(owner: &Browser) -> String {
    owner.open("/panel/projects").await;
    owner.click("Team").await;
    owner.click("New team").await;
    owner.fill("name", TEAM).await;
    owner.click("Create team").await;
    owner.arrive("/panel/team").await;
    owner.see(TEAM).await;
    let path = owner.path().await;
    let (_, team) = path.split_once("team=").expect("a page of the team");
    team.to_owned()
}

async fn move_project(owner: &Browser, project: &str) {
    owner
        .open(&format!("/panel/projects/{project}/settings"))
        .await;
    owner.click("Move").await;
    owner.see(TEAM).await;
    owner.click("Move project").await;
    owner.see("belongs to the team now").await;
}

/// Where the invitation leads.
async fn invite(owner: &Browser, team: &str) -> String {
    owner.open(&format!("/panel/team?team={team}")).await;
    owner.click("Invite").await;
    owner.fill("email", EMAIL).await;
    // A viewer unless another role is chosen.
    owner.click("Make a link").await;
    owner.see("shown once").await;
    let link = owner.text_of("#link").await;
    let (_, path) = link.split_once("/panel/").expect("a link to the panel");
    format!("/panel/{path}")
}

async fn join(viewer: &Browser, link: &str, project: &str) {
    viewer.open(link).await;
    viewer.see(&format!("Join {TEAM}")).await;
    viewer.see("You are invited as viewer").await;
    viewer.fill("name", "Grace Hopper").await;
    viewer.fill("password", PASSWORD).await;
    viewer.fill("repeated", PASSWORD).await;
    viewer.click("Create account and join").await;
    viewer.arrive("/panel/projects").await;
    viewer.see(project).await;
}

/// Every page of the project and of the team's keys shows itself, and nothing that changes anything.
async fn see_no_changes(viewer: &Browser, team: &str, project: &str) {
    let tabs = [
        "",
        "/releases",
        "/logs",
        "/environment",
        "/domains",
        "/disks",
        "/settings",
    ];
    let mut pages = tabs
        .map(|tab| (format!("/panel/projects/{project}{tab}"), project))
        .to_vec();
    pages.push(("/panel/projects".to_owned(), project));
    pages.push(("/panel/keys".to_owned(), "Keys"));
    pages.push(("/panel/workspaces".to_owned(), "Workspaces"));
    for (page, text) in pages {
        viewer.open(&format!("{page}?team={team}")).await;
        viewer.see(text).await;
        assert!(
            !viewer.has(CHANGES).await,
            "{page} lets a viewer change something"
        );
    }
    // Where the settings' forms are, and they have them for others.
    viewer
        .open(&format!("/panel/projects/{project}/deploy?team={team}"))
        .await;
    viewer.see("You may not do this").await;
    viewer
        .take_activity()
        .await
        .assert_clean("a viewer's pages");
}

/// What no page offers is refused, too.
async fn be_refused(app: &TestApp, team: &str, project: &str) {
    let mut grace = app.panel();
    grace.sign_in(EMAIL, PASSWORD).await;
    let at = |path: &str| format!("/panel/projects/{project}{path}?team={team}");
    grace.get(&at("")).await.assert(200);
    let review = [("change", "set"), ("key", "GREETING"), ("value", "hello")];
    for (path, form) in [
        (at("/settings/scale"), &[("scale", "0")][..]),
        (at("/delete"), &[("name", project)]),
        (at("/environment/review"), &review),
        (at("/domains"), &[("host", "www.example.com")]),
        (
            format!("/panel/team/invite?team={team}"),
            &[("email", "eve@example.com"), ("role", "owner")],
        ),
        (
            format!("/panel/keys/new?team={team}"),
            &[("name", "ci-bot"), ("more_workspaces", "main")],
        ),
    ] {
        let refused = grace.post(&path, form).await;
        assert_eq!(refused.status(), 403, "{path}: {}", refused.text());
    }
}
