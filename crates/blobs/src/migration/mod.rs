//! Moving the contents of an installation to another storage, while servers go on using the first one.
//!
//! Objects keep their names, so that the rows that say where contents lie stay as they are. What the rows need is
//! copied ([`copy`]), again and again until nothing is new. Then a switch, which the caller makes:
//!
//! 1. [`Migration::close_source`]: no server opens the source from now on.
//! 2. In the database: no server that runs commits rows for the source any more.
//! 3. Everything that rows name is copied, and by that proven to be there.
//! 4. [`Migration::open_target`]: servers may start with the target.
//! 5. In the database: the switch is final.
//!
//! Killed before the fourth, no storage can be opened, until a second run completes the switch or
//! [`Migration::reopen_source`] takes it back. After the fourth it is never taken back, also if nobody knows whether it
//! succeeded. Servers that run go on serving from the source in all of this.
//!
//! # Copies that are there already
//!
//! An object of the target counts as copied only if it has the right bytes, whoever put it there: a large content if
//! the hash of the object is its digest, a pack if its hash is that of as many bytes of the source. A pack of a
//! directory may grow, and parts of it are written out of order; but a row is committed after its bytes. So a copy has
//! what was committed before the rows were read, and later rows are a reason to compare again.
//!
//! # Garbage collection meanwhile
//!
//! No server has the target open, so nothing is removed there. In the source, rows move to other packs, which the next
//! pass copies, and objects without rows are removed a day later. What was copied and is not needed any more is an
//! orphan of the target.

mod copy;

use std::path::PathBuf;
use std::sync::Arc;

use crate::directory::LocalDirectory;
use crate::migration_state::MigrationState;
use crate::s3::S3Storage;
use crate::storage::ObjectStorage;
use crate::{BlobError, S3Settings, owner};

pub use copy::CopyOutcome;

/// A storage by its address. The settings of a bucket name a directory for what is on its way, which must not be the
/// cache of a server.
#[derive(Clone, Debug)]
pub enum StorageAddress {
    Directory(PathBuf),
    Bucket(Box<S3Settings>),
}

/// One of the two sides.
#[derive(Debug)]
struct Side {
    storage: Arc<dyn ObjectStorage>,
    /// For people.
    name: String,
    /// Whether its objects have their hashes beside them, and never change.
    is_bucket: bool,
}

/// Why contents cannot be moved from here to there.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    #[error("both are the same place")]
    SamePlace,
    #[error("there are no files of this installation in {0}")]
    NoSource(String),
    #[error("{place} is itself being filled from {from}")]
    IncompleteSource { place: String, from: String },
    #[error("the files in {place} have moved to {to}")]
    MovedSource { place: String, to: String },
    #[error("the files have moved to {0} already")]
    AlreadyMoved(String),
    #[error("{0} is in use by this installation already")]
    TargetInUse(String),
    #[error("{place} holds the files of another installation ({owner})")]
    ForeignStorage { place: String, owner: String },
    #[error("cannot use {place}")]
    Failed {
        place: String,
        #[source]
        error: BlobError,
    },
}

/// Copies contents from a storage to another one.
#[derive(Debug)]
pub struct Migration {
    source: Side,
    target: Side,
    /// Whether an earlier run has closed the source.
    is_closed: bool,
}

impl Side {
    fn connect(
        address: StorageAddress,
        name: &str,
        installation: &str,
    ) -> Result<Self, MigrationError> {
        let connect = || {
            Ok::<_, BlobError>(match address {
                StorageAddress::Directory(root) => (
                    Arc::new(LocalDirectory::open(&root)?) as Arc<dyn ObjectStorage>,
                    false,
                ),
                StorageAddress::Bucket(settings) => {
                    let bucket = S3Storage::connect_for_migration(*settings, installation)?;
                    (Arc::new(bucket) as Arc<dyn ObjectStorage>, true)
                }
            })
        };
        let (storage, is_bucket) = connect().map_err(|error| failed(name, error))?;
        Ok(Self {
            storage,
            name: name.to_owned(),
            is_bucket,
        })
    }

