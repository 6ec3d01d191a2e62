//! Projects: made, listed, read, changed, deleted.

use crate::audit::PendingEntry;
use crate::identity::access::{Operation, ProjectOperation};
use crate::platform::disks::require_disks_fit;
use crate::platform::events::{NewEvent, record_events};
use crate::platform::project_lookup::NOT_FOUND;
pub(crate) use crate::platform::project_lookup::{find_project, parse_key};
use crate::{Core, Error, Result, Scope, platform::envs};
use estrade_model::audit::Action;
use estrade_model::names::{NetworkName, ProjectName};
use estrade_model::plan::{BUNDLE_PLANS, Plan};
use estrade_model::platform::Platform;
use estrade_model::project::{CreateProject, NetworkId, Project, ProjectDetail, ProjectStatus};
use estrade_model::team::Role;
use estrade_model::{ProjectId, ReleaseId, Timestamp};
use estrade_store::projects::{self, NewProject, ProjectRow};
pub use estrade_store::projects::{PageOfProjects, Switch};
use estrade_store::quotas::{self, Counted};
use estrade_store::{ChangeKind, StoreError, Tx, disks, domains, former_names, networks};
use std::time::Duration;

/// How long the name of a deleted project stays its owner's.
const NAME_RESERVED_FOR: Duration = Duration::from_hours(30 * 24);
/// How many names of deleted projects are kept for one owner: bounds how many names an owner can reserve.
const MAX_FORMER_NAMES: u32 = 1000;
/// Longest text to search names for.
const MAX_SEARCH_BYTES: usize = 64;

async fn on_the_wire(core: &Core, row: ProjectRow) -> Result<Project> {
    let url = project_url(core, &row).await?;
    Ok(wire_project(row, url))
}

fn wire_project(row: ProjectRow, url: String) -> Project {
    Project {
        id: row.id,
        created_at: row.created_at,
        plan_id: row.plan,
        bundle_plan_id: row.bundle_plan,
        scale: row.scale,
        platform: row.platform,
        status: row.status,
        url,
        project_id: row.name,
        network: row.network,
        is_deployed: row.current_release.is_some(),
    }
}

/// The public address of a project: its default subdomain, else its first domain that is verified. Empty when it
/// has neither.
async fn project_url(core: &Core, row: &ProjectRow) -> Result<String> {
    if row.default_subdomain {
        return Ok(core.settings.project_url(&row.name));
    }
    let host = domains::first_active(&core.db, row.id).await?;
    Ok(host.map_or_else(String::new, |host| core.settings.domain_url(&host)))
}

