//! Route table: from a host to a project and its live release, cached in memory.
//!
//! Mechanism: cache invalidation by generation. The change feed marks a route as stale right after the
//! commit that changed it, before the change is acknowledged; the next request, or the follower in
//! the background (`change_feed`), reads it again.
//!
//! Invariant: a client that has seen a release READY never gets the one before it. When the database is
//! away, the last known state is served.

use crate::id_table::IdTable;
use crate::routing::endpoints::Endpoints;
use crate::routing::host;
use crate::routing::name_table::NameTable;
use crate::routing::pending_changes::PendingChanges;
use crate::routing::read_state::read_state;
use crate::routing::route::{Live, Route, State};
use crate::static_files::site_cache::SiteCache;
use arc_swap::Guard;
use estrade_model::ProjectId;
use estrade_model::sync::MutexExt;
use estrade_service::{Core, Error, Result};
use estrade_store::domains;
use estrade_store::routes::{self, NamedProject};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::runtime::Handle;
use tokio::sync::Notify;

/// Projects that are read at once when the table is filled.
pub(super) const PAGE_SIZE: u32 = 1000;
/// All routes of this node.
pub struct Routes {
    pub(super) core: Arc<Core>,
    pub(super) runtime: Handle,
    pub(super) sites: Arc<SiteCache>,
    pub(super) endpoints: Arc<Endpoints>,
    pub(super) names: NameTable<Route>,
    pub(super) hosts: NameTable<Route>,
    pub(super) by_project: Mutex<HashMap<ProjectId, Arc<Route>>>,
    /// Routes by the ids that entries of the response cache hold.
    pub(super) route_ids: IdTable<Option<Arc<Route>>>,
    pub(super) dirty: Mutex<PendingChanges>,
    /// Whether `dirty` is not empty, readable without its lock.
    pub(super) any_dirty: AtomicBool,
    pub(super) wake: Notify,
    pub(super) settling: tokio::sync::Mutex<()>,
}

impl Routes {
    /// Reads the table, and follows the changes from then on.
    pub async fn open(core: Arc<Core>, sites: Arc<SiteCache>) -> Result<Arc<Self>> {
        let routes = Arc::new(Self {
            runtime: Handle::current(),
            sites,
            endpoints: Arc::default(),
            names: NameTable::default(),
            hosts: NameTable::default(),
            by_project: Mutex::default(),
            route_ids: IdTable::default(),
            dirty: Mutex::default(),
            any_dirty: AtomicBool::new(false),
            wake: Notify::new(),
            settling: tokio::sync::Mutex::default(),
            core,
        });
        let hooked = Arc::clone(&routes);
        let changes = routes.core.db.changes();
        changes.on_change(move |change| hooked.on_change(change));
        routes.read_all().await?;
        Ok(routes)
    }

    /// The route of a host; none when no project has it.
    pub async fn find(&self, host: &str) -> Option<Arc<Route>> {
        let host = host::canonical(host);
        match host::project_name(&host, &self.core.settings.domains.edge) {
            Some(name) => self.find_in(&self.names, name).await,
            None => self.find_domain(&host).await,
        }
    }

