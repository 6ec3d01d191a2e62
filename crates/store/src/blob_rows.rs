//! Which contents are stored, and where they lie: the index of [`estrade_blobs`].

use crate::blob_storage::check_epoch;
use crate::{Db, Query, Record, Row, StoreError, Tx, Value};
use estrade_blobs::{BlobLocation, Digest, DigestMap, DigestSet, ObjectId, StoredBlob};
use foldhash::fast::RandomState;

/// Digests that one statement looks up. A shorter list is padded, so that there is one prepared
/// statement and not one per length.
pub(crate) const LOOKUP_BATCH: usize = 64;

/// The list that [`bind_all`] fills.
macro_rules! digest_list {
    () => {
        "($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16,
          $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32,
          $33, $34, $35, $36, $37, $38, $39, $40, $41, $42, $43, $44, $45, $46, $47, $48,
          $49, $50, $51, $52, $53, $54, $55, $56, $57, $58, $59, $60, $61, $62, $63, $64)"
    };
}
pub(crate) use digest_list;

macro_rules! select_blobs {
    ($columns:literal) => {
        concat!(
            "SELECT ",
            $columns,
            " FROM blobs WHERE digest IN ",
            digest_list!()
        )
    };
}

impl Record for StoredBlob {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let digest: [u8; 32] = row.take()?;
        let size = row.take()?;
        let (place, offset): (String, i64) = (row.take()?, row.take()?);
        Ok(Self {
            digest: digest.into(),
            size,
            location: BlobLocation::from_columns(&place, offset).map_err(StoreError::bug)?,
        })
    }
}

/// Notes contents that something committed now needs: where the `new` ones lie, and that the `known`
/// ones are wanted. False when one of the known ones is not stored (any more). An error when contents have
/// [moved](crate::blob_storage) since this process began.
///
/// The only place where a content becomes needed: it removes the mark of a running garbage collection, in
/// the transaction that needs the content. See [`crate::blob_gc`] for why that is safe.
pub async fn keep_blobs(
    tx: &mut Tx,
    new: &[StoredBlob],
    known: &[Digest],
) -> Result<bool, StoreError> {
    let mut marked = Vec::new();
    for chunk in known.chunks(LOOKUP_BATCH) {
        // Where several write at once, a mark may be on its way that our snapshot does not show. With
        // the rows locked it comes after our commit, or it came before and we are repeated.
        let sql = if tx.has_many_writers() {
            concat!(select_blobs!("digest, condemned_at"), " FOR SHARE")
        } else {
            select_blobs!("digest, condemned_at")
        };
        let found: Vec<KnownRow> = bind_all(tx.query(sql), chunk).fetch_all().await?;
        let asked: DigestSet = chunk.iter().copied().collect();
        if found.len() < asked.len() {
            return Ok(false);
        }
        let is_marked = |row: &KnownRow| row.condemned_at.is_some();
        marked.extend(found.into_iter().filter(is_marked).map(|row| row.digest));
    }
    for chunk in marked.chunks(LOOKUP_BATCH) {
        let unmark = concat!(
            "UPDATE blobs SET condemned_at = NULL WHERE condemned_at IS NOT NULL AND digest IN ",
            digest_list!()
        );
        bind_all(tx.query(unmark), chunk).execute().await?;
    }
    // What is known is in every place that contents move to.
    if !new.is_empty() {
        check_epoch(tx).await?;
        insert_blobs(tx, new).await?;
    }
    Ok(true)
}

struct KnownRow {
    digest: Digest,
    condemned_at: Option<i64>,
}

impl Record for KnownRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let digest: [u8; 32] = row.take()?;
        Ok(Self {
            digest: digest.into(),
            condemned_at: row.take()?,
        })
    }
}

/// Notes where contents lie. A content that has a row keeps it: the copy that was written for
/// nothing is an orphan.
async fn insert_blobs(tx: &mut Tx, blobs: &[StoredBlob]) -> Result<(), StoreError> {
    let row = |blob: &StoredBlob| {
        let (place, offset) = blob.location.to_columns();
        Ok(vec![
            Value::from(blob.digest.as_bytes()),
            Value::from(i64::try_from(blob.size).map_err(StoreError::bug)?),
            Value::from(place),
            Value::from(offset),
        ])
    };
    let rows: Result<Vec<_>, StoreError> = blobs.iter().map(row).collect();
    tx.execute_many(
        "INSERT INTO blobs (digest, size, place, place_offset) VALUES ($1, $2, $3, $4)
         ON CONFLICT (digest) DO UPDATE SET condemned_at = NULL",
        rows?,
    )
    .await
}

/// Which of these contents are stored and not marked. A caller that has declared them
/// [wanted](estrade_blobs::BlobStore::is_wanted) before this query can rely on the result.
pub async fn known_blobs(db: &Db, digests: &[Digest]) -> Result<DigestSet, StoreError> {
    let sql = concat!(select_blobs!("digest"), " AND condemned_at IS NULL");
    let mut known = DigestSet::default();
    for chunk in digests.chunks(LOOKUP_BATCH) {
        let found: Vec<[u8; 32]> = bind_all(db.read(sql), chunk).fetch_all().await?;
        known.extend(found.into_iter().map(Digest::from));
    }
    Ok(known)
}

/// Where these contents lie; those that are not stored are left out.
pub async fn read_blobs(db: &Db, digests: &[Digest]) -> Result<DigestMap<StoredBlob>, StoreError> {
    let mut places = DigestMap::with_capacity_and_hasher(digests.len(), RandomState::default());
    for chunk in digests.chunks(LOOKUP_BATCH) {
        let query = db.read(select_blobs!("digest, size, place, place_offset"));
        let found: Vec<StoredBlob> = bind_all(query, chunk).fetch_all().await?;
        places.extend(found.into_iter().map(|blob| (blob.digest, blob)));
    }
    Ok(places)
}

/// Whether any content lies in this pack or file.
pub async fn is_known_object(db: &Db, place: ObjectId) -> Result<bool, StoreError> {
    let found: Option<[u8; 32]> = db
        .read("SELECT digest FROM blobs WHERE place = $1 LIMIT 1")
        .bind(place.to_string())
        .fetch_optional()
        .await?;
    Ok(found.is_some())
}

/// Fills a [`digest_list`] with up to [`LOOKUP_BATCH`] digests.
pub(crate) fn bind_all<'e>(query: Query<'e>, digests: &[Digest]) -> Query<'e> {
    // Padded with the last one: a duplicate does not change the result.
    let filler = digests.last().into_iter().cycle();
    digests
        .iter()
        .chain(filler)
        .take(LOOKUP_BATCH)
        .fold(query, |query, digest| query.bind(digest.as_bytes()))
}
