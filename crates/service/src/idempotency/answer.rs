//! Answers that are stored for repeats.

use crate::{Error, Result};
use estrade_store::idempotency::AnswerRow;

/// An answer that repeats get; free of secrets, which is the caller's business.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl StoredAnswer {
    /// Whether a repeat shall get this answer instead of another try.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.status, 200..=299 | 409)
    }

    pub(super) fn to_row(&self) -> Result<AnswerRow> {
        Ok(AnswerRow {
            status: self.status,
            headers: serde_json::to_string(&self.headers).map_err(Error::internal)?,
            body: self.body.clone(),
        })
    }

    pub(super) fn from_row(row: AnswerRow) -> Result<Self> {
        Ok(Self {
            status: row.status,
            headers: serde_json::from_str(&row.headers).map_err(Error::internal)?,
            body: row.body,
        })
    }
}
