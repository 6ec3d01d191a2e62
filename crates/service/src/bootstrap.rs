//! Opening an installation: its directory, its keys, its database, and what a first start makes.

use crate::core::Core;
use crate::jobs::Jobs;
use crate::keyring::{self, Audience, Keyring};
use crate::open_error::cannot;
use crate::seal::{KEY_LENGTH, MasterKey};
use crate::settings::Settings;
use crate::{Error, first_start, identity::accounts, integrity, open_storage, random};
use arc_swap::ArcSwap;
use estrade_model::error::error_chain;
use estrade_model::token_scope::TokenScope;
use estrade_model::{Invalid, TokenId};
use estrade_runtime::Engine;
use estrade_store::accounts::AccountRow;
use estrade_store::clock::Clock;
use estrade_store::tokens::NewToken;
use estrade_store::{Db, Location, installation, signing_keys, tokens};
use futures_util::future::BoxFuture;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;

pub use crate::installation_paths::{ADMIN_TOKEN_FILE, BlobsAt, InstallationPaths};
pub use crate::open_error::OpenError;

/// The address of the account that a first start makes.
pub const ADMIN: &str = "admin@localhost";
/// Opens an installation, and makes it first where there is none.
///
/// Boxed, so that it is compiled here and not in every program that opens one.
pub fn open(
    paths: &InstallationPaths,
    settings: Settings,
) -> BoxFuture<'_, Result<Arc<Core>, OpenError>> {
    Box::pin(async move {
        let opened = open_installation(paths, settings).await;
        opened.map_err(|error| name_damage(error, &paths.database))
    })
}

async fn open_installation(
    paths: &InstallationPaths,
    settings: Settings,
) -> Result<Arc<Core>, OpenError> {
    make_directory(&paths.data_dir)?;
    let clock = Clock::default();
    let now = clock.now();
    first_start::check_before_opening(paths, now)?;
    let mut opened = None;
    let db = Db::open(&paths.database, async |db: Db| {
        let rows = signing_keys::list_signing_keys(&db).await?;
        let first = rows.is_empty();
        match (first, paths.new_installation) {
            (true, _) => first_start::begin(paths, now)?,
            (false, true) => return Err(in_use()),
            (false, false) => {}
        }
        let master = load_master_key(&paths.master_key, first)?;
        let rows = if first {
            vec![first_start(&db, paths, &master, now).await?]
        } else {
            rows
        };
        let keyring = Keyring::open(&master, &rows).map_err(|_| {
            OpenError::Refused(format!(
                "the master key in {} does not open this database's signing keys; restore the key that belongs to it",
                paths.master_key.display()
            ))
        })?;
        opened = Some((master, keyring));
        Ok::<_, OpenError>(())
    })
    .await?;
    let (master, keyring) =
        opened.ok_or_else(|| OpenError::Failed("the database was not initialised".into()))?;
    first_start::end(paths)?;
    let fresh = random::id::<()>(now)?.to_string();
    let name = installation::name_installation(&db, fresh).await?;
    let blobs = open_storage::open(&paths.blobs, &db, &name).await?;
    let engine = Arc::new(open_engine(&name, paths, &settings)?);
    Ok(Arc::new(Core {
        db,
        blobs,
        runtime: Arc::<Engine>::clone(&engine),
        image_builder: engine,
        clock,
        settings,
        master,
        keyring: ArcSwap::from_pointee(keyring),
        jobs: Jobs::default(),
    }))
}

/// Adds to the error of a damaged database file what to do about it.
fn name_damage(error: OpenError, location: &Location) -> OpenError {
    match (error, location) {
        (OpenError::Damaged(error), Location::Sqlite(file)) => {
            integrity::refusal(file, &error_chain(&error))
        }
        (other, _) => other,
    }
}

fn in_use() -> OpenError {
    OpenError::Refused(
        "this database has an installation already; start without --new-installation, or name an empty database".into(),
    )
}

/// The client of the container engine; it does not connect yet.
fn open_engine(
    name: &str,
    paths: &InstallationPaths,
    settings: &Settings,
) -> Result<Engine, OpenError> {
    let refused = |Invalid(reason)| OpenError::Failed(reason.into());
    let name = name.parse().map_err(refused)?;
    let containers = &settings.containers;
    let engine = Engine::new(containers.host.clone(), name, containers.subnets);
    let engine = engine.map_err(|error| OpenError::Failed(error.into()))?;
    Ok(engine.with_disks(paths.data_dir.join("disks")))
}

