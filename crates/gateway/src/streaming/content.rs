//! Parser state of a response's body, while it is forwarded or read by a detached task.

use crate::cache::CacheWriter;
use crate::streaming::model_name::ModelRewriter;
use crate::streaming::response_scanner::ResponseScanner;
use crate::streaming::sse::EventStream;
use estrade_model::call::Tokens;

/// The body of a response by its format.
pub(crate) enum Content {
    Events(EventStream),
    /// One JSON text.
    Json {
        scan: ResponseScanner,
        /// Whether it is not compressed: only then its usage can be read.
        readable: bool,
        /// Remaining bytes, when the length is known.
        left: Option<u64>,
        cache_writer: Option<CacheWriter>,
        /// Replaces the provider's name of the model by the id in the client's request.
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

    /// Whether a body that ended with its connection was complete.
    pub(crate) fn is_complete(&self, passed: u64) -> bool {
        match self {
            Self::Events(events) => events.is_complete(),
            Self::Json { scan, readable, .. } => passed > 0 && !(*readable && scan.is_open()),
        }
    }

    /// Whether everything that the provider bills is known.
    pub(crate) fn is_settled(&self, finished: bool) -> bool {
        match self {
            Self::Events(events) => finished || events.has_final_usage(),
            Self::Json { scan, readable, .. } => *readable && (finished || scan.usage().is_some()),
        }
    }
}
