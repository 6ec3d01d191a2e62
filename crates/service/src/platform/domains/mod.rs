//! Custom domains: added, listed, read, checked, deleted.

mod check;
mod dns;

pub use crate::settings::DomainSettings;
pub use check::{check_domain, check_due, run};

use crate::audit::PendingEntry;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::projects, random};
use estrade_model::audit::Action;
use estrade_model::domain::{
    CreateDomain, DnsRecord, Domain, DomainId, DomainProject, DomainStatus,
};
use estrade_model::project::ProjectKey;
use estrade_model::team::Role;
use estrade_model::{ProjectId, Timestamp};
pub use estrade_store::certificates::CertificateStatus;
use estrade_store::domains::{self, DomainRow};
use estrade_store::projects::{self as project_rows, ProjectFilter};
use estrade_store::{ChangeKind, StoreError, Tx, certificates};
use std::time::Duration;

const NOT_FOUND: Error = Error::NotFound("the domain");

/// Most domains of one project: each pending one causes DNS look-ups.
const MAX_PER_PROJECT: u64 = 100;

/// When a new domain is first looked up; later waits double, up to the longest.
const MIN_CHECK_DELAY: Duration = Duration::from_secs(10);

fn on_the_wire(core: &Core, row: DomainRow) -> Domain {
    let targets = core.settings.domains.targets(&row.project_name);
    let cname = targets.into_iter().next().map(|value| DnsRecord {
        kind: "CNAME",
        name: row.name.to_string(),
        value,
    });
    let mut records = vec![dns::txt_record(&row.name, &row.token)];
    records.extend(cname);
    Domain {
        id: row.id,
        name: row.name.into(),
        status: if row.active {
            DomainStatus::Active
        } else {
            DomainStatus::Pending
        },
        project: DomainProject {
            id: row.project,
            project_id: row.project_name,
        },
        created_at: row.created_at,
        verified_at: row.verified_at,
        checked_at: row.checked_at,
        problem: row.problem,
        records,
    }
}

/// Which domains a list is about: all of the owner's, or those of one project.
pub async fn find_filter(
    core: &Core,
    scope: &Scope,
    project: Option<&str>,
) -> Result<Option<ProjectId>> {
    match project {
        None => Ok(None),
        Some(project) => Ok(Some(projects::find_project(core, scope, project).await?.id)),
    }
}

/// The projects whose domains are listed; none when the one that is named is not visible.
fn listed_projects(scope: &Scope, project: Option<ProjectId>) -> Result<Option<ProjectFilter>> {
    let visible = scope.projects(ProjectOperation::Read)?;
    Ok(match project {
        None => Some(visible),
        Some(project) => visible.narrow(project),
    })
}

/// How many domains the owner has, or one project of theirs.
pub async fn count_domains(core: &Core, scope: &Scope, project: Option<ProjectId>) -> Result<u64> {
    match listed_projects(scope, project)? {
        Some(listed) => Ok(domains::count_domains(&core.db, listed).await?),
        None => Ok(0),
    }
}

/// A page of the owner's domains, newest first; only those of one project when it is named.
pub async fn list_domains(
    core: &Core,
    scope: &Scope,
    project: Option<ProjectId>,
    before: Option<DomainId>,
    count: u32,
    skip: u64,
) -> Result<Vec<Domain>> {
    let Some(listed) = listed_projects(scope, project)? else {
        return Ok(Vec::new());
    };
    let rows = domains::list_domains(&core.db, listed, before, count, skip).await?;
    Ok(rows.into_iter().map(|row| on_the_wire(core, row)).collect())
}

/// How it stands with the certificates of the domains that serve a project.
pub async fn list_certificates(
    core: &Core,
    scope: &Scope,
    project: &str,
) -> Result<Vec<CertificateStatus>> {
    let project = projects::find_project(core, scope, project).await?.id;
    let count = u32::try_from(MAX_PER_PROJECT).unwrap_or(u32::MAX);
    Ok(certificates::list_of_project(&core.db, project, count).await?)
}

/// A domain, and its version for conditional requests.
pub async fn read_domain(core: &Core, scope: &Scope, id: DomainId) -> Result<(Domain, i64)> {
    let visible = scope.projects(ProjectOperation::Read)?;
    let row = domains::read_domain(&core.db, visible, id).await?;
    let row = row.ok_or(NOT_FOUND)?;
    let version = row.version;
    Ok((on_the_wire(core, row), version))
}