/// Opens the database of an installation that there is, and says the installation's name. Its storage is left alone.
pub async fn open_database(paths: &InstallationPaths) -> Result<(Db, String), OpenError> {
    let absent = || OpenError::Refused("there is no installation here".into());
    if let Location::Sqlite(file) = &paths.database
        && !fs::metadata(file).is_ok_and(|metadata| metadata.len() > 0)
    {
        return Err(absent());
    }
    let db = Db::open(&paths.database, async |db: Db| {
        if signing_keys::list_signing_keys(&db).await?.is_empty() {
            return Err(absent());
        }
        Ok(())
    });
    let db = db
        .await
        .map_err(|error| name_damage(error, &paths.database))?;
    let fresh = random::id::<()>(Clock::default().now())?.to_string();
    let name = installation::name_installation(&db, fresh).await?;
    Ok((db, name))
}

/// Held by the one server that may use a data directory.
#[must_use]
pub struct ServerLock(#[expect(dead_code, reason = "the lock ends when the file is closed")] File);

/// Makes sure that no other server uses this data directory.
pub fn lock_server(data_dir: &Path) -> Result<ServerLock, OpenError> {
    make_directory(data_dir)?;
    let path = data_dir.join("server.lock");
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .mode(0o600)
        .open(&path);
    let file = file.map_err(|error| cannot("open", &path, &error))?;
    match file.try_lock() {
        Ok(()) => Ok(ServerLock(file)),
        Err(fs::TryLockError::WouldBlock) => Err(OpenError::Refused(format!(
            "another Estrade server is using {}; stop it first, or choose another directory with --data-dir",
            data_dir.display()
        ))),
        Err(fs::TryLockError::Error(error)) => Err(cannot("lock", &path, &error)),
    }
}

fn make_directory(path: &Path) -> Result<(), OpenError> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path);
    made.map_err(|error| cannot("create", path, &error))
}

fn load_master_key(path: &Path, first_start: bool) -> Result<MasterKey, OpenError> {
    match fs::read(path) {
        Ok(bytes) if bytes.len() == KEY_LENGTH => Ok(MasterKey::from_bytes(&bytes)?),
        Ok(_) => Err(OpenError::Refused(format!(
            "{} must hold exactly {KEY_LENGTH} bytes",
            path.display()
        ))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && first_start => {
            let bytes = MasterKey::generate()?;
            write_secret(path, &bytes[..]).map_err(|error| cannot("write", path, &error))?;
            Ok(MasterKey::from_bytes(&bytes[..])?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(OpenError::Refused(format!(
            "{} is missing, and this database was made with it; restore it from your backup",
            path.display()
        ))),
        Err(error) => Err(cannot("read", path, &error)),
    }
}

/// Makes what every installation has once: a signing key, the administrator and their token.
async fn first_start(
    db: &Db,
    paths: &InstallationPaths,
    master: &MasterKey,
    now: estrade_model::Timestamp,
) -> Result<signing_keys::SigningKeyRow, OpenError> {
    let signing_key = keyring::generate_signing_key(master, now)?;
    let keyring = Keyring::open(master, std::slice::from_ref(&signing_key))?;
    let (token_id, network): (TokenId, _) = (random::id(now)?, random::id(now)?);
    let signed = keyring.sign(Audience::Account, token_id, now, None)?;
    let account = AccountRow {
        id: random::id(now)?,
        email: ADMIN.into(),
        fullname: "Administrator".into(),
        admin: true,
        disabled: false,
        created_at: now,
    };
    let token = NewToken {
        id: token_id,
        account: account.id,
        name: "first start".into(),
        scope: TokenScope::Full,
        secret_hash: signed.secret_hash,
        created_at: now,
        expires_at: None,
        session: false,
    };
    // The file first: a token that is in the database but in no file would be lost for good.
    let file = paths.data_dir.join(ADMIN_TOKEN_FILE);
    let line = format!("{}\n", signed.token.expose());
    write_secret(&file, line.as_bytes()).map_err(|error| cannot("write", &file, &error))?;
    let row = signing_key.clone();
    db.transact(move |tx| {
        let (row, account, token) = (row.clone(), account.clone(), token.clone());
        Box::pin(async move {
            signing_keys::insert_signing_key(tx, &row).await?;
            accounts::insert_account(tx, &account, None, network, now).await?;
            Ok::<_, Error>(tokens::insert_token(tx, &token).await?)
        })
    })
    .await?;
    Ok(signing_key)
}

/// Writes a file that only its owner may read, whole or not at all, and durably.
fn write_secret(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let directory = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    let temporary = path.with_extension("new");
    match fs::remove_file(&temporary) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(directory)?.sync_all()
}
