//! Which keys are let in: after a rotation, after their owner was locked out.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::auth::{AuthError, WorkspaceSelector};
use estrade_model::key::{Grace, Key};
use estrade_model::team::Role;
use estrade_service::ai::key_check::{KeyCheck, Refusal};
use estrade_service::identity::access::{Scope, scope_of};
use estrade_service::{Caller, Error, ai::keys, ai::workspaces, identity::accounts};
use serde_json::{from_value, json};
use support::{Installation, on_both_backends};

on_both_backends! {
    a_key_ends_with_its_owner
    a_rotation_without_grace_ends_every_older_secret
    a_pass_says_where_a_key_may_call_and_what_it_may_use
    a_key_that_may_not_call_is_told_why
    a_person_calls_with_a_key_under_its_rules
    a_renamed_workspace_is_known_by_its_new_name_at_once
}

async fn scope(at: &Installation, caller: Caller) -> Scope {
    scope_of(&at.core, caller, None).await.unwrap()
}

async fn create(at: &Installation, scope: &Scope) -> Key {
    let new = from_value(json!({ "name": "ci-bot", "workspaces": ["main"] })).unwrap();
    keys::create_key(&at.core, scope, new).await.unwrap()
}

/// Why a key is not let in, if it is not; asked twice, because the second answer may be kept.
async fn refusal(check: &KeyCheck, key: &str) -> Option<Refusal> {
    let first = check.check_key(key, None).await.unwrap().err();
    let second = check.check_key(key, None).await.unwrap().err();
    assert_eq!(first, second);
    first
}

async fn a_key_ends_with_its_owner(at: &Installation) {
    let (ada, bob) = (at.person("ada").await, at.person("bob").await);
    let check = KeyCheck::new(&at.core);
    let mut secrets = Vec::new();
    for caller in [ada, bob] {
        let key = create(at, &scope(at, caller).await).await;
        secrets.push(key.key.unwrap());
    }
    assert_eq!(refusal(&check, secrets[0].expose()).await, None);
    accounts::disable_account(&at.core, &"ada@example.com".parse().unwrap())
        .await
        .unwrap();
    assert_eq!(
        refusal(&check, secrets[0].expose()).await,
        Some(Refusal::Disabled)
    );
    assert_eq!(refusal(&check, secrets[1].expose()).await, None);
}

async fn a_rotation_without_grace_ends_every_older_secret(at: &Installation) {
    let scope = scope(at, at.person("ada").await).await;
    let check = KeyCheck::new(&at.core);
    let key = create(at, &scope).await;
    let first = key.key.unwrap();
    let rotate = async |grace| {
        let rotated = keys::rotate_key(&at.core, &scope, key.id, Grace(grace)).await;
        rotated.unwrap().key.expect("a rotation shows the secret")
    };
    let second = rotate(3600).await;
    assert_eq!(refusal(&check, first.expose()).await, None);
    let third = rotate(0).await;
    for old in [&first, &second] {
        assert_eq!(refusal(&check, old.expose()).await, Some(Refusal::Rotated));
    }
    assert_eq!(refusal(&check, third.expose()).await, None);
}

async fn a_pass_says_where_a_key_may_call_and_what_it_may_use(at: &Installation) {
    let scope = scope(at, at.person("ada").await).await;
    let check = KeyCheck::new(&at.core);
    let new =
        json!({"name": "ci-bot", "workspaces": ["main"], "rpm": 7, "models": ["a"], "cache": true});
    let key = keys::create_key(&at.core, &scope, from_value(new).unwrap()).await;
    let key = key.unwrap();
    let (token, workspace) = (key.key.unwrap(), key.workspaces[0].id);
    let (token, id) = (token.expose(), workspace.to_string());
    assert!(
        check
            .authorize_cached(token, WorkspaceSelector::Only)
            .is_none()
    );
    for place in [
        WorkspaceSelector::Only,
        WorkspaceSelector::Workspace(&id),
        WorkspaceSelector::Workspace("main"),
    ] {
        let pass = check.authorize(token, place).await.unwrap();
        assert_eq!((pass.key.id, pass.workspace.id), (key.id, workspace));
        assert_eq!(pass.key.owner, scope.caller.account.cast());
        assert_eq!(pass.key.rates.rpm.unwrap().get(), 7);
        assert_eq!(pass.key.models.as_deref(), Some(&["a".to_owned()][..]));
        assert!(pass.key.cache && pass.workspace.budget.is_none());
        let warm = check.authorize_cached(token, place).unwrap().unwrap();
        assert_eq!(warm.key.id, pass.key.id);
    }
    // A change is in force for the next request.
    let update = from_value(json!({"budget": {"amount": "1", "period": "daily"}})).unwrap();
    workspaces::update_workspace(&at.core, &scope, workspace, update, None)
        .await
        .unwrap();
    assert!(
        check
            .authorize_cached(token, WorkspaceSelector::Only)
            .is_none()
    );
    let pass = check
        .authorize(token, WorkspaceSelector::Only)
        .await
        .unwrap();
    assert!(pass.workspace.budget.is_some());
}

