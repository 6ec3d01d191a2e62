//! Noticing a damaged SQLite database: quickly after a crash, before anything is written to it, and thoroughly in the
//! background of a running server.

use crate::installation_paths::InstallationPaths;
use crate::open_error::OpenError;
use estrade_model::error::error_chain;
use estrade_store::integrity::{Integrity, check_file};
use estrade_store::{Db, Location};
use futures_util::future::BoxFuture;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tokio_util::sync::CancellationToken;

/// How long a start may take longer after a crash.
const START_CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// A server that has just started has more urgent things to do.
const FIRST_CHECK_DELAY: Duration = Duration::from_secs(5);
const CHECK_INTERVAL: Duration = Duration::from_hours(24);
/// Exists while a server runs: a server that finds it at its start follows a crash.
const RUNNING_FILE: &str = "running";

const ADVICE: &str = "stop Estrade, keep a copy of the file and of what lies beside it (-wal, -shm), and restore a \
     backup; `sqlite3 FILE .recover` saves what can be read";

/// The error for a damaged database, with what to do about it.
pub(crate) fn refusal(file: &Path, found: &str) -> OpenError {
    OpenError::Refused(format!(
        "the database {} is damaged ({found}); {ADVICE}. \
         To use it as it is, start with --accept-damaged-database",
        file.display()
    ))
}

/// Marks a data directory as in use, until a clean shutdown removes the mark.
#[must_use = "a run that is not ended counts as a crash"]
pub struct RunMarker {
    path: PathBuf,
    after_crash: bool,
}

impl RunMarker {
    /// Looks whether the last server of this directory crashed. Call it under the server's lock.
    pub fn find(data_dir: &Path) -> Self {
        let path = data_dir.join(RUNNING_FILE);
        let after_crash = path.exists();
        Self { path, after_crash }
    }

    /// Whether the last server did not end in good order.
    pub fn is_after_crash(&self) -> bool {
        self.after_crash
    }

    /// A server runs from now on.
    pub fn begin(&self) -> Result<(), OpenError> {
        let write = || {
            OpenOptions::new()
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(&self.path)?;
            self.sync()
        };
        write().map_err(|error| {
            OpenError::Refused(format!("cannot write {}: {error}", self.path.display()))
        })
    }

    /// It has ended in good order.
    pub fn end(self) {
        let removed = fs::remove_file(&self.path).and_then(|()| self.sync());
        if let Err(error) = removed {
            tracing::warn!(%error, "cannot note that the server has stopped; the next start checks the database");
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(self.path.parent().unwrap_or(Path::new(".")))?.sync_all()
    }
}

/// Looks at the database for a second at most, and refuses one that is damaged. SQLite only.
pub async fn check_after_crash(paths: &InstallationPaths) -> Result<(), OpenError> {
    let Location::Sqlite(file) = paths.database.clone() else {
        return Ok(());
    };
    match fs::metadata(&file) {
        Ok(metadata) if metadata.len() > 0 => {}
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(OpenError::Failed(error.into()));
        }
        _ => return Ok(()),
    }
    let deadline = Instant::now() + START_CHECK_TIMEOUT;
    let checked = file.clone();
    let check = move || check_file(&checked, move || Instant::now() >= deadline);
    let found = tokio::task::spawn_blocking(check).await;
    match found.map_err(|error| OpenError::Failed(error.into()))?? {
        Integrity::Damaged(found) => Err(refusal(&file, &found)),
        Integrity::Sound => {
            tracing::info!("the last server did not stop in good order; its database is sound");
            Ok(())
        }
        Integrity::Unfinished => {
            tracing::info!(
                "the last server did not stop in good order; its database will be checked in the background"
            );
            Ok(())
        }
    }
}

/// Checks the database of a running server, and keeps what it found.
pub struct IntegrityCheck {
    db: Db,
    /// The first finding stays: damage does not heal.
    damage: OnceLock<String>,
}

impl IntegrityCheck {
    pub(crate) fn new(db: Db) -> Self {
        Self {
            db,
            damage: OnceLock::new(),
        }
    }

    /// Whether the database was found to be damaged.
    pub fn is_damaged(&self) -> bool {
        self.damage.get().is_some()
    }

    /// Checks the whole database soon after the start and once a day, until `stop`.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut wait = FIRST_CHECK_DELAY;
            while stop
                .run_until_cancelled(tokio::time::sleep(wait))
                .await
                .is_some()
            {
                self.check_all(&stop).await;
                wait = CHECK_INTERVAL;
            }
        })
    }

    /// Checks the whole database, and logs an error when it is damaged.
    async fn check_all(&self, stop: &CancellationToken) {
        let Some(file) = self.db.file().map(Path::to_owned) else {
            return;
        };
        let (checked, stopped) = (file.clone(), stop.clone());
        let check = move || check_file(&checked, move || stopped.is_cancelled());
        match tokio::task::spawn_blocking(check).await {
            Ok(Ok(Integrity::Damaged(found))) => {
                tracing::error!(file = %file.display(), found, "THE DATABASE IS DAMAGED: {ADVICE}");
                drop(self.damage.set(found));
            }
            Ok(Ok(Integrity::Sound)) => tracing::debug!("the database is sound"),
            Ok(Ok(Integrity::Unfinished)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = error_chain(&error), "cannot check the database");
            }
            Err(error) => tracing::warn!(%error, "cannot check the database"),
        }
    }
}
