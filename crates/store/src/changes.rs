//! The change feed: notifies caches and waiters of changes, on this node and on others.
//!
//! A transaction notes what it changed with [`Tx::changed`]; the note is a row of `changes` in the
//! same transaction. On the node that made it, it is published right after the commit. Other
//! processes follow the table: woken by `NOTIFY` on PostgreSQL, by `PRAGMA data_version` on SQLite.

use crate::db::{Backend, Tx};
use crate::prune::prune;
use crate::value::{Record, Row};
use crate::{Db, StoreError};
use estrade_model::Timestamp;
use estrade_model::error::error_chain;
use estrade_model::sync::RwLockExt;
use futures_util::future::BoxFuture;
use std::collections::HashSet;
use std::sync::RwLock;
use std::time::Duration;
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;

/// How often a follower polls: SQLite has no notifications. Changes of other processes have to be seen
/// within a second; polling more often only keeps an idle machine awake.
const SQLITE_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// How often a PostgreSQL follower looks although it was not notified.
const POSTGRES_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// A follower that has not looked for longer than this may have missed notes that were pruned: they are kept for an hour.
const MAX_GAP_SECONDS: u64 = 30 * 60;

/// What kind of thing changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// An account token was revoked or changed.
    Token,
    /// A session of the account panel was ended or changed.
    Session,
    /// An account was disabled or changed.
    Account,
    /// An AI key was changed, rotated or deleted.
    Key,
    /// A workspace was changed or deleted.
    Workspace,
    /// A workspace has another name.
    WorkspaceName,
    /// A provider of models was added, changed or removed.
    Provider,
    /// A project was changed or deleted.
    Project,
    /// The routing of a project changed: another release serves it, or it is switched off, new or
    /// deleted, or has other host names. The id is the project's.
    Route,
    /// A release changed its state.
    Release,
    /// Signing keys were added.
    SigningKeys,
    /// A host has a new certificate. The id is the host.
    Certificate,
    /// A node has begun, ended or come back.
    Node,
    /// The follower cannot tell: everything may have changed.
    Everything,
}

impl ChangeKind {
    const NAMES: [(Self, &'static str); 13] = [
        (Self::Token, "token"),
        (Self::Session, "session"),
        (Self::Account, "account"),
        (Self::Key, "key"),
        (Self::Workspace, "workspace"),
        (Self::WorkspaceName, "workspace_name"),
        (Self::Provider, "provider"),
        (Self::Project, "project"),
        (Self::Route, "route"),
        (Self::Release, "release"),
        (Self::SigningKeys, "signing_keys"),
        (Self::Certificate, "certificate"),
        (Self::Node, "node"),
    ];

    fn name(self) -> &'static str {
        Self::NAMES
            .iter()
            .find(|(kind, _)| *kind == self)
            .map_or("everything", |(_, name)| name)
    }

    fn from_name(name: &str) -> Self {
        // A newer version may write kinds that this one does not know: be careful, not clever.
        Self::NAMES
            .iter()
            .find(|(_, known)| *known == name)
            .map_or(Self::Everything, |(kind, _)| *kind)
    }
}

/// One thing that changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// What kind of thing.
    pub kind: ChangeKind,
    pub id: String,
}

type Hook = Box<dyn Fn(&Change) + Send + Sync>;

/// The subscribers to changes in this process.
pub struct Changes {
    hooks: RwLock<Vec<Hook>>,
    waiters: broadcast::Sender<Change>,
}

impl Default for Changes {
    fn default() -> Self {
        Self {
            hooks: RwLock::default(),
            waiters: broadcast::Sender::new(1024),
        }
    }
}

impl Changes {
    /// Calls `hook` for every change, before the transaction that made it returns.
    pub fn on_change(&self, hook: impl Fn(&Change) + Send + Sync + 'static) {
        self.hooks.write_ignoring_poison().push(Box::new(hook));
    }

