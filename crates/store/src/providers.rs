//! Providers of models that are kept in the database. Their keys are sealed before they come here.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::provider::{ProviderId, ProviderInfo, ProviderSettings};

/// A provider as stored.
#[derive(Debug, Clone)]
pub struct ProviderRow {
    /// What the wire shows.
    pub provider: ProviderInfo,
    /// Its key, sealed.
    pub sealed_key: Option<Vec<u8>>,
    /// Rises with every change.
    pub version: i64,
}

impl Record for ProviderRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let id = row.take()?;
        let name = row.take::<String>()?.try_into().map_err(StoreError::bug)?;
        let settings: ProviderSettings =
            serde_json::from_str(&row.take::<String>()?).map_err(StoreError::bug)?;
        let sealed_key: Option<Vec<u8>> = row.take()?;
        let created_at = row.take()?;
        Ok(Self {
            provider: ProviderInfo {
                id,
                name,
                has_key: sealed_key.is_some(),
                created_at,
                settings,
            },
            sealed_key,
            version: row.take()?,
        })
    }
}

/// Adds a provider; false when there is one of that name.
pub async fn insert_provider(tx: &mut Tx, row: &ProviderRow) -> Result<bool, StoreError> {
    let added = tx
        .query(
            "INSERT INTO providers (id, name, settings, sealed_key, created_at, version)
             VALUES ($1, $2, $3, $4, $5, 1) ON CONFLICT (name) DO NOTHING",
        )
        .bind(row.provider.id)
        .bind(row.provider.name.as_str())
        .bind(settings(row)?)
        .bind(row.sealed_key.clone())
        .bind(row.provider.created_at)
        .execute()
        .await?;
    Ok(added > 0)
}

fn settings(row: &ProviderRow) -> Result<String, StoreError> {
    serde_json::to_string(&row.provider.settings).map_err(StoreError::bug)
}

/// A provider, inside a transaction that may change it.
pub async fn provider_for_update(
    tx: &mut Tx,
    id: ProviderId,
) -> Result<Option<ProviderRow>, StoreError> {
    tx.query(
        "SELECT id, name, settings, sealed_key, created_at, version FROM providers WHERE id = $1",
    )
    .bind(id)
    .fetch_optional()
    .await
}

pub async fn read_provider(db: &Db, id: ProviderId) -> Result<Option<ProviderRow>, StoreError> {
    db.read(
        "SELECT id, name, settings, sealed_key, created_at, version FROM providers WHERE id = $1",
    )
    .bind(id)
    .fetch_optional()
    .await
}

/// A page of providers, newest first.
pub async fn list_providers(
    db: &Db,
    before: Option<ProviderId>,
    count: u32,
    skip: u64,
) -> Result<Vec<ProviderRow>, StoreError> {
    db.read(
        "SELECT id, name, settings, sealed_key, created_at, version FROM providers
         WHERE id < $1 ORDER BY id DESC LIMIT $2 OFFSET $3",
    )
    .bind_page(before, count, skip)
    .fetch_all()
    .await
}

/// Writes back a provider; [`StoreError::Duplicate`] when its new name is taken.
pub async fn update_provider(tx: &mut Tx, row: &ProviderRow) -> Result<(), StoreError> {
    tx.query(
        "UPDATE providers SET name = $2, settings = $3, sealed_key = $4, version = version + 1 WHERE id = $1",
    )
    .bind(row.provider.id)
    .bind(row.provider.name.as_str())
    .bind(settings(row)?)
    .bind(row.sealed_key.clone())
    .execute()
    .await
    .map(drop)
}

/// Removes a provider.
pub async fn delete_provider(tx: &mut Tx, id: ProviderId) -> Result<(), StoreError> {
    tx.query("DELETE FROM providers WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}
