//! What can go wrong below the service.

/// A failure of the database.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The database cannot be reached or does not answer in time.
    #[error("the database is not available")]
    Unavailable(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A uniqueness rule of the schema was broken.
    #[error("it exists already")]
    Duplicate,
    /// A reference rule of the schema was broken.
    #[error("something still refers to it, or what it refers to is gone")]
    Reference,
    /// Two transactions got in each other's way; the same work may succeed now.
    #[error("the transaction clashed with another one")]
    Serialization(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The database or its schema is not one that this version can use.
    #[error("{0}")]
    Unusable(String),
    /// The database will never take these values, however often they are sent.
    #[error("the database refuses the values")]
    Values(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Contents have moved to another place than the one that this process stores them in.
    #[error(
        "the files of this installation move to another place, or have moved; restart this server with the blobs.url that `estrade blobs migrate` named"
    )]
    BlobsMoved,
    /// Anything else: a bug or a broken disk.
    #[error("a database statement failed")]
    Statement(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// A failure that only a bug can cause, in words.
    pub(crate) fn bug(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Statement(what.into())
    }

    /// Whether the file is damaged, or is no database.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ffi::ErrorCode;
        let Self::Statement(error) = self else {
            return false;
        };
        let code = error
            .downcast_ref::<rusqlite::Error>()
            .and_then(rusqlite::Error::sqlite_error_code);
        matches!(
            code,
            Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
        )
    }

    /// Whether it is about what was to be written; everything else may pass without our doing.
    pub fn is_about_values(&self) -> bool {
        matches!(self, Self::Values(_) | Self::Duplicate | Self::Reference)
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        use rusqlite::ffi::{self, ErrorCode};
        let Some(code) = error.sqlite_error() else {
            return Self::Statement(error.into());
        };
        match (code.extended_code, code.code) {
            (ffi::SQLITE_CONSTRAINT_UNIQUE | ffi::SQLITE_CONSTRAINT_PRIMARYKEY, _) => {
                Self::Duplicate
            }
            (ffi::SQLITE_CONSTRAINT_FOREIGNKEY, _) => Self::Reference,
            (_, ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Serialization(error.into())
            }
            (
                _,
                ErrorCode::CannotOpen
                | ErrorCode::DiskFull
                | ErrorCode::SystemIoFailure
                | ErrorCode::ReadOnly,
            ) => Self::Unavailable(error.into()),
            (_, ErrorCode::ConstraintViolation | ErrorCode::TooBig | ErrorCode::TypeMismatch) => {
                Self::Values(error.into())
            }
            _ => Self::Statement(error.into()),
        }
    }
}

impl From<tokio_postgres::Error> for StoreError {
    fn from(error: tokio_postgres::Error) -> Self {
        use tokio_postgres::error::SqlState;
        match error.code() {
            Some(&SqlState::UNIQUE_VIOLATION) => Self::Duplicate,
            Some(&SqlState::FOREIGN_KEY_VIOLATION) => Self::Reference,
            Some(&SqlState::T_R_SERIALIZATION_FAILURE | &SqlState::T_R_DEADLOCK_DETECTED) => {
                Self::Serialization(error.into())
            }
            // A server that still follows another one, as after a failover; a transaction that it ended because this
            // node had stopped in the middle of it.
            Some(
                &SqlState::READ_ONLY_SQL_TRANSACTION
                | &SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT,
            ) => Self::Unavailable(error.into()),
            Some(code) => match code.code().get(..2) {
                // The connection, the transaction's end, resources, an operator, the system.
                Some("08" | "40" | "53" | "57" | "58") => Self::Unavailable(error.into()),
                // The data, the rules of the schema, the limits of the program.
                Some("22" | "23" | "54") => Self::Values(error.into()),
                _ => Self::Statement(error.into()),
            },
            None if error.is_closed() || has_io_cause(&error) => Self::Unavailable(error.into()),
            _ => Self::Statement(error.into()),
        }
    }
}

fn has_io_cause(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(<dyn std::error::Error>::is::<std::io::Error>)
}

impl From<deadpool_postgres::PoolError> for StoreError {
    fn from(error: deadpool_postgres::PoolError) -> Self {
        Self::Unavailable(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rusqlite::ffi;

    #[test]
    fn only_values_condemn_a_row() {
        let of =
            |code| StoreError::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        for code in [
            ffi::SQLITE_CONSTRAINT_NOTNULL,
            ffi::SQLITE_CONSTRAINT_UNIQUE,
            ffi::SQLITE_TOOBIG,
        ] {
            assert!(of(code).is_about_values(), "{code}");
        }
        for code in [
            ffi::SQLITE_READONLY,
            ffi::SQLITE_CORRUPT,
            ffi::SQLITE_NOTADB,
            ffi::SQLITE_IOERR,
            ffi::SQLITE_FULL,
            ffi::SQLITE_BUSY,
            ffi::SQLITE_NOMEM,
        ] {
            assert!(!of(code).is_about_values(), "{code}");
        }
        assert!(matches!(
            of(ffi::SQLITE_READONLY),
            StoreError::Unavailable(_)
        ));
    }
}
