//! A fresh PostgreSQL database per test, on the server that `./test` starts.

use estrade_model::secret::Secret;
use std::sync::atomic::{AtomicU32, Ordering};
use tokio::task::JoinSet;
use tokio_postgres::{Client, NoTls, SimpleQueryMessage};

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
        let mut session = Session::open(&database.server).await;
        session.query(&database.drop_statement()).await;
        session
            .query(&format!("CREATE DATABASE {}", database.name))
            .await;
        database
    }

    /// Where it is.
    pub fn url(&self) -> Secret {
        let (server, _) = self.server.rsplit_once('/').expect("a URL with a database");
        Secret(format!("{server}/{}", self.name))
    }

    /// Everything that is stored, one line per row, bytes in hexadecimal.
    pub async fn dump(&self) -> String {
        let mut session = Session::open(self.url().expose()).await;
        let tables = "SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'";
        let select = |table: String| format!("SELECT '{table}: ' || t::text FROM {table} t");
        let tables = session.query(tables).await.into_iter().map(select);
        let tables: Vec<_> = tables.collect();
        let rows = session.query(&tables.join(" UNION ALL ")).await;
        let dump = rows.join("\n");
        assert!(dump.contains("accounts: "), "the dump has seen no table");
        dump
    }

    /// Removes it, whoever is still connected.
    pub async fn remove(self) {
        let mut session = Session::open(&self.server).await;
        session.query(&self.drop_statement()).await;
    }

    fn drop_statement(&self) -> String {
        format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name)
    }
}

/// A connection past the server.
struct Session {
    client: Client,
    _tasks: JoinSet<Result<(), tokio_postgres::Error>>,
}

impl Session {
    async fn open(url: &str) -> Self {
        let connected = tokio_postgres::connect(url, NoTls).await;
        let (client, connection) = connected.expect("PostgreSQL answers");
        let mut tasks = JoinSet::new();
        tasks.spawn(connection);
        Self {
            client,
            _tasks: tasks,
        }
    }

    /// Runs a statement; the first column of each row as text.
    async fn query(&mut self, sql: &str) -> Vec<String> {
        let messages = self.client.simple_query(sql).await.expect(sql);
        let text = |message| match message {
            SimpleQueryMessage::Row(row) => Some(row.get(0).unwrap_or_default().to_owned()),
            _ => None,
        };
        messages.into_iter().filter_map(text).collect()
    }
}
