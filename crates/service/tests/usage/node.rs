//! A server's ledger and what the tests put into it.

use crate::support::Installation;
use crate::totals::assert_in_step;
use estrade_fixtures::eventually;
use estrade_model::admission::{Admission, AdmissionError, CallEstimate};
use estrade_model::amount::Amount;
use estrade_model::auth::{AuthContext, AuthorizedKey, AuthorizedWorkspace, RateLimits};
use estrade_model::call::{BudgetReservation, Call, CallId, Operation, Tokens};
use estrade_model::key::{Budget, Period};
use estrade_model::provider::Preference;
use estrade_model::{Id, KeyId, Timestamp, WorkspaceId};
use estrade_service::ai::usage::{Ledger, UsageSettings};
use estrade_service::identity::access::{Scope, scope_of};
use estrade_service::{Core, Services, Settings, ai::workspaces};
use estrade_store::StoreError;
use estrade_store::budgets::{Account, list_nodes, position, settle_node};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// A server's ledger, running.
pub(crate) struct Node {
    pub(crate) core: Arc<Core>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) stop: CancellationToken,
    pub(crate) tasks: JoinSet<()>,
}

impl Node {
    pub(crate) async fn start(at: &Installation, change: impl FnOnce(&mut UsageSettings)) -> Self {
        Self::start_with(at, change, async |_: &Ledger| {}).await
    }

    /// The same, and something is done with the ledger before it runs.
    pub(crate) async fn start_with(
        at: &Installation,
        change: impl FnOnce(&mut UsageSettings),
        first: impl AsyncFnOnce(&Ledger),
    ) -> Self {
        let mut settings = Settings::default();
        // No machine stands still for so long: only who is killed is taken for dead.
        settings.usage.deadline = Duration::from_mins(1);
        settings.usage.idle = Duration::from_millis(100);
        change(&mut settings.usage);
        let core = at.another_core(settings).await;
        let ledger = Services::new(&core).unwrap().ledger;
        first(&ledger).await;
        let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
        tasks.spawn(Arc::clone(&ledger).run(stop.clone()));
        Self {
            core,
            ledger,
            stop,
            tasks,
        }
    }

    pub(crate) async fn stop(mut self) {
        self.stop.cancel();
        while self.tasks.join_next().await.is_some() {}
    }

    /// As `kill -9` would.
    pub(crate) async fn die(mut self) {
        self.tasks.shutdown().await;
    }

    /// Asks for a call that may cost one.
    pub(crate) async fn admit(
        &self,
        who: &CallSource,
        budget: Option<&Budget>,
    ) -> Result<(CallId, BudgetReservation), AdmissionError> {
        let id = id();
        Ok((id, self.admit_as(id, who, budget).await?))
    }

    /// The same, with this id.
    pub(crate) async fn admit_as(
        &self,
        id: CallId,
        who: &CallSource,
        budget: Option<&Budget>,
    ) -> Result<BudgetReservation, AdmissionError> {
        let estimate = CallEstimate {
            id,
            created_at: self.core.now(),
            operation: Operation::Chat,
            model: Arc::from("model"),
            provider: Arc::from("provider"),
            streamed: false,
            max_cost: whole(1),
        };
        match self.ledger.admit(&who.pass(budget), &estimate) {
            Admission::Ready(reservation) => Ok(reservation),
            Admission::Wait(wait) => wait.await,
            Admission::Refused(refused) => Err(refused),
        }
    }

    pub(crate) fn close(
        &self,
        who: &CallSource,
        id: CallId,
        reservation: BudgetReservation,
        cost: Amount,
    ) {
        let call = call(who, id, self.core.now(), "model", cost);
        drop(self.ledger.close(reservation, call));
    }
}

/// Whose calls they are.
#[derive(Clone, Copy)]
pub(crate) struct CallSource {
    pub(crate) workspace: WorkspaceId,
    pub(crate) key: KeyId,
}

impl CallSource {
    pub(crate) fn new() -> Self {
        Self {
            workspace: id(),
            key: id(),
        }
    }

