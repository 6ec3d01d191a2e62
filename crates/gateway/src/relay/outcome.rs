//! What a call comes to, before it is accounted for.

use crate::accounting::account::CallEnd;
use crate::cache::CacheWriter;
use crate::relay::fallback::UpstreamResponse;
use crate::streaming::body::GatewayBody;
use http::{HeaderMap, StatusCode};

/// What a call comes to, before it is accounted for.
pub(crate) enum Outcome {
    /// A provider answers; the rest comes as it comes.
    Streaming(Box<UpstreamResponse>, Option<CacheWriter>),
    /// The whole answer is there.
    Complete(CompleteResponse),
}

/// An answer that is there as a whole.
pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: GatewayBody,
    pub(crate) ending: CallEnd,
}
