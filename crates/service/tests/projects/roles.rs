//! A role counts when something is written, not when the request began.

use crate::acting::{code, deploy, named, new_project, try_deploy};
use crate::support::{Installation, on_both_backends};
use estrade_model::TeamId;
use estrade_model::team::{CreateTeam, Invite, Role};
use estrade_service::identity::access::scope_of;
use estrade_service::identity::invitations::{create_invitation, join_team};
use estrade_service::identity::members::{delete_member, set_role};
use estrade_service::platform::releases::{
    begin_content, cancel_release, create_source, keep_upload, rollback_release,
};
use estrade_service::{
    Caller, Core, Scope, ai::keys, ai::providers, ai::workspaces, identity::teams, platform::disks,
    platform::domains, platform::envs, platform::networks, platform::projects,
};
use estrade_store::accounts as account_rows;
use serde_json::{Value, from_value, json};
use std::sync::Arc;

on_both_backends! {
    who_was_demoted_or_removed_since_writes_nothing
    an_upload_that_outlives_its_role_is_refused
    an_invitation_does_not_outrun_the_demotion_of_who_made_it
    two_who_demote_each_other_do_not_both_succeed
    an_administrator_who_was_disabled_since_writes_nothing
}

async fn join(at: &Installation, owner: &Caller, team: TeamId, who: &Caller, role: Role) {
    let link = invite(&at.core, owner, team, who, role).await.unwrap();
    join_team(&at.core, who, &link).await.unwrap();
}

async fn invite(
    core: &Core,
    by: &Caller,
    team: TeamId,
    who: &Caller,
    role: Role,
) -> estrade_service::Result<String> {
    let invite = Invite {
        email: who.email.parse().unwrap(),
        role,
    };
    let link = create_invitation(core, by, team, invite)
        .await?
        .link
        .unwrap();
    Ok(link.expose().split_once("?token=").unwrap().1.to_owned())
}

async fn new_team(at: &Installation, owner: &Caller) -> TeamId {
    let new = CreateTeam {
        name: "The Analysts".parse().unwrap(),
    };
    teams::create_team(&at.core, owner, new).await.unwrap().id
}

fn body<T: serde::de::DeserializeOwned>(value: Value) -> T {
    from_value(value).unwrap()
}

/// Everything that a member can write, with a scope that was read before: (what, answer).
async fn write_all(core: &Arc<Core>, scope: &Scope) -> Vec<(&'static str, &'static str)> {
    let key = body(json!({"name": "late", "workspaces": ["late"]}));
    let kept = keys::list_keys(core, scope, None, 1, 0).await.unwrap()[0].id;
    let rename = body(json!({"name": "renamed"}));
    let grace = body(json!(0));
    let space = workspaces::list_workspaces(core, scope, None, 1, 0).await;
    let space = space.unwrap()[0].id;
    let domain = body(json!({"name": "late.example.com", "project": "shop"}));
    let disk = body(json!({"name": "late", "size": 1}));
    let variables = vec![body(json!({"key": "LATE", "value": "1"}))];
    let release = deployed(core, scope).await;
    vec![
        (
            "project",
            code(projects::create_project(core, scope, new_project("late")).await),
        ),
        (
            "scale",
            code(projects::scale_project(core, scope, "shop", 0).await),
        ),
        (
            "resize",
            code(projects::resize_project(core, scope, "shop", "nano").await),
        ),
        (
            "restart",
            code(projects::restart_project(core, scope, "shop").await),
        ),
        (
            "envs",
            code(envs::update_envs(core, scope, "shop", variables).await),
        ),
        (
            "disk",
            code(disks::create_disk(core, scope, "shop", disk).await),
        ),
        (
            "delete disk",
            code(disks::delete_disk(core, scope, "shop", "data").await),
        ),
        (
            "domain",
            code(domains::create_domain(core, scope, domain).await),
        ),
        (
            "network",
            code(networks::create_network(core, scope, body(json!("late"))).await),
        ),
        ("key", code(keys::create_key(core, scope, key).await)),
        (
            "update key",
            code(keys::update_key(core, scope, kept, rename, None).await),
        ),
        (
            "rotate key",
            code(keys::rotate_key(core, scope, kept, grace).await),
        ),
        (
            "delete key",
            code(keys::delete_key(core, scope, kept, None).await),
        ),
        (
            "workspace",
            code(workspaces::create_workspace(core, scope, body(json!("late"))).await),
        ),
        (
            "update workspace",
            code(
                workspaces::update_workspace(core, scope, space, body(json!({"rpm": 1})), None)
                    .await,
            ),
        ),
        (
            "delete workspace",
            code(workspaces::delete_workspace(core, scope, space, None).await),
        ),
        ("cancel", code(cancel_release(core, scope, release).await)),
        (
            "roll back",
            code(rollback_release(core, scope, release).await),
        ),
        (
            "release",
            code(try_deploy(core, scope, "shop", named(&[("index.html", b"late")])).await),
        ),
        (
            "delete project",
            code(projects::delete_project(core, scope, "shop", None).await),
        ),
    ]
}

async fn deployed(core: &Core, scope: &Scope) -> estrade_model::ReleaseId {
    let all =
        estrade_service::platform::releases::list_releases(core, scope, "shop", None, 1, 0).await;
    all.unwrap()[0].id
}