    pub(crate) fn pass(&self, budget: Option<&Budget>) -> AuthContext {
        AuthContext {
            key: AuthorizedKey {
                id: self.key,
                owner: id(),
                models: None,
                cache: false,
                rates: RateLimits::default(),
                budget: budget.cloned(),
            },
            workspace: Arc::new(AuthorizedWorkspace {
                id: self.workspace,
                preference: Preference::default(),
                rates: RateLimits::default(),
                budget: None,
            }),
        }
    }

    pub(crate) fn account(&self) -> Account {
        Account {
            subject: *self.key.as_bytes(),
            period: Period::Total,
            start: Timestamp::from_millis(0),
        }
    }
}

pub(crate) fn id<T>() -> Id<T> {
    Id::generate(1_790_000_000_000, 7)
}

/// An id that was made at a moment, also one in the past: in a process they only rise.
pub(crate) fn id_at(moment: Timestamp) -> CallId {
    let fresh: CallId = id();
    let text = format!("{:012x}{}", moment.millis(), &fresh.to_string()[12..]);
    text.parse().unwrap()
}

pub(crate) fn whole(amount: i64) -> Amount {
    Amount::from_nanos(amount * 1_000_000_000)
}

pub(crate) fn total(amount: i64) -> Budget {
    Budget {
        amount: whole(amount),
        period: Period::Total,
    }
}

pub(crate) fn call(who: &CallSource, id: CallId, at: Timestamp, model: &str, cost: Amount) -> Call {
    Call {
        id,
        workspace: who.workspace,
        key: who.key,
        created_at: at,
        operation: Operation::Chat,
        model: model.into(),
        provider: "local".into(),
        status: 200,
        streamed: false,
        partial: false,
        estimated: false,
        cached: false,
        tokens: Tokens {
            prompt: 10,
            completion: 5,
        },
        cost,
        latency_us: 1500,
        ttfb_us: 900,
        attempts: 1,
    }
}

pub(crate) async fn number(core: &Core, sql: &'static str) -> i64 {
    core.db.read(sql).fetch_one().await.unwrap()
}

/// Calls, and the sums of costs in the ledger, in the hours and in the budget; the totals are checked on the way.
pub(crate) async fn books(core: &Core, who: &CallSource) -> (i64, [i64; 3]) {
    assert_in_step(core).await;
    let ledger = "SELECT CAST(COALESCE(SUM(cost_nanos), 0) AS BIGINT) FROM
        (SELECT cost_nanos FROM calls WHERE NOT open
         UNION ALL SELECT cost_nanos FROM call_blocks) AS closed";
    let hours = "SELECT CAST(COALESCE(SUM(cost_nanos), 0) AS BIGINT) FROM usage_hours";
    let (spent, slices) = position(&core.db, who.account()).await.unwrap();
    let settled: i64 = slices.iter().map(|(_, settled)| settled).sum();
    let sums = [
        number(core, ledger).await,
        number(core, hours).await,
        spent + settled,
    ];
    (kept(core).await, sums)
}

/// How many calls there are, open or not.
pub(crate) async fn kept(core: &Core) -> i64 {
    let blocks = "SELECT CAST(COALESCE(SUM(calls), 0) AS BIGINT) FROM call_blocks";
    number(core, "SELECT COUNT(*) FROM calls").await + number(core, blocks).await
}

/// Waits until a count in the database is zero.
pub(crate) async fn until_none(core: &Core, sql: &'static str) {
    eventually(sql, || async { number(core, sql).await == 0 }).await;
}

/// A workspace of somebody.
pub(crate) async fn workspace(at: &Installation, name: &str) -> (Scope, WorkspaceId) {
    let scope = scope_of(&at.core, at.person(name).await, None)
        .await
        .unwrap();
    let name = "main".parse().unwrap();
    let made = workspaces::create_workspace(&at.core, &scope, name).await;
    (scope, made.unwrap().id)
}

/// Settles every server, as another one does that takes them for dead.
pub(crate) async fn bury_all(core: &Core) {
    let now = core.now().after(Duration::from_hours(1));
    while number(core, "SELECT COUNT(*) FROM ledger_nodes").await > 0 {
        for node in list_nodes(&core.db).await.unwrap() {
            let settled = core
                .db
                .transact(move |tx| Box::pin(async move { settle_node(tx, node, now, 5).await }));
            let _: bool = Result::<_, StoreError>::unwrap(settled.await);
        }
    }
}
