//! Forgetting contents that nothing needs; [`estrade_store::cleanup`] says why that is safe.

use super::needed::{Needed, PAGE};
use crate::{Core, Error, Result};
use estrade_blobs::Digest;
use estrade_model::Timestamp;
use estrade_store::cleanup;

/// Rows that one transaction changes, so that none holds up the writer for long.
const BATCH: usize = 256;

/// Forgets contents that nothing needs; returns how many there were.
pub(super) async fn sweep(core: &Core) -> Result<u64> {
    let needed = Needed::read(core).await?;
    // The moment names the run: only what this run has condemned is deleted by it.
    let run = core.now();
    if !condemn(core, &needed, run).await? {
        return Ok(0);
    }
    drop(needed);
    // What was committed before the last condemnation is met now, what comes later acquits itself.
    let needed = Needed::read(core).await?;
    execute(core, &needed, run).await
}

/// Marks what was not met; false when there is nothing.
async fn condemn(core: &Core, needed: &Needed, run: Timestamp) -> Result<bool> {
    let (mut after, mut any) = (Vec::new(), false);
    loop {
        let blobs = cleanup::list_blobs(&core.db, &after, PAGE).await?;
        let Some(last) = blobs.last() else {
            return Ok(any);
        };
        after = last.as_bytes().to_vec();
        let unmet: Vec<_> = blobs
            .into_iter()
            .filter(|it| !needed.contains(it))
            .collect();
        any |= !unmet.is_empty();
        for batch in unmet.chunks(BATCH) {
            let batch = batch.to_vec();
            core.db
                .transact(move |tx| {
                    let batch = batch.clone();
                    Box::pin(async move {
                        Ok::<_, Error>(cleanup::condemn_blobs(tx, &batch, run).await?)
                    })
                })
                .await?;
        }
    }
}

/// Deletes what is still condemned and was not met again.
async fn execute(core: &Core, needed: &Needed, run: Timestamp) -> Result<u64> {
    let (mut after, mut deleted) = (Vec::new(), 0);
    loop {
        let condemned =
            cleanup::list_condemned(&core.db, run, &after, BATCH.try_into().unwrap_or(PAGE))
                .await?;
        let Some(last) = condemned.last() else {
            return Ok(deleted);
        };
        after = last.as_bytes().to_vec();
        let (met, unmet): (Vec<_>, Vec<_>) =
            condemned.into_iter().partition(|it| needed.contains(it));
        deleted += delete(core, met, unmet, run).await?;
    }
}

async fn delete(core: &Core, met: Vec<Digest>, unmet: Vec<Digest>, run: Timestamp) -> Result<u64> {
    let blobs = core.blobs.clone();
    core.db
        .transact(move |tx| {
            let (mut met, mut unmet) = (met.clone(), unmet.clone());
            // A release that found one stored before it was condemned has said so before it looked;
            // one that looks from now on finds it condemned.
            met.extend(unmet.extract_if(.., |digest| blobs.is_wanted(digest)));
            Box::pin(async move {
                cleanup::acquit_blobs(tx, &met, run).await?;
                cleanup::delete_blobs(tx, &unmet, run).await?;
                let left = cleanup::count_blobs(tx, &unmet).await?;
                Ok::<_, Error>(unmet.len().saturating_sub(left) as u64)
            })
        })
        .await
}
