//! What lists say while there is nothing in them: the next step, as a button and as a command to copy.

use estrade_testkit::{PanelClient, TestApp, on_both_backends};
use serde_json::json;

on_both_backends! {
    an_empty_list_says_what_to_do_next;
    who_may_change_nothing_is_not_told_to;
}

const PASSWORD: &str = "correct horse battery";

/// Lists without anything in them: what they say, the command, and where their button leads.
const LISTS: [(&str, &str, &str, &str); 9] = [
    (
        "projects/shop",
        "Ready for its first release",
        "estrade deploy --project shop",
        "/panel/projects/shop/deploy",
    ),
    (
        "projects/shop/releases",
        "No release yet",
        "estrade deploy --project shop",
        "/panel/projects/shop/deploy",
    ),
    (
        "projects/shop/environment",
        "No variables yet",
        "estrade env import .env --project shop",
        "#key",
    ),
    (
        "projects/shop/domains",
        "No domain of its own yet",
        "estrade domains add www.example.com --project shop",
        "#host",
    ),
    (
        "projects/shop/disks",
        "No disks yet",
        "estrade disks create media --size 1 --project shop",
        "#name",
    ),
    (
        "keys",
        "No keys yet",
        "estrade keys create ci-bot --workspace main",
        "/panel/keys/new",
    ),
    (
        "workspaces",
        "No workspaces yet",
        "estrade workspaces create support-chat",
        "#f-name",
    ),
    ("calls", "No workspaces yet", "", "/panel/keys"),
    ("usage", "Nothing was used yet", "", "/panel/playground"),
];

/// What a page says in place of a list.
async fn empty_part(panel: &mut PanelClient, path: &str) -> String {
    let page = panel.get(path).await.assert(200).text();
    let (_, part) = page
        .split_once("<div class=\"empty\">")
        .unwrap_or_else(|| panic!("{path}: {page}"));
    part.split("</section>").next().unwrap().to_owned()
}

fn new_project(name: &str) -> serde_json::Value {
    json!({"name": name, "platform": "node", "planID": "micro"})
}

async fn an_empty_list_says_what_to_do_next(app: &TestApp) {
    let ada = app.new_account_with("ada", PASSWORD).await;
    let mut panel = app.panel();
    panel.sign_in(&ada.email, PASSWORD).await;
    let part = empty_part(&mut panel, "/panel/projects").await;
    assert!(part.contains("<code>estrade deploy</code>"), "{part}");
    let tokens = panel.get("/panel/tokens").await.assert(200).text();
    assert!(tokens.contains("/panel/tokens/new"), "{tokens}");
    let part = empty_part(&mut panel, "/panel/team").await;
    assert!(
        part.contains("<code>estrade teams create NAME</code>"),
        "{part}"
    );

    ada.post("/v1/projects", &new_project("shop"))
        .await
        .assert(200);
    let team = app.new_team(&ada, "Crew").await;
    for scope in [None, Some(&team)] {
        if let Some(team) = scope {
            let name = "crew-shop";
            ada.in_team(team)
                .post("/v1/projects", &new_project(name))
                .await
                .assert(200);
        }
        for (list, says, command, button) in LISTS {
            let (of_team, crew) = match scope {
                Some(team) => (format!("?team={team}"), "crew-shop"),
                None => (String::new(), "shop"),
            };
            let own = |text: &str| text.replace("shop", crew);
            let part = empty_part(&mut panel, &format!("/panel/{}{of_team}", own(list))).await;
            assert!(part.contains(says), "{list}: {part}");
            let command = match scope {
                Some(team) => format!("<code>{} --team {team}</code>", own(command)),
                None => format!("<code>{command}</code>"),
            };
            assert!(
                part.contains(&command) || !command.contains("estrade"),
                "{list}: {part}"
            );
            let href = if button.starts_with('#') {
                button.to_owned()
            } else {
                format!("{}{of_team}", own(button))
            };
            assert!(part.contains(&format!("href=\"{href}\"")), "{list}: {part}");
        }
    }
    // The page that deploys names the team, too.
    let path = format!("/panel/projects/crew-shop/deploy?team={team}");
    let page = panel.get(&path).await.assert(200).text();
    let command = format!("estrade deploy --project crew-shop --team {team}<");
    assert!(page.contains(&command), "{page}");
}

async fn who_may_change_nothing_is_not_told_to(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let eve = app.new_account_with("eve", PASSWORD).await;
    let team = app.new_team(&ada, "Crew").await;
    app.join(&team, &ada, &eve, "viewer").await;
    ada.in_team(&team)
        .post("/v1/projects", &new_project("shop"))
        .await
        .assert(200);
    let mut panel = app.panel();
    panel.sign_in(&eve.email, PASSWORD).await;
    for (list, ..) in LISTS {
        let part = empty_part(&mut panel, &format!("/panel/{list}?team={team}")).await;
        assert!(
            !part.contains("<code>estrade") && !part.contains("<a "),
            "{list}: {part}"
        );
    }
}