    /// A stream of changes; a receiver that lags has to read the database again.
    pub fn subscribe(&self) -> broadcast::Receiver<Change> {
        self.waiters.subscribe()
    }

    pub(crate) fn publish(&self, changes: &[Change]) {
        if changes.is_empty() {
            return;
        }
        let hooks = self.hooks.read_ignoring_poison();
        for change in changes {
            hooks.iter().for_each(|hook| hook(change));
            // Fails only without receivers, which is no error.
            drop(self.waiters.send(change.clone()));
        }
    }
}

impl Tx {
    /// Notes that something changed that a cache or a waiter may depend on.
    pub async fn changed(
        &mut self,
        kind: ChangeKind,
        id: impl ToString,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let id = id.to_string();
        self.query("INSERT INTO changes (kind, id, at) VALUES ($1, $2, $3)")
            .bind(kind.name())
            .bind(&id)
            .bind(now)
            .execute()
            .await?;
        self.changes.push(Change { kind, id });
        Ok(())
    }
}

struct ChangeRow {
    seq: i64,
    txid: i64,
    change: Change,
}

impl Record for ChangeRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            seq: row.take()?,
            txid: row.take()?,
            change: Change {
                kind: ChangeKind::from_name(&row.take::<String>()?),
                id: row.take()?,
            },
        })
    }
}

/// Where a follower of PostgreSQL stands.
#[derive(Debug, Clone, Copy)]
struct Horizon {
    /// The oldest transaction that was still running: whatever it or a later one notes is read (again) next time.
    oldest: i64,
    /// When that was, in seconds by the server's clock, which runs on while this node is stopped.
    at: i64,
}

impl Record for Horizon {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            oldest: row.take()?,
            at: row.take()?,
        })
    }
}

impl Horizon {
    /// Whether the notes since this one are all there now. Not after a long absence, and not on a server that was put
    /// back to an earlier state.
    fn leads_to(self, now: Self) -> bool {
        self.oldest <= now.oldest && self.at.abs_diff(now.at) <= MAX_GAP_SECONDS
    }
}

/// Follows the feed until `stop`, publishing what other processes changed.
pub fn follow(db: Db, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        let mut follower = Follower {
            db: &db,
            position: None,
            horizon: None,
            version: None,
            seen: HashSet::new(),
        };
        let mut notified = match db.backend() {
            Backend::Sqlite(_) => None,
            Backend::Postgres(postgres) => Some(postgres.listen(stop.clone())),
        };
        let mut failing = false;
        while !stop.is_cancelled() {
            let caught_up = follower.catch_up().await;
            match &caught_up {
                // Once per outage, not twice a second.
                Err(error) if !failing => {
                    let error = error_chain(error);
                    tracing::warn!(error, "cannot follow changes");
                }
                Ok(()) if failing => tracing::info!("following changes again"),
                _ => {}
            }
            failing = caught_up.is_err();
            match &mut notified {
                None => {
                    tokio::select! { () = tokio::time::sleep(SQLITE_POLL_INTERVAL) => {}, () = stop.cancelled() => {} }
                }
                Some(wake) => tokio::select! {
                    () = tokio::time::sleep(POSTGRES_POLL_INTERVAL) => {},
                    _ = wake.recv() => {},
                    () = stop.cancelled() => {},
                },
            }
        }
    })
}

struct Follower<'d> {
    db: &'d Db,
    /// SQLite: the last sequence number seen.
    position: Option<i64>,
    /// PostgreSQL: how far we have read.
    horizon: Option<Horizon>,
    /// SQLite: its number of commits by others when we last looked.
    version: Option<i64>,
    /// PostgreSQL: what was published already and will be read again.
    seen: HashSet<i64>,
}

