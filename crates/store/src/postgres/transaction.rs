//! Transactions on PostgreSQL: serialisable, repeated when they clash.

use super::{execute, execute_each, execute_together, fetch, is_unfit};
use crate::StoreError;
use crate::changes::Change;
use crate::db::{ErasedJob, Statement, Tx, TxInner};
use crate::value::Value;
use deadpool_postgres::{Object, Pool};
use futures_util::future::join;
use std::sync::Arc;
use tokio::sync::Mutex;
use tokio_postgres::Row;

/// After this many conflicts a transaction queues up with the other unlucky ones of this node.
const CONFLICTS_BEFORE_QUEUE: u32 = 2;
/// After this many it gives up; on one node the queue makes that impossible in practice.
const MAX_CONFLICTS: u32 = 100;
const SAVEPOINT: &str = "SAVEPOINT job";
const KEEP_JOB: &str = "RELEASE SAVEPOINT job";
const UNDO_JOB: &str = "ROLLBACK TO SAVEPOINT job; RELEASE SAVEPOINT job";
const NOTIFY: &str = "NOTIFY estrade_changes";

/// Repeats a job until it has run as if alone, in a transaction of its own; returns the changes to publish.
pub(super) async fn transact_until_serial(
    pool: &Pool,
    clashing: &Mutex<()>,
    job: &ErasedJob,
) -> Result<Vec<Change>, StoreError> {
    let mut queue = None;
    for conflicts in 1..=MAX_CONFLICTS {
        if let Some(changes) = attempt(pool, job).await? {
            return Ok(changes);
        }
        tracing::debug!(conflicts, "a transaction clashed; repeating it");
        if conflicts == CONFLICTS_BEFORE_QUEUE {
            queue = Some(clashing.lock().await);
        }
    }
    drop(queue);
    Err(StoreError::Serialization("too many conflicts".into()))
}

/// Runs the job once; none when it clashed with another transaction.
async fn attempt(pool: &Pool, job: &ErasedJob) -> Result<Option<Vec<Change>>, StoreError> {
    let mut tx = begin(pool).await?;
    let keep = job(&mut tx).await;
    let Tx {
        inner: TxInner::Postgres(inner),
        changes,
        failed,
        blob_epoch: _,
    } = tx
    else {
        return Err(StoreError::bug("the transaction changed its backend"));
    };
    if keep && !failed {
        return match inner.commit(!changes.is_empty()).await {
            Ok(()) => Ok(Some(changes)),
            Err(StoreError::Serialization(_)) => Ok(None),
            Err(error) => Err(error),
        };
    }
    let clashed = inner.clashed;
    inner.rollback().await;
    match (clashed, keep) {
        (true, _) => Ok(None),
        // After a failed statement the server replies to COMMIT with a rollback that looks like a success.
        (false, true) => Err(Tx::kept_after_failure()),
        (false, false) => Ok(Some(Vec::new())),
    }
}

pub(super) async fn begin(pool: &Pool) -> Result<Tx, StoreError> {
    let client = begin_on_connection(pool).await?;
    Ok(PostgresTx::on(Connection::Own(Box::new(client))))
}

/// A connection with a transaction that has begun.
pub(super) async fn begin_on_connection(pool: &Pool) -> Result<Object, StoreError> {
    let client = pool.get().await?;
    let begun = client.batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE");
    if let Err(error) = begun.await {
        // Nothing of ours can be wrong with that: it is a server that takes no writes.
        drop(Object::take(client));
        return Err(StoreError::Unavailable(error.into()));
    }
    Ok(client)
}

/// The connection of a transaction.
pub(super) enum Connection {
    Own(Box<Object>),
    /// One on which several jobs run at once; somebody else ends the transaction.
    Shared(Arc<Object>),
}

/// A transaction on one connection. Dropped half-way (a panic), it takes the connection with it.
pub(crate) struct PostgresTx {
    client: Option<Connection>,
    /// Statements that go to the server with the next one, in one round trip. If one of them fails, so does the next one.
    to_send: String,
    /// Whether a statement failed because of another transaction: then the job is repeated,
    /// whatever error it made of that.
    pub(super) clashed: bool,
    /// Whether the connection must not be used again.
    unfit: bool,
}

