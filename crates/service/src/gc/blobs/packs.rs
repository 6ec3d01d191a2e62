//! Packs of which little is still needed: what is, moves into a new one.

use crate::{Core, Error, Result};
use estrade_blobs::{
    BlobError, BlobStore, Digest, DigestSet, ObjectEntry, ObjectId, PublishedBlobs, StoredBlob,
};
use estrade_store::blob_gc;
use std::collections::HashMap;

/// How many bytes move at once.
const BATCH_BYTES: u64 = 8 << 20;

/// Moves the contents of sparse packs on this node's disk; returns how many packs were emptied. They stay as orphans
/// for a while: a reader that has looked up the location of a content may still open it.
pub(super) async fn compact(core: &Core) -> Result<usize> {
    let blobs = core.blobs.clone();
    let packs = tokio::task::spawn_blocking(move || list_packs(&blobs))
        .await
        .map_err(Error::internal)??;
    let (mut batch, mut bytes, mut emptied) = (Vec::new(), 0, 0);
    for pack in packs {
        let live = blob_gc::live_bytes(&core.db, pack.id).await?;
        if live.unwrap_or_default().saturating_mul(2) >= pack.size {
            continue;
        }
        // What would be added to it now would have to move soon, and an open one is never an orphan.
        core.blobs.close_pack(pack.id);
        // Without any it is an orphan, or its rows are on their way.
        let Some(live) = live else { continue };
        batch.push(pack.id);
        bytes += live;
        if bytes >= BATCH_BYTES {
            emptied += batch.len();
            move_out(core, std::mem::take(&mut batch)).await?;
            bytes = 0;
        }
    }
    emptied += batch.len();
    if !batch.is_empty() {
        move_out(core, batch).await?;
    }
    Ok(emptied)
}

fn list_packs(blobs: &BlobStore) -> std::result::Result<Vec<ObjectEntry>, BlobError> {
    let is_pack = |entry: &std::result::Result<ObjectEntry, BlobError>| {
        !matches!(
            entry,
            Ok(ObjectEntry {
                id: ObjectId::File(_),
                ..
            })
        )
    };
    blobs.objects()?.filter(is_pack).collect()
}

async fn move_out(core: &Core, packs: Vec<ObjectId>) -> Result<()> {
    let mut contents = Vec::new();
    for pack in &packs {
        contents.extend(blob_gc::blobs_in(&core.db, *pack).await?);
    }
    let from: HashMap<Digest, ObjectId> = contents
        .iter()
        .map(|blob| (blob.digest, blob.location.object()))
        .collect();
    let blobs = core.blobs.clone();
    let published = tokio::task::spawn_blocking(move || copy(&blobs, &contents))
        .await
        .map_err(Error::internal)??;
    let moves = published.blobs().iter();
    let moves: Vec<_> = moves
        .filter_map(|blob| Some((*blob, *from.get(&blob.digest)?)))
        .collect();
    let held = published.hold();
    let noted = core
        .db
        .transact(move |tx| {
            let (moves, _held) = (moves.clone(), &held);
            Box::pin(async move { Ok::<_, Error>(blob_gc::move_blobs(tx, &moves).await?) })
        })
        .await;
    // After a failure the commit is in doubt; if it did not happen, the new pack is an orphan.
    published.keep();
    noted
}

/// Copies contents into a new pack, those that are what they should be.
fn copy(
    blobs: &BlobStore,
    contents: &[StoredBlob],
) -> std::result::Result<PublishedBlobs, BlobError> {
    let mut staging = blobs.stage(u64::MAX, |_| Ok(DigestSet::default()));
    for blob in contents {
        // What is damaged stays where it is: it must not keep the rest from being cleaned up.
        match blobs.read(blob) {
            Ok(content) if Digest::of(&content) == blob.digest => {
                staging.add(&content)?;
            }
            Ok(_) | Err(BlobError::Damaged | BlobError::Missing) => {
                tracing::error!(digest = %blob.digest, place = %blob.location.object(), "a stored content is damaged");
            }
            Err(error) => return Err(error),
        }
    }
    staging.publish()
}
