//! Group commit: short jobs of one owner that wait at the same time are committed together.
//!
//! Jobs of one owner write the same row, that of the owner's counters. In transactions of their own all but one of those that
//! run at once would clash and be repeated. Here they run one after the other in one transaction of the server, each behind a
//! savepoint, so that one that fails undoes only itself. What one of them costs is a round trip for each of its statements;
//! beginning and committing, which waits for the disk, are shared.
//!
//! Jobs that bear it ([`Mode::Interleaved`]) send their statements at the same time, without savepoints: all first ones wait
//! for one round trip together, then all second ones. When one of them is refused or fails, everything is undone, and they run
//! one after the other.
//!
//! Groups of different owners have connections of their own and wait for nothing of each other: neither for rows, which two
//! nodes might lock in different orders, nor for jobs of others that are refused again and again.
//!
//! Nobody waits for others to come: whoever finds the turn free takes what waits by then. A job keeps those behind it waiting,
//! so long ones belong into transactions of their own.

use super::transaction::{
    Connection, PostgresTx, begin, begin_on_connection, transact_until_serial,
};
use crate::StoreError;
use crate::changes::{Change, Changes};
use crate::db::{ErasedJob, Tx, TxInner};
use deadpool_postgres::Pool;
use estrade_model::OwnerId;
use estrade_model::sync::MutexExt;
use futures_util::FutureExt;
use futures_util::future::join_all;
use std::collections::{HashMap, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex as SyncMutex};
use tokio::sync::{Mutex, oneshot};

/// How many jobs are committed together. The server keeps track of 64 savepoints of a transaction in memory.
const MAX_JOBS: usize = 32;
/// How many jobs wait; more run in transactions of their own, and wait for a connection.
const MAX_WAITING: usize = 1024;
/// After this many clashes with other nodes, and with transactions that are not in groups, each job runs alone.
const MAX_CLASHES: usize = 2;

/// The queues of the owners that have jobs.
#[derive(Default)]
pub(super) struct GroupQueues {
    by_owner: SyncMutex<HashMap<OwnerId, Arc<GroupQueue>>>,
}

/// A queue that stays for as long as somebody holds it.
struct HeldQueue<'q> {
    queues: &'q GroupQueues,
    owner: OwnerId,
    queue: Arc<GroupQueue>,
}

impl GroupQueues {
    fn hold(&self, owner: OwnerId) -> HeldQueue<'_> {
        let mut queues = self.by_owner.lock_ignoring_poison();
        HeldQueue {
            queues: self,
            owner,
            queue: Arc::clone(queues.entry(owner).or_default()),
        }
    }
}

impl Drop for HeldQueue<'_> {
    fn drop(&mut self) {
        let mut queues = self.queues.by_owner.lock_ignoring_poison();
        // This one and the map's: clones are made and dropped under the lock.
        if Arc::strong_count(&self.queue) == 2 {
            queues.remove(&self.owner);
        }
    }
}

/// Jobs of one owner that wait for their turn.
#[derive(Default)]
struct GroupQueue {
    waiting: SyncMutex<VecDeque<Waiting>>,
    /// Held by the one group that is under way.
    turn: Mutex<()>,
}

/// How the jobs of a group run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// One after the other.
    InTurn,
    /// At once, if all of them are kept.
    Interleaved,
}

struct Waiting {
    mode: Mode,
    job: ErasedJob,
    done: oneshot::Sender<Result<(), StoreError>>,
}

impl GroupQueue {
    /// Adds a job; returns it when too many wait.
    fn push(
        &self,
        mode: Mode,
        job: ErasedJob,
        done: oneshot::Sender<Result<(), StoreError>>,
    ) -> Option<ErasedJob> {
        let mut waiting = self.waiting.lock_ignoring_poison();
        if waiting.len() >= MAX_WAITING {
            return Some(job);
        }
        waiting.push_back(Waiting { mode, job, done });
        None
    }

