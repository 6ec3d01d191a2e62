//! What these pages share: addresses, refusals that a person can correct, forms without fields.

use crate::PanelError;
use axum::http::StatusCode;
use estrade_service::Error;

/// The address of a page of a project.
pub(super) fn project_path(name: &str, rest: &str) -> String {
    format!("/panel/projects/{name}{rest}")
}

/// Why something was refused, for the page on which the person can correct it.
pub(super) struct Problem {
    pub(super) status: StatusCode,
    pub(super) text: String,
}

impl Problem {
    /// What a person can correct; everything else is an error page.
    pub(super) fn of(error: Error) -> Result<Self, PanelError> {
        let error = PanelError::from(error);
        Ok(Self {
            status: error.status(),
            text: error.correctable()?,
        })
    }
}
