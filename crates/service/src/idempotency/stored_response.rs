//! Responses that are stored for repeats.

use crate::{Error, Result};
use estrade_store::idempotency::ResponseRow;

/// The response that repeats get. The caller makes sure that it contains no secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredResponse {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl StoredResponse {
    /// Whether a repeat gets this response instead of being executed.
    pub(super) fn is_final(&self) -> bool {
        matches!(self.status, 200..=299 | 409)
    }

    pub(super) fn to_row(&self) -> Result<ResponseRow> {
        Ok(ResponseRow {
            status: self.status,
            headers: serde_json::to_string(&self.headers).map_err(Error::internal)?,
            body: self.body.clone(),
        })
    }

    pub(super) fn from_row(row: ResponseRow) -> Result<Self> {
        Ok(Self {
            status: row.status,
            headers: serde_json::from_str(&row.headers).map_err(Error::internal)?,
            body: row.body,
        })
    }
}