    /// The next jobs that run in the same way.
    fn take(&self) -> Vec<Waiting> {
        let mut waiting = self.waiting.lock_ignoring_poison();
        let mode = waiting.front().map(|first| first.mode);
        let same = waiting.iter().take(MAX_JOBS);
        let count = same.take_while(|it| Some(it.mode) == mode).count();
        waiting.drain(..count).collect()
    }
}

/// What each job of a group came to; none: nothing was committed, and all of them are to run again.
type Attempted = Result<Option<Vec<Result<(), StoreError>>>, StoreError>;

/// What running jobs needs.
#[derive(Clone)]
pub(super) struct GroupRunner {
    pub(super) pool: Pool,
    pub(super) clashing: Arc<Mutex<()>>,
    pub(super) queues: Arc<GroupQueues>,
    pub(super) feed: Arc<Changes>,
}

impl GroupRunner {
    /// Runs a job together with those of its owner that wait.
    pub(super) async fn run(
        self,
        owner: OwnerId,
        mode: Mode,
        job: ErasedJob,
    ) -> Result<(), StoreError> {
        let held = self.queues.hold(owner);
        let (done, result) = oneshot::channel();
        if let Some(job) = held.queue.push(mode, job, done) {
            return self.run_alone(&job).await;
        }
        let turn = held.queue.turn.lock().await;
        let group = held.queue.take();
        // Empty: whoever had the turn has run this job, too.
        if !group.is_empty() {
            self.run_group(group).await;
        }
        drop(turn);
        result.await.map_err(StoreError::bug).flatten()
    }

    async fn run_group(&self, group: Vec<Waiting>) {
        if group.len() > 1
            && let Some(results) = self.run_together(&group).await
        {
            return finish(group, results);
        }
        let alone = group.into_iter().map(|waiting| async move {
            let result = self.run_alone(&waiting.job).await;
            drop(waiting.done.send(result));
        });
        join_all(alone).await;
    }

    /// Runs jobs in one transaction; what each of them came to. None: each is to run alone.
    async fn run_together(&self, group: &[Waiting]) -> Option<Vec<Result<(), StoreError>>> {
        if group.iter().all(|it| it.mode == Mode::Interleaved) {
            match self.attempt_interleaved(group).await {
                Ok(Some(results)) => return Some(results),
                Ok(None) => {}
                Err(_) => return None,
            }
        }
        for _ in 0..MAX_CLASHES {
            match self.attempt(group).await {
                Ok(Some(results)) => return Some(results),
                Ok(None) => tracing::debug!("a group of transactions clashed; repeating it"),
                // What one of them has broken must not break the others.
                Err(_) => return None,
            }
        }
        None
    }

    async fn run_alone(&self, job: &ErasedJob) -> Result<(), StoreError> {
        let ran = AssertUnwindSafe(transact_until_serial(&self.pool, &self.clashing, job));
        let panicked = |_| StoreError::bug("a transaction panicked");
        let changes = ran.catch_unwind().await.map_err(panicked).flatten()?;
        // Before the caller responds: a request that follows the response must see the change.
        self.feed.publish(&changes);
        Ok(())
    }

    /// Runs all jobs in one transaction; what each of them comes to, or none when it clashed with another transaction.
    async fn attempt(&self, group: &[Waiting]) -> Attempted {
        let mut tx = begin(&self.pool).await?;
        let mut results = Vec::with_capacity(group.len());
        for waiting in group {
            let Some(result) = run_job(&mut tx, &waiting.job).await? else {
                let (inner, _) = open(tx)?;
                inner.rollback().await;
                return Ok(None);
            };
            results.push(result);
        }
        let (inner, changes) = open(tx)?;
        self.commit(inner, &changes, results).await
    }

