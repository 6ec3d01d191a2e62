//! Headers that the gateway reads and writes.

use http::HeaderName;

pub(crate) const CALL: HeaderName = HeaderName::from_static("x-estrade-call");
pub(crate) const PROVIDER: HeaderName = HeaderName::from_static("x-estrade-provider");
/// What the provider calls the model: as it says itself when its whole response is there, else as it was asked.
pub(crate) const UPSTREAM_MODEL: HeaderName = HeaderName::from_static("x-estrade-upstream-model");
pub(crate) const ATTEMPTS: HeaderName = HeaderName::from_static("x-estrade-attempts");
/// The one header of the caller that says how to respond.
pub(crate) const BETA: HeaderName = HeaderName::from_static("openai-beta");
pub(crate) const CACHE: HeaderName = HeaderName::from_static("x-estrade-cache");
/// Headers of an ordinary response: with room for these its map never has to grow.
pub(crate) const MAX_HEADERS: usize = 24;
