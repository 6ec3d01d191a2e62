//! Garbage collection of contents: finding those that nothing needs, and deleting their rows, while releases come
//! and go.
//!
//! Mark and sweep, in four steps that may each be cut off by a crash:
//!
//! 1. Read what is needed: the contents of all artifacts, sources and uploads, and their variants.
//! 2. Mark what was not met as a candidate: [`mark_blobs`]. The column is called `condemned_at`.
//! 3. Read what is needed again.
//! 4. Delete what is still marked and was not met now either: [`delete_blobs`].
//!
//! Whatever needs a content commits that through [`crate::blob_rows::keep_blobs`], which takes marks
//! away. Such a transaction comes either before the mark, and step 3 meets what it wrote; or
//! after it, and takes the mark away, so that step 4 leaves the row alone. SQLite has one writer, so
//! there is nothing in between. On PostgreSQL a transaction whose snapshot is older than the mark
//! would not see it: there `keep_blobs` locks the rows, and so either the mark waits for its
//! commit, or it is repeated with a newer snapshot.
//!
//! What an artifact shares with one that is there needs no such care, see
//! [`crate::artifacts::keep_artifact_for`].

use crate::artifacts::ArtifactContents;
use crate::blob_rows::{LOOKUP_BATCH, bind_all, digest_list};
use crate::blob_storage::check_epoch;
use crate::db::Backend;
use crate::postgres::GcLock;
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_blobs::{Digest, ObjectId, StoredBlob};
use estrade_model::Timestamp;
use estrade_model::release::ArtifactId;

/// How many manifests are in memory at once; each has up to a megabyte.
const MANIFEST_BATCH: u32 = 8;

/// The right to collect garbage, which one node has at a time.
#[must_use]
pub struct GcGuard(Option<GcLock>);

impl GcGuard {
    /// Takes it, unless another node has it.
    pub async fn take(db: &Db) -> Result<Option<Self>, StoreError> {
        match db.backend() {
            // One server owns the file.
            Backend::Sqlite(_) => Ok(Some(Self(None))),
            Backend::Postgres(postgres) => {
                let lock = postgres.try_lock_gc().await?;
                Ok(lock.map(|lock| Self(Some(lock))))
            }
        }
    }

    /// Gives it back.
    pub async fn release(self) {
        if let Some(lock) = self.0 {
            lock.release().await;
        }
    }
}

/// What the next few artifacts need, by id.
pub async fn needed_by_artifacts(
    db: &Db,
    after: Option<ArtifactId>,
) -> Result<Vec<ArtifactContents>, StoreError> {
    db.read(
        "SELECT id, manifest FROM artifacts
         WHERE id > COALESCE($1, '') AND manifest IS NOT NULL ORDER BY id LIMIT $2",
    )
    .bind(after)
    .bind(MANIFEST_BATCH)
    .fetch_all()
    .await
}

/// A content that is needed for its own sake, and what comes after it in its table.
struct Keyed(String, Digest);

impl Record for Keyed {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let (key, digest): (String, [u8; 32]) = (row.take()?, row.take()?);
        Ok(Self(key, digest.into()))
    }
}

/// The digests of one page, and where the next one begins.
pub type Page<K> = (Vec<Digest>, Option<K>);

fn page(rows: Vec<Keyed>) -> Page<String> {
    let last = rows.last().map(|row| row.0.clone());
    (rows.into_iter().map(|row| row.1).collect(), last)
}

/// A page of the contents of sources.
pub async fn needed_by_sources(
    db: &Db,
    after: &str,
    limit: u32,
) -> Result<Page<String>, StoreError> {
    let rows = db
        .read("SELECT id, digest FROM sources WHERE id > $1 ORDER BY id LIMIT $2")
        .bind(after)
        .bind(limit)
        .fetch_all()
        .await?;
    Ok(page(rows))
}

/// A page of the contents that were sent ahead, by digest: two projects may have sent the same.
pub async fn needed_by_uploads(
    db: &Db,
    after: &[u8],
    limit: u32,
) -> Result<Vec<Digest>, StoreError> {
    let rows: Vec<[u8; 32]> = db
        .read("SELECT DISTINCT digest FROM blob_uploads WHERE digest > $1 ORDER BY digest LIMIT $2")
        .bind(after)
        .bind(limit)
        .fetch_all()
        .await?;
    Ok(rows.into_iter().map(Digest::from).collect())
}

/// A variant that is needed if its content is.
pub struct VariantLink {
    pub of: Digest,
    /// Its coding, as text.
    pub coding: String,
    pub variant: Option<Digest>,
}

impl Record for VariantLink {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let of: [u8; 32] = row.take()?;
        let coding = row.take()?;
        let variant: Option<[u8; 32]> = row.take()?;
        Ok(Self {
            of: of.into(),
            coding,
            variant: variant.map(Digest::from),
        })
    }
}

/// A page of all variants, after one of them.
pub async fn list_variants(
    db: &Db,
    after: Option<&VariantLink>,
    limit: u32,
) -> Result<Vec<VariantLink>, StoreError> {
    let digest = after.map_or(&[][..], |last| last.of.as_bytes());
    db.read(
        "SELECT digest, coding, variant FROM variants
         WHERE (digest, coding) > ($1, $2) ORDER BY digest, coding LIMIT $3",
    )
    .bind(digest)
    .bind(after.map_or("", |last| last.coding.as_str()))
    .bind(limit)
    .fetch_all()
    .await
}

