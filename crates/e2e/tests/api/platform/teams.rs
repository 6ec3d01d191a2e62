//! `/v2/teams`, and `teamID` on both APIs

use crate::support::{assert_id, column, fields, new_key, new_project};
use estrade_testkit::{Api, Setup, TestApp, User, on_both_backends};
use serde_json::json;
use std::time::Duration;

on_both_backends! {
    teams_and_their_members;
    an_invitation_lets_one_address_in_once;
    the_token_of_an_invitation_is_not_in_the_url;
    teams_and_invitations_have_a_quota with few_teams;
    the_last_owner_stays;
    a_team_that_owns_something_stays;
    the_team_is_named_by_query_or_header;
    a_team_that_is_not_yours_looks_like_one_that_does_not_exist;
    things_of_a_team_are_not_things_of_its_members;
}

async fn teams_and_their_members(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let none = ada.get("/v2/teams").await.assert(200).json();
    assert_eq!(none, json!({"totalTeams": 0, "teams": []}));
    let made = ada
        .post("/v2/teams", &json!({"name": "The Größe Team"}))
        .await
        .assert(200)
        .json();
    assert_eq!(fields(&made), ["_id", "name"]);
    assert_id(&made["_id"]);
    let team = made["_id"].as_str().unwrap();
    let list = ada.get("/v2/teams").await.assert(200).json();
    assert_eq!(list, json!({"totalTeams": 1, "teams": [made]}));
    app.join(team, &ada, &bob, "developer").await;
    let path = format!("/v2/teams/{team}/members");
    let members = bob.get(&path).await.assert(200).json();
    assert_eq!(
        column(&members["members"], "email"),
        ["ada@example.com", "bob@example.com"]
    );
    assert_eq!(column(&members["members"], "role"), ["owner", "developer"]);
    assert_eq!(
        column(&members["members"], "_id"),
        [ada.account.clone(), bob.account.clone()]
    );
    let page = ada.get(&format!("{path}?page=2&count=1")).await.json();
    assert_eq!(column(&page["members"], "fullname"), ["bob of Example"]);

    let role = format!("{path}/{}/role", bob.account);
    ada.post(&role, &json!({"role": "admin"}))
        .await
        .assert_empty(200);
    let members = ada.get(&path).await.json();
    assert_eq!(members["members"][1]["role"], "admin");
    ada.post(&role, &json!({"role": "king"}))
        .await
        .refused(400, "invalid")
        .naming("role");
    bob.delete(&format!("{path}/{}", bob.account))
        .await
        .assert_empty(200);
    bob.get(&path).await.refused(404, "not_found");
    ada.delete(&format!("{path}/{}", bob.account))
        .await
        .refused(404, "not_found");
    ada.delete(&format!("/v2/teams/{team}"))
        .await
        .assert_empty(200);
    ada.delete(&format!("/v2/teams/{team}"))
        .await
        .refused(404, "not_found");
    for bad in [
        json!({}),
        json!({"name": ""}),
        json!({"name": "x".repeat(101)}),
        json!({"name": "a\nb"}),
    ] {
        ada.post("/v2/teams", &bad)
            .await
            .refused(400, "invalid")
            .naming("name");
    }
}

async fn an_invitation_lets_one_address_in_once(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let eve = app.new_account("eve").await;
    let team = app.new_team(&ada, "Shop").await;
    let path = format!("/v2/teams/{team}/invitations");
    let invite = json!({"email": "BOB@example.com", "role": "viewer"});
    let link = async || {
        let invited = ada.post(&path, &invite).await.assert(200);
        assert_eq!(fields(&invited.json()), ["link"]);
        let link = invited.field("/link");
        let (_, token) = link.split_once("?token=").unwrap();
        format!("/v2/teams/invitations/join?token={token}")
    };
    let join = link().await;
    eve.post_empty(&join).await.refused(404, "not_found");
    let joined = bob.post_empty(&join).await.assert(200).json();
    assert_eq!(joined["_id"], team.as_str());
    bob.post_empty(&join).await.refused(404, "not_found");
    bob.post_empty(&link().await)
        .await
        .refused(409, "already_member");
    bob.post_empty("/v2/teams/invitations/join")
        .await
        .refused(400, "invalid");
    bob.post_empty("/v2/teams/invitations/join?token=x")
        .await
        .refused(404, "not_found");
    bob.delete(&format!("/v2/teams/{team}/members/{}", bob.account))
        .await
        .assert(200);
    let late = link().await;
    app.core().clock.advance(Duration::from_hours(7 * 24 + 1));
    bob.post_empty(&late).await.refused(404, "not_found");
    for bad in [
        json!({}),
        json!({"email": "x", "role": "viewer"}),
        json!({"email": "a@b", "role": "x"}),
    ] {
        ada.post(&path, &bad).await.refused(400, "invalid");
    }
}

