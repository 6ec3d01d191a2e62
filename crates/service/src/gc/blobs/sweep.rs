//! Mark and sweep over the rows of contents; [`estrade_store::blob_gc`] explains why that is safe beside running
//! releases.

use super::reachable::{PAGE_ROWS, ReachableSet};
use crate::{Core, Error, Result};
use estrade_blobs::Digest;
use estrade_model::Timestamp;
use estrade_store::blob_gc;

/// Rows that one transaction changes, so that none holds up the writer for long.
const BATCH_ROWS: usize = 256;

/// Deletes the rows of unreachable contents; returns how many there were.
pub(super) async fn sweep(core: &Core) -> Result<u64> {
    let live = ReachableSet::read(core).await?;
    // The time names the run: only what this run has marked is deleted by it.
    let run = core.now();
    if !mark(core, &live, run).await? {
        return Ok(0);
    }
    drop(live);
    // References that were committed before the last mark are read now; later ones clear the mark themselves.
    let live = ReachableSet::read(core).await?;
    sweep_marked(core, &live, run).await
}

/// Marks what is not reachable; false when there is nothing.
async fn mark(core: &Core, live: &ReachableSet, run: Timestamp) -> Result<bool> {
    let (mut after, mut any) = (Vec::new(), false);
    loop {
        let blobs = blob_gc::list_blobs(&core.db, &after, PAGE_ROWS).await?;
        let Some(last) = blobs.last() else {
            return Ok(any);
        };
        after = last.as_bytes().to_vec();
        let unreachable: Vec<_> = blobs.into_iter().filter(|it| !live.contains(it)).collect();
        any |= !unreachable.is_empty();
        for batch in unreachable.chunks(BATCH_ROWS) {
            let batch = batch.to_vec();
            core.db
                .transact(move |tx| {
                    let batch = batch.clone();
                    Box::pin(
                        async move { Ok::<_, Error>(blob_gc::mark_blobs(tx, &batch, run).await?) },
                    )
                })
                .await?;
        }
    }
}

/// Deletes what is still marked and still not reachable.
async fn sweep_marked(core: &Core, live: &ReachableSet, run: Timestamp) -> Result<u64> {
    let (mut after, mut deleted) = (Vec::new(), 0);
    loop {
        let marked = blob_gc::list_marked(
            &core.db,
            run,
            &after,
            BATCH_ROWS.try_into().unwrap_or(PAGE_ROWS),
        )
        .await?;
        let Some(last) = marked.last() else {
            return Ok(deleted);
        };
        after = last.as_bytes().to_vec();
        let (reachable, unreachable): (Vec<_>, Vec<_>) =
            marked.into_iter().partition(|it| live.contains(it));
        deleted += delete(core, reachable, unreachable, run).await?;
    }
}

async fn delete(
    core: &Core,
    reachable: Vec<Digest>,
    unreachable: Vec<Digest>,
    run: Timestamp,
) -> Result<u64> {
    let blobs = core.blobs.clone();
    core.db
        .transact(move |tx| {
            let (mut reachable, mut unreachable) = (reachable.clone(), unreachable.clone());
            // A release that found a content before it was marked announced it before it looked; one that looks
            // from now on finds the mark.
            reachable.extend(unreachable.extract_if(.., |digest| blobs.is_wanted(digest)));
            Box::pin(async move {
                blob_gc::unmark_blobs(tx, &reachable, run).await?;
                blob_gc::delete_blobs(tx, &unreachable, run).await?;
                let left = blob_gc::count_blobs(tx, &unreachable).await?;
                Ok::<_, Error>(unreachable.len().saturating_sub(left) as u64)
            })
        })
        .await
}
