//! What can be set about the relay.

use crate::shared_rates::SharedRates;
use crate::trace::Tracing;
use estrade_listener::UpstreamBudget;
use estrade_model::Timestamp;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// What can be set about the relay.
#[derive(Clone)]
pub struct Options {
    /// The present time, for records; spans are measured otherwise.
    pub clock: Clock,
    /// Larger request bodies are refused.
    pub max_body: u64,
    /// Bytes of all request bodies that may be in memory at once.
    pub max_bodies: u64,
    /// Of these, those of one owner, as far as they are larger than most.
    pub max_owner_bodies: u64,
    /// A request body that stands still for so long is given up.
    pub body_idle_timeout: Duration,
    /// Larger responses are cut.
    pub max_response: u64,
    /// A stream that is silent for so long gets a comment.
    pub keep_alive_interval: Duration,
    /// A response of which the caller reads nothing for so long is cut; noticed within seconds.
    pub unread_timeout: Duration,
    /// For how long a response is read on for its usage after its client has left.
    pub detached_timeout: Duration,
    /// Bytes of responses that the cache keeps.
    pub cache_bytes: u64,
    /// How long the cache keeps them.
    pub cache_ttl: Duration,
    /// Connections to one provider that a thread keeps for later.
    pub max_idle: usize,
    /// How long it keeps them.
    pub idle_timeout: Duration,
    /// How many connections to providers may be open at once, by all threads.
    pub upstreams: UpstreamBudget,
    /// The buckets that rate limits share with other nodes; none: this node is the only one.
    pub shared_rates: Option<Arc<dyn SharedRates>>,
    /// Whether calls are traced.
    pub tracing: Option<Tracing>,
}

impl Options {
    pub fn new(clock: Clock) -> Self {
        Self {
            clock,
            max_body: 32 << 20,
            max_bodies: 512 << 20,
            max_owner_bodies: 256 << 20,
            body_idle_timeout: Duration::from_secs(20),
            max_response: 1 << 30,
            keep_alive_interval: Duration::from_secs(10),
            unread_timeout: Duration::from_mins(5),
            detached_timeout: Duration::from_secs(30),
            cache_bytes: 32 << 20,
            cache_ttl: Duration::from_mins(5),
            max_idle: 256,
            idle_timeout: Duration::from_mins(1),
            upstreams: UpstreamBudget::default(),
            shared_rates: None,
            tracing: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").finish_non_exhaustive()
    }
}
