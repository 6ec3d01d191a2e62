//! What is read of a response's body while it is forwarded or read on.

use crate::cache::CacheWriter;
use crate::streaming::model_name::ModelRewriter;
use crate::streaming::response_scanner::ResponseScanner;
use crate::streaming::sse::EventStream;
use estrade_model::call::Tokens;

/// The body of a response, as far as it is understood.
pub(crate) enum Content {
    /// Server-sent events.
    Events(EventStream),
    /// One JSON text.
    Json {
        scan: ResponseScanner,
        /// Whether it is not compressed: only then its usage can be read.
        readable: bool,
        /// Remaining bytes, when the length is known.
        left: Option<u64>,
        cache_writer: Option<CacheWriter>,
        /// Replaces the provider's name of the model by the id that the client asked for.
        model: ModelRewriter,
    },
}

impl Content {
    pub(crate) fn usage(&self) -> Option<Tokens> {
        match self {
            Self::Events(events) => events.usage(),
            Self::Json { scan, .. } => scan.usage(),
        }
    }

    pub(crate) fn content_bytes(&self) -> u64 {
        match self {
            Self::Events(events) => events.content_bytes(),
            Self::Json { scan, .. } => scan.content_bytes(),
        }
    }

    /// Whether the end was announced: nothing of interest comes any more.
    pub(crate) fn is_announced_end(&self) -> bool {
        matches!(self, Self::Events(events) if events.is_done())
    }

    /// Whether an answer that ended with its connection has an end of its own.
    pub(crate) fn is_complete(&self, passed: u64) -> bool {
        match self {
            Self::Events(events) => events.is_complete(),
            Self::Json { scan, readable, .. } => passed > 0 && !(*readable && scan.is_open()),
        }
    }

    /// Whether all is known that the provider bills, of an answer that was read to its end or not.
    pub(crate) fn is_settled(&self, finished: bool) -> bool {
        match self {
            Self::Events(events) => finished || events.has_final_usage(),
            Self::Json { scan, readable, .. } => *readable && (finished || scan.usage().is_some()),
        }
    }
}
