//! Reads of the usage ledger: sums over time, and single calls.

use crate::ai::workspaces::read_workspace;
use crate::identity::access::Operation;
use crate::{Core, Error, Result, Scope};
use estrade_ledger::LedgerContext;
use estrade_model::amount::Amount;
use estrade_model::call::{Activity, CallId, CallLog, LoggedCall, ModelActivity, Span};
use estrade_model::key::Budget;
use estrade_model::{Id, KeyId, Timestamp, WorkspaceId};
use estrade_store::budgets::{self, Account};
use estrade_store::calls::{self, CallPage};
use estrade_store::usage;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

pub use estrade_ledger::{Ledger, UsageSettings};
pub use estrade_store::calls::CallFilter;
pub use estrade_store::usage::{KeyUsage, OwnerUsage, UsageFilter, UsageSum};

/// How long a reader waits for what has just ended to be on disk.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(2);

/// Calls that one request looks at: a search for what is not there must not read a whole workspace.
const MAX_SCANNED_CALLS: u32 = 20_000;

/// What the ledger needs of the services.
pub fn ledger_context(core: &Core) -> LedgerContext {
    LedgerContext {
        db: core.db.clone(),
        clock: core.clock.clone(),
        settings: core.settings.usage.clone(),
    }
}

/// Builds the ledger of this server; it writes nothing before it runs.
pub(crate) fn new_ledger(core: &Core) -> Result<Arc<Ledger>> {
    Ledger::new(ledger_context(core)).map_err(Error::internal)
}

/// What was used in a workspace, by hour, day, week or month and model, oldest first.
pub async fn activity(
    core: &Core,
    ledger: &Ledger,
    scope: &Scope,
    workspace: WorkspaceId,
    span: Span,
    key: Option<KeyId>,
) -> Result<Vec<Activity>> {
    let owner = scope.read(Operation::ReadAi)?;
    read_workspace(core, scope, workspace).await?;
    flush_recent(ledger).await;
    let filter = UsageFilter {
        workspace: Some(workspace),
        key,
        ..UsageFilter::shown(span, core.now())
    };
    let rows = usage::owner_usage(&core.db, owner, filter).await?;
    let mut sums: BTreeMap<(Timestamp, String), ModelActivity> = BTreeMap::new();
    for row in rows {
        let sum = sums
            .entry((span.start(row.at), row.model.clone()))
            .or_insert_with(|| ModelActivity {
                model: row.model,
                total_tokens: 0,
                total_cost: Amount::ZERO,
                request_count: 0,
            });
        let used = row.used;
        sum.total_tokens = sum.total_tokens.saturating_add(used.tokens());
        sum.total_cost =
            Amount::from_nanos(sum.total_cost.nanos().saturating_add(used.cost.nanos()));
        sum.request_count = sum.request_count.saturating_add(used.requests);
    }
    let mut shown: Vec<Activity> = Vec::new();
    for ((date, _), sum) in sums {
        match shown.last_mut() {
            Some(last) if last.date == date => last.data.push(sum),
            _ => shown.push(Activity {
                date,
                data: vec![sum],
            }),
        }
    }
    Ok(shown)
}

/// What an owner used, by hour or day, and model, oldest first.
pub async fn owner_usage(
    core: &Core,
    ledger: &Ledger,
    scope: &Scope,
    filter: UsageFilter<'_>,
) -> Result<Vec<OwnerUsage>> {
    flush_recent(ledger).await;
    Ok(usage::owner_usage(&core.db, scope.read(Operation::ReadAi)?, filter).await?)
}

/// The keys that cost an owner most.
pub async fn usage_by_key(
    core: &Core,
    scope: &Scope,
    filter: UsageFilter<'_>,
    count: u32,
) -> Result<Vec<KeyUsage>> {
    Ok(usage::usage_by_key(&core.db, scope.read(Operation::ReadAi)?, filter, count).await?)
}

/// What ended calls have spent of the budgets of keys or workspaces in their present periods, in the same order. Whose
/// they are is for the caller to know.
pub async fn spent_of<T>(
    core: &Core,
    ledger: &Ledger,
    budgets: &[(Id<T>, Budget)],
) -> Result<Vec<Amount>> {
    if budgets.is_empty() {
        return Ok(Vec::new());
    }
    flush_recent(ledger).await;
    let now = core.now();
    let account = |(id, budget): &(Id<T>, Budget)| Account {
        subject: *id.as_bytes(),
        period: budget.period,
        start: budget.period.start(now),
    };
    let accounts: Vec<_> = budgets.iter().map(account).collect();
    let spent = budgets::spent_of(&core.db, &accounts).await?;
    Ok(spent.into_iter().map(Amount::from_nanos).collect())
}

/// A page of a workspace's calls, newest first, among twenty thousand of those that the filter's time and cursor name.
pub async fn list_calls(
    core: &Core,
    ledger: &Ledger,
    scope: &Scope,
    workspace: WorkspaceId,
    filter: &CallFilter,
    count: u32,
    skip: u64,
) -> Result<CallLog> {
    let owner = scope.read(Operation::ReadAi)?;
    if filter.before.is_some() && skip > 0 {
        return Err(Error::invalid(
            "page: not together with before, which says where the page begins",
        ));
    }
    read_workspace(core, scope, workspace).await?;
    flush_recent(ledger).await;
    let db = &core.db;
    let page = CallPage {
        count,
        skip,
        within: MAX_SCANNED_CALLS,
    };
    let found = calls::list_calls(db, owner, workspace, filter, page).await?;
    if let (true, true, Some((id, _))) = (skip > 0, found.calls.is_empty(), found.stopped_at) {
        return Err(Error::Invalid {
            code: "page_out_of_reach",
            message: format!(
                "page: numbers reach no further than the newest 10000 matches among the newest {MAX_SCANNED_CALLS} calls; \
                 go on with before={id} instead, then with the `next` of each answer"
            ),
        });
    }
    Ok(CallLog {
        logs: found.calls,
        count: found.matching,
        count_is_lower_bound: found.stopped_at.is_some(),
        searched_until: found.stopped_at.map(|(_, at)| at),
        next: found.next,
    })
}

/// One call of a workspace.
pub async fn read_call(
    core: &Core,
    ledger: &Ledger,
    scope: &Scope,
    workspace: WorkspaceId,
    id: CallId,
) -> Result<LoggedCall> {
    let owner = scope.read(Operation::ReadAi)?;
    flush_recent(ledger).await;
    let found = calls::read_call(&core.db, owner, workspace, id).await?;
    found.ok_or(Error::NotFound("the call"))
}

/// Read your writes: waits until calls that ended on this server are on disk, unless the queue is full.
async fn flush_recent(ledger: &Ledger) {
    if ledger.unwritten() > 0 && !ledger.is_full() {
        drop(tokio::time::timeout(FLUSH_TIMEOUT, ledger.flush()).await);
    }
}