async fn who_was_demoted_or_removed_since_writes_nothing(at: &Installation) {
    let (core, owner) = (&at.core, at.person("owner").await);
    let team = new_team(at, &owner).await;
    let own = scope_of(core, owner.clone(), Some(team)).await.unwrap();
    projects::create_project(core, &own, new_project("shop"))
        .await
        .unwrap();
    deploy(core, &own, "shop", &[("index.html", b"1")]).await;
    let key = body(json!({"name": "ci-bot", "workspaces": ["main"]}));
    keys::create_key(core, &own, key).await.unwrap();

    for removed in [false, true] {
        let admin = at.person(&format!("admin-{removed}")).await;
        join(at, &owner, team, &admin, Role::Admin).await;
        let stale = scope_of(core, admin.clone(), Some(team)).await.unwrap();
        if removed {
            delete_member(core, &owner, team, admin.account)
                .await
                .unwrap();
        } else {
            set_role(core, &owner, team, admin.account, Role::Viewer)
                .await
                .unwrap();
        }
        for (what, answer) in write_all(core, &stale).await {
            assert_eq!(answer, "no_permission", "{what}, removed: {removed}");
        }
    }
    // Nothing of it stayed.
    let project = projects::read_project(core, &own, "shop").await.unwrap().0;
    assert!(project.envs.is_empty());
    let keys = keys::list_keys(core, &own, None, 9, 0).await.unwrap();
    assert_eq!((keys.len(), keys[0].name.as_str()), (1, "ci-bot"));
    let networks = networks::list_networks(core, &own, None, 9, 0).await;
    assert_eq!(networks.unwrap().len(), 1);
}

async fn an_upload_that_outlives_its_role_is_refused(at: &Installation) {
    let (core, owner, dev) = (&at.core, at.person("owner").await, at.person("dev").await);
    let team = new_team(at, &owner).await;
    join(at, &owner, team, &dev, Role::Developer).await;
    let scope = scope_of(core, dev.clone(), Some(team)).await.unwrap();
    projects::create_project(core, &scope, new_project("shop"))
        .await
        .unwrap();
    let content = begin_content(core, &scope, "shop").await.unwrap();
    let archive = begin_content(core, &scope, "shop").await.unwrap();
    set_role(core, &owner, team, dev.account, Role::Viewer)
        .await
        .unwrap();

    let content = content.write(b"late").await.unwrap().end().await.unwrap();
    let digest = content.digest();
    assert_eq!(
        code(keep_upload(core, &scope, content, digest).await),
        "no_permission"
    );
    // The first bytes of a gzip stream.
    let archive = archive.write(&[0x1f, 0x8b, 8, 0]).await.unwrap();
    let archive = archive.end().await.unwrap();
    assert_eq!(
        code(create_source(core, &scope, archive).await),
        "no_permission"
    );
}

async fn an_invitation_does_not_outrun_the_demotion_of_who_made_it(at: &Installation) {
    let (owner, friend) = (at.person("owner").await, at.person("friend").await);
    let team = new_team(at, &owner).await;
    let admin = at.person("admin").await;
    join(at, &owner, team, &admin, Role::Admin).await;
    for _ in 0..20 {
        let (link, demoted) = tokio::join!(
            invite(&at.core, &admin, team, &friend, Role::Admin),
            set_role(&at.core, &owner, team, admin.account, Role::Viewer),
        );
        demoted.unwrap();
        // Either it came first, and ended with the role of who made it, or it was refused.
        if let Ok(link) = link {
            let joined = join_team(&at.core, &friend, &link).await;
            assert_eq!(code(joined), "not_found");
        }
        set_role(&at.core, &owner, team, admin.account, Role::Admin)
            .await
            .unwrap();
    }
}

async fn two_who_demote_each_other_do_not_both_succeed(at: &Installation) {
    let owner = at.person("owner").await;
    let team = new_team(at, &owner).await;
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    join(at, &owner, team, &ada, Role::Admin).await;
    join(at, &owner, team, &bob, Role::Admin).await;
    for _ in 0..5 {
        let (first, second) = tokio::join!(
            set_role(&at.core, &ada, team, bob.account, Role::Viewer),
            set_role(&at.core, &bob, team, ada.account, Role::Viewer),
        );
        let mut codes = [code(first), code(second)];
        codes.sort_unstable();
        assert_eq!(codes, ["no_permission", "ok"]);
        for person in [&ada, &bob] {
            set_role(&at.core, &owner, team, person.account, Role::Admin)
                .await
                .unwrap();
        }
    }
}

async fn an_administrator_who_was_disabled_since_writes_nothing(at: &Installation) {
    let core = &at.core;
    let root = account_rows::account_by_email(&core.db, "admin@localhost").await;
    let root = root.unwrap().unwrap();
    let caller = Caller {
        account: root.id,
        admin: true,
        ..at.person("ada").await
    };
    let new = || {
        let provider = json!({"name": "local", "baseURL": "http://127.0.0.1:9/v1", "models": []});
        body(provider)
    };
    let create = async || providers::create_provider(core, &caller, new(), &|_| Ok(())).await;
    let email = root.email.parse().unwrap();
    estrade_service::identity::accounts::disable_account(core, &email)
        .await
        .unwrap();
    assert_eq!(code(create().await), "no_permission");
}
