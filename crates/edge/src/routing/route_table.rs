//! Routes: which project a host leads to, and which release of it is live.
//!
//! The table is a snapshot in memory. The change feed marks a route as stale right after the commit
//! that changed it, before anybody is told of the change; the next visitor, or the follower in the
//! background, reads it again. So whoever has seen a release READY is never shown the one before.

use crate::counters::ProjectCounters;
use crate::id_table::IdTable;
use crate::routing::endpoints::{EndpointSet, Endpoints};
use crate::routing::host;
use crate::routing::name_table::NameTable;
use crate::routing::route_generation::{RouteGeneration, time_of_second};
use crate::static_files::site::Site;
use crate::static_files::site_cache::SiteCache;
use arc_swap::{ArcSwapOption, ArcSwapWeak, Guard};
use estrade_model::domain::HostName;
use estrade_model::error::error_chain;
use estrade_model::{ProjectId, ReleaseId, Timestamp};
use estrade_service::{Core, Error, Publisher, Result, Traffic};
use estrade_store::domains::{self, ActiveDomain};
use estrade_store::routes::{self, LiveRow, NamedProject};
use estrade_store::variants::VariantRow;
use estrade_store::{Change, ChangeKind};
use futures_util::future::BoxFuture;
use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Projects that are read at once when the table is filled.
const PAGE_SIZE: u32 = 1000;
/// Releases that were lately live and whose assets are still looked at, per project: more than
/// anybody deploys in the time that a page stays open, and a bound for who deploys in a loop.
const MAX_EARLIER_RELEASES: u32 = 200;
/// How long the follower waits before it tries again what failed.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A project, as visitors reach it.
pub struct Route {
    /// The project.
    pub project: ProjectId,
    /// Its name.
    pub name: Box<str>,
    hot: HotFields,
    live: ArcSwapOption<Live>,
    loading: tokio::sync::Mutex<()>,
    /// The custom domains that lead to it, as far as the table knows.
    hosts: Mutex<HashSet<HostName>>,
    /// Its number, once somebody needs one.
    id: OnceLock<Option<u32>>,
}

/// What every request looks at, in one line of the processor's cache.
#[derive(Default)]
#[repr(C, align(64))]
struct HotFields {
    generation: RouteGeneration,
    /// What its visitors were given.
    counters: ProjectCounters,
}

/// How a project is served at the moment.
pub(crate) struct Live {
    /// Which generation of its route this is.
    pub(crate) generation: u32,
    /// Whether the project's name leads to it; else only its custom domains do.
    pub(crate) default_subdomain: bool,
    /// What visitors get.
    pub(crate) state: State,
}

/// What visitors of a project get.
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

/// The release that is live, and those that were.
pub struct LiveSite {
    /// The release.
    pub row: LiveRow,
    /// When it went live, to the second…
    second: u32,
    /// …as a time…
    pub modified: SystemTime,
    /// …and as `Last-Modified`.
    pub last_modified: String,
    /// Whether no other release went live in the same second: else the date tells nothing.
    pub dated: bool,
    /// Releases whose assets pages in open browsers may still ask for, the last one first.
    pub earlier: Vec<LiveRow>,
    /// Its files, for as long as they are in memory: who has this need not look for them there.
    site: ArcSwapWeak<Site>,
}

impl LiveSite {
    /// Its files, if they are in memory.
    pub(crate) fn site(&self) -> Option<Arc<Site>> {
        self.site.load().upgrade()
    }

    /// Remembers where its files are in memory.
    pub(crate) fn set_site(&self, site: &Arc<Site>) {
        self.site.store(Arc::downgrade(site));
    }

    /// Its files may lie elsewhere now.
    pub(crate) fn forget_site(&self) {
        self.site.store(Weak::new());
    }
}

