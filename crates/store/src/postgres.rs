//! PostgreSQL: a pool; serialisable transactions that are repeated when they clash.

use crate::StoreError;
use crate::changes::Change;
use crate::db::{Job, Tx, TxInner};
use crate::value::{Record, Row, Value};
use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use estrade_model::secret::Secret;
use futures_util::future::try_join_all;
use rustls_platform_verifier::ConfigVerifierExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, mpsc};
use tokio_postgres::config::SslMode;
use tokio_postgres::types::ToSql;
use tokio_postgres::{AsyncMessage, Config};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::sync::CancellationToken;

/// Connections per node.
const POOL: usize = 16;
/// How long to wait for a connection or for the server to answer a new one.
const WAIT: Duration = Duration::from_secs(5);
/// After this many clashes a transaction queues up with the other unlucky ones of this node.
const CLASHES_BEFORE_QUEUE: u32 = 2;
/// After this many it gives up; on one node the queue makes that impossible in practice.
const MOST_CLASHES: u32 = 100;
/// Any number, as long as all versions of Estrade use it.
const MIGRATION_LOCK: i64 = 0x4573_7472_6164_6501;
const CHANNEL: &str = "estrade_changes";

pub(crate) struct Postgres {
    pool: Pool,
    config: Config,
    tls: MakeRustlsConnect,
    clashing: Arc<Mutex<()>>,
}

impl Postgres {
    pub(crate) async fn connect(url: &Secret) -> Result<Self, StoreError> {
        let config = parse_url(url.expose())?;
        let tls = MakeRustlsConnect::new(
            rustls::ClientConfig::with_platform_verifier()
                .map_err(|error| StoreError::Unavailable(error.into()))?,
        );
        let recycling = ManagerConfig {
            recycling_method: RecyclingMethod::Fast,
        };
        let pool = Pool::builder(Manager::from_config(config.clone(), tls.clone(), recycling))
            .max_size(POOL)
            .runtime(Runtime::Tokio1)
            .wait_timeout(Some(WAIT))
            .create_timeout(Some(WAIT))
            .build()
            .map_err(StoreError::bug)?;
        let postgres = Self {
            pool,
            config,
            tls,
            clashing: Arc::default(),
        };
        postgres.check_version().await?;
        Ok(postgres)
    }

    async fn check_version(&self) -> Result<(), StoreError> {
        let version: Vec<String> = self.read("SHOW server_version_num", &[]).await?;
        match version.first().and_then(|text| text.parse::<u32>().ok()) {
            Some(number) if number >= 150_000 => Ok(()),
            _ => Err(StoreError::Unusable(
                "PostgreSQL 15 or newer is needed".into(),
            )),
        }
    }

    pub(crate) fn close(&self) {
        self.pool.close();
    }

    pub(crate) async fn read<T: Record>(
        &self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<T>, StoreError> {
        let client = self.pool.get().await?;
        fetch(&client, sql, values).await
    }

    pub(crate) async fn transact<T, E, F>(&self, job: F) -> Result<(T, Vec<Change>), E>
    where
        F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        let (pool, clashing) = (self.pool.clone(), Arc::clone(&self.clashing));
        #[expect(
            clippy::disallowed_methods,
            reason = "awaited right here; a caller that hangs up must not leave a transaction half-way on a pooled connection"
        )]
        let task = tokio::spawn(async move { transact_until_serial(&pool, &clashing, job).await });
        task.await
            .map_err(|error| StoreError::bug(error).into())
            .flatten()
    }

    /// Takes the lock under which schemas change; held until [`MigrationLock::release`].
    pub(crate) async fn lock_migrations(&self) -> Result<MigrationLock, StoreError> {
        let client = self.pool.get().await?;
        client
            .execute("SELECT pg_advisory_lock($1)", &[&MIGRATION_LOCK])
            .await?;
        Ok(MigrationLock(Some(client)))
    }

    /// Wakes whoever holds the receiver after each change that another node committed.
    pub(crate) fn listen(&self, stop: CancellationToken) -> mpsc::Receiver<()> {
        let (wake, woken) = mpsc::channel(1);
        let (config, tls) = (self.config.clone(), self.tls.clone());
        #[expect(clippy::disallowed_methods, reason = "ends with the token it is given")]
        tokio::spawn(async move {
            while !stop.is_cancelled() {
                let heard = tokio::select! { heard = listen_once(&config, &tls, &wake) => heard, () = stop.cancelled() => return };
                if let Err(error) = heard {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "lost the connection that hears of changes"
                    );
                }
                tokio::select! { () = tokio::time::sleep(Duration::from_secs(1)) => {}, () = stop.cancelled() => {} }
            }
        });
        woken
    }
}

/// `verify-full` and `verify-ca` are what we always do under `require`; the driver does not know the words.
fn parse_url(url: &str) -> Result<Config, StoreError> {
    let strict = url
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    let mut config: Config = strict
        .parse()
        .map_err(|_| StoreError::Unusable("database_url is not a valid PostgreSQL URL".into()))?;
    if strict == url && !url.contains("sslmode=") {
        config.ssl_mode(SslMode::Prefer);
    }
    config.application_name("estrade").connect_timeout(WAIT);
    Ok(config)
}

