//! The state of one serving thread.

use crate::accounting::in_flight::InFlightCalls;
use crate::gateway::Gateway;
use crate::streaming::active_responses::ActiveResponses;
use crate::streaming::readers::Readers;
use crate::upstream::Pool;
use estrade_listener::IdleConnections;
use estrade_model::ProjectId;
use std::sync::Arc;

/// What the calls of one thread share.
pub(crate) struct WorkerState {
    pub(crate) gateway: Arc<Gateway>,
    pub(crate) pool: Pool,
    pub(crate) active_responses: ActiveResponses,
    pub(crate) in_flight: Arc<InFlightCalls>,
    pub(crate) readers: Readers,
}

impl IdleConnections for WorkerState {
    /// Connections to providers are of no project.
    fn evict(&self, _: Option<ProjectId>, count: usize) -> usize {
        self.pool.evict(count, |_| true)
    }
}
