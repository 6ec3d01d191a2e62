//! Compressed variants of contents.

use crate::blob_rows::{LOOKUP_BATCH, bind_all, digest_list};
use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_blobs::{Digest, StoredBlob};
use estrade_model::coding::Coding;
use std::collections::HashSet;

/// A variant of a content, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantRow {
    pub of: Digest,
    /// How the variant is coded.
    pub coding: Coding,
    /// The compressed bytes, which are a content of their own.
    pub blob: StoredBlob,
}

impl Record for VariantRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let of: [u8; 32] = row.take()?;
        let coding: String = row.take()?;
        let coding = Coding::from_name(&coding);
        Ok(Self {
            of: of.into(),
            coding: coding.ok_or_else(|| StoreError::bug("an unknown coding"))?,
            blob: StoredBlob::from_row(row)?,
        })
    }
}

/// The variants of these contents that are worth sending.
pub async fn read_variants(db: &Db, digests: &[Digest]) -> Result<Vec<VariantRow>, StoreError> {
    let mut variants = Vec::new();
    for chunk in digests.chunks(LOOKUP_BATCH) {
        let query = db.read(concat!(
            "SELECT v.digest, v.coding, b.digest, b.size, b.place, b.place_offset
             FROM variants v JOIN blobs b ON b.digest = v.variant WHERE v.digest IN ",
            digest_list!()
        ));
        let found: Vec<VariantRow> = bind_all(query, chunk).fetch_all().await?;
        variants.extend(found);
    }
    Ok(variants)
}

/// What became of the try to compress a content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewVariant {
    pub of: Digest,
    /// How it was coded.
    pub coding: Coding,
    /// The compressed bytes; none when they are not worth keeping.
    pub variant: Option<Digest>,
}

/// Notes variants. One that was noted before stays, and the other copy is garbage.
///
/// The variants must be kept with [`crate::blob_rows::keep_blobs`] in the same transaction.
pub async fn insert_variants(tx: &mut Tx, variants: &[NewVariant]) -> Result<(), StoreError> {
    let row = |new: &NewVariant| {
        vec![
            Value::from(new.of.as_bytes()),
            Value::from(new.coding.name()),
            Value::from(new.variant.map(|variant| *variant.as_bytes())),
        ]
    };
    tx.execute_many(
        "INSERT INTO variants (digest, coding, variant) VALUES ($1, $2, $3)
         ON CONFLICT (digest, coding) DO NOTHING",
        variants.iter().map(row).collect(),
    )
    .await
}

/// Which of these contents were tried in which coding.
pub async fn find_tried(
    db: &Db,
    digests: &[Digest],
) -> Result<HashSet<(Digest, Coding)>, StoreError> {
    let mut tried = HashSet::new();
    for chunk in digests.chunks(LOOKUP_BATCH) {
        let query = db.read(concat!(
            "SELECT digest, coding FROM variants WHERE digest IN ",
            digest_list!()
        ));
        let found: Vec<Tried> = bind_all(query, chunk).fetch_all().await?;
        tried.extend(
            found
                .into_iter()
                .map(|Tried(digest, coding)| (digest, coding)),
        );
    }
    Ok(tried)
}

struct Tried(Digest, Coding);

impl Record for Tried {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let digest: [u8; 32] = row.take()?;
        let coding = Coding::from_name(&row.take::<String>()?);
        let coding = coding.ok_or_else(|| StoreError::bug("an unknown coding"))?;
        Ok(Self(digest.into(), coding))
    }
}
