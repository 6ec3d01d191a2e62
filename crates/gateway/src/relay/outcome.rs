//! The outcome of a call, before it is accounted for.

use crate::accounting::account::CallEnd;
use crate::cache::CacheWriter;
use crate::relay::fallback::UpstreamResponse;
use crate::streaming::body::GatewayBody;
use http::{HeaderMap, StatusCode};

pub(crate) enum Outcome {
    /// The head of a provider's response has arrived; the body is forwarded while it arrives.
    Streaming(Box<UpstreamResponse>, Option<CacheWriter>),
    /// The whole response is in memory.
    Complete(CompleteResponse),
}

pub(crate) struct CompleteResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: GatewayBody,
    pub(crate) ending: CallEnd,
}
