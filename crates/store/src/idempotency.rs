//! Idempotency keys: reservations of requests in progress, and stored responses.
//!
//! A row without a status is a reservation: the request is in progress, and the row expires with the
//! holder's lease. With a status it is a response. Either way an expired row counts as absent, so a
//! holder that crashed blocks repeats for no longer than its lease.

use crate::prune::prune;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::{Id, Timestamp};

/// Type tag of [`HolderId`].
#[derive(Debug)]
pub enum Holder {}
/// Identifies the holder of a reservation: one attempt of one process.
pub type HolderId = Id<Holder>;

/// A reservation as its holder knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reservation {
    /// Which key: hash of credential, key, method and path.
    pub scope: [u8; 32],
    pub holder: HolderId,
}

/// A stored response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponseRow {
    pub status: u16,
    /// Headers as JSON.
    pub headers: String,
    pub body: Vec<u8>,
}

/// What is known of a key.
#[derive(Debug, Clone)]
pub struct EntryRow {
    /// Hash of the rest of the request.
    pub request: [u8; 32],
    /// The response; none while the request is in progress.
    pub response: Option<ResponseRow>,
}

impl Record for EntryRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let request = row.take()?;
        let (status, headers, body): (Option<u16>, Option<String>, Option<Vec<u8>>) =
            (row.take()?, row.take()?, row.take()?);
        let response = status.map(|status| ResponseRow {
            status,
            headers: headers.unwrap_or_default(),
            body: body.unwrap_or_default(),
        });
        Ok(Self { request, response })
    }
}

/// Reserves a key until `until` unless it is taken; false when it is.
pub async fn reserve(
    tx: &mut Tx,
    new: Reservation,
    request: [u8; 32],
    now: Timestamp,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let touched = tx
        .query(
            "INSERT INTO idempotency (scope, request, holder, expires_at) VALUES ($1, $2, $3, $4)
             ON CONFLICT (scope) DO UPDATE SET request = excluded.request,
                 holder = excluded.holder, expires_at = excluded.expires_at,
                 status = NULL, headers = NULL, body = NULL
             WHERE idempotency.expires_at <= $5",
        )
        .bind(new.scope)
        .bind(request)
        .bind(new.holder)
        .bind(until)
        .bind(now)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// What is known of a key that could not be reserved.
pub async fn entry_by_scope(tx: &mut Tx, scope: [u8; 32]) -> Result<Option<EntryRow>, StoreError> {
    tx.query("SELECT request, status, headers, body FROM idempotency WHERE scope = $1")
        .bind(scope)
        .fetch_optional()
        .await
}

/// Replaces a reservation by its response; false when another holder has taken it over.
pub async fn store_response(
    tx: &mut Tx,
    held: Reservation,
    response: &ResponseRow,
    until: Timestamp,
) -> Result<bool, StoreError> {
    let touched = tx
        .query(
            "UPDATE idempotency SET status = $3, headers = $4, body = $5, expires_at = $6
             WHERE scope = $1 AND holder = $2",
        )
        .bind(held.scope)
        .bind(held.holder)
        .bind(response.status)
        .bind(&response.headers)
        .bind(response.body.as_slice())
        .bind(until)
        .execute()
        .await?;
    Ok(touched > 0)
}

/// Holds reservations until `until`, as far as they are still their holders'.
pub async fn renew_reservations(
    tx: &mut Tx,
    held: &[Reservation],
    until: Timestamp,
) -> Result<(), StoreError> {
    let row = |held: &Reservation| -> Vec<Value> {
        vec![held.scope.into(), held.holder.into(), until.into()]
    };
    tx.execute_many(
        "UPDATE idempotency SET expires_at = $3
         WHERE scope = $1 AND holder = $2 AND status IS NULL",
        held.iter().map(row).collect(),
    )
    .await
}

/// Releases reservations, so that a repeat is executed; responses stay.
pub async fn release_reservations(tx: &mut Tx, held: &[Reservation]) -> Result<(), StoreError> {
    let row = |held: &Reservation| -> Vec<Value> { vec![held.scope.into(), held.holder.into()] };
    tx.execute_many(
        "DELETE FROM idempotency WHERE scope = $1 AND holder = $2 AND status IS NULL",
        held.iter().map(row).collect(),
    )
    .await
}

/// Removes up to `limit` expired responses and reservations; returns how many there were.
pub async fn prune_idempotency(db: &Db, now: Timestamp, limit: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM idempotency WHERE scope IN
               (SELECT scope FROM idempotency WHERE expires_at <= $1 LIMIT $2)";
    prune(db, sql, now, limit).await
}
