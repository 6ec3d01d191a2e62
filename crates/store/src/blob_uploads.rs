//! Contents that a project's clients sent ahead of a release that will name them.

use crate::blob_rows::{LOOKUP_BATCH, bind_all, digest_list};
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_blobs::Digest;
use estrade_model::{ProjectId, Timestamp};

/// Notes that a project has a content; false when it had it before, which then counts anew.
pub async fn note_upload(
    tx: &mut Tx,
    project: ProjectId,
    digest: Digest,
    at: Timestamp,
) -> Result<bool, StoreError> {
    let inserted = tx
        .query(
            "INSERT INTO blob_uploads (project_id, digest, at) VALUES ($1, $2, $3)
             ON CONFLICT (project_id, digest) DO NOTHING",
        )
        .bind(project)
        .bind(digest.as_bytes())
        .bind(at)
        .execute()
        .await?;
    if inserted > 0 {
        return Ok(true);
    }
    tx.query("UPDATE blob_uploads SET at = $3 WHERE project_id = $1 AND digest = $2")
        .bind(project)
        .bind(digest.as_bytes())
        .bind(at)
        .execute()
        .await?;
    Ok(false)
}

struct Uploaded(Digest, u64);

impl Record for Uploaded {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let digest: [u8; 32] = row.take()?;
        Ok(Self(digest.into(), row.take()?))
    }
}

/// Which of these contents the project was sent, and how long they are.
pub async fn find_uploads(
    db: &Db,
    project: ProjectId,
    digests: &[Digest],
) -> Result<Vec<(Digest, u64)>, StoreError> {
    let mut found = Vec::new();
    for chunk in digests.chunks(LOOKUP_BATCH) {
        // The list is $1 to $64.
        let query = db.read(concat!(
            "SELECT b.digest, b.size FROM blob_uploads u JOIN blobs b ON b.digest = u.digest
             WHERE u.project_id = $65 AND u.digest IN ",
            digest_list!()
        ));
        let rows: Vec<Uploaded> = bind_all(query, chunk).bind(project).fetch_all().await?;
        found.extend(
            rows.into_iter()
                .map(|Uploaded(digest, size)| (digest, size)),
        );
    }
    Ok(found)
}