/// Adds a domain to a project. It is active once DNS proves its ownership.
///
/// Several owners may have the same name pending: the first that proves it gets it. 409 `domain_taken` when
/// it is taken, 403 `quota` when the project or its owner has too many.
pub async fn create_domain(core: &Core, scope: &Scope, new: CreateDomain) -> Result<Domain> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
    let settings = &core.settings.domains;
    if settings.is_reserved(&new.name) {
        return Err(Error::Invalid {
            code: "reserved",
            message:
                "name: this host name belongs to the platform; projects have theirs by themselves"
                    .into(),
        });
    }
    let project = projects::find_project(core, scope, &new.project).await?;
    let (now, visible) = (core.now(), permission.projects());
    let row = DomainRow {
        id: core.new_id()?,
        owner: permission.owner(),
        project: project.id,
        project_name: project.name,
        name: new.name,
        token: hex::encode(random::bytes::<16>()?),
        active: !settings.verify,
        created_at: now,
        verified_at: (!settings.verify).then_some(now),
        checked_at: None,
        checks: 0,
        problem: None,
        version: 0,
    };
    let (made, quota) = (row.clone(), core.settings.quotas.domains);
    let note = PendingEntry::of_project(core, scope, Action::CreateDomain)?
        .on(row.project, &row.project_name)
        .detail(row.name.as_str());
    permission
        .transact(core, move |tx| {
            let (row, note) = (row.clone(), note.clone());
            Box::pin(async move {
                // It may have moved to another owner meanwhile, whose its domains are then.
                let key = ProjectKey::Id(row.project);
                let found = project_rows::find_project(tx, visible, &key).await?;
                found.ok_or(Error::NotFound("the project"))?;
                insert_domain(tx, &row, quota, now).await?;
                note.write(tx).await
            })
        })
        .await?;
    Ok(on_the_wire(core, made))
}

async fn insert_domain(tx: &mut Tx, row: &DomainRow, quota: u64, now: Timestamp) -> Result<()> {
    if domains::is_active(tx, &row.name).await? {
        return Err(taken());
    }
    if domains::count_of_project(tx, row.project).await? >= MAX_PER_PROJECT {
        return Err(Error::Quota {
            what: "domains of one project",
            limit: MAX_PER_PROJECT,
        });
    }
    let next_check = (!row.active).then(|| now.after(MIN_CHECK_DELAY));
    match domains::insert_domain(tx, row, next_check).await {
        // None is active, so the duplicate is the owner's own.
        Err(StoreError::Duplicate) => {
            return Err(Error::conflict(
                "domain_exists",
                "you have this domain already; GET /v1/domains lists yours",
            ));
        }
        // The project was deleted meanwhile.
        Err(StoreError::Reference) => return Err(Error::NotFound("the project")),
        other => other?,
    }
    if quota > 0 && domains::count_of_owner(tx, row.owner).await? > quota {
        return Err(Error::Quota {
            what: "domains",
            limit: quota,
        });
    }
    if row.active {
        tx.changed(ChangeKind::Route, row.project, now).await?;
    }
    Ok(())
}

/// Deletes a domain: it serves no more, and its name is free again.
///
/// `if_match` are the versions that the caller has read; another one means that it changed since.
pub async fn delete_domain(
    core: &Core,
    scope: &Scope,
    id: DomainId,
    if_match: Option<Vec<i64>>,
) -> Result<()> {
    let permission = scope.require_in_projects(ProjectOperation::Write, Role::Admin)?;
    let (visible, now) = (permission.projects(), core.now());
    let note = PendingEntry::of_project(core, scope, Action::DeleteDomain)?;
    permission
        .transact(core, move |tx| {
            let (if_match, note) = (if_match.clone(), note.clone());
            Box::pin(async move {
                let row = domains::find_domain(tx, visible, id).await?;
                let row = row.ok_or(NOT_FOUND)?;
                if if_match.is_some_and(|versions| !versions.contains(&row.version)) {
                    return Err(Error::PreconditionFailed);
                }
                domains::delete_domain(tx, id).await?;
                note.on(row.project, &row.project_name)
                    .detail(row.name.as_str())
                    .write(tx)
                    .await?;
                if row.active {
                    tx.changed(ChangeKind::Route, row.project, now).await?;
                }
                Ok(())
            })
        })
        .await
}

fn taken() -> Error {
    Error::conflict(
        "domain_taken",
        "this domain serves a project already; it must be deleted there first",
    )
}