/// A page of the owner's projects, newest first.
pub async fn list_projects(
    core: &Core,
    scope: &Scope,
    before: Option<ProjectId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Project>> {
    let visible = scope.projects(ProjectOperation::Read)?;
    let rows = projects::list_projects(&core.db, visible, before, count, skip).await?;
    let mut projects = Vec::with_capacity(rows.len());
    for row in rows {
        projects.push(on_the_wire(core, row).await?);
    }
    Ok(projects)
}

/// A project in a list, with the release that serves.
#[derive(Debug, Clone)]
pub struct ProjectSummary {
    pub project: Project,
    pub release: Option<LiveRelease>,
}

/// The release that serves.
#[derive(Debug, Clone)]
pub struct LiveRelease {
    pub id: ReleaseId,
    /// 1, 2, … per project.
    pub number: u64,
    pub created_at: Timestamp,
}

/// A page of the owner's projects as a list shows them, newest first, in one query.
pub async fn list_summaries(
    core: &Core,
    scope: &Scope,
    page: &PageOfProjects,
) -> Result<Vec<ProjectSummary>> {
    if !page.search.as_deref().is_none_or(is_part_of_a_name) {
        return Ok(Vec::new());
    }
    let visible = scope.projects(ProjectOperation::Read)?;
    let rows = projects::list_page(&core.db, visible, page).await?;
    let summaries = rows.into_iter().map(|row| {
        let url = if row.project.default_subdomain {
            core.settings.project_url(&row.project.name)
        } else {
            let domain = row.domain.as_deref();
            domain.map_or_else(String::new, |host| core.settings.domain_url(host))
        };
        let release = row.project.current_release.zip(row.release);
        ProjectSummary {
            release: release.map(|(id, (number, created_at))| LiveRelease {
                id,
                number,
                created_at,
            }),
            project: wire_project(row.project, url),
        }
    });
    Ok(summaries.collect())
}

/// A project with what its overview says of it.
#[derive(Debug, Clone)]
pub struct ProjectOverview {
    pub project: Project,
    /// How many releases it has had.
    pub releases: u64,
    /// Why its instances do not run, while they do not.
    pub fail_reason: Option<String>,
}

/// A project with what its overview says of it.
pub async fn read_overview(core: &Core, scope: &Scope, project: &str) -> Result<ProjectOverview> {
    let row = find_project(core, scope, project).await?;
    Ok(ProjectOverview {
        releases: row.releases,
        fail_reason: row.fail_reason.clone(),
        project: on_the_wire(core, row).await?,
    })
}

/// Whether a text can be in a project's name; others would mean something to `LIKE`.
fn is_part_of_a_name(text: &str) -> bool {
    let allowed = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-';
    text.len() <= MAX_SEARCH_BYTES && text.bytes().all(allowed)
}

/// How many projects the owner has.
pub async fn count_projects(core: &Core, scope: &Scope) -> Result<u64> {
    let owner = scope.read(Operation::ReadPlatform)?;
    Ok(quotas::read_count(&core.db, owner, Counted::Projects).await?)
}

/// A project with all that is known of it, and its version for conditional requests.
pub async fn read_project(
    core: &Core,
    scope: &Scope,
    project: &str,
) -> Result<(ProjectDetail, i64)> {
    let row = find_project(core, scope, project).await?;
    let version = row.version;
    let detail = ProjectDetail {
        envs: envs::list_envs(core, scope, row.id).await?,
        default_subdomain: row.default_subdomain,
        zero_downtime: row.zero_downtime,
        disks: disks::read_disks(&core.db, row.id).await?,
        read_only_root_filesystem: row.read_only_root,
        hourly_price: core
            .settings
            .plans
            .get(&row.plan)
            .map_or(0, |plan| plan.hourly_price),
        reserved_disk_space: disks::reserved_space(&core.db, row.id).await?,
        current_release: row.current_release,
        fail_reason: row.fail_reason.clone(),
        project: on_the_wire(core, row).await?,
    };
    Ok((detail, version))
}

/// Creates a project; 409 `project_exists` when there is one of that name, of any owner.
pub async fn create_project(core: &Core, scope: &Scope, new: CreateProject) -> Result<Project> {
    let permission = scope.require(Operation::WritePlatform, Role::Developer)?;
    let (plan, _) = require_plan(core, &new.plan_id)?;
    let bundle_plan = new.bundle_plan_id.unwrap_or_else(|| "standard".into());
    if !BUNDLE_PLANS.contains(&bundle_plan.as_str()) {
        return Err(Error::invalid(format!(
            "bundlePlanID: unknown bundle plan; choose one of {}",
            BUNDLE_PLANS.join(", ")
        )));
    }
    let network = new.network.unwrap_or_else(|| networks::DEFAULT.into());
    if network.parse::<NetworkName>().is_err() && network.parse::<NetworkId>().is_err() {
        return Err(unknown_network());
    }
    let row = ProjectRow {
        id: core.new_id()?,
        name: new.name.into(),
        platform: new.platform,
        plan: plan.to_owned(),
        bundle_plan,
        scale: 1,
        status: ProjectStatus::Active,
        read_only_root: new.read_only_root.unwrap_or(false),
        zero_downtime: true,
        default_subdomain: true,
        current_release: None,
        releases: 0,
        ready_releases: 0,
        created_at: core.now(),
        version: 0,
        network: None,
        fail_reason: None,
    };
    let (owner, quota) = (permission.owner(), core.settings.quotas.projects);
    let note = PendingEntry::creation(scope, Action::CreateProject, row.id, row.created_at)
        .about(&row.name)
        .detail(format!("{}, plan {}", row.platform, row.plan));
    let made = permission
        .transact_in_group(core, move |tx| {
            let (mut row, network, note) = (row.clone(), network.clone(), note.clone());
            Box::pin(async move {
                let network = networks::find_network(tx, owner, &network).await?;
                let network = network.ok_or_else(unknown_network)?;
                let new = NewProject {
                    id: row.id,
                    owner,
                    name: row.name.clone(),
                    platform: row.platform,
                    plan: row.plan.clone(),
                    bundle_plan: row.bundle_plan.clone(),
                    network: network.id,
                    read_only_root: row.read_only_root,
                    created_at: row.created_at,
                };
                row.network = Some(network);
                insert_project(tx, &new, quota).await?;
                note.write(tx).await?;
                Ok::<_, Error>(row)
            })
        })
        .await?;
    on_the_wire(core, made).await
}

async fn insert_project(tx: &mut Tx, new: &NewProject, quota: u64) -> Result<()> {
    take_name(tx, new).await?;
    match projects::insert_project(tx, new).await {
        Err(StoreError::Duplicate) => Err(taken()),
        other => Ok(other?),
    }?;
    if !quotas::count_up(tx, new.owner, Counted::Projects, quota).await? {
        return Err(Error::Quota {
            what: "projects",
            limit: quota,
        });
    }
    let now = new.created_at;
    tx.changed(ChangeKind::Route, new.id, now).await?;
    Ok(tx.changed(ChangeKind::Project, new.id, now).await?)
}

/// Takes a name that a deleted project may have had. To others a name that is reserved looks like any other that is
/// taken.
async fn take_name(tx: &mut Tx, new: &NewProject) -> Result<()> {
    let (name, now) = (new.name.as_str(), new.created_at);
    let Some(former) = former_names::find_former_name(tx, name).await? else {
        return Ok(());
    };
    if former.owner != new.owner && former.reserved_until > now {
        return Err(taken());
    }
    if former.owner == new.owner && !former.changed_hands {
        return Ok(former_names::delete_former_name(tx, name).await?);
    }
    Ok(former_names::hand_over_name(tx, name, new.owner, now).await?)
}

/// Deletes a project with everything of it; its name is reserved for its owner for a while.
///
/// `if_match` are the versions that the caller has read; another one means that it changed since.
pub async fn delete_project(
    core: &Core,
    scope: &Scope,
    project: &str,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    delete_and_reserve(core, scope, project, if_match, NAME_RESERVED_FOR).await
}

/// The same, but its name is free for any owner at once.
pub async fn purge_project(
    core: &Core,
    scope: &Scope,
    project: &str,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    delete_and_reserve(core, scope, project, if_match, Duration::ZERO).await
}

async fn delete_and_reserve(
    core: &Core,
    scope: &Scope,
    project: &str,
    if_match: Option<Vec<i64>>,
    reserved_for: Duration,
) -> Result<()> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Admin)?;
    let (key, visible, now) = (parse_key(project)?, permission.projects(), core.now());
    let owner = visible.owner();
    let until = now.after(reserved_for);
    let note = PendingEntry::of_project(core, scope, Action::DeleteProject)?;
    permission
        .transact(core, move |tx| {
            let (key, if_match, note) = (key.clone(), if_match.clone(), note.clone());
            Box::pin(async move {
                let row = projects::find_project(tx, visible, &key).await?;
                let row = row.ok_or(NOT_FOUND)?;
                if if_match.is_some_and(|versions| !versions.contains(&row.version)) {
                    return Err(Error::PreconditionFailed);
                }
                projects::delete_project(tx, row.id, now).await?;
                former_names::insert_former_name(
                    tx,
                    &row.name,
                    owner,
                    until,
                    now,
                    MAX_FORMER_NAMES,
                )
                .await?;
                quotas::count_down(tx, owner, Counted::Projects).await?;
                note.on(row.id, &row.name).write(tx).await?;
                tx.changed(ChangeKind::Route, row.id, now).await?;
                Ok(tx.changed(ChangeKind::Project, row.id, now).await?)
            })
        })
        .await
}