async fn listen_once(
    config: &Config,
    tls: &MakeRustlsConnect,
    wake: &mpsc::Sender<()>,
) -> Result<(), StoreError> {
    let (client, mut connection) = config.connect(tls.clone()).await?;
    let listen = client.batch_execute("LISTEN estrade_changes");
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

/// The lock under which schemas change. Dropped without [`Self::release`], it closes its connection,
/// because a connection that went back to the pool would keep the next node waiting.
pub(crate) struct MigrationLock(Option<Object>);

impl MigrationLock {
    pub(crate) async fn release(mut self) {
        let Some(client) = self.0.take() else { return };
        if client
            .execute("SELECT pg_advisory_unlock($1)", &[&MIGRATION_LOCK])
            .await
            .is_err()
        {
            drop(Object::take(client));
        }
    }
}

impl Drop for MigrationLock {
    fn drop(&mut self) {
        if let Some(client) = self.0.take() {
            drop(Object::take(client));
        }
    }
}

async fn transact_until_serial<T, E, F>(
    pool: &Pool,
    clashing: &Mutex<()>,
    job: F,
) -> Result<(T, Vec<Change>), E>
where
    F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E> + Send + Sync + 'static,
    E: From<StoreError>,
{
    let mut queue = None;
    for clashes in 1..=MOST_CLASHES {
        match attempt(pool, &job).await {
            Attempt::Done(result) => return result,
            Attempt::Clashed => tracing::debug!(clashes, "a transaction clashed; repeating it"),
        }
        if clashes == CLASHES_BEFORE_QUEUE {
            queue = Some(clashing.lock().await);
        }
    }
    drop(queue);
    Err(StoreError::Serialization("too many clashes".into()).into())
}

enum Attempt<T> {
    Done(T),
    Clashed,
}

async fn attempt<T, E, F>(pool: &Pool, job: &F) -> Attempt<Result<(T, Vec<Change>), E>>
where
    F: for<'t> Fn(&'t mut Tx) -> Job<'t, T, E>,
    E: From<StoreError>,
{
    let mut tx = match begin(pool).await {
        Ok(tx) => tx,
        Err(error) => return Attempt::Done(Err(error.into())),
    };
    let outcome = job(&mut tx).await;
    let Tx {
        inner: TxInner::Postgres(inner),
        changes,
    } = tx
    else {
        return Attempt::Done(Err(
            StoreError::bug("the transaction changed its engine").into()
        ));
    };
    let clashed = inner.clashed;
    match outcome {
        Ok(value) => match inner.commit(!changes.is_empty()).await {
            Ok(()) => Attempt::Done(Ok((value, changes))),
            Err(StoreError::Serialization(_)) => Attempt::Clashed,
            Err(error) => Attempt::Done(Err(error.into())),
        },
        Err(error) => {
            inner.rollback().await;
            if clashed {
                Attempt::Clashed
            } else {
                Attempt::Done(Err(error))
            }
        }
    }
}

async fn begin(pool: &Pool) -> Result<Tx, StoreError> {
    let client = pool.get().await?;
    client
        .batch_execute("BEGIN ISOLATION LEVEL SERIALIZABLE")
        .await?;
    Ok(Tx {
        inner: TxInner::Postgres(PostgresTx {
            client: Some(client),
            clashed: false,
        }),
        changes: Vec::new(),
    })
}

/// A transaction on one connection. Dropped half-way (a panic), it takes the connection with it.
pub(crate) struct PostgresTx {
    client: Option<Object>,
    /// Whether a statement failed because of another transaction: then the job is repeated,
    /// whatever error it made of that.
    clashed: bool,
}

impl PostgresTx {
    fn client(&self) -> Result<&Object, StoreError> {
        self.client
            .as_ref()
            .ok_or_else(|| StoreError::bug("the transaction is over"))
    }

    fn watch<T>(&mut self, result: Result<T, StoreError>) -> Result<T, StoreError> {
        self.clashed |= matches!(result, Err(StoreError::Serialization(_)));
        result
    }

    pub(crate) async fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
        let result = execute(self.client()?, sql, values).await;
        self.watch(result)
    }

    pub(crate) async fn execute_many(
        &mut self,
        sql: &str,
        rows: &[Vec<Value>],
    ) -> Result<(), StoreError> {
        let client = self.client()?;
        let result = try_join_all(rows.iter().map(|values| execute(client, sql, values))).await;
        self.watch(result).map(drop)
    }

    pub(crate) async fn fetch<T: Record>(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<T>, StoreError> {
        let result = fetch(self.client()?, sql, values).await;
        self.watch(result)
    }

    /// Runs several statements at once; for migrations only.
    pub(crate) async fn execute_script(&mut self, sql: &str) -> Result<(), StoreError> {
        Ok(self.client()?.batch_execute(sql).await?)
    }

    async fn commit(mut self, notify: bool) -> Result<(), StoreError> {
        let client = self.client()?;
        if notify {
            client
                .execute("SELECT pg_notify($1, '')", &[&CHANNEL])
                .await?;
        }
        client.batch_execute("COMMIT").await?;
        drop(self.client.take());
        Ok(())
    }

    async fn rollback(mut self) {
        let Ok(client) = self.client() else { return };
        if client.batch_execute("ROLLBACK").await.is_ok() {
            drop(self.client.take());
        }
    }
}

impl Drop for PostgresTx {
    fn drop(&mut self) {
        if let Some(client) = self.client.take() {
            drop(Object::take(client));
        }
    }
}

fn bind(values: &[Value]) -> Vec<&(dyn ToSql + Sync)> {
    values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .collect()
}

async fn execute(client: &Object, sql: &str, values: &[Value]) -> Result<u64, StoreError> {
    let statement = client.prepare_cached(sql).await?;
    Ok(client.execute(&statement, &bind(values)).await?)
}

async fn fetch<T: Record>(
    client: &Object,
    sql: &str,
    values: &[Value],
) -> Result<Vec<T>, StoreError> {
    let statement = client.prepare_cached(sql).await?;
    let rows = client.query(&statement, &bind(values)).await?;
    rows.iter()
        .map(|row| T::from_row(&mut Row::postgres(row)))
        .collect()
}
