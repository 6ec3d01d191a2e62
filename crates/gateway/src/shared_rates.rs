//! The shared buckets as the gateway sees them: where nodes report what they use of rate limits.

use estrade_model::rate::{RateReply, RateReport};
use futures_util::future::BoxFuture;

/// The buckets that all nodes of an installation share.
pub trait SharedRates: Send + Sync + 'static {
    /// Whether there is no other node for certain: then this one decides by itself.
    fn is_alone(&self) -> bool;

    /// How many nodes are alive, as far as this one knows.
    fn nodes(&self) -> usize;

    /// Adds what was used and grants what there is room for: a reply to each report, in order.
    fn exchange<'a>(
        &'a self,
        reports: &'a [RateReport],
    ) -> BoxFuture<'a, Result<Vec<RateReply>, SharedRatesUnavailable>>;
}

/// The shared buckets cannot be reached. The cause was logged.
#[derive(Debug, Clone, Copy)]
pub struct SharedRatesUnavailable;