    /// Runs all jobs at once in one transaction; none when it clashed, or one of them is not to be kept.
    async fn attempt_interleaved(&self, group: &[Waiting]) -> Attempted {
        let client = Arc::new(begin_on_connection(&self.pool).await?);
        let running = group.iter().map(|waiting| async {
            let mut tx = PostgresTx::on(Connection::Shared(Arc::clone(&client)));
            let ran = AssertUnwindSafe(async { (waiting.job)(&mut tx).await });
            let keep = ran.catch_unwind().await;
            (keep, tx)
        });
        let ran = join_all(running).await;
        let (mut all_kept, mut is_fit, mut changes) = (true, true, Vec::new());
        for (keep, tx) in ran {
            is_fit &= keep.is_ok();
            all_kept &= keep.is_ok_and(|keep| keep) && !tx.failed;
            let (inner, changes_of_job) = open(tx)?;
            is_fit &= !inner.is_unfit();
            changes.extend(changes_of_job);
        }
        let client = Arc::into_inner(client);
        let client = client.ok_or_else(|| StoreError::bug("a job kept the connection"))?;
        let (inner, _) = open(PostgresTx::on(Connection::Own(Box::new(client))))?;
        if !is_fit {
            // Dropping it closes the connection.
            return Ok(None);
        }
        if !all_kept {
            inner.rollback().await;
            return Ok(None);
        }
        let results = group.iter().map(|_| Ok(())).collect();
        self.commit(inner, &changes, results).await
    }

    async fn commit(
        &self,
        inner: PostgresTx,
        changes: &[Change],
        results: Vec<Result<(), StoreError>>,
    ) -> Attempted {
        match inner.commit(!changes.is_empty()).await {
            Ok(()) => {}
            Err(StoreError::Serialization(_)) => return Ok(None),
            // Whether it was committed is not known, so none of them may run again.
            Err(error @ StoreError::Unavailable(_)) => {
                let error = Arc::new(error);
                let unknown = || Err(StoreError::Unavailable(Arc::clone(&error).into()));
                return Ok(Some(results.iter().map(|_| unknown()).collect()));
            }
            Err(error) => return Err(error),
        }
        self.feed.publish(changes);
        Ok(Some(results))
    }
}

/// Runs one job of several in a transaction; none when it clashed.
async fn run_job(
    tx: &mut Tx,
    job: &ErasedJob,
) -> Result<Option<Result<(), StoreError>>, StoreError> {
    let changes_before = tx.changes.len();
    inner(tx)?.begin_job();
    let ran = AssertUnwindSafe(async { job(tx).await })
        .catch_unwind()
        .await;
    // In the middle of a statement: the connection is of no use.
    let keep = ran.map_err(|_| StoreError::bug("a transaction panicked"))?;
    let has_failed = std::mem::take(&mut tx.failed);
    let postgres = inner(tx)?;
    if postgres.clashed {
        return Ok(None);
    }
    if postgres.is_unfit() {
        return Err(StoreError::bug("the connection broke"));
    }
    if keep && !has_failed {
        postgres.keep_job();
        return Ok(Some(Ok(())));
    }
    postgres.undo_job();
    tx.changes.truncate(changes_before);
    Ok(Some(if keep {
        Err(Tx::kept_after_failure())
    } else {
        Ok(())
    }))
}

fn inner(tx: &mut Tx) -> Result<&mut PostgresTx, StoreError> {
    match &mut tx.inner {
        TxInner::Postgres(inner) => Ok(inner),
        TxInner::Sqlite(_) => Err(StoreError::bug("the transaction changed its backend")),
    }
}

fn open(tx: Tx) -> Result<(PostgresTx, Vec<Change>), StoreError> {
    match tx.inner {
        TxInner::Postgres(inner) => Ok((inner, tx.changes)),
        TxInner::Sqlite(_) => Err(StoreError::bug("the transaction changed its backend")),
    }
}

/// Tells those who wait; one who went away does not want to know.
fn finish(group: Vec<Waiting>, results: Vec<Result<(), StoreError>>) {
    for (waiting, result) in group.into_iter().zip(results) {
        drop(waiting.done.send(result));
    }
}
