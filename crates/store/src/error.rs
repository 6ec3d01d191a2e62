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
    /// Anything else: a bug or a broken disk.
    #[error("a database statement failed")]
    Statement(#[source] Box<dyn std::error::Error + Send + Sync>),
}

impl StoreError {
    /// A failure that only a bug can cause, in words.
    pub(crate) fn bug(what: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        Self::Statement(what.into())
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
            (_, ErrorCode::CannotOpen | ErrorCode::DiskFull | ErrorCode::SystemIoFailure) => {
                Self::Unavailable(error.into())
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
            // Class 57: the server was stopped or is starting; class 53: it ran out of something.
            Some(code) if code.code().starts_with("57") || code.code().starts_with("53") => {
                Self::Unavailable(error.into())
            }
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