    /// Whether it is the installation's own; false if nobody's.
    fn is_owned(&self, installation: &str) -> Result<bool, MigrationError> {
        owner::check(&*self.storage, installation).map_err(|error| match error {
            BlobError::OtherInstallation { owner } => MigrationError::ForeignStorage {
                place: self.name.clone(),
                owner,
            },
            other => failed(&self.name, other),
        })
    }

    fn state(&self) -> Result<MigrationState, MigrationError> {
        MigrationState::read(&*self.storage).map_err(|error| failed(&self.name, error))
    }

    fn set_state(&self, state: &MigrationState) -> Result<(), MigrationError> {
        let written = state.write(&*self.storage);
        written.map_err(|error| failed(&self.name, error))
    }
}

fn failed(place: &str, error: BlobError) -> MigrationError {
    MigrationError::Failed {
        place: place.to_owned(),
        error,
    }
}

impl Migration {
    /// Opens both sides, each with its name for people, and keeps servers from using the target. One migration of an
    /// installation runs at a time; the caller sees to that.
    pub fn open(
        from: (StorageAddress, &str),
        to: (StorageAddress, &str),
        installation: &str,
    ) -> Result<Self, MigrationError> {
        if from.1 == to.1 {
            return Err(MigrationError::SamePlace);
        }
        if let StorageAddress::Directory(root) = &from.0
            && !root.is_dir()
        {
            return Err(MigrationError::NoSource(from.1.to_owned()));
        }
        let source = Side::connect(from.0, from.1, installation)?;
        let target = Side::connect(to.0, to.1, installation)?;
        if !source.is_owned(installation)? {
            return Err(MigrationError::NoSource(source.name));
        }
        let is_closed = match source.state()? {
            MigrationState::Settled => false,
            MigrationState::Moved { to } if to == target.name => true,
            MigrationState::Moved { to } => {
                let place = source.name;
                return Err(MigrationError::MovedSource { place, to });
            }
            MigrationState::Filling { from } => {
                let place = source.name;
                return Err(MigrationError::IncompleteSource { place, from });
            }
        };
        let is_owned = target.is_owned(installation)?;
        match target.state()? {
            MigrationState::Settled if is_owned && is_closed => {
                return Err(MigrationError::AlreadyMoved(target.name));
            }
            // Servers may be using it at this moment.
            MigrationState::Settled if is_owned => {
                return Err(MigrationError::TargetInUse(target.name));
            }
            MigrationState::Settled
            | MigrationState::Filling { .. }
            | MigrationState::Moved { .. } => {}
        }
        // Before it has an owner: servers refuse a storage without one that should have contents.
        target.set_state(&MigrationState::Filling {
            from: source.name.clone(),
        })?;
        owner::claim(&*target.storage, installation)
            .map_err(|error| failed(&target.name, error))?;
        // Those of an earlier run. In a directory that is the source, servers have theirs.
        let source_spools = Some(&source).filter(|source| source.is_bucket);
        for side in [&target].into_iter().chain(source_spools) {
            let removed = side.storage.remove_spools();
            removed.map_err(|error| failed(&side.name, error.into()))?;
        }
        Ok(Self {
            source,
            target,
            is_closed,
        })
    }

    /// Where contents come from, for people.
    pub fn source_name(&self) -> &str {
        &self.source.name
    }

    /// Whether an earlier run has closed the source and did not come to the end.
    pub fn is_source_closed(&self) -> bool {
        self.is_closed
    }

    /// Keeps servers from starting with the source.
    pub fn close_source(&self) -> Result<(), MigrationError> {
        self.source.set_state(&MigrationState::Moved {
            to: self.target.name.clone(),
        })
    }

    /// Lets them start with it again.
    pub fn reopen_source(&self) -> Result<(), MigrationError> {
        self.source.set_state(&MigrationState::Settled)
    }

    /// Lets servers start with the target. It has everything, and nobody stores anything in the source any more. After
    /// an error nobody knows whether they may.
    pub fn open_target(&self) -> Result<(), MigrationError> {
        self.target.set_state(&MigrationState::Settled)
    }
}