async fn a_key_that_may_not_call_is_told_why(at: &Installation) {
    let scope = scope(at, at.person("ada").await).await;
    let check = KeyCheck::new(&at.core);
    let new = from_value(json!({"name": "ci-bot", "workspaces": ["main", "other"]})).unwrap();
    let key = keys::create_key(&at.core, &scope, new).await.unwrap();
    let token = key.key.unwrap();
    // Asked twice, because the second answer comes from the caches.
    let denied = async |token: &str, place: WorkspaceSelector<'_>| {
        let first = check.authorize(token, place).await.unwrap_err();
        if let Some(warm) = check.authorize_cached(token, place) {
            assert_eq!(warm.unwrap_err(), first);
        }
        match first {
            AuthError::Unauthorized(code, _) => (401, code),
            AuthError::Forbidden(code, _) => (403, code),
            AuthError::WorkspaceRequired => (400, ""),
            AuthError::Unavailable => (503, ""),
        }
    };
    let (token, main) = (token.expose(), WorkspaceSelector::Workspace("main"));
    assert_eq!(denied(token, WorkspaceSelector::Only).await, (400, ""));
    let foreign = WorkspaceSelector::Workspace("0123456789abcdef01234567");
    assert_eq!(denied(token, foreign).await, (403, "wrong_workspace"));
    assert_eq!(denied("x.y.z", main).await, (401, "unknown"));
    check.authorize(token, main).await.unwrap();
    let off = from_value(json!({"enabled": false})).unwrap();
    keys::update_key(&at.core, &scope, key.id, off, None)
        .await
        .unwrap();
    assert_eq!(denied(token, main).await, (403, "disabled"));
    let on = from_value(json!({"enabled": true})).unwrap();
    keys::update_key(&at.core, &scope, key.id, on, None)
        .await
        .unwrap();
    keys::rotate_key(&at.core, &scope, key.id, Grace(0))
        .await
        .unwrap();
    assert_eq!(denied(token, main).await, (401, "rotated"));
    keys::delete_key(&at.core, &scope, key.id, None)
        .await
        .unwrap();
    assert_eq!(denied(token, main).await, (401, "unknown"));
}

async fn a_person_calls_with_a_key_under_its_rules(at: &Installation) {
    let ada = scope(at, at.person("ada").await).await;
    let bob = scope(at, at.person("bob").await).await;
    let check = KeyCheck::new(&at.core);
    let end = at.core.now().after(std::time::Duration::from_hours(1));
    let new = json!({"name": "ci-bot", "workspaces": ["main"], "rpm": 7, "models": ["a"],
        "budget": {"amount": "1", "period": "total"}, "expiresAt": end});
    let key = keys::create_key(&at.core, &ada, from_value(new).unwrap()).await;
    let key = key.unwrap();
    let workspace = key.workspaces[0].id;
    let auth = check.authorize_person(&ada, key.id, workspace).await;
    let auth = auth.unwrap().unwrap();
    let secret = key.key.unwrap();
    let with_secret = check.authorize(secret.expose(), WorkspaceSelector::Only);
    let with_secret = with_secret.await.unwrap();
    assert_eq!(format!("{auth:?}"), format!("{with_secret:?}"));
    // Others do not find it, and who may only look does not spend.
    let foreign = check.authorize_person(&bob, key.id, workspace).await;
    assert!(matches!(foreign, Err(Error::NotFound(_))));
    let mut viewer = ada.clone();
    viewer.role = Role::Viewer;
    let looking = check.authorize_person(&viewer, key.id, workspace).await;
    assert!(matches!(looking, Err(Error::Forbidden(_))));
    let other: estrade_model::WorkspaceId = "0123456789abcdef01234567".parse().unwrap();
    let refused = check.authorize_person(&ada, key.id, other).await.unwrap();
    assert_eq!(
        refused.unwrap_err(),
        AuthError::from(Refusal::WrongWorkspace)
    );
    // What ends a key ends it for people too, at once.
    let set = async |change| {
        let update = from_value(change).unwrap();
        let updated = keys::update_key(&at.core, &ada, key.id, update, None).await;
        updated.unwrap();
        let refused = check.authorize_person(&ada, key.id, workspace).await;
        refused.unwrap().err()
    };
    let off = set(json!({"enabled": false})).await;
    assert_eq!(off, Some(Refusal::Disabled.into()));
    assert_eq!(set(json!({"enabled": true})).await, None);
    let past = set(json!({"expiresAt": "2020-01-01T00:00:00Z"})).await;
    assert_eq!(past, Some(Refusal::Expired.into()));
    keys::delete_key(&at.core, &ada, key.id, None)
        .await
        .unwrap();
    let gone = check.authorize_person(&ada, key.id, workspace).await;
    assert!(matches!(gone, Err(Error::NotFound(_))));
}

async fn a_renamed_workspace_is_known_by_its_new_name_at_once(at: &Installation) {
    let scope = scope(at, at.person("ada").await).await;
    let check = KeyCheck::new(&at.core);
    let key = create(at, &scope).await;
    let token = key.key.unwrap();
    let workspace = key.workspaces[0].id;
    let known_as = async |name: &str| {
        let selector = WorkspaceSelector::Workspace(name);
        check.authorize(token.expose(), selector).await.is_ok()
    };
    assert!(known_as("main").await && !known_as("core").await);
    let rename = async |name: &str| {
        let update = from_value(json!({ "name": name })).unwrap();
        workspaces::update_workspace(&at.core, &scope, workspace, update, None).await
    };
    assert_eq!(rename("core").await.unwrap().workspace.name, "core");
    assert!(known_as("core").await && !known_as("main").await);
    let other = "other".parse().unwrap();
    workspaces::create_workspace(&at.core, &scope, other)
        .await
        .unwrap();
    assert_eq!(
        rename("other").await.unwrap_err().code(),
        "workspace_exists"
    );
    rename("core").await.unwrap();
}