/// A page of all contents, by digest.
pub async fn list_blobs(db: &Db, after: &[u8], limit: u32) -> Result<Vec<Digest>, StoreError> {
    let rows: Vec<[u8; 32]> = db
        .read("SELECT digest FROM blobs WHERE digest > $1 ORDER BY digest LIMIT $2")
        .bind(after)
        .bind(limit)
        .fetch_all()
        .await?;
    Ok(rows.into_iter().map(Digest::from).collect())
}

/// A page of the contents that a run has marked.
pub async fn list_marked(
    db: &Db,
    run: Timestamp,
    after: &[u8],
    limit: u32,
) -> Result<Vec<Digest>, StoreError> {
    let rows: Vec<[u8; 32]> = db
        .read(
            "SELECT digest FROM blobs WHERE condemned_at = $1 AND digest > $2
             ORDER BY digest LIMIT $3",
        )
        .bind(run)
        .bind(after)
        .bind(limit)
        .fetch_all()
        .await?;
    Ok(rows.into_iter().map(Digest::from).collect())
}

fn with_run(digests: &[Digest], run: Timestamp) -> Vec<Vec<Value>> {
    let row = |digest: &Digest| vec![Value::from(digest.as_bytes()), Value::from(run)];
    digests.iter().map(row).collect()
}

fn without_run(digests: &[Digest]) -> Vec<Vec<Value>> {
    let row = |digest: &Digest| vec![Value::from(digest.as_bytes())];
    digests.iter().map(row).collect()
}

/// Marks contents that one look at everything did not meet.
pub async fn mark_blobs(tx: &mut Tx, digests: &[Digest], run: Timestamp) -> Result<(), StoreError> {
    tx.execute_many(
        "UPDATE blobs SET condemned_at = $2 WHERE digest = $1",
        with_run(digests, run),
    )
    .await
}

/// Takes the marks of a run away again.
pub async fn unmark_blobs(
    tx: &mut Tx,
    digests: &[Digest],
    run: Timestamp,
) -> Result<(), StoreError> {
    tx.execute_many(
        "UPDATE blobs SET condemned_at = NULL WHERE digest = $1 AND condemned_at = $2",
        with_run(digests, run),
    )
    .await
}

/// Forgets contents that are still marked by this run, and what is known of their variants.
///
/// Invariant: a variant never outlives its content, and its content outlives it only when neither is
/// needed. A release that refers to the content may rely on the variants that it has.
pub async fn delete_blobs(
    tx: &mut Tx,
    digests: &[Digest],
    run: Timestamp,
) -> Result<(), StoreError> {
    tx.execute_many(
        "DELETE FROM blobs WHERE digest = $1 AND condemned_at = $2
           AND NOT EXISTS (SELECT 1 FROM variants v JOIN blobs c ON c.digest = v.digest
                           WHERE v.variant = $1 AND c.condemned_at IS NULL)",
        with_run(digests, run),
    )
    .await?;
    tx.execute_many(
        "DELETE FROM variants WHERE digest = $1
           AND NOT EXISTS (SELECT 1 FROM blobs WHERE digest = $1)",
        without_run(digests),
    )
    .await?;
    tx.execute_many(
        "DELETE FROM variants WHERE variant = $1
           AND NOT EXISTS (SELECT 1 FROM blobs WHERE digest = $1)",
        without_run(digests),
    )
    .await
}

/// How many of these contents have a row.
pub async fn count_blobs(tx: &mut Tx, digests: &[Digest]) -> Result<usize, StoreError> {
    let mut count = 0;
    for chunk in digests.chunks(LOOKUP_BATCH) {
        let found: Vec<[u8; 32]> = bind_all(
            tx.query(concat!(
                "SELECT digest FROM blobs WHERE digest IN ",
                digest_list!()
            )),
            chunk,
        )
        .fetch_all()
        .await?;
        count += found.len();
    }
    Ok(count)
}

/// How many bytes of a pack or file are contents that have a row; none when nothing is.
pub async fn live_bytes(db: &Db, place: ObjectId) -> Result<Option<u64>, StoreError> {
    let sum: Option<i64> = db
        .read("SELECT CAST(SUM(size) AS BIGINT) FROM blobs WHERE place = $1")
        .bind(place.to_string())
        .fetch_one()
        .await?;
    sum.map(|sum| u64::try_from(sum).map_err(StoreError::bug))
        .transpose()
}

/// The contents that lie in a pack or file.
pub async fn blobs_in(db: &Db, place: ObjectId) -> Result<Vec<StoredBlob>, StoreError> {
    db.read(
        "SELECT digest, size, place, place_offset FROM blobs
         WHERE place = $1 ORDER BY place_offset",
    )
    .bind(place.to_string())
    .fetch_all()
    .await
}

/// Notes that contents lie in other objects now, unless they are gone or were moved already.
pub async fn move_blobs(tx: &mut Tx, moves: &[(StoredBlob, ObjectId)]) -> Result<(), StoreError> {
    check_epoch(tx).await?;
    let row = |(blob, from): &(StoredBlob, ObjectId)| {
        let (place, offset) = blob.location.to_columns();
        vec![
            Value::from(blob.digest.as_bytes()),
            Value::from(place),
            Value::from(offset),
            Value::from(from.to_string()),
        ]
    };
    tx.execute_many(
        "UPDATE blobs SET place = $2, place_offset = $3 WHERE digest = $1 AND place = $4",
        moves.iter().map(row).collect(),
    )
    .await
}