    /// The name of the project that a host would be, where it is written as it is compared.
    pub(crate) fn project_name<'h>(&self, host: &'h str) -> Option<&'h str> {
        match host::canonical(host) {
            Cow::Borrowed(host) => host::project_name(host, &self.core.settings.domains.edge),
            Cow::Owned(_) => None,
        }
    }

    /// Whether a host is under a domain of the edge, and not a custom one.
    pub(crate) fn is_default_subdomain(&self, host: &str) -> bool {
        let host = host::canonical(host);
        host::project_name(&host, &self.core.settings.domains.edge).is_some()
    }

    async fn find_domain(&self, host: &str) -> Option<Arc<Route>> {
        if let Some(known) = self.hosts.get(host)
            && known.current().is_none()
        {
            // What has changed may be that this domain is not its any more. When the database is
            // away, all stays as it was.
            drop(self.live(&known).await);
        }
        self.find_in(&self.hosts, host).await
    }

    async fn find_in(&self, table: &NameTable<Route>, name: &str) -> Option<Arc<Route>> {
        if let Some(route) = table.get(name) {
            return Some(route);
        }
        if !self.any_dirty.load(Ordering::Acquire) {
            return None;
        }
        // Whatever cannot be settled need not be what was asked for; the follower says what it is.
        drop(self.apply_changes().await);
        table.get(name)
    }

    /// How a project is served now. When the database is away, as it was served last.
    pub(crate) async fn live(&self, route: &Arc<Route>) -> Result<Arc<Live>> {
        match route.current() {
            Some(live) => Ok(live),
            None => match self.refresh(route).await {
                Ok(live) => Ok(live),
                Err(error) => route.live.load_full().ok_or(error),
            },
        }
    }

    /// The id of a route; none when ids are used up.
    pub(crate) fn id_of(&self, route: &Arc<Route>) -> Option<u32> {
        let add = || self.route_ids.add(Some(Arc::clone(route)));
        let id = *route.id.get_or_init(add);
        // A concurrent delete may have run before the id existed, and so could not clear it.
        self.drop_if_gone(route);
        id
    }

    /// Releases the memory of a deleted route: entries of the response cache may keep its id for long.
    fn drop_if_gone(&self, route: &Route) {
        // Dekker-style: of a thread that assigns the id and one that deletes the route, at least one sees
        // what the other wrote, and clears the slot.
        fence(Ordering::SeqCst);
        let live = route.live.load();
        if let (Some(State::Gone), Some(Some(id))) =
            (live.as_ref().map(|it| &it.state), route.id.get())
        {
            self.route_ids.set(*id, None);
        }
    }

    pub(crate) fn by_id(&self, id: u32) -> Option<Guard<Option<Arc<Route>>>> {
        self.route_ids.get(id)
    }

    pub fn sites(&self) -> &SiteCache {
        &self.sites
    }

    /// Where the releases that run on this node can be reached.
    pub fn endpoints(&self) -> &Arc<Endpoints> {
        &self.endpoints
    }

    /// All routes that were visited, with their numbers.
    pub fn visited(&self) -> Vec<Arc<Route>> {
        self.projects().values().cloned().collect()
    }

    pub(super) async fn refresh(&self, route: &Arc<Route>) -> Result<Arc<Live>> {
        let _one_at_a_time = route.loading.lock().await;
        if let Some(live) = route.current() {
            return Ok(live);
        }
        // Read before the database: a change during the read makes the result stale, and never the reverse.
        let generation = route.hot.generation.current();
        let (project, since) = (
            route.project,
            self.core.now().before(self.core.settings.skew),
        );
        let endpoints = Arc::clone(&self.endpoints);
        let read = self.on_runtime(move |core| async move {
            let hosts = domains::read_active_domains(&core.db, project).await?;
            Ok((hosts, read_state(&core, &endpoints, project, since).await?))
        });
        let (hosts, (state, default_subdomain)) = read.await?;
        self.set_hosts(route, hosts).await?;
        if let (State::Files(site), Some(before)) = (&state, route.live.load_full())
            && matches!(&before.state, State::Files(it) if it.row.release == site.row.release)
        {
            // The same release again: what changed may be where its files lie.
            self.sites.forget(site.row.release);
        }
        if let State::Gone = state {
            self.names.remove(&route.name, route);
            self.projects().remove(&project);
        }
        if let State::Files(site) = &state {
            route.hot.generation.set_live_since(generation, site.second);
        }
        let live = Arc::new(Live {
            generation,
            default_subdomain,
            state,
        });
        route.live.store(Some(Arc::clone(&live)));
        self.drop_if_gone(route);
        Ok(live)
    }

    pub(super) async fn read_all(&self) -> Result<()> {
        let mut after = None;
        loop {
            let page = self
                .on_runtime(move |core| async move {
                    Ok(routes::list_named_projects(&core.db, after, PAGE_SIZE).await?)
                })
                .await?;
            let Some(last) = page.last() else { break };
            after = Some(last.id);
            self.add(page);
        }
        self.read_hosts().await
    }

    /// Adds projects that are not in the table; returns the routes of all.
    pub(super) fn add(&self, projects: impl IntoIterator<Item = NamedProject>) -> Vec<Arc<Route>> {
        let mut by_project = self.projects();
        let mut routes = Vec::new();
        for NamedProject { id, name } in projects {
            let route = by_project
                .entry(id)
                .or_insert_with(|| Arc::new(Route::new(id, name.into())));
            routes.push(Arc::clone(route));
        }
        drop(by_project);
        self.names.extend(
            routes
                .iter()
                .map(|route| (route.name.clone(), Arc::clone(route))),
        );
        routes
    }

    /// Asks the database on the runtime that its connections belong to.
    pub(super) async fn on_runtime<T, F>(&self, ask: impl FnOnce(Arc<Core>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.runtime.spawn(ask(Arc::clone(&self.core)));
        task.await.map_err(Error::internal)?
    }

    pub(super) fn projects(&self) -> MutexGuard<'_, HashMap<ProjectId, Arc<Route>>> {
        lock(&self.by_project)
    }
}

/// Recovers from poisoning: no critical section of these locks can leave its data inconsistent.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock_ignoring_poison()
}
