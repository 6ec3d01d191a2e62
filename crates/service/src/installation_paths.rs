//! Where an installation keeps its files.

use estrade_blobs::S3Settings;
use estrade_store::Location;
use std::path::{Path, PathBuf};

/// Where a first start leaves the administrator's token.
pub const ADMIN_TOKEN_FILE: &str = "admin.token";

/// Where an installation keeps its things.
#[derive(Debug, Clone)]
pub struct InstallationPaths {
    pub data_dir: PathBuf,
    /// The database; by default a file inside the data directory.
    pub database: Location,
    /// The files of releases; by default a directory inside the data directory.
    pub blobs: BlobsAt,
    /// The master key; by default a file inside the data directory.
    pub master_key: PathBuf,
    /// Whether the administrator named the master key's file: then it proves no earlier installation.
    pub master_key_is_given: bool,
    /// Make a new installation even where another one lies, whose files are moved away.
    pub new_installation: bool,
}

/// Where the files of releases are stored.
#[derive(Debug, Clone)]
pub enum BlobsAt {
    Directory(PathBuf),
    /// A bucket, which several nodes may share.
    Bucket(Box<S3Settings>),
}

impl InstallationPaths {
    /// The default paths inside a data directory.
    pub fn inside(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            database: Location::Sqlite(data_dir.join("estrade.db")),
            blobs: BlobsAt::Directory(data_dir.join("blobs")),
            master_key: data_dir.join("master.key"),
            master_key_is_given: false,
            new_installation: false,
        }
    }
}