impl PostgresTx {
    pub(super) fn is_unfit(&self) -> bool {
        self.unfit
    }

    /// A transaction that has begun on a connection.
    pub(super) fn on(connection: Connection) -> Tx {
        Tx::new(TxInner::Postgres(Self {
            client: Some(connection),
            to_send: String::new(),
            clashed: false,
            unfit: false,
        }))
    }

    fn client(&self) -> Result<&Object, StoreError> {
        match &self.client {
            Some(Connection::Own(client)) => Ok(client),
            Some(Connection::Shared(client)) => Ok(client),
            None => Err(StoreError::bug("the transaction is over")),
        }
    }

    fn watch<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.clashed |= matches!(result, Err(StoreError::Serialization(_)));
        self.unfit |= is_unfit(&result);
        result
    }

    fn take_to_send(&mut self) -> String {
        std::mem::take(&mut self.to_send)
    }

    fn send_later(&mut self, sql: &str) {
        if !self.to_send.is_empty() {
            self.to_send.push_str("; ");
        }
        self.to_send.push_str(sql);
    }

    /// Begins one of several jobs, which can be undone alone.
    pub(super) fn begin_job(&mut self) {
        self.send_later(SAVEPOINT);
    }

    pub(super) fn keep_job(&mut self) {
        self.send_later(KEEP_JOB);
    }

    pub(super) fn undo_job(&mut self) {
        self.send_later(UNDO_JOB);
    }

    pub(crate) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let to_send = self.take_to_send();
        let client = self.client()?;
        let result = send_before(client, &to_send, execute(client, sql, values)).await;
        self.watch(result)
    }

    pub(crate) async fn execute_each(
        &mut self,
        sql: &str,
        rows: &[Vec<Value>],
    ) -> Result<Vec<u64>, StoreError> {
        let to_send = self.take_to_send();
        let client = self.client()?;
        let result = send_before(client, &to_send, execute_each(client, sql, rows)).await;
        self.watch(result)
    }

    pub(crate) async fn execute_together(
        &mut self,
        statements: &[Statement],
    ) -> Result<Vec<u64>, StoreError> {
        let to_send = self.take_to_send();
        let client = self.client()?;
        let result = send_before(client, &to_send, execute_together(client, statements)).await;
        self.watch(result)
    }

    pub(crate) async fn fetch(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<Row>, StoreError> {
        let to_send = self.take_to_send();
        let client = self.client()?;
        let result = send_before(client, &to_send, fetch(client, sql, values)).await;
        self.watch(result)
    }

    /// Runs several statements at once; for migrations only.
    pub(crate) async fn execute_script(&mut self, sql: &str) -> Result<(), StoreError> {
        let result = self.client()?.batch_execute(sql).await;
        self.watch(result.map_err(Into::into))
    }

    pub(super) async fn commit(mut self, notify: bool) -> Result<(), StoreError> {
        if notify {
            self.send_later(NOTIFY);
        }
        self.send_later("COMMIT");
        let to_send = self.take_to_send();
        let committed = self.client()?.batch_execute(&to_send).await;
        if let Err(error) = committed {
            let failed = self.watch(Err(error.into()));
            // After a clash the connection is as good as before: they are common, a new one is dear.
            self.rollback().await;
            return failed;
        }
        drop(self.client.take());
        Ok(())
    }

    pub(super) async fn rollback(mut self) {
        let Ok(client) = self.client() else { return };
        if !self.unfit && client.batch_execute("ROLLBACK").await.is_ok() {
            drop(self.client.take());
        }
    }
}

/// Sends statements and those of the work, without waiting in between.
async fn send_before<T>(
    client: &Object,
    to_send: &str,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    if to_send.is_empty() {
        return work.await;
    }
    // `join` begins with the first.
    let (sent, result) = join(client.batch_execute(to_send), work).await;
    sent.map_err(Into::into).and(result)
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        if let Some(Connection::Own(client)) = self.client.take() {
            drop(Object::take(*client));
        }
    }
}