/// All routes of this node.
pub struct Routes {
    core: Arc<Core>,
    runtime: Handle,
    sites: Arc<SiteCache>,
    endpoints: Arc<Endpoints>,
    names: NameTable<Route>,
    /// Custom domains.
    hosts: NameTable<Route>,
    by_project: Mutex<HashMap<ProjectId, Arc<Route>>>,
    /// Routes of files that were given lately.
    route_ids: IdTable<Option<Arc<Route>>>,
    dirty: Mutex<Dirty>,
    /// Whether anything is dirty, to be asked without the lock.
    any_dirty: AtomicBool,
    wake: Notify,
    settling: tokio::sync::Mutex<()>,
}

/// What the table may not know of yet.
#[derive(Default, Clone)]
struct Dirty {
    projects: HashSet<ProjectId>,
    everything: bool,
}

impl Dirty {
    fn is_empty(&self) -> bool {
        self.projects.is_empty() && !self.everything
    }
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

    /// Keeps the table complete until `stop`, so that visitors rarely have to wait for it.
    pub async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut failing = false;
        while stop
            .run_until_cancelled(self.wake.notified())
            .await
            .is_some()
        {
            let settled = self.apply_changes().await;
            if let Err(error) = &settled {
                if !failing {
                    tracing::warn!(error = error_chain(error), "cannot follow what is served");
                }
                let pause = tokio::time::sleep(RETRY_DELAY);
                stop.run_until_cancelled(pause).await;
                self.wake.notify_one();
            }
            failing = settled.is_err();
        }
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

    /// The number of a route; none when there are no more.
    pub(crate) fn id_of(&self, route: &Arc<Route>) -> Option<u32> {
        let add = || self.route_ids.add(Some(Arc::clone(route)));
        let id = *route.id.get_or_init(add);
        // Whoever deletes it takes its number away, but may have come too early for that.
        self.drop_if_gone(route);
        id
    }

    /// Lets go of a route that was deleted: notes of it may outlive it.
    fn drop_if_gone(&self, route: &Route) {
        // Of two who come at once, one that gives it a number and one that deletes it, one sees what the other did.
        fence(Ordering::SeqCst);
        let live = route.live.load();
        if let (Some(State::Gone), Some(Some(id))) =
            (live.as_ref().map(|it| &it.state), route.id.get())
        {
            self.route_ids.set(*id, None);
        }
    }

    /// The route of this number.
    pub(crate) fn by_id(&self, id: u32) -> Option<Guard<Option<Arc<Route>>>> {
        self.route_ids.get(id)
    }

    /// The site of a release.
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

    fn on_change(&self, change: &Change) {
        let mut dirty = lock(&self.dirty);
        match change.kind {
            ChangeKind::Route => {
                let Ok(project) = change.id.parse() else {
                    return;
                };
                if let Some(route) = self.projects().get(&project) {
                    route.hot.generation.mark_stale();
                }
                dirty.projects.insert(project);
            }
            ChangeKind::Everything => {
                self.projects()
                    .values()
                    .for_each(|route| route.hot.generation.mark_stale());
                dirty.everything = true;
            }
            _ => return,
        }
        self.any_dirty.store(true, Ordering::Release);
        self.wake.notify_one();
    }

    /// Brings the table up to what was heard so far. A project that cannot be read is left for the
    /// next time and does not keep the others waiting.
    async fn apply_changes(&self) -> Result<()> {
        let _one_at_a_time = self.settling.lock().await;
        let heard = lock(&self.dirty).clone();
        if heard.everything {
            self.read_all().await?;
        }
        let (mut unsettled, mut outcome) = (HashSet::new(), Ok(()));
        for project in &heard.projects {
            if let Err(error) = self.apply_project_change(*project).await {
                unsettled.insert(*project);
                outcome = Err(error);
            }
        }
        // What was heard meanwhile stays for the next time.
        let mut dirty = lock(&self.dirty);
        if heard.everything {
            dirty.everything = false;
        }
        dirty.projects.retain(|project| {
            let settled = heard.projects.contains(project) && !unsettled.contains(project);
            let stale = || {
                self.projects()
                    .get(project)
                    .is_some_and(|route| route.current().is_none())
            };
            !settled || stale()
        });
        self.any_dirty.store(!dirty.is_empty(), Ordering::Release);
        outcome
    }

