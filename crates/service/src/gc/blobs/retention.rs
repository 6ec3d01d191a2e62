//! How far back the history of a project goes. Older releases stay in the list, but what they were
//! made of is removed: they cannot come back.

use crate::{Core, Error, Result};
use estrade_model::release::{ArtifactId, ReleaseState, SourceId};
use estrade_model::{ProjectId, ReleaseId, Timestamp};
use estrade_store::StoreError;
use estrade_store::retention::{self, MadeRow};
use std::collections::HashSet;
use std::hash::Hash;
use std::time::Duration;

/// How long an upload or a source waits for a release that names it.
const UNUSED_RETENTION: Duration = Duration::from_hours(24);
/// A release is kept for this much longer than clients may still request its files.
const LIVE_MARGIN: Duration = Duration::from_mins(1);
/// Projects that are looked at, at once.
const PAGE_ROWS: u32 = 100;
/// Rows that one transaction removes.
const BATCH_ROWS: u32 = 500;

/// Removes what is beyond the history of any project; returns whether there was something.
pub(super) async fn trim_all(core: &Core) -> Result<bool> {
    let (mut after, mut any) = (None, false);
    loop {
        let history = core.settings.release_history;
        let projects = retention::list_long_histories(&core.db, history, after, PAGE_ROWS).await?;
        let Some(last) = projects.last() else {
            break;
        };
        after = Some(*last);
        for project in projects {
            any |= trim(core, project).await?;
        }
    }
    Ok(any)
}

/// Removes what is beyond the history of a project; returns whether there was something.
pub(super) async fn trim(core: &Core, project: ProjectId) -> Result<bool> {
    let history = core.settings.release_history as usize;
    let now = core.now();
    let since = now.before(core.settings.skew).before(LIVE_MARGIN);
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                let rows = retention::list_made(tx, project).await?;
                let old = find_expired(&rows, history, since);
                for artifact in &old.artifacts {
                    retention::remove_artifact(tx, *artifact).await?;
                }
                for source in &old.sources {
                    retention::remove_source(tx, *source).await?;
                }
                for image in &old.images {
                    retention::remove_image(tx, *image).await?;
                }
                Ok::<_, Error>(old.any())
            })
        })
        .await
}

/// Removes uploads and sources that no release came for.
pub(super) async fn prune(core: &Core) -> Result<()> {
    let (db, old) = (&core.db, core.now().before(UNUSED_RETENTION));
    drain(|| retention::prune_uploads(db, old, BATCH_ROWS)).await?;
    drain(|| retention::prune_sources(db, old, BATCH_ROWS)).await
}

async fn drain<F>(prune: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = std::result::Result<u64, StoreError>>,
{
    while prune().await? >= u64::from(BATCH_ROWS) {}
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Expired {
    artifacts: HashSet<ArtifactId>,
    sources: HashSet<SourceId>,
    images: HashSet<ReleaseId>,
}

impl Expired {
    fn any(&self) -> bool {
        !self.artifacts.is_empty() || !self.sources.is_empty() || !self.images.is_empty()
    }
}

/// What only releases need that are beyond the history; `rows` are the newest first.
fn find_expired(rows: &[MadeRow], history: usize, since: Timestamp) -> Expired {
    let (mut ready, mut finished) = (0, 0);
    let mut kept = Vec::new();
    let mut old = Vec::new();
    for row in rows {
        let in_history = match row.state {
            state if !state.is_terminal() => true,
            ReleaseState::Ready => {
                ready += 1;
                finished += 1;
                ready <= history
            }
            _ => {
                finished += 1;
                finished <= history
            }
        };
        let lately_live = row.live_until.is_some_and(|until| until > since);
        if in_history || row.current || lately_live {
            kept.push(row);
        } else {
            old.push(row);
        }
    }
    Expired {
        artifacts: only_in(&old, &kept, |row| [row.artifact, row.origin]),
        sources: only_in(&old, &kept, |row| [row.source]),
        images: only_in(&old, &kept, |row| [row.image]),
    }
}

fn only_in<T: Eq + Hash, const N: usize>(
    old: &[&MadeRow],
    kept: &[&MadeRow],
    parts: impl Fn(&MadeRow) -> [Option<T>; N],
) -> HashSet<T> {
    let kept: HashSet<T> = kept.iter().flat_map(|row| parts(row)).flatten().collect();
    let old = old.iter().flat_map(|row| parts(row)).flatten();
    old.filter(|id| !kept.contains(id)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id<T>(number: usize) -> estrade_model::Id<T> {
        format!("{number:024x}").parse().unwrap()
    }

    fn made(state: ReleaseState, artifact: usize) -> MadeRow {
        MadeRow {
            state,
            live_until: Some(Timestamp::from_millis(1)),
            artifact: Some(id(artifact)),
            origin: Some(id(artifact)),
            image: Some(id(artifact)),
            source: Some(id(artifact)),
            current: false,
        }
    }

    fn gone(rows: &[MadeRow], history: usize) -> Vec<usize> {
        let expired = find_expired(rows, history, Timestamp::from_millis(1000));
        let mut gone: Vec<usize> = (0..100)
            .filter(|number| expired.artifacts.contains(&id(*number)))
            .collect();
        let same = |number: &usize| {
            expired.sources.contains(&id(*number)) && expired.images.contains(&id(*number))
        };
        assert!(gone.iter().all(same));
        assert_eq!(
            (gone.len(), gone.len()),
            (expired.sources.len(), expired.images.len())
        );
        gone.sort_unstable();
        gone
    }

    #[test]
    fn the_newest_that_were_ready_stay() {
        let rows: Vec<_> = (0..10).map(|it| made(ReleaseState::Ready, it)).collect();
        assert_eq!(gone(&rows, 7), [7, 8, 9]);
        assert_eq!(gone(&rows, 10), [0; 0]);
    }

    #[test]
    fn what_failed_does_not_push_out_what_was_ready() {
        use ReleaseState::{Canceled, Failed, Ready};
        let rows = [Failed, Canceled, Ready, Failed, Ready, Ready];
        let rows = rows.iter().enumerate().map(|(at, state)| made(*state, at));
        assert_eq!(gone(&rows.collect::<Vec<_>>(), 2), [3, 5]);
    }

    #[test]
    fn what_serves_or_lately_did_or_is_on_its_way_stays() {
        let mut rows: Vec<_> = (0..10).map(|it| made(ReleaseState::Ready, it)).collect();
        rows[4].current = true;
        rows[5].live_until = Some(Timestamp::from_millis(1001));
        rows[6].state = ReleaseState::Building;
        rows[7].live_until = None;
        // Shared with the newest.
        rows[8].artifact = Some(id(0));
        rows[8].origin = Some(id(0));
        rows[8].image = Some(id(0));
        rows[8].source = Some(id(0));
        assert_eq!(gone(&rows, 2), [2, 3, 7, 9]);
    }
}
