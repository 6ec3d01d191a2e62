//! An installation of one test, on either backend, and people who act in it.

#![allow(
    dead_code,
    clippy::allow_attributes,
    reason = "each test binary uses its part of this"
)]

use estrade_fixtures::{Backend, Fixture};
pub(crate) use estrade_fixtures::{TestDatabase, on_both_backends};
use estrade_model::account::NewAccount;
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_model::token_scope::TokenScope;
use estrade_runtime::EngineHost;
use estrade_service::bootstrap::{self, BlobsAt, InstallationPaths};
use estrade_service::identity::access::Origin;
use estrade_service::{Caller, Core, Credential, Services, Settings, identity::accounts};
use estrade_store::Location;
use std::sync::Arc;
use tempfile::TempDir;

/// An installation in a temporary directory.
pub(crate) struct Installation {
    pub(crate) core: Arc<Core>,
    pub(crate) services: Services,
    paths: InstallationPaths,
    _directory: TempDir,
    database: Option<TestDatabase>,
}

impl Installation {
    pub(crate) async fn on_sqlite() -> Self {
        let directory = TempDir::new().unwrap();
        let paths = InstallationPaths::inside(directory.path());
        Self::open(directory, paths, None).await
    }

    pub(crate) async fn on_postgres() -> Self {
        let (directory, database) = (TempDir::new().unwrap(), TestDatabase::create().await);
        let paths = InstallationPaths {
            database: Location::Postgres(database.url()),
            ..InstallationPaths::inside(directory.path())
        };
        Self::open(directory, paths, Some(database)).await
    }

    async fn open(
        directory: TempDir,
        paths: InstallationPaths,
        database: Option<TestDatabase>,
    ) -> Self {
        let mut settings = Settings::default();
        // What the machine may have is none of these tests' business.
        settings.containers.host = EngineHost::Unix(directory.path().join("no-engine.sock"));
        let core = bootstrap::open(&paths, settings).await.unwrap();
        Self {
            services: Services::new(&core).unwrap(),
            core,
            paths,
            _directory: directory,
            database,
        }
    }

    /// Another process on the same database.
    pub(crate) async fn another_core(&self, settings: Settings) -> Arc<Core> {
        bootstrap::open(&self.paths, settings).await.unwrap()
    }

    /// The same, with files elsewhere.
    pub(crate) async fn another_core_at(&self, blobs: BlobsAt, settings: Settings) -> Arc<Core> {
        let paths = InstallationPaths {
            blobs,
            ..self.paths.clone()
        };
        bootstrap::open(&paths, settings).await.unwrap()
    }

    /// Where it has its things.
    pub(crate) fn paths(&self) -> &InstallationPaths {
        &self.paths
    }

    /// The database, when it is PostgreSQL.
    pub(crate) fn database(&self) -> &TestDatabase {
        self.database.as_ref().unwrap()
    }

    /// A new person without a password.
    pub(crate) async fn person(&self, name: &str) -> Caller {
        self.person_with(name, None).await
    }

    /// A new person who can log in.
    pub(crate) async fn person_with(&self, name: &str, password: Option<&str>) -> Caller {
        let email: Email = format!("{name}@example.com").parse().unwrap();
        let new = NewAccount {
            email: email.clone(),
            fullname: name.parse().unwrap(),
            password: password.map(|text| Secret(text.into())),
            admin: false,
        };
        Caller {
            account: accounts::create_account(&self.core, new).await.unwrap(),
            credential: Credential::Token("0123456789abcdef01234567".parse().unwrap()),
            email: email.into(),
            fullname: name.into(),
            admin: false,
            grant: TokenScope::Full,
            authenticated_at: None,
            origin: Origin::default(),
        }
    }

    pub(crate) async fn remove(self) {
        self.core.db.close().unwrap();
        if let Some(database) = self.database {
            database.remove().await;
        }
    }
}

impl Fixture for Installation {
    type Setup = ();

    async fn start(backend: Backend, (): ()) -> Self {
        match backend {
            Backend::Sqlite => Self::on_sqlite().await,
            Backend::Postgres => Self::on_postgres().await,
        }
    }

    async fn finish(self) {
        self.remove().await;
    }
}
