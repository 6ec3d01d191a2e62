//! The keys that sign tokens, sealed by the master key so that all nodes can share them.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::Timestamp;

/// A signing key as stored.
#[derive(Clone)]
pub struct SigningKeyRow {
    /// Its name in the header of JWTs.
    pub kid: String,
    /// The public half, 32 bytes.
    pub public: Vec<u8>,
    /// The private half, sealed.
    pub sealed: Vec<u8>,
    /// When it was made.
    pub created_at: Timestamp,
}

impl Record for SigningKeyRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            kid: row.take()?,
            public: row.take()?,
            sealed: row.take()?,
            created_at: row.take()?,
        })
    }
}

/// Every signing key, newest first: the first one signs, all of them verify.
pub async fn list_signing_keys(db: &Db) -> Result<Vec<SigningKeyRow>, StoreError> {
    db.read(
        "SELECT kid, public, sealed, created_at FROM signing_keys ORDER BY created_at DESC, kid",
    )
    .fetch_all()
    .await
}

/// Adds a signing key.
pub async fn insert_signing_key(tx: &mut Tx, key: &SigningKeyRow) -> Result<(), StoreError> {
    tx.query("INSERT INTO signing_keys (kid, public, sealed, created_at) VALUES ($1, $2, $3, $4)")
        .bind(&key.kid)
        .bind(&key.public[..])
        .bind(&key.sealed[..])
        .bind(key.created_at)
        .execute()
        .await
        .map(drop)
}
