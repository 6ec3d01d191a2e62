//! Where an installation keeps its files.

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
    /// The master key; by default a file inside the data directory.
    pub master_key: PathBuf,
    /// Whether the administrator named the master key's file: then it proves no earlier installation.
    pub master_key_is_given: bool,
    /// Make a new installation even where another one lies, whose files are moved away.
    pub new_installation: bool,
}

impl InstallationPaths {
    /// The default paths inside a data directory.
    pub fn inside(data_dir: &Path) -> Self {
        Self {
            data_dir: data_dir.to_owned(),
            database: Location::Sqlite(data_dir.join("estrade.db")),
            master_key: data_dir.join("master.key"),
            master_key_is_given: false,
            new_installation: false,
        }
    }
}
