//! AI keys: made, listed, changed, rotated, deleted. Checking them is in [`crate::ai::key_check`].

use crate::ai::workspaces::Resolver;
use crate::audit::PendingEntry;
use crate::identity::access::Operation;
use crate::keyring::Audience;
use crate::{Core, Error, Result, Scope};
use estrade_model::audit::Action;
use estrade_model::key::{CreateKey, CreatedBy, Grace, Key, KeyLimits, RotatedKey, UpdateKey};
use estrade_model::team::Role;
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_store::keys::{self, KeyRow, NewKey};
use estrade_store::quotas::{self, Counted};
use estrade_store::{ChangeKind, StoreError, Tx};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

pub use estrade_store::keys::KeySearch;

const KEY: Error = Error::NotFound("the key");

fn name_taken() -> Error {
    Error::conflict("key_exists", "a key with this name exists")
}

/// Creates a key; its JWT is in the response and not stored.
pub async fn create_key(core: &Core, scope: &Scope, new: CreateKey) -> Result<Key> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (now, owner) = (core.now(), permission.owner());
    let limits = new.limits(KeyLimits::default());
    if limits.expires_at.is_some_and(|at| at <= now) {
        return Err(Error::invalid("expiresAt: must be in the future"));
    }
    let id: KeyId = core.new_id()?;
    let signed = core
        .keyring
        .load()
        .sign(Audience::Inference, id, now, limits.expires_at)?;
    let resolver = Resolver::new(core, scope, Some(&new.workspaces))?;
    let most = core.settings.quotas.keys;
    let row = NewKey {
        id,
        owner,
        name: new.name.clone(),
        secret_hash: signed.secret_hash,
        created_by: scope.caller.account,
        created_at: now,
        cache: new.cache.unwrap_or_default(),
        limits: limits.clone(),
    };
    let (name, cache) = (new.name.clone(), row.cache);
    let note = PendingEntry::creation(scope, Action::CreateKey, id, now).about(name.as_str());
    let job = Arc::new((row, new.workspaces, resolver, note));
    let workspaces = permission
        .transact_interleaved(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (row, names, resolver, note) = &*job;
                let workspaces = resolver.resolve(tx, names).await?;
                let statements = [
                    quotas::counting_up(owner, Counted::Keys, most),
                    keys::inserting_key(row)?,
                    keys::inserting_workspaces(row.id, &workspaces),
                    note.inserting(),
                ];
                let counts = tx.execute_together(&statements).await?;
                let (counted, inserted) = (counts.first(), counts.get(1));
                if counted.is_none_or(|rows| *rows == 0) {
                    return Err(Error::Quota {
                        what: "keys",
                        limit: most,
                    });
                }
                if inserted.is_none_or(|rows| *rows == 0) {
                    return Err(name_taken());
                }
                Ok(workspaces)
            })
        })
        .await?;
    Ok(Key {
        id,
        name,
        enabled: true,
        workspaces,
        key: Some(signed.token),
        created_by: CreatedBy {
            fullname: scope.caller.fullname.clone(),
        },
        created_at: now,
        last_used_at: None,
        cache,
        limits,
    })
}

/// A page of the owner's keys, newest first.
pub async fn list_keys(
    core: &Core,
    scope: &Scope,
    before: Option<KeyId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Key>> {
    Ok(keys::list_keys(
        &core.db,
        scope.read(Operation::ReadAi)?,
        before,
        count,
        skip,
    )
    .await?)
}

/// A page of the keys of one of the owner's workspaces, newest first.
pub async fn list_keys_of_workspace(
    core: &Core,
    scope: &Scope,
    workspace: WorkspaceId,
    before: Option<KeyId>,
    count: u32,
) -> Result<Vec<Key>> {
    let (db, owner) = (&core.db, scope.read(Operation::ReadAi)?);
    Ok(keys::list_keys_of_workspace(db, owner, workspace, before, count).await?)
}

/// A page of the owner's keys whose names begin with a text, by name.
pub async fn search_keys(core: &Core, scope: &Scope, search: &KeySearch) -> Result<Vec<Key>> {
    let owner = scope.read(Operation::ReadAi)?;
    // No name has one, and PostgreSQL has no text with a zero byte.
    if search.texts().any(|text| text.contains(char::is_control)) {
        return Ok(Vec::new());
    }
    Ok(keys::search_keys(&core.db, owner, search).await?)
}

/// The names of those of these keys that the owner has.
pub async fn key_names(
    core: &Core,
    scope: &Scope,
    ids: &[KeyId],
) -> Result<HashMap<KeyId, String>> {
    Ok(keys::key_names(&core.db, scope.read(Operation::ReadAi)?, ids).await?)
}

/// One key and its row version.
pub async fn read_key(core: &Core, scope: &Scope, id: KeyId) -> Result<(Key, i64)> {
    let owner = scope.read(Operation::ReadAi)?;
    let row = keys::read_key(&core.db, owner, id).await?.ok_or(KEY)?;
    Ok((row.key, row.version))
}

/// Changes a key; in force for the next request on this node.
pub async fn update_key(
    core: &Core,
    scope: &Scope,
    id: KeyId,
    update: UpdateKey,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (now, owner) = (core.now(), permission.owner());
    let resolver = Resolver::new(core, scope, update.workspaces.as_ref())?;
    let note = PendingEntry::new(core, scope, Action::UpdateKey, id)?;
    let job = Arc::new((update, resolver, if_match, note));
    permission
        .transact_in_group(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (update, resolver, if_match, note) = &*job;
                let mut row = find(tx, owner, id, if_match.as_deref()).await?;
                let before = row.key.clone();
                apply(&mut row, update)?;
                match keys::update_key(tx, &row).await {
                    Err(StoreError::Duplicate) => return Err(name_taken()),
                    other => other?,
                }
                if let Some(names) = &update.workspaces {
                    let workspaces = resolver.resolve(tx, names).await.map_err(clash)?;
                    keys::replace_key_workspaces(tx, id, &workspaces).await?;
                }
                noted(note.clone(), &before, &row.key, update)
                    .write(tx)
                    .await?;
                Ok(tx.changed(ChangeKind::Key, id, now).await?)
            })
        })
        .await
}

