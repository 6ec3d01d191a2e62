//! PostgreSQL: a pool; serialisable transactions that are repeated when they clash.

mod connector;
mod group;
mod transaction;

use crate::StoreError;
use crate::changes::Changes;
use crate::db::{Boxed, ErasedJob, Statement};
use crate::value::Value;
use connector::{CONNECTION_TIMEOUT, Connector};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use estrade_model::OwnerId;
use estrade_model::error::error_chain;
use estrade_model::secret::Secret;
use futures_util::future::try_join_all;
pub(crate) use group::Mode;
use group::{GroupQueues, GroupRunner};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio::time::timeout;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config, Row};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::sync::CancellationToken;
pub(crate) use transaction::PostgresTx;
use transaction::transact_until_serial;

/// Connections per node.
const MAX_CONNECTIONS: usize = 16;
/// Any number, as long as all versions of Estrade use it.
const MIGRATION_LOCK: i64 = 0x4573_7472_6164_6501;
const CLEANUP_LOCK: i64 = 0x4573_7472_6164_6502;
const LISTEN: &str = "LISTEN estrade_changes";

pub(crate) struct Postgres {
    pool: Pool,
    connector: Connector,
    clashing: Arc<Mutex<()>>,
    queues: Arc<GroupQueues>,
}

impl Postgres {
    pub(crate) async fn connect(url: &Secret) -> Result<Self, StoreError> {
        let tls = estrade_tls::client_config(Vec::new());
        let tls = tls.map_err(|error| StoreError::Unavailable(error.into()))?;
        let connector = Connector::new(url.expose(), MakeRustlsConnect::new(tls))?;
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        // The connector has its own configuration, of each host.
        let manager = Manager::from_connect(Config::new(), connector.clone(), recycling);
        let pool = Pool::builder(manager)
            .max_size(MAX_CONNECTIONS)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(CONNECTION_TIMEOUT))
            .create_timeout(Some(connector.timeout()))
            .post_create(Connector::session())
            .build()
            .map_err(StoreError::bug)?;
        let postgres = Self {
            pool,
            connector,
            clashing: Arc::default(),
            queues: Arc::default(),
        };
        postgres.check_version().await?;
        Ok(postgres)
    }

    async fn check_version(&self) -> Result<(), StoreError> {
        let rows = self.read("SHOW server_version_num", &[]).await?;
        let version = rows
            .first()
            .and_then(|row| row.try_get::<_, String>(0).ok());
        match version.and_then(|text| text.parse::<u32>().ok()) {
            Some(number) if number >= 150_000 => Ok(()),
            _ => Err(StoreError::Unusable(
                "PostgreSQL 15 or newer is needed".into(),
            )),
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    pub(crate) fn read<'a>(
        &'a self,
        sql: &'a str,
        values: &'a [Value],
    ) -> Boxed<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let client = self.pool.get().await?;
            let rows = fetch(&client, sql, values).await;
            if is_unfit(&rows) {
                drop(Object::take(client));
            }
            rows
        })
    }

    /// Runs one statement that writes, in a transaction of its own at the isolation that the server is set to; returns
    /// how many rows it touched.
    pub(crate) fn execute_alone<'a>(
        &'a self,
        sql: &'a str,
        values: &'a [Value],
    ) -> Boxed<'a, Result<u64, StoreError>> {
        Box::pin(async move {
            let client = self.pool.get().await?;
            let touched = execute(&client, sql, values).await;
            if is_unfit(&touched) {
                drop(Object::take(client));
            }
            touched
        })
    }

    /// Runs one statement in a transaction of its own, under READ COMMITTED: it is neither repeated nor announced.
    pub(crate) fn run_alone<'a>(
        &'a self,
        sql: &'a str,
        values: &'a [&'a (dyn ToSql + Sync)],
    ) -> Boxed<'a, Result<Vec<Row>, StoreError>> {
        Box::pin(async move {
            let client = self.pool.get().await?;
            let run = async {
                let statement = client.prepare_cached(sql).await?;
                Ok(client.query(&statement, values).await?)
            };
            let rows = run.await;
            if is_unfit(&rows) {
                drop(Object::take(client));
            }
            rows
        })
    }

    /// Runs a job in a transaction; on an error it was rolled back, whatever the job returned.
    pub(crate) async fn transact(
        &self,
        job: ErasedJob,
        feed: Arc<Changes>,
    ) -> Result<(), StoreError> {
        let (pool, clashing) = (self.pool.clone(), Arc::clone(&self.clashing));
        #[expect(
            clippy::disallowed_methods,
            reason = "awaited right here; a caller that hangs up must not leave a transaction half-way on a pooled connection"
        )]
        let task = tokio::spawn(async move {
            let changes = transact_until_serial(&pool, &clashing, &job).await?;
            // Before the caller responds: a request that follows the response must see the change.
            feed.publish(&changes);
            Ok(())
        });
        task.await.map_err(StoreError::bug).flatten()
    }

    /// Runs a short job, together with others of the owner that wait at the same time; like [`Self::transact`] otherwise.
    pub(crate) async fn transact_in_group(
        &self,
        owner: OwnerId,
        mode: Mode,
        job: ErasedJob,
        feed: Arc<Changes>,
    ) -> Result<(), StoreError> {
        let runner = GroupRunner {
            pool: self.pool.clone(),
            clashing: Arc::clone(&self.clashing),
            queues: Arc::clone(&self.queues),
            feed,
        };
        #[expect(
            clippy::disallowed_methods,
            reason = "awaited right here; a caller that hangs up must not leave the jobs of others without somebody who runs them"
        )]
        let task = tokio::spawn(runner.run(owner, mode, job));
        task.await.map_err(StoreError::bug).flatten()
    }

    /// Takes the lock under which schemas change; held until [`MigrationLock::release`].
    pub(crate) async fn lock_migrations(&self) -> Result<MigrationLock, StoreError> {
        let client = self.pool.get().await?;
        client
            .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK])
            .await?;
        Ok(SessionLock(Some(client), MIGRATION_LOCK))
    }

    /// Takes the right to clean up, unless another node has it.
    pub(crate) async fn try_lock_gc(&self) -> Result<Option<GcLock>, StoreError> {
        let client = self.pool.get().await?;
        let row = client
            .query_one("SELECT pg_try_advisory_lock($1)", &[&CLEANUP_LOCK])
            .await?;
        let taken: bool = row.try_get(0)?;
        Ok(taken.then_some(SessionLock(Some(client), CLEANUP_LOCK)))
    }

    /// Signals the receiver after each change that another node committed.
    pub(crate) fn listen(&self, stop: CancellationToken) -> mpsc::Receiver<()> {
        let (wake, woken) = mpsc::channel(1);
        let connector = self.connector.clone();
        #[expect(clippy::disallowed_methods, reason = "ends with the token it is given")]
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let received = tokio::select! { received = listen_once(&connector, &wake) => received, () = stop.cancelled() => return };
                if let Err(error) = received {
                    tracing::warn!(
                        error = error_chain(&error),
                        "lost the connection that hears of changes"
                    );
                }
                tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
            }
        });
        woken
    }
}