    async fn apply_project_change(&self, project: ProjectId) -> Result<()> {
        let known = self.projects().get(&project).cloned();
        let route = match known {
            Some(route) => route,
            None => match self
                .on_runtime(
                    move |core| async move { Ok(routes::read_route(&core.db, project).await?) },
                )
                .await?
            {
                Some(row) => {
                    let named = NamedProject {
                        id: project,
                        name: row.name,
                    };
                    self.add([named])
                        .into_iter()
                        .next()
                        .ok_or_else(|| Error::internal("no route"))?
                }
                None => return Ok(()),
            },
        };
        if route.current().is_none() {
            let live = self.refresh(&route).await?;
            if let State::Files(site) = &live.state {
                // The first visitor need not wait for it; nor fail, if it cannot be read now.
                drop(self.sites.get(&site.row).await);
            }
        }
        Ok(())
    }

    async fn refresh(&self, route: &Arc<Route>) -> Result<Arc<Live>> {
        let _one_at_a_time = route.loading.lock().await;
        if let Some(live) = route.current() {
            return Ok(live);
        }
        // Taken before reading: what changes while we read makes the result stale again.
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

    async fn read_all(&self) -> Result<()> {
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

    /// Reads all custom domains.
    async fn read_hosts(&self) -> Result<()> {
        let mut after: Option<HostName> = None;
        loop {
            let from = after.take();
            let page = self
                .on_runtime(move |core| async move {
                    Ok(domains::list_active_domains(&core.db, from.as_ref(), PAGE_SIZE).await?)
                })
                .await?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            after = Some(last.name.clone());
            let mut found = Vec::new();
            for ActiveDomain { name, project } in page {
                // One that is not there is new, and will be announced.
                if let Some(route) = self.projects().get(&project) {
                    found.push((name.as_str().into(), Arc::clone(route)));
                    lock(&route.hosts).insert(name);
                }
            }
            self.hosts.extend(found);
        }
    }

    /// Makes exactly these domains lead to a project.
    ///
    /// First it asks, then it changes, so that whoever is cut off in between (the visitor may have
    /// gone away) leaves it to the next one, and no domain is forgotten half-way.
    async fn set_hosts(&self, route: &Arc<Route>, hosts: Vec<HostName>) -> Result<()> {
        let new: HashSet<HostName> = hosts.into_iter().collect();
        let old = lock(&route.hosts).clone();
        let lost: Vec<HostName> = old.difference(&new).cloned().collect();
        // They may lead elsewhere by now, and we may have been slower than that.
        let names = lost.clone();
        let owners = self.on_runtime(move |core| async move {
            let mut owners = Vec::new();
            for name in names {
                owners.push(domains::project_of(&core.db, &name).await?);
            }
            Ok(owners)
        });
        let owners = if lost.is_empty() {
            Vec::new()
        } else {
            owners.await?
        };
        let added = new.difference(&old).map(|host| host.as_str().into());
        let added: Vec<_> = added.map(|host| (host, Arc::clone(route))).collect();
        *lock(&route.hosts) = new;
        self.hosts.extend(added);
        for (host, owner) in lost.into_iter().zip(owners) {
            self.hosts.remove(host.as_str(), route);
            let owner = owner.and_then(|project| self.projects().get(&project).cloned());
            if let Some(owner) = owner {
                self.hosts
                    .extend([(host.as_str().into(), Arc::clone(&owner))]);
                lock(&owner.hosts).insert(host);
                // If that is not so any more, it finds out before it serves.
                owner.hot.generation.mark_stale();
            }
        }
        Ok(())
    }

    /// Adds projects that are not in the table; returns the routes of all.
    fn add(&self, projects: impl IntoIterator<Item = NamedProject>) -> Vec<Arc<Route>> {
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
    async fn on_runtime<T, F>(&self, ask: impl FnOnce(Arc<Core>) -> F) -> Result<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.runtime.spawn(ask(Arc::clone(&self.core)));
        task.await.map_err(Error::internal)?
    }

    fn projects(&self) -> MutexGuard<'_, HashMap<ProjectId, Arc<Route>>> {
        lock(&self.by_project)
    }
}

impl Publisher for Routes {
    fn traffic(&self, project: ProjectId) -> Option<Traffic> {
        let route = self.projects().get(&project).cloned()?;
        let counted = route.counters().snapshot()?;
        Some(Traffic {
            requests: counted.classes,
            bytes: counted.bytes,
        })
    }

