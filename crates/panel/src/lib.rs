//! The account panel: server-rendered web pages over the same services as the APIs.
//!
//! It has no rule and no SQL of its own: pages call `estrade_service` and show what it returns. Invariants:
//!
//! - Who signed in is proved by the session cookie alone ([`session::Visit`]); neither API accepts it.
//! - A request that changes something comes from our own origin ([`origin`]) and carries the session's CSRF token
//!   ([`form::SignedForm`]).
//! - Nothing is loaded from another host and no page has inline script or style ([`headers`]).
//! - What a person typed is escaped by the template engine; `|safe` is for markup that this crate made.

pub mod assets;
pub mod chart;
pub mod cookies;
pub mod error;
pub mod flash;
pub mod form;
pub mod format;
pub mod headers;
pub mod icons;
pub mod layout;
pub mod list;
mod middleware;
pub mod next;
pub mod origin;
pub mod page;
pub mod pages;
pub mod qr;
pub mod respond;
pub mod session;
pub mod share;
pub mod user_agent;

pub use error::PanelError;
pub use form::SignedForm;
pub use layout::{Layout, Section};
pub use page::render;
pub use session::Visit;

use axum::Router;
use axum::middleware::from_fn_with_state;
use estrade_server::app::AppState;
use std::sync::Arc;

/// Every route of the panel, and what a browser gets at `/`.
pub fn routes(app: &AppState) -> Router<AppState> {
    let protect = from_fn_with_state(Arc::clone(app), middleware::protect);
    Router::new()
        .merge(assets::routes())
        .merge(pages::routes())
        .method_not_allowed_fallback(middleware::method_not_allowed)
        .layer(protect)
        .merge(pages::home::entrance())
}