async fn listen_once(connector: &Connector, wake: &mpsc::Sender<()>) -> Result<(), StoreError> {
    let connected = timeout(connector.timeout(), connector.open()).await;
    let (client, mut connection) =
        connected.map_err(|elapsed| StoreError::Unavailable(elapsed.into()))??;
    let listen = client.batch_execute(LISTEN);
    tokio::pin!(listen);
    let mut listening = false;
    loop {
        tokio::select! {
            done = &mut listen, if !listening => { done?; listening = true; }
            message = std::future::poll_fn(|context| connection.poll_message(context)) => match message {
                // A full channel means that the follower is about to look anyway.
                Some(Ok(AsyncMessage::Notification(_))) => drop(wake.try_send(())),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(error.into()),
                None => return Ok(()),
            }
        }
    }
}

/// The lock under which schemas change.
pub(crate) type MigrationLock = SessionLock;
/// The lock under which one node cleans up.
pub(crate) type GcLock = SessionLock;

/// A lock of one connection. Dropped without [`Self::release`], it closes the connection, because one
/// that went back to the pool would keep the next node waiting.
pub(crate) struct SessionLock(Option<Object>, i64);

impl SessionLock {
    pub(crate) async fn release(mut self) {
        let Some(client) = self.0.take() else { return };
        if client
            .execute("SELECT pg_advisory_unlock($1)", &[&self.1])
            .await
            .is_err()
        {
            drop(Object::take(client));
        }
    }
}

impl Drop for SessionLock {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

/// Whether the server at the other end does not serve any more. Its connection may look whole, as
/// after a failover, so it must not go back to the pool.
fn is_unfit<T>(result: &Result<T, StoreError>) -> bool {
    matches!(result, Err(StoreError::Unavailable(_)))
}

fn bind(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .collect()
}

fn execute<'a>(
    client: &'a Object,
    sql: &'a str,
    values: &'a [Value],
) -> Boxed<'a, Result<u64, StoreError>> {
    Box::pin(async move {
        let statement = client.prepare_cached(sql).await?;
        Ok(client.execute(&statement, &bind(values)).await?)
    })
}

/// Sends all at once, prepared once, and then waits for all.
fn execute_each<'a>(
    client: &'a Object,
    sql: &'a str,
    rows: &'a [Vec<Value>],
) -> Boxed<'a, Result<Vec<u64>, StoreError>> {
    Box::pin(async move {
        let statement = client.prepare_cached(sql).await?;
        let executions = rows
            .iter()
            .map(|values| async { client.execute(&statement, &bind(values)).await });
        Ok(try_join_all(executions).await?)
    })
}

/// The same with several statements.
fn execute_together<'a>(
    client: &'a Object,
    statements: &'a [Statement],
) -> Boxed<'a, Result<Vec<u64>, StoreError>> {
    Box::pin(async move {
        let mut executions = Vec::new();
        for Statement { sql, rows } in statements {
            let statement = client.prepare_cached(sql).await?;
            for values in rows {
                let statement = statement.clone();
                executions.push(async move { client.execute(&statement, &bind(values)).await });
            }
        }
        Ok(try_join_all(executions).await?)
    })
}

/// Boxed, so that it is compiled here and not wherever something is read.
fn fetch<'q>(
    client: &'q Object,
    sql: &'q str,
    values: &'q [Value],
) -> Boxed<'q, Result<Vec<Row>, StoreError>> {
    Box::pin(async move {
        let statement = client.prepare_cached(sql).await?;
        Ok(client.query(&statement, &bind(values)).await?)
    })
}