async fn the_token_of_an_invitation_is_not_in_the_url(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let invite = async |user: &User| {
        let invite = json!({"email": user.email, "role": "viewer"});
        let path = format!("/v2/teams/{team}/invitations");
        let link = ada.post(&path, &invite).await.assert(200).field("/link");
        link.split_once("?token=").unwrap().1.to_owned()
    };
    let join = "/v2/teams/invitations/join";
    let (bob, eve) = (app.new_account("bob").await, app.new_account("eve").await);
    let token = invite(&bob).await;
    // More than one way at once is a mistake.
    bob.post(&format!("{join}?token={token}"), &json!({"token": token}))
        .await
        .refused(400, "invalid")
        .naming("token");
    bob.post(join, &json!({"token": token}))
        .header("x-invitation-token", &token)
        .await
        .refused(400, "invalid");
    bob.post(join, &json!({}))
        .await
        .refused(400, "invalid")
        .naming("token");
    bob.post(join, &json!({"token": token})).await.assert(200);
    let other = invite(&eve).await;
    eve.post_empty(join)
        .header("x-invitation-token", &other)
        .await
        .assert(200);
    // Neither the log nor anything else has them, not even the one that was in a URL.
    assert!(!app.holds(&token).await && !app.holds(&other).await);
}

async fn the_last_owner_stays(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let team = app.new_team(&ada, "Shop").await;
    let member = |id: &str| format!("/v2/teams/{team}/members/{id}");
    ada.delete(&member(&ada.account))
        .await
        .refused(409, "last_owner");
    let demote = format!("{}/role", member(&ada.account));
    ada.post(&demote, &json!({"role": "admin"}))
        .await
        .refused(409, "last_owner");
    app.join(&team, &ada, &bob, "owner").await;
    ada.delete(&member(&ada.account)).await.assert(200);
    bob.delete(&member(&bob.account))
        .await
        .refused(409, "last_owner");
}

async fn a_team_that_owns_something_stays(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let member = ada.in_team(&team);
    let path = format!("/v2/teams/{team}");
    new_project(&member, "shop").await;
    ada.delete(&path).await.refused(409, "team_not_empty");
    member.delete("/v1/projects/shop").await.assert(200);
    let (key, _) = new_key(&member, "ci-bot").await;
    ada.delete(&path).await.refused(409, "team_not_empty");
    member
        .ai()
        .delete(&format!("/v1/keys/{key}"))
        .await
        .assert(204);
    ada.delete(&path).await.assert(200);
}

