//! Providers of models that administrators keep in the database, besides those of the configuration.

use crate::audit::PendingEntry;
use crate::{Caller, Core, Error, Result};
use estrade_model::Invalid;
use estrade_model::audit::Action;
use estrade_model::error::error_chain;
use estrade_model::provider::{
    CreateProvider, FieldRules, OfferedModel, Provider, ProviderId, ProviderInfo, ProviderKey,
    ProviderSettings, UpdateProvider,
};
use estrade_model::secret::Secret;
use estrade_model::serde_rules::Patch;
use estrade_store::providers::{self, ProviderRow};
use estrade_store::{ChangeKind, StoreError, Tx};
use std::sync::Arc;

const PROVIDER: Error = Error::NotFound("the provider");
/// Providers that one query reads.
const CHUNK: u32 = 500;

fn name_taken() -> Error {
    Error::conflict("provider_exists", "a provider with this name exists")
}

/// What a provider's key is sealed for.
fn purpose(id: ProviderId) -> String {
    format!("provider:{id}")
}

fn seal(core: &Core, id: ProviderId, key: &ProviderKey) -> Result<Vec<u8>> {
    core.master.seal(&purpose(id), key.0.expose().as_bytes())
}

/// Validates a provider with the gateway, which knows more of what it can use than the field types tell.
pub type Check<'c> = &'c (dyn Fn(&Provider) -> std::result::Result<(), Invalid> + Sync);

/// Every provider in the database with its key, oldest first: for the catalogue. One whose key does
/// not open is left out, because the others must not go with it.
pub async fn list(core: &Core) -> Result<Vec<Provider>> {
    let (mut all, mut before) = (Vec::new(), None);
    loop {
        let rows = providers::list_providers(&core.db, before, CHUNK, 0).await?;
        before = rows.last().map(|row| row.provider.id);
        let more = rows.len() == CHUNK as usize;
        for row in rows {
            let name = row.provider.name.clone();
            match open(core, row) {
                Ok(provider) => all.push(provider),
                Err(error) => tracing::error!(
                    provider = name.as_str(),
                    error = error_chain(&error),
                    "a provider is left out: its key cannot be opened"
                ),
            }
        }
        if !more {
            all.reverse();
            return Ok(all);
        }
    }
}

fn open(core: &Core, row: ProviderRow) -> Result<Provider> {
    let api_key = match row.sealed_key {
        Some(sealed) => {
            let text = core.master.open(&purpose(row.provider.id), &sealed)?;
            let text = std::str::from_utf8(&text).map_err(Error::internal)?;
            Some(Secret(text.to_owned()))
        }
        None => None,
    };
    Ok(with_key(row.provider, api_key))
}

fn with_key(provider: ProviderInfo, api_key: Option<Secret>) -> Provider {
    let ProviderInfo { name, settings, .. } = provider;
    let models = settings.models.0.into_iter().map(|offer| OfferedModel {
        id: offer.id.into(),
        upstream: offer.upstream.map(Into::into),
        price: offer.price,
        context_length: offer.context_length,
        weight: offer.weight,
    });
    Provider {
        name: name.into(),
        base_url: settings.base_url.into(),
        api_key,
        ca_file: None,
        timeouts: settings.timeouts.into(),
        retries: settings.retries.0,
        stream_usage: settings.stream_usage,
        on_disconnect: settings.on_disconnect,
        fields: FieldRules {
            pass: settings.pass_fields.0,
            strict: settings.strict_fields,
        },
        models: models.collect(),
    }
}

/// Refuses a provider that could be stored but not be used.
fn check_usable(check: Check<'_>, provider: ProviderInfo, key: Option<&ProviderKey>) -> Result<()> {
    let key = key.map(|key| key.0.clone());
    check(&with_key(provider, key)).map_err(|reason| Error::invalid(format!("baseURL: {reason}")))
}

/// A page of providers, newest first, without their keys.
pub async fn list_providers(
    core: &Core,
    caller: &Caller,
    before: Option<ProviderId>,
    count: u32,
    skip: u64,
) -> Result<Vec<ProviderInfo>> {
    caller.require_admin_to_read()?;
    let rows = providers::list_providers(&core.db, before, count, skip).await?;
    Ok(rows.into_iter().map(|row| row.provider).collect())
}

/// One provider and its row version.
pub async fn read_provider(
    core: &Core,
    caller: &Caller,
    id: ProviderId,
) -> Result<(ProviderInfo, i64)> {
    caller.require_admin_to_read()?;
    let row = providers::read_provider(&core.db, id)
        .await?
        .ok_or(PROVIDER)?;
    Ok((row.provider, row.version))
}

/// A provider with its key, for a test of the connection.
pub async fn open_provider(core: &Core, caller: &Caller, id: ProviderId) -> Result<Provider> {
    caller.require_admin_to_read()?;
    let row = providers::read_provider(&core.db, id).await?;
    open(core, row.ok_or(PROVIDER)?)
}

