//! Authentication of keys, before anything else of a request is looked at.

use futures_util::future::BoxFuture;

pub use estrade_model::auth::{
    AuthContext, AuthError, AuthorizedKey, AuthorizedWorkspace, RateLimits, WorkspaceSelector,
};

/// Authenticates keys. Asked for every request, so that a key that was disabled stops at once.
pub trait KeyAuthenticator: Send + Sync + 'static {
    /// The result when everything it needs is at hand; otherwise [`Self::look_up`] has to be asked.
    fn check(
        &self,
        token: &str,
        selector: WorkspaceSelector<'_>,
    ) -> Option<Result<AuthContext, AuthError>>;

    /// The result, from the database if need be.
    fn look_up<'a>(
        &'a self,
        token: &'a str,
        selector: WorkspaceSelector<'a>,
    ) -> BoxFuture<'a, Result<AuthContext, AuthError>>;
}
