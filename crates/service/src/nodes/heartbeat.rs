//! The row of this node: added before it serves, renewed while it runs, removed when it stops.

use super::view::{FAILURE_TIMEOUT, HEARTBEAT_INTERVAL};
use super::{Membership, has_engine, hostname};
use crate::Result;
use estrade_model::error::error_chain;
use estrade_model::node::NodeAddresses;
use estrade_store::StoreError;
use estrade_store::nodes::{self, NewNode, NodeRow};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, timeout};
use tokio_util::sync::CancellationToken;

/// A database that has not responded by then counts as unavailable. Less than the failure timeout, so that a
/// connection that hangs costs one heartbeat and not all of them.
const DATABASE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long a server that stops waits for the database to remove its row; later it is found to be down.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(2);
/// A node that was silent for so long may be taken for dead soon: it comes back through the change feed.
const MAX_SILENCE: Duration = FAILURE_TIMEOUT.saturating_sub(HEARTBEAT_INTERVAL);
/// How long a node that is down stays in the list.
const RETENTION: Duration = Duration::from_hours(1);
/// How often the node finds out whether it has an engine.
const ENGINE_POLL_INTERVAL: Duration = Duration::from_secs(30);

impl Membership {
    /// Adds this node to the list and reads the list, so that it knows of the others before it serves.
    ///
    /// A failure is no reason not to start: [`Self::run`] repeats it.
    pub fn join(&self, addresses: NodeAddresses) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.state().addresses = addresses;
            if self.core.db.is_sqlite() {
                return;
            }
            if let Err(error) = self.beat().await {
                tracing::warn!(
                    error = error_chain(&error),
                    "cannot join the other nodes yet"
                );
            }
        })
    }

    /// Renews the row and looks for the others until `stop`, then removes the row.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            if self.core.db.is_sqlite() {
                return;
            }
            tokio::join!(self.beat_until(&stop), self.watch_engine(&stop));
            if let Err(error) = self.leave().await {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot leave the list of nodes");
            }
        })
    }

    async fn beat_until(&self, stop: &CancellationToken) {
        let mut ticks = interval_at(Instant::now() + HEARTBEAT_INTERVAL, HEARTBEAT_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut failing = false;
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                _ = ticks.tick() => {}
                () = self.shared.changed.notified() => {}
            }
            let beat = self.beat().await;
            match &beat {
                // Once per outage, not with each heartbeat.
                Err(error) if !failing => {
                    tracing::warn!(error = error_chain(error), "cannot look for other nodes");
                }
                Ok(()) if failing => tracing::info!("looking for other nodes again"),
                _ => {}
            }
            failing = beat.is_err();
        }
    }

    /// One heartbeat: renews the row, then reads everyone's.
    async fn beat(&self) -> Result<()> {
        let beat = timeout(DATABASE_TIMEOUT, self.renew_and_look());
        beat.await.unwrap_or_else(|_| Err(no_response().into()))
    }

    async fn renew_and_look(&self) -> Result<()> {
        let db = &self.core.db;
        let began = Instant::now();
        let renewed = self.state().renewed;
        let is_known = renewed.is_some_and(|at| began - at < MAX_SILENCE);
        let has_engine = self.has_engine.load(Ordering::Relaxed);
        if !is_known || !nodes::renew_node(db, self.this, has_engine).await? {
            self.add().await?;
        }
        self.state().renewed = Some(began);
        // In this order: a change that comes while the list is read is counted.
        let (changes, now) = (self.shared.changes(), Instant::now());
        let rows = nodes::list_nodes(db).await?;
        self.apply(rows, changes, now);
        self.prune().await
    }

    /// Adds the row, and tells the others.
    async fn add(&self) -> Result<()> {
        let node = Arc::new(NewNode {
            id: self.this,
            hostname: hostname(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            addresses: self.state().addresses.clone(),
            has_engine: self.has_engine.load(Ordering::Relaxed),
            uptime: self.started.elapsed(),
        });
        let now = self.core.now();
        let added = self.core.db.transact(move |tx| {
            let node = Arc::clone(&node);
            Box::pin(async move { nodes::add_node(tx, &node, now).await })
        });
        Ok(added.await?)
    }

    /// Removes the rows of nodes that have been down for long.
    async fn prune(&self) -> Result<()> {
        let old: Vec<_> = {
            let state = self.state();
            let is_old = |row: &&NodeRow| row.silence > RETENTION && state.view.is_down(row.id);
            let old = state.rows.iter().filter(is_old);
            old.map(|row| (row.id, row.seen_at)).collect()
        };
        for (id, seen_at) in old {
            let db = &self.core.db;
            let pruned = db.transact(move |tx| {
                Box::pin(async move { nodes::prune_node(tx, id, seen_at).await })
            });
            pruned.await?;
        }
        Ok(())
    }

    /// Removes the row, and tells the others.
    async fn leave(&self) -> Result<()> {
        let (this, now) = (self.this, self.core.now());
        let left = self
            .core
            .db
            .transact(move |tx| Box::pin(async move { nodes::remove_node(tx, this, now).await }));
        let left = timeout(LEAVE_TIMEOUT, left);
        Ok(left.await.unwrap_or_else(|_| Err(no_response()))?)
    }

    /// Finds out from time to time whether this node has an engine, for its row.
    async fn watch_engine(&self, stop: &CancellationToken) {
        let mut ticks = interval(ENGINE_POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        while stop.run_until_cancelled(ticks.tick()).await.is_some() {
            let Some(has_engine) = stop.run_until_cancelled(has_engine(&self.core)).await else {
                return;
            };
            if self.has_engine.swap(has_engine, Ordering::Relaxed) != has_engine {
                self.shared.changed.notify_one();
            }
        }
    }
}

fn no_response() -> StoreError {
    StoreError::Unavailable("it does not answer".into())
}
