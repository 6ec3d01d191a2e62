//! A database of one test, on either engine.

use crate::postgres::TestDatabase;
use estrade_store::{Db, Location, StoreError};
use tempfile::TempDir;

/// Where a test's database is.
pub(crate) struct Place {
    pub(crate) location: Location,
    pub(crate) postgres: Option<TestDatabase>,
    _directory: TempDir,
}

impl Place {
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

    pub(crate) async fn remove(self) {
        if let Some(database) = self.postgres {
            database.remove().await;
        }
    }
}

/// Makes two tests of each function: one per engine.
macro_rules! on_both_engines {
    ($($name:ident)*) => { $(
        mod $name {
            use crate::place::Place;

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn sqlite() {
                let place = Place::on_sqlite();
                super::$name(&place).await;
                place.remove().await;
            }

            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn postgres() {
                let place = Place::on_postgres().await;
                super::$name(&place).await;
                place.remove().await;
            }
        }
    )* };
}
pub(crate) use on_both_engines;
