//! Decides whether a first start may create an installation: never in a data directory whose database is missing.
//!
//! An empty database alone proves nothing: its file may be lost, its name mistyped. So the data directory is checked
//! too. A marker file exists from before the first secret is written until the database has its first rows: a first
//! start that was killed in between is resumed.

use crate::installation_paths::{ADMIN_TOKEN_FILE, BlobsAt, InstallationPaths};
use crate::open_error::{OpenError, cannot};
use estrade_blobs::BlobStore;
use estrade_model::Timestamp;
use estrade_store::Location;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// There while a first start is under way.
const MARKER: &str = "first-start";
/// What belongs to an installation but does not prove that there is one.
const ALSO_MOVED: &str = "calls";

/// Before a SQLite file is opened: SQLite would delete the write-ahead log of a file that is missing.
pub(crate) fn check_before_opening(
    paths: &InstallationPaths,
    now: Timestamp,
) -> Result<(), OpenError> {
    let Location::Sqlite(file) = &paths.database else {
        return Ok(());
    };
    match fs::metadata(file) {
        Ok(metadata) if metadata.len() > 0 => return Ok(()),
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(cannot("read", file, &error));
        }
        _ => {}
    }
    let mut remains = find_remains(paths)?;
    let mut log = file.clone().into_os_string();
    log.push("-wal");
    remains.extend(Some(PathBuf::from(log)).filter(|log| has_bytes(log)));
    refuse_or_move(paths, &remains, now)
}

/// Begins a first start, now that the database is known to be empty.
pub(crate) fn begin(paths: &InstallationPaths, now: Timestamp) -> Result<(), OpenError> {
    refuse_or_move(paths, &find_remains(paths)?, now)?;
    let marker = paths.data_dir.join(MARKER);
    let write = || {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(&marker)?;
        file.sync_all()?;
        sync_directory(&paths.data_dir)
    };
    write().map_err(|error| cannot("write", &marker, &error))
}

/// Ends a first start: the database is not empty any more.
pub(crate) fn end(paths: &InstallationPaths) -> Result<(), OpenError> {
    let marker = paths.data_dir.join(MARKER);
    match fs::remove_file(&marker) {
        Ok(()) => sync_directory(&paths.data_dir).map_err(|error| cannot("write", &marker, &error)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot("remove", &marker, &error)),
    }
}

/// Files in the data directory that prove an earlier installation. A first start that was killed has written secrets,
/// but no contents.
fn find_remains(paths: &InstallationPaths) -> Result<Vec<PathBuf>, OpenError> {
    let mut remains = Vec::new();
    if !paths.data_dir.join(MARKER).exists() {
        let key = Some(&paths.master_key).filter(|_| !paths.master_key_is_given);
        remains.extend(key.filter(|path| path.exists()).cloned());
        let token = paths.data_dir.join(ADMIN_TOKEN_FILE);
        remains.extend(Some(token).filter(|path| path.exists()));
    }
    // One elsewhere may be another node's, so that it is never moved; nor is a bucket, whose owner is checked when it
    // is opened.
    if let BlobsAt::Directory(blobs) = &paths.blobs
        && (blobs.starts_with(&paths.data_dir) || !paths.new_installation)
    {
        let in_use = BlobStore::is_in_use(blobs);
        if in_use.map_err(|error| OpenError::Failed(error.into()))? {
            remains.push(blobs.clone());
        }
    }
    let disks = paths.data_dir.join("disks");
    if fs::read_dir(&disks).is_ok_and(|mut entries| entries.next().is_some()) {
        remains.push(disks);
    }
    Ok(remains)
}

fn has_bytes(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0)
}

fn refuse_or_move(
    paths: &InstallationPaths,
    remains: &[PathBuf],
    now: Timestamp,
) -> Result<(), OpenError> {
    if remains.is_empty() {
        return Ok(());
    }
    if paths.new_installation {
        return set_aside(paths, remains, now);
    }
    let database = match &paths.database {
        Location::Sqlite(file) => file.display().to_string(),
        Location::Postgres(_) => "named by database_url".into(),
    };
    let data_dir = paths.data_dir.display();
    Err(OpenError::Refused(format!(
        "the database {database} is missing or empty, but {data_dir} holds an installation ({}); \
         correct the path or name of the database, or restore it from your backup; nothing was removed. \
         To begin a new installation, run `estrade serve --new-installation` once: it keeps what is there in {data_dir}/replaced-<time>",
        names(remains)
    )))
}

fn names(paths: &[PathBuf]) -> String {
    let name = |path: &PathBuf| {
        let name = path.file_name().unwrap_or(path.as_os_str());
        name.to_string_lossy().into_owned()
    };
    paths.iter().map(name).collect::<Vec<_>>().join(", ")
}

/// Moves the files of another installation into a directory of their own. Nothing is deleted, and a start that is
/// killed here can be repeated.
fn set_aside(
    paths: &InstallationPaths,
    remains: &[PathBuf],
    now: Timestamp,
) -> Result<(), OpenError> {
    let directory = paths.data_dir.join(format!("replaced-{}", now.millis()));
    let made = DirBuilder::new().mode(0o700).create(&directory);
    made.map_err(|error| cannot("create", &directory, &error))?;
    let also = paths.data_dir.join(ALSO_MOVED);
    let also = Some(&also).filter(|path| path.exists());
    for from in remains.iter().chain(also) {
        let to = directory.join(from.file_name().unwrap_or(from.as_os_str()));
        fs::rename(from, &to).map_err(|error| cannot("move away", from, &error))?;
    }
    sync_directory(&paths.data_dir).map_err(|error| cannot("write", &directory, &error))?;
    tracing::warn!(
        kept_in = %directory.display(),
        moved = names(remains),
        "began a new installation; what another one left was moved"
    );
    Ok(())
}

fn sync_directory(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}