/// Sets how many instances run; 0 switches the project off.
pub async fn scale_project(core: &Core, scope: &Scope, project: &str, scale: u32) -> Result<()> {
    let most = core.settings.max_instances;
    if scale > most {
        return Err(Error::invalid(format!("scale: must be 0 to {most}")));
    }
    change_project(core, scope, project, Alteration::Scale(scale)).await
}

/// Moves a project to another plan.
pub async fn resize_project(core: &Core, scope: &Scope, project: &str, plan: &str) -> Result<()> {
    let (plan, granted) = require_plan(core, plan)?;
    let alteration = Alteration::Plan(plan.to_owned(), granted.clone());
    change_project(core, scope, project, alteration).await
}

/// Requests a restart of the project's instances.
pub async fn restart_project(core: &Core, scope: &Scope, project: &str) -> Result<()> {
    change_project(core, scope, project, Alteration::Restart).await
}

/// Turns something of a project on or off. Instances that run are replaced where they depend on it.
pub async fn switch_project(
    core: &Core,
    scope: &Scope,
    project: &str,
    (switch, on): (Switch, bool),
) -> Result<()> {
    change_project(core, scope, project, Alteration::Switch(switch, on)).await
}

/// Refuses an address of its own, for a project that the caller has.
pub async fn refuse_fixed_ip(core: &Core, scope: &Scope, project: &str) -> Result<()> {
    scope.read_projects_as(ProjectOperation::Write, Role::Developer)?;
    find_project(core, scope, project).await?;
    Err(Error::Invalid {
        code: "not_offered",
        message: "a fixed IP address is not offered: what a project sends has the address of the machine that it runs on".into(),
    })
}

#[derive(Clone)]
enum Alteration {
    Scale(u32),
    Plan(String, Plan),
    Restart,
    Switch(Switch, bool),
}