/// The audit entry of an update; switching a key on or off has an action of its own.
fn noted(note: PendingEntry, before: &Key, after: &Key, update: &UpdateKey) -> PendingEntry {
    let (old, new) = (&before.limits, &after.limits);
    let changes = [
        ("name", before.name != after.name),
        ("enabled", before.enabled != after.enabled),
        ("workspaces", update.workspaces.is_some()),
        ("cache", before.cache != after.cache),
        ("expiresAt", old.expires_at != new.expires_at),
        ("models", old.models != new.models),
        ("rpm", old.rpm != new.rpm),
        ("tpm", old.tpm != new.tpm),
        ("budget", old.budget != new.budget),
    ];
    let fields: Vec<_> = changes
        .into_iter()
        .filter_map(|(name, changed)| changed.then_some(name))
        .collect();
    let action = match (before.enabled, after.enabled) {
        (true, false) => Action::DisableKey,
        (false, true) => Action::EnableKey,
        _ => Action::UpdateKey,
    };
    note.action(action)
        .about(after.name.as_str())
        .fields(&fields)
}

/// An unknown workspace is a bad request when creating, but a clash when updating.
fn clash(error: Error) -> Error {
    match error {
        Error::Invalid { code, message } => Error::Conflict { code, message },
        other => other,
    }
}

fn apply(row: &mut KeyRow, update: &UpdateKey) -> Result<()> {
    if let Some(name) = &update.name {
        row.key.name = name.clone();
    }
    if let Some(enabled) = update.enabled {
        row.key.enabled = enabled;
    }
    if let Some(cache) = update.cache {
        row.key.cache = cache;
    }
    row.key.limits = update.limits(std::mem::take(&mut row.key.limits));
    let end = row
        .key
        .limits
        .expires_at
        .map_or(i64::MAX, Timestamp::millis);
    if row.token_exp.is_some_and(|exp| end > exp.millis()) {
        return Err(Error::invalid(
            "expiresAt: this key's token ends earlier by itself; rotate the key instead",
        ));
    }
    Ok(())
}

async fn find(
    tx: &mut Tx,
    owner: estrade_model::OwnerId,
    id: KeyId,
    if_match: Option<&[i64]>,
) -> Result<KeyRow> {
    let row = keys::key_for_update(tx, owner, id).await?.ok_or(KEY)?;
    if if_match.is_some_and(|versions| !versions.contains(&row.version)) {
        return Err(Error::PreconditionFailed);
    }
    Ok(row)
}

/// Deletes a key and frees its name; in force for the next request on this node.
pub async fn delete_key(
    core: &Core,
    scope: &Scope,
    id: KeyId,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (now, owner) = (core.now(), permission.owner());
    let note = PendingEntry::new(core, scope, Action::DeleteKey, id)?;
    let job = Arc::new((if_match, note));
    permission
        .transact_in_group(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (if_match, note) = &*job;
                let row = find(tx, owner, id, if_match.as_deref()).await?;
                keys::delete_key(tx, owner, id).await?;
                note.clone().about(row.key.name.as_str()).write(tx).await?;
                quotas::count_down(tx, owner, Counted::Keys).await?;
                Ok(tx.changed(ChangeKind::Key, id, now).await?)
            })
        })
        .await
}

/// Gives a key a new secret; the old one stays valid for `grace`, and so do older ones at most.
///
/// So a rotation without grace ends every secret that was ever given out.
pub async fn rotate_key(core: &Core, scope: &Scope, id: KeyId, grace: Grace) -> Result<RotatedKey> {
    let permission = scope.require(Operation::WriteAi, Role::Developer)?;
    let (now, owner) = (core.now(), permission.owner());
    let (before, _) = read_key(core, scope, id).await?;
    let expires_at = before.limits.expires_at;
    let signed = core
        .keyring
        .load()
        .sign(Audience::Inference, id, now, expires_at)?;
    let secret_hash = signed.secret_hash;
    let old_until = now.after(Duration::from_secs(grace.0.into()));
    let note = Arc::new(PendingEntry::new(core, scope, Action::RotateKey, id)?);
    permission
        .transact_in_group(core, move |tx| {
            let note = Arc::clone(&note);
            Box::pin(async move {
                let row = find(tx, owner, id, None).await?;
                if row.key.limits.expires_at != expires_at {
                    let message = "the key was changed at the same moment; repeat the rotation";
                    return Err(Error::conflict("changed", message));
                }
                keys::rotate_key(tx, id, secret_hash, expires_at, old_until).await?;
                let note = PendingEntry::clone(&note).about(row.key.name.as_str());
                note.write(tx).await?;
                Ok(tx.changed(ChangeKind::Key, id, now).await?)
            })
        })
        .await?;
    Ok(RotatedKey {
        id,
        key: Some(signed.token),
    })
}