impl Follower<'_> {
    async fn catch_up(&mut self) -> Result<(), StoreError> {
        match self.db.backend() {
            Backend::Sqlite(sqlite) => {
                let version = Some(sqlite.data_version()?);
                if self.version != version {
                    self.catch_up_sqlite().await?;
                    self.version = version;
                }
                Ok(())
            }
            Backend::Postgres(_) => self.catch_up_postgres().await,
        }
    }

    async fn catch_up_sqlite(&mut self) -> Result<(), StoreError> {
        // Sequence numbers rise in commit order, because there is one writer.
        let Some(position) = self.position else {
            let newest = "SELECT COALESCE(MAX(seq), 0) FROM changes";
            self.position = Some(self.db.read(newest).fetch_one().await?);
            self.publish_everything();
            return Ok(());
        };
        let rows: Vec<ChangeRow> = self
            .db
            .read("SELECT seq, txid, kind, id FROM changes WHERE seq > $1 ORDER BY seq")
            .bind(position)
            .fetch_all()
            .await?;
        // Sequence numbers have no holes here: a gap means that rows were pruned before we saw them.
        if rows.first().is_some_and(|first| first.seq > position + 1) {
            self.publish_everything();
        }
        self.publish(&rows);
        self.position = rows.last().map(|last| last.seq).or(Some(position));
        Ok(())
    }

    async fn catch_up_postgres(&mut self) -> Result<(), StoreError> {
        // Numbers are given out before commit, so a lower one may appear later. Reading from the
        // oldest transaction that was running last time misses none.
        let horizon: Horizon = self
            .db
            .read(
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint,
                        CAST(EXTRACT(EPOCH FROM clock_timestamp()) AS BIGINT)",
            )
            .fetch_one()
            .await?;
        match self.horizon {
            Some(last) if last.leads_to(horizon) => {
                let mut rows: Vec<ChangeRow> = self
                    .db
                    .read("SELECT seq, txid, kind, id FROM changes WHERE txid >= $1 ORDER BY seq")
                    .bind(last.oldest)
                    .fetch_all()
                    .await?;
                let again = rows.iter().filter(|row| row.txid >= horizon.oldest);
                let seen = again.map(|row| row.seq).collect();
                rows.retain(|row| !self.seen.contains(&row.seq));
                self.publish(&rows);
                self.seen = seen;
            }
            // The first look, or one after which the notes do not tell.
            _ => {
                self.seen.clear();
                self.publish_everything();
            }
        }
        self.horizon = Some(horizon);
        Ok(())
    }

    /// Whatever was read before we began to follow may have changed since.
    fn publish_everything(&self) {
        self.db.changes().publish(&[Change {
            kind: ChangeKind::Everything,
            id: String::new(),
        }]);
    }

    fn publish(&self, rows: &[ChangeRow]) {
        let changes: Vec<_> = rows.iter().map(|row| row.change.clone()).collect();
        self.db.changes().publish(&changes);
    }
}

/// Removes up to `most` notes that every follower has seen long ago; returns how many there were.
pub async fn prune_changes(db: &Db, before: Timestamp, limit: u32) -> Result<u64, StoreError> {
    // The notes lie in the order of their time, so it is enough to look at the first ones.
    let sql = "DELETE FROM changes WHERE seq IN (SELECT seq FROM
               (SELECT seq, at FROM changes ORDER BY seq LIMIT $2) AS oldest WHERE at < $1)";
    prune(db, sql, before, limit).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_absence_and_an_earlier_state_mean_that_everything_may_have_changed() {
        let horizon = |oldest, at| Horizon { oldest, at };
        let last = horizon(100, 1_000_000);
        assert!(last.leads_to(horizon(100, 1_000_000)));
        assert!(last.leads_to(horizon(900, 1_001_800)));
        assert!(!last.leads_to(horizon(99, 1_000_000)), "put back");
        assert!(!last.leads_to(horizon(101, 1_001_801)), "pruned meanwhile");
        assert!(!last.leads_to(horizon(101, 996_400)), "another clock");
    }
}