impl Alteration {
    /// The audit entry of this change.
    fn note(&self, note: PendingEntry) -> PendingEntry {
        match self {
            Self::Scale(scale) => note.action(Action::ScaleProject).detail(scale.to_string()),
            Self::Plan(plan, _) => note.action(Action::ResizeProject).detail(plan),
            Self::Restart => note.action(Action::RestartProject),
            Self::Switch(switch, on) => {
                let (name, state) = (switch_action(*switch), if *on { "on" } else { "off" });
                let note = note.action(Action::SwitchProject).fields(&[name]);
                note.detail(format!("{name} {state}"))
            }
        }
    }
}

async fn change_project(
    core: &Core,
    scope: &Scope,
    project: &str,
    alteration: Alteration,
) -> Result<()> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
    let (key, visible, now) = (parse_key(project)?, permission.projects(), core.now());
    let note = alteration.note(PendingEntry::of_project(core, scope, Action::ScaleProject)?);
    permission
        .transact(core, move |tx| {
            let (key, alteration, note) = (key.clone(), alteration.clone(), note.clone());
            Box::pin(async move {
                let row = projects::find_project(tx, visible, &key).await?;
                let row = row.ok_or(NOT_FOUND)?;
                let id = row.id;
                let event = match alteration {
                    Alteration::Scale(scale) => {
                        projects::set_scale(tx, id, scale).await?;
                        tx.changed(ChangeKind::Route, id, now).await?;
                        NewEvent::of_project("scale", scale.to_string())
                    }
                    Alteration::Plan(plan, granted) => {
                        require_disks_fit(tx, id, (&plan, &granted)).await?;
                        projects::set_plan(tx, id, &plan).await?;
                        tx.changed(ChangeKind::Route, id, now).await?;
                        NewEvent::of_project("resize", plan)
                    }
                    Alteration::Switch(switch, on) => {
                        projects::set_switch(tx, id, switch, on).await?;
                        tx.changed(ChangeKind::Route, id, now).await?;
                        let state = if on { "ENABLED" } else { "DISABLED" };
                        NewEvent::of_project(switch_action(switch), state)
                    }
                    Alteration::Restart => {
                        require_instances(&row)?;
                        projects::raise_revision(tx, id).await?;
                        tx.changed(ChangeKind::Route, id, now).await?;
                        NewEvent::of_project("restart", "REQUESTED")
                    }
                };
                note.on(id, &row.name).write(tx).await?;
                record_events(tx, id, vec![event], now).await
            })
        })
        .await
}

fn switch_action(switch: Switch) -> &'static str {
    match switch {
        Switch::ZeroDowntime => "zero_downtime",
        Switch::DefaultSubdomain => "default_subdomain",
        Switch::ReadOnlyRoot => "read_only",
    }
}

/// A project without instances has none to restart. A site has none by nature, and nothing to wait for.
fn require_instances(row: &ProjectRow) -> Result<()> {
    if row.platform == Platform::Static {
        return Ok(());
    }
    if row.current_release.is_none() {
        return Err(Error::conflict(
            "not_deployed",
            "no release of this project is live; deploy one first",
        ));
    }
    if row.scale == 0 {
        return Err(Error::conflict(
            "switched_off",
            "the project is switched off; scale it to 1 or more instead",
        ));
    }
    Ok(())
}

/// Whether a name can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Free,
    Taken,
}

/// Whether the caller could create a project of that name; 400 when no project can have such a name.
pub async fn check_availability(core: &Core, scope: &Scope, name: &str) -> Result<Availability> {
    let owner = scope.read(Operation::ReadPlatform)?;
    let name: ProjectName = name.parse()?;
    let taken = projects::is_name_taken(&core.db, name.as_str()).await?;
    let former = former_names::read_former_name(&core.db, name.as_str()).await?;
    let reserved =
        former.is_some_and(|former| former.owner != owner && former.reserved_until > core.now());
    Ok(if taken || reserved {
        Availability::Taken
    } else {
        Availability::Free
    })
}

/// The plan of that id or alias, with its own id.
fn require_plan<'c>(core: &'c Core, id: &str) -> Result<(&'c str, &'c Plan)> {
    let plans = &core.settings.plans;
    plans.resolve(id).ok_or_else(|| {
        Error::invalid(format!(
            "planID: unknown plan; choose one of {}",
            plans.ids()
        ))
    })
}

fn taken() -> Error {
    Error::conflict(
        "project_exists",
        "a project of this name exists; names are unique across the installation, choose another one",
    )
}

fn unknown_network() -> Error {
    Error::invalid("network: you have no network of this name or id; GET /v1/networks lists yours")
}
