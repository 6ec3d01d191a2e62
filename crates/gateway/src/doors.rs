//! Who may call: what the relay asks before anything else.

use futures_util::future::BoxFuture;

pub use estrade_model::pass::{Denied, KeyPass, Pass, Place, Rates, WorkspacePass};

/// Lets keys in. Every request asks, so that a key that was switched off stops at once.
pub trait Doors: Send + Sync + 'static {
    /// The answer when everything it needs is at hand; otherwise [`Self::look_up`] has to be asked.
    fn check(&self, token: &str, place: Place<'_>) -> Option<Result<Pass, Denied>>;

    /// The answer, from the database if need be.
    fn look_up<'a>(
        &'a self,
        token: &'a str,
        place: Place<'a>,
    ) -> BoxFuture<'a, Result<Pass, Denied>>;
}
