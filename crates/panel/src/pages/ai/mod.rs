//! Pages of AI keys: workspaces, keys, what was used and what it cost, and the playground.

mod budget;
mod calls;
mod choices;
mod csv;
mod key_form;
mod keys;
mod models;
mod playground;
mod snippets;
mod usage;
mod workspaces;

use crate::layout::Layout;
use axum::Router;
use estrade_server::app::AppState;
use std::fmt::Display;

pub fn routes() -> Router<AppState> {
    Router::new()
        .merge(workspaces::routes())
        .merge(keys::routes())
        .merge(usage::routes())
        .merge(calls::routes())
        .merge(models::routes())
        .merge(playground::routes())
}

/// A text around a value, for templates.
pub(crate) fn text(before: &str, value: &impl Display, after: &str) -> String {
    format!("{before}{value}{after}")
}

/// The path of a thing in the same scope, for templates.
pub(crate) fn href(
    layout: &Layout,
    before: &str,
    id: &impl Display,
    after: impl AsRef<str>,
) -> String {
    layout.href(&text(before, id, after.as_ref()))
}