    fn prepare<'p>(
        &'p self,
        project: ProjectId,
        release: &'p LiveRow,
        fresh: Vec<VariantRow>,
    ) -> BoxFuture<'p, Result<()>> {
        Box::pin(self.sites.prepare(project, release, fresh))
    }

    fn publish(
        &self,
        project: ProjectId,
        release: ReleaseId,
        addresses: &[SocketAddr],
        limit: Duration,
    ) -> BoxFuture<'static, ()> {
        let draining = self.endpoints.publish(project, release, addresses);
        Box::pin(async move {
            draining.drained(limit).await;
        })
    }
}

impl Route {
    fn new(project: ProjectId, name: Box<str>) -> Self {
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

    /// What its visitors were given.
    pub fn counters(&self) -> &ProjectCounters {
        &self.hot.counters
    }

    /// Since when it is served as it was in this generation, if it still is.
    pub(crate) fn live_since(&self, generation: u32) -> Option<SystemTime> {
        self.hot.generation.live_since(generation)
    }

    /// Whether it is still served in this way.
    pub(crate) fn is_current(&self, live: &Arc<Live>) -> bool {
        self.current().is_some_and(|it| Arc::ptr_eq(&it, live))
    }

    /// How it is served, unless that has changed since it was read.
    fn current(&self) -> Option<Arc<Live>> {
        let live = self.live.load_full()?;
        (live.generation == self.hot.generation.current()).then_some(live)
    }
}

async fn read_state(
    core: &Core,
    endpoints: &Endpoints,
    project: ProjectId,
    since: Timestamp,
) -> Result<(State, bool)> {
    let Some(route) = routes::read_route(&core.db, project).await? else {
        return Ok((State::Gone, true));
    };
    let state = match route.live {
        _ if route.scale == 0 => State::Off,
        None => State::Empty,
        Some(row) if row.runs => State::Running(endpoints.set(project, row.release)),
        Some(row) => read_site(core, project, row, since).await?,
    };
    Ok((state, route.default_subdomain))
}

async fn read_site(
    core: &Core,
    project: ProjectId,
    row: LiveRow,
    since: Timestamp,
) -> Result<State> {
    let second = |time: Timestamp| time.millis().div_euclid(1000);
    let began = Timestamp::from_millis(second(row.since) * 1000 - 1);
    let since = since.min(began);
    let mut earlier =
        routes::list_lately_live(&core.db, project, since, MAX_EARLIER_RELEASES).await?;
    let dated = earlier
        .iter()
        .all(|it| second(it.since) != second(row.since));
    // Roll-backs make many releases of few artifacts: the same files need not be looked at twice,
    // nor those that are live.
    let mut seen = HashSet::from([row.artifact]);
    earlier.retain(|it| seen.insert(it.artifact));
    // Until 2106.
    let seconds = u32::try_from(row.since.millis() / 1000).unwrap_or(u32::MAX);
    Ok(State::Files(LiveSite {
        second: seconds,
        last_modified: httpdate::fmt_http_date(time_of_second(seconds)),
        modified: time_of_second(seconds),
        dated,
        earlier,
        row,
        site: ArcSwapWeak::default(),
    }))
}

/// Nothing that is held under these locks can be left half-done.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
