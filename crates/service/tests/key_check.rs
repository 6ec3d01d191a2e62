//! Which keys are let in: after a rotation, after their owner was locked out.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::key::{Grace, Key};
use estrade_service::access::{Scope, scope_of};
use estrade_service::key_check::{KeyCheck, Refusal};
use estrade_service::{Caller, accounts, keys};
use serde_json::{from_value, json};
use support::{Installation, on_both_engines};

on_both_engines! {
    a_key_ends_with_its_owner
    a_rotation_without_grace_ends_every_older_secret
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
