//! Why lines cannot be written or read.

/// Why lines cannot be written or read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A block is not what was written.
    #[error("a block of logs is damaged or of a newer version")]
    Damaged,
    /// A block could not be packed or unpacked.
    #[error("a block of logs cannot be packed or unpacked")]
    Compression(#[source] std::io::Error),
    /// A line could not be written as JSON.
    #[error("a line cannot be written as JSON")]
    Json(#[source] serde_json::Error),
}

/// What can go wrong with lines.
pub(crate) type Result<T> = std::result::Result<T, Error>;
