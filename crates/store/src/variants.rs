//! Compressed variants of contents.

use crate::blob_rows::{ASKED, bind_all, digest_list};
use crate::blobs::{Digest, StoredBlob};
use crate::{Db, Record, Row, StoreError};
use estrade_model::coding::Coding;

/// A variant of a content, and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VariantRow {
    /// The content.
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
    for chunk in digests.chunks(ASKED) {
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
