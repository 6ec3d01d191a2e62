//! One project as requests reach it: its live release, its generation and its counters.

use crate::counters::ProjectCounters;
use crate::routing::endpoints::EndpointSet;
use crate::routing::route_generation::RouteGeneration;
use crate::static_files::live_site::LiveSite;
use arc_swap::ArcSwapOption;
use estrade_model::ProjectId;
use estrade_model::domain::HostName;
use std::collections::HashSet;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::SystemTime;

/// A project as requests reach it.
pub struct Route {
    pub project: ProjectId,
    pub name: Box<str>,
    pub(super) hot: HotFields,
    pub(super) live: ArcSwapOption<Live>,
    pub(super) loading: tokio::sync::Mutex<()>,
    /// The custom domains that lead to it, as far as the table knows.
    pub(super) hosts: Mutex<HashSet<HostName>>,
    /// Assigned on first use by the response cache.
    pub(super) id: OnceLock<Option<u32>>,
}

/// What every request reads and counts, aligned to a cache line: with thousands of projects in use, each
/// further line is a cache miss per request.
#[derive(Default)]
#[repr(C, align(64))]
pub(super) struct HotFields {
    pub(super) generation: RouteGeneration,
    pub(super) counters: ProjectCounters,
}

/// How a project is served at the moment.
pub(crate) struct Live {
    /// Which generation of its route this is.
    pub(crate) generation: u32,
    /// Whether the project's name leads to it; else only its custom domains do.
    pub(crate) default_subdomain: bool,
    pub(crate) state: State,
}

/// How requests for a project are served.
pub(crate) enum State {
    /// It was deleted.
    Gone,
    /// It is scaled to zero.
    Off,
    /// It has no release that serves.
    Empty,
    /// The instances of a release.
    Running(Arc<EndpointSet>),
    /// The files of a release.
    Files(LiveSite),
}

impl Route {
    pub(super) fn new(project: ProjectId, name: Box<str>) -> Self {
        Self {
            project,
            name,
            hot: HotFields::default(),
            live: ArcSwapOption::empty(),
            loading: tokio::sync::Mutex::default(),
            hosts: Mutex::default(),
            id: OnceLock::new(),
        }
    }

    pub fn counters(&self) -> &ProjectCounters {
        &self.hot.counters
    }

    /// Since when it is served as it was in this generation, if it still is.
    pub(crate) fn live_since(&self, generation: u32) -> Option<SystemTime> {
        self.hot.generation.live_since(generation)
    }

    /// Whether this state is still the present one.
    pub(crate) fn is_current(&self, live: &Arc<Live>) -> bool {
        self.current().is_some_and(|it| Arc::ptr_eq(&it, live))
    }

    /// The state, if it was read in the present generation.
    pub(super) fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.load_full()?;
        (live.generation == self.hot.generation.current()).then_some(live)
    }
}
