//! A fresh PostgreSQL database per test, on the server that `./test` starts.

#![expect(clippy::expect_used, reason = "a failed step is a failed test")]

use estrade_model::secret::Secret;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;
use tokio_postgres::NoTls;

/// A database of one test.
pub(crate) struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Makes an empty database; fails when there is no server, because a test that is not run is
    /// not passed.
    pub(crate) async fn create() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = std::env::var("ESTRADE_TEST_POSTGRES")
            .expect("ESTRADE_TEST_POSTGRES is not set: run ./test, which starts a PostgreSQL");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("estrade_{}_{count}", std::process::id());
        let database = Self { server, name };
        database.drop_leftover().await;
        database
            .on_server(&format!("CREATE DATABASE {}", database.name))
            .await;
        database
    }

    /// Where it is.
    pub(crate) fn url(&self) -> Secret {
        let (server, _) = self.server.rsplit_once('/').expect("a URL with a database");
        Secret(format!("{server}/{}", self.name))
    }

    /// Runs a statement in it, past the store.
    pub(crate) async fn query(&self, sql: &str) -> Vec<tokio_postgres::Row> {
        query(self.url().expose(), sql).await
    }

    /// Makes it a database that takes no writes, as a server is that still follows another one, or
    /// one that does again. Sessions that are open then are ended when it begins, and stay after.
    #[allow(
        dead_code,
        clippy::allow_attributes,
        reason = "not every test needs it"
    )]
    pub(crate) async fn set_read_only(&self, read_only: bool) {
        let name = &self.name;
        if !read_only {
            let sql = format!("ALTER DATABASE {name} RESET default_transaction_read_only");
            return self.on_server(&sql).await;
        }
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = on");
        self.on_server(&sql).await;
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
        );
        self.on_server(&sql).await;
    }

    /// Removes it, whoever is still connected.
    pub(crate) async fn remove(self) {
        self.drop_leftover().await;
    }

    async fn drop_leftover(&self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        self.on_server(&sql).await;
    }

    async fn on_server(&self, sql: &str) {
        query(&self.server, sql).await;
    }
}

async fn query(url: &str, sql: &str) -> Vec<tokio_postgres::Row> {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.expect(url);
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    client.query(sql, &[]).await.expect(sql)
}