async fn the_team_is_named_by_query_or_header(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let other = app.new_team(&ada, "Other").await;
    let new = json!({"name": "shop", "platform": "static", "planID": "nano"});
    ada.post(&format!("/v1/projects?teamID={team}"), &new)
        .await
        .assert(200);
    let new = json!({"name": "ci-bot", "workspaces": ["main"]});
    ada.ai()
        .post(&format!("/v1/keys?teamID={team}"), &new)
        .await
        .assert(201);
    for (api, path) in [(Api::Platform, "/v1/projects"), (Api::Ai, "/v1/keys")] {
        let user = ada.on(api);
        let own = user.get(path).await.assert(200).text();
        let name = if api == Api::Ai { "ci-bot" } else { "shop" };
        assert!(!own.contains(name));
        let query = user
            .get(&format!("{path}?teamID={team}"))
            .await
            .assert(200)
            .text();
        assert!(query.contains(name));
        let header = user.in_team(&team).get(path).await.assert(200).text();
        assert_eq!(header, query);
        let both = user
            .in_team(&team)
            .get(&format!("{path}?teamID={team}"))
            .await;
        assert_eq!(both.assert(200).text(), query);
        // Empty means no team.
        assert_eq!(
            user.get(&format!("{path}?teamID="))
                .await
                .assert(200)
                .text(),
            own
        );
        let empty = user.get(path).header("x-teamid", "").await;
        assert_eq!(empty.assert(200).text(), own);
        let one = user
            .get(&format!("{path}?teamID={team}"))
            .header("x-teamid", "")
            .await;
        assert_eq!(one.assert(200).text(), query);
        let different = user
            .in_team(&other)
            .get(&format!("{path}?teamID={team}"))
            .await;
        different.refused(400, "invalid").naming("teamID");
    }
}

async fn a_team_that_is_not_yours_looks_like_one_that_does_not_exist(app: &TestApp) {
    let (ada, eve) = (app.new_account("ada").await, app.new_account("eve").await);
    let team = app.new_team(&ada, "Shop").await;
    for (api, path) in [(Api::Platform, "/v1/projects"), (Api::Ai, "/v1/keys")] {
        let mut messages = Vec::new();
        for named in [
            team.as_str(),
            "0123456789abcdef01234567",
            "nonsense",
            "ADMIN",
        ] {
            for response in [
                eve.on(api).in_team(named).get(path).await,
                eve.on(api).get(&format!("{path}?teamID={named}")).await,
            ] {
                messages.push(response.refused(403, "no_permission").message());
            }
        }
        messages.dedup();
        assert_eq!(messages.len(), 1, "{messages:?}");
    }
    for path in [
        format!("/v2/teams/{team}/members"),
        "/v2/teams/0123456789abcdef01234567/members".into(),
    ] {
        eve.get(&path).await.refused(404, "not_found");
    }
}

async fn things_of_a_team_are_not_things_of_its_members(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let team = app.new_team(&ada, "Shop").await;
    let member = ada.in_team(&team);
    let (own, _) = new_key(&ada, "ci-bot").await;
    // The same name is free in the team.
    let (teams, _) = new_key(&member, "ci-bot").await;
    new_project(&member, "shop").await;
    ada.ai()
        .get(&format!("/v1/keys/{teams}"))
        .await
        .refused(404, "not_found");
    member
        .ai()
        .get(&format!("/v1/keys/{own}"))
        .await
        .refused(404, "not_found");
    ada.get("/v1/projects/shop").await.refused(404, "not_found");
    member.get("/v1/projects/shop").await.assert(200);
}

fn few_teams() -> Setup {
    Setup::with(|setup| setup.settings.quotas.teams = 2)
}

async fn teams_and_invitations_have_a_quota(app: &TestApp) {
    let (ada, bob) = (app.new_account("ada").await, app.new_account("bob").await);
    let first = app.new_team(&ada, "One").await;
    app.new_team(&ada, "Two").await;
    let new = json!({"name": "Three"});
    ada.post("/v2/teams", &new).await.refused(403, "quota");
    // To be in a team of others does not count.
    let theirs = app.new_team(&bob, "Theirs").await;
    app.join(&theirs, &bob, &ada, "admin").await;
    ada.delete(&format!("/v2/teams/{first}")).await.assert(200);
    ada.post("/v2/teams", &new).await.assert(200);

    let path = format!("/v2/teams/{theirs}/invitations");
    let invite = |number: u32| {
        let email = format!("guest{number}@example.com");
        bob.post(&path, &json!({"email": email, "role": "viewer"}))
    };
    for number in 0..500 {
        invite(number).await.assert(200);
    }
    invite(500).await.refused(403, "quota");
    // One for the same address takes the place of the first.
    invite(0).await.assert(200);
    app.core().clock.advance(Duration::from_hours(7 * 24 + 1));
    invite(500).await.assert(200);
}