/// Adds a provider; its key is never shown again.
pub async fn create_provider(
    core: &Core,
    caller: &Caller,
    new: CreateProvider,
    check: Check<'_>,
) -> Result<ProviderInfo> {
    let permission = caller.require_admin(core)?;
    let (id, now): (ProviderId, _) = (core.new_id()?, core.now());
    let key = new.api_key.as_ref();
    let row = ProviderRow {
        sealed_key: key.map(|key| seal(core, id, key)).transpose()?,
        provider: ProviderInfo {
            id,
            name: new.name,
            has_key: key.is_some(),
            created_at: now,
            settings: ProviderSettings {
                base_url: new.base_url,
                timeouts: new.timeouts,
                retries: new.retries,
                stream_usage: new.stream_usage,
                on_disconnect: new.on_disconnect,
                pass_fields: new.pass_fields,
                strict_fields: new.strict_fields,
                models: new.models,
            },
        },
        version: 1,
    };
    let made = row.provider.clone();
    check_usable(check, made.clone(), key)?;
    let note = PendingEntry::of(
        core,
        caller,
        caller.account.cast(),
        Action::CreateProvider,
        id,
    )?;
    let job = Arc::new((row, note.about(made.name.as_str())));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (row, note) = &*job;
                if !providers::insert_provider(tx, row).await? {
                    return Err(name_taken());
                }
                note.write(tx).await?;
                Ok(tx.changed(ChangeKind::Provider, id, now).await?)
            })
        })
        .await?;
    Ok(made)
}

/// Changes a provider; in force for the next call.
pub async fn update_provider(
    core: &Core,
    caller: &Caller,
    id: ProviderId,
    update: UpdateProvider,
    if_match: Option<Vec<i64>>,
    check: Check<'_>,
) -> Result<ProviderInfo> {
    let permission = caller.require_admin(core)?;
    let now = core.now();
    if update.base_url.is_some() {
        // What else it has was checked before; this does not depend on it.
        let mut row = providers::read_provider(&core.db, id)
            .await?
            .ok_or(PROVIDER)?;
        apply(&mut row, &update, &Patch::Keep);
        check_usable(check, row.provider, None)?;
    }
    let sealed = match &update.api_key {
        Patch::Set(key) => Patch::Set(seal(core, id, key)?),
        Patch::Clear => Patch::Clear,
        Patch::Keep => Patch::Keep,
    };
    let note = PendingEntry::of(
        core,
        caller,
        caller.account.cast(),
        Action::UpdateProvider,
        id,
    )?;
    let job = Arc::new((update, sealed, if_match, note));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (update, sealed, if_match, note) = &*job;
                let mut row = find(tx, id, if_match.as_deref()).await?;
                let fields = apply(&mut row, update, sealed);
                match providers::update_provider(tx, &row).await {
                    Err(StoreError::Duplicate) => return Err(name_taken()),
                    other => other?,
                }
                let note = note.clone().about(row.provider.name.as_str());
                note.fields(&fields).write(tx).await?;
                tx.changed(ChangeKind::Provider, id, now).await?;
                Ok(row.provider)
            })
        })
        .await
}

/// Changes a row; returns the names of the fields that were sent.
fn apply(
    row: &mut ProviderRow,
    update: &UpdateProvider,
    sealed: &Patch<Vec<u8>>,
) -> Vec<&'static str> {
    fn set<T: Clone>(name: &'static str, to: &mut T, from: Option<&T>) -> Option<&'static str> {
        from.cloned().map(|value| {
            *to = value;
            name
        })
    }
    let settings = &mut row.provider.settings;
    let mut fields: Vec<_> = [
        set("name", &mut row.provider.name, update.name.as_ref()),
        set("baseURL", &mut settings.base_url, update.base_url.as_ref()),
        set("timeouts", &mut settings.timeouts, update.timeouts.as_ref()),
        set("retries", &mut settings.retries, update.retries.as_ref()),
        set(
            "streamUsage",
            &mut settings.stream_usage,
            update.stream_usage.as_ref(),
        ),
        set(
            "onDisconnect",
            &mut settings.on_disconnect,
            update.on_disconnect.as_ref(),
        ),
        set(
            "passFields",
            &mut settings.pass_fields,
            update.pass_fields.as_ref(),
        ),
        set(
            "strictFields",
            &mut settings.strict_fields,
            update.strict_fields.as_ref(),
        ),
        set("models", &mut settings.models, update.models.as_ref()),
    ]
    .into_iter()
    .flatten()
    .collect();
    if *sealed != Patch::Keep {
        fields.push("apiKey");
        row.sealed_key = sealed.clone().apply(row.sealed_key.take());
        row.provider.has_key = row.sealed_key.is_some();
    }
    fields
}

async fn find(tx: &mut Tx, id: ProviderId, if_match: Option<&[i64]>) -> Result<ProviderRow> {
    let row = providers::provider_for_update(tx, id)
        .await?
        .ok_or(PROVIDER)?;
    if if_match.is_some_and(|versions| !versions.contains(&row.version)) {
        return Err(Error::PreconditionFailed);
    }
    Ok(row)
}

/// Removes a provider; calls that are under way go on.
pub async fn delete_provider(
    core: &Core,
    caller: &Caller,
    id: ProviderId,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    let permission = caller.require_admin(core)?;
    let now = core.now();
    let note = PendingEntry::of(
        core,
        caller,
        caller.account.cast(),
        Action::DeleteProvider,
        id,
    )?;
    let job = Arc::new((note, if_match));
    permission
        .transact(core, move |tx| {
            let job = Arc::clone(&job);
            Box::pin(async move {
                let (note, if_match) = &*job;
                let row = find(tx, id, if_match.as_deref()).await?;
                providers::delete_provider(tx, id).await?;
                note.clone()
                    .about(row.provider.name.as_str())
                    .write(tx)
                    .await?;
                Ok(tx.changed(ChangeKind::Provider, id, now).await?)
            })
        })
        .await
}
