//! A fresh PostgreSQL database per test, on the server that `./test` starts.

use estrade_model::secret::Secret;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;
use tokio_postgres::{NoTls, SimpleQueryMessage};

/// A database of one test.
pub struct TestDatabase {
    server: String,
    name: String,
}

impl TestDatabase {
    /// Makes an empty database. Fails when there is no server: a test that was not run has not
    /// passed.
    pub async fn create() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let server = std::env::var("ESTRADE_TEST_POSTGRES")
            .expect("ESTRADE_TEST_POSTGRES is not set: run ./test, which starts a PostgreSQL");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("estrade_api_{}_{count}", std::process::id());
        let database = Self { server, name };
        database.drop_leftover().await;
        let create = format!("CREATE DATABASE {}", database.name);
        query(&database.server, &create).await;
        database
    }

    /// Where it is.
    pub fn url(&self) -> Secret {
        let (server, _) = self.server.rsplit_once('/').expect("a URL with a database");
        Secret(format!("{server}/{}", self.name))
    }

    /// Runs a statement past the server; each row as texts, bytes in hexadecimal.
    pub async fn query(&self, sql: &str) -> Vec<Vec<String>> {
        query(self.url().expose(), sql).await
    }

    /// Everything that is stored, one line per row.
    pub async fn dump(&self) -> String {
        let tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'";
        let mut dump = String::new();
        for table in self.query(tables).await {
            let table = table[0].as_str();
            for row in self.query(&format!("SELECT t::text FROM {table} t")).await {
                dump.extend([table, ": ", &row[0], "\n"]);
            }
        }
        assert!(dump.contains("accounts: "), "the dump has seen no table");
        dump
    }

    /// Removes it, whoever is still connected.
    pub async fn remove(self) {
        self.drop_leftover().await;
    }

    async fn drop_leftover(&self) {
        let sql = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        query(&self.server, &sql).await;
    }
}

async fn query(url: &str, sql: &str) -> Vec<Vec<String>> {
    let (client, connection) = tokio_postgres::connect(url, NoTls)
        .await
        .expect("PostgreSQL answers");
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let messages = client.simple_query(sql).await.expect(sql);
    let texts = |message| match message {
        SimpleQueryMessage::Row(row) => {
            let cell = |at| row.get(at).unwrap_or_default().to_owned();
            Some((0..row.len()).map(cell).collect())
        }
        _ => None,
    };
    messages.into_iter().filter_map(texts).collect()
}
