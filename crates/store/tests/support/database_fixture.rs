//! A database of one test, on either backend.

use estrade_fixtures::{Backend, Fixture, TestDatabase};
use estrade_store::{Db, Location, StoreError};
use tempfile::TempDir;

/// Where a test's database is.
pub(crate) struct DatabaseFixture {
    pub(crate) location: Location,
    pub(crate) postgres: Option<TestDatabase>,
    _directory: TempDir,
}

impl DatabaseFixture {
    pub(crate) fn on_sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        Self {
            location: Location::Sqlite(directory.path().join("estrade.db")),
            postgres: None,
            _directory: directory,
        }
    }

    pub(crate) async fn on_postgres() -> Self {
        let database = TestDatabase::create().await;
        Self {
            location: Location::Postgres(database.url()),
            postgres: Some(database),
            _directory: TempDir::new().unwrap(),
        }
    }

    /// A handle of its own, as another process would have.
    pub(crate) async fn open(&self) -> Db {
        self.try_open().await.unwrap()
    }

    pub(crate) async fn try_open(&self) -> Result<Db, StoreError> {
        Db::open(&self.location, async |_| Ok(())).await
    }
}

impl Fixture for DatabaseFixture {
    type Setup = ();

    async fn start(backend: Backend, (): ()) -> Self {
        match backend {
            Backend::Sqlite => Self::on_sqlite(),
            Backend::Postgres => Self::on_postgres().await,
        }
    }

    async fn finish(self) {
        if let Some(database) = self.postgres {
            database.remove().await;
        }
    }
}
