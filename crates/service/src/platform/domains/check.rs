//! Checks pending domains: on request, and in the background with growing intervals.

use super::dns::{self, Finding};
use super::{MIN_CHECK_DELAY, NOT_FOUND, on_the_wire};
use crate::identity::access::ProjectOperation;
use crate::jobs::Job;
use crate::{Core, Error, Result, Scope};
use estrade_model::Timestamp;
use estrade_model::domain::{Domain, DomainId};
use estrade_model::error::error_chain;
use estrade_model::team::Role;
use estrade_store::domains::{self, DomainRow};
use estrade_store::{ChangeKind, StoreError, former_names};
use futures_util::future::BoxFuture;
use futures_util::{StreamExt, stream};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The longest wait between two lookups.
const MAX_CHECK_DELAY: Duration = Duration::from_hours(6);
/// For how long domains are checked in the background; then only on request.
const MAX_PENDING_AGE: Duration = Duration::from_hours(30 * 24);
/// A request within this time gets the earlier result.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(3);
/// How often due domains are looked for.
const POLL_INTERVAL: Duration = Duration::from_secs(5);
/// How many domains are looked up at once, and in one go.
const MAX_CONCURRENT_CHECKS: usize = 8;
const BATCH: u32 = 100;

/// Looks a domain up now, and makes it serve when DNS proves whose it is.
pub async fn check_domain(core: &Core, scope: &Scope, id: DomainId) -> Result<Domain> {
    // A domain that is proved begins to serve: this is more than a read.
    let visible = scope.read_projects_as(ProjectOperation::Write, Role::Viewer)?;
    let read = async || {
        let row = domains::read_domain(&core.db, visible, id).await?;
        row.ok_or(NOT_FOUND)
    };
    let row = read().await?;
    if !row.active {
        check(core, &row).await?;
    }
    Ok(on_the_wire(core, read().await?))
}

/// Checks pending domains until `stop`.
pub fn run(core: Arc<Core>, stop: CancellationToken) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        while stop
            .run_until_cancelled(tokio::time::sleep(POLL_INTERVAL))
            .await
            .is_some()
        {
            // A lookup that is cut off here is repeated when it is due again.
            let Some(checked) = stop.run_until_cancelled(check_due(&core)).await else {
                return;
            };
            if let Err(error) = checked {
                let error = error_chain(&error);
                tracing::warn!(error, "cannot check pending domains, trying again");
                core.jobs.fail(Job::CheckDomains, core.now(), error);
            }
            core.jobs.finish(Job::CheckDomains, core.now());
        }
    })
}

/// Checks the domains that are due.
pub async fn check_due(core: &Core) -> Result<()> {
    let due = domains::list_due_domains(&core.db, core.now(), BATCH).await?;
    let mut checks = stream::iter(due)
        .map(|row| async move { check(core, &row).await })
        .buffer_unordered(MAX_CONCURRENT_CHECKS);
    while let Some(checked) = checks.next().await {
        checked?;
    }
    Ok(())
}

/// Looks up a pending domain, unless this node or another one has just done it.
async fn check(core: &Core, row: &DomainRow) -> Result<()> {
    let (id, now) = (row.id, core.now());
    let (since, next) = (now.before(MIN_CHECK_INTERVAL), next_check(row, now));
    let claimed = core
        .db
        .transact(move |tx| Box::pin(domains::claim_check(tx, id, since, now, next)))
        .await
        .map_err(|error: StoreError| Error::from(error))?;
    if !claimed {
        return Ok(());
    }
    let settings = &core.settings.domains;
    // Records of the name's former owner's domains may still lead here: they prove nothing about the present one.
    let former = former_names::read_former_name(&core.db, &row.project_name).await?;
    let targets = match &former {
        Some(_) => Vec::new(),
        None => settings.targets(&row.project_name),
    };
    let finding = if settings.verify {
        dns::look_up(settings.dns_server, &row.name, &row.token, &targets).await
    } else {
        // It was added when proofs were still required.
        Finding::Proven
    };
    match finding {
        Finding::Proven => activate(core, row).await,
        Finding::Missing(problem) if former.is_some() => {
            let why = "another project had this project's name before, so that only the TXT record counts";
            note(core, id, format!("{problem}; {why}")).await
        }
        Finding::Missing(problem) => note(core, id, problem).await,
    }
}

/// Waits double with every check. None: it is not looked up by itself any more.
fn next_check(row: &DomainRow, now: Timestamp) -> Option<Timestamp> {
    let doubled = MIN_CHECK_DELAY.saturating_mul(1 << row.checks.min(20));
    let next = now.after(doubled.min(MAX_CHECK_DELAY));
    (next < row.created_at.after(MAX_PENDING_AGE)).then_some(next)
}

async fn activate(core: &Core, row: &DomainRow) -> Result<()> {
    let (id, project, now) = (row.id, row.project, core.now());
    let activated = core
        .db
        .transact(move |tx| {
            Box::pin(async move {
                let active = domains::activate_domain(tx, id, now).await?;
                if active {
                    tx.changed(ChangeKind::Route, project, now).await?;
                }
                Ok::<_, StoreError>(active)
            })
        })
        .await;
    match activated {
        Ok(true) => {
            tracing::info!(domain = %row.name, %project, "a domain is active");
            Ok(())
        }
        // Deleted meanwhile, or another check was faster.
        Ok(false) => Ok(()),
        Err(StoreError::Duplicate) => {
            let problem = "the proof is there, but the domain serves another project; it must be deleted there first";
            note(core, id, problem.into()).await
        }
        Err(error) => Err(error.into()),
    }
}

async fn note(core: &Core, id: DomainId, problem: String) -> Result<()> {
    let noted = core.db.transact(move |tx| {
        let problem = problem.clone();
        Box::pin(async move { domains::set_problem(tx, id, &problem).await })
    });
    Ok(noted.await.map_err(|error: StoreError| error)?)
}
