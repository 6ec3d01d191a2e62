//! Budgets: what was spent of them, and the slices that servers lease to spend from.
//!
//! Room = limit − spent − Σ over slices of max(amount, settled). A slice belongs to a server, and a
//! server that does not renew its deadline is settled by any other: what it left open is closed at
//! what was set aside, and what its slices settled is spent. From then on it can open no call any
//! more, whatever its own clock says, because that is checked where calls are opened.

use crate::id_list::{MAX_IDS, bind_ids, id_list};
use crate::prune::prune;
use crate::usage::sum;
use crate::{Db, Record, Row, StoreError, Tx, Value, calls};
use estrade_model::Timestamp;
use estrade_model::call::{LedgerNodeId, SliceId};
use estrade_model::key::Period;
use std::collections::{BTreeMap, HashMap};

/// One period of the budget of a key or workspace.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Account {
    /// The key's or workspace's id.
    pub subject: [u8; 12],
    pub period: Period,
    /// When it began; 0 for a total.
    pub start: Timestamp,
}

impl Account {
    fn subject(&self) -> Value {
        Value::Text(hex::encode(self.subject))
    }
}

/// A request for more of a budget.
#[derive(Debug, Clone)]
pub struct LeaseRequest {
    pub node: LedgerNodeId,
    /// The server's slice of this account; made if it is not there.
    pub slice: SliceId,
    pub account: Account,
    pub limit: i64,
    /// What was used and set aside of the slice so far.
    pub used: i64,
    /// How much more is needed.
    pub need: i64,
}

/// What a slice has after a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeaseOutcome {
    /// There was room: the slice has this much now, all in all.
    Granted(i64),
    /// There was not: the slice has this much, all in all.
    Exhausted(i64),
    /// This server was settled; it may go on as a new one.
    NodeSettled,
}

struct SliceRow {
    id: SliceId,
    amount: i64,
    settled: i64,
}
impl Record for SliceRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            amount: row.take()?,
            settled: row.take()?,
        })
    }
}

/// Adds a server that may spend until its deadline.
pub async fn add_node(
    tx: &mut Tx,
    node: LedgerNodeId,
    deadline: Timestamp,
) -> Result<(), StoreError> {
    tx.query("INSERT INTO ledger_nodes (id, deadline) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING")
        .bind(node)
        .bind(deadline)
        .execute()
        .await
        .map(drop)
}

/// Moves a server's deadline; false when it is being or was settled.
pub async fn renew_node(
    tx: &mut Tx,
    node: LedgerNodeId,
    deadline: Timestamp,
) -> Result<bool, StoreError> {
    let renewed = tx
        .query("UPDATE ledger_nodes SET deadline = $2 WHERE id = $1 AND deadline > 0")
        .bind(node)
        .bind(deadline)
        .execute()
        .await?;
    Ok(renewed > 0)
}

/// Whether a server may spend.
pub(crate) async fn is_alive(tx: &mut Tx, node: LedgerNodeId) -> Result<bool, StoreError> {
    let found: Option<String> = tx
        .query("SELECT id FROM ledger_nodes WHERE id = $1 AND deadline > 0")
        .bind(node)
        .fetch_optional()
        .await?;
    Ok(found.is_some())
}

/// Gives a slice more room, or less when the budget became smaller.
pub async fn lease(tx: &mut Tx, request: &LeaseRequest) -> Result<LeaseOutcome, StoreError> {
    if !is_alive(tx, request.node).await? {
        return Ok(LeaseOutcome::NodeSettled);
    }
    let spent = spent(tx, &request.account).await?;
    let slices = slices(tx, &request.account).await?;
    let taken = |slice: &SliceRow| slice.amount.max(slice.settled);
    let others = slices.iter().filter(|slice| slice.id != request.slice);
    let others = others.map(taken).fold(0, i64::saturating_add);
    let own = slices.iter().find(|slice| slice.id == request.slice);
    let used = request.used.max(own.map_or(0, |slice| slice.settled));
    let present = own.map_or(0, |slice| slice.amount);
    // The most that this slice may have.
    let room = request.limit.saturating_sub(spent).saturating_sub(others);
    let need = used.saturating_add(request.need);
    let (amount, lease) = if need <= room {
        // An eighth of what is there, so that the end of a budget is shared finely.
        let kept = present.min(room);
        let amount = need.max(kept + (room - kept) / 8);
        (amount, LeaseOutcome::Granted(amount))
    } else {
        // What is used stays, and may turn out to be less: then no more may be spent of it than there is room for.
        let amount = present.min(room.max(used)).max(0);
        (amount, LeaseOutcome::Exhausted(amount.min(room.max(0))))
    };
    if own.is_some() && amount != present {
        tx.query("UPDATE budget_slices SET amount = $2 WHERE id = $1")
            .bind(request.slice)
            .bind(amount)
            .execute()
            .await?;
    } else if own.is_none() && matches!(lease, LeaseOutcome::Granted(_)) {
        add_slice(tx, request, amount).await?;
    }
    Ok(lease)
}

async fn add_slice(tx: &mut Tx, request: &LeaseRequest, amount: i64) -> Result<(), StoreError> {
    tx.query(
        "INSERT INTO budget_slices (id, node, subject, period, period_start, amount, settled)
         VALUES ($1, $2, $3, $4, $5, $6, 0)",
    )
    .bind(request.slice)
    .bind(request.node)
    .bind(request.account.subject())
    .bind(request.account.period.as_str())
    .bind(request.account.start)
    .bind(amount)
    .execute()
    .await
    .map(drop)
}

async fn spent(tx: &mut Tx, account: &Account) -> Result<i64, StoreError> {
    let spent: Option<i64> = tx
        .query("SELECT spent FROM budgets WHERE subject = $1 AND period = $2 AND period_start = $3")
        .bind(account.subject())
        .bind(account.period.as_str())
        .bind(account.start)
        .fetch_optional()
        .await?;
    Ok(spent.unwrap_or(0))
}

async fn slices(tx: &mut Tx, account: &Account) -> Result<Vec<SliceRow>, StoreError> {
    tx.query(
        "SELECT id, amount, settled FROM budget_slices
         WHERE subject = $1 AND period = $2 AND period_start = $3",
    )
    .bind(account.subject())
    .bind(account.period.as_str())
    .bind(account.start)
    .fetch_all()
    .await
}

/// Notes what calls have cost that were closed in this transaction.
pub(crate) async fn add_settled(
    tx: &mut Tx,
    settled: BTreeMap<SliceId, i64>,
) -> Result<(), StoreError> {
    let row = |(slice, cost): (SliceId, i64)| vec![Value::from(slice), Value::from(cost)];
    let rows: Vec<_> = settled.into_iter().map(row).collect();
    let touched = tx
        .execute_each(
            concat!(
                "UPDATE budget_slices SET settled = ",
                sum!("settled", "CAST($2 AS BIGINT)"),
                " WHERE id = $1"
            ),
            &rows,
        )
        .await?;
    let gone = rows.into_iter().zip(touched);
    let gone: Vec<_> = gone.filter(|(_, count)| *count == 0).collect();
    if gone.is_empty() {
        return Ok(());
    }
    // Another server has settled it: what it held is spent already.
    tx.execute_many(
        concat!(
            "UPDATE budgets SET spent = ",
            sum!("spent", "CAST($2 AS BIGINT)"),
            " WHERE (subject, period, period_start) IN
             (SELECT subject, period, period_start FROM settled_slices WHERE id = $1)"
        ),
        gone.into_iter().map(|(row, _)| row).collect(),
    )
    .await
}

struct Returned {
    id: SliceId,
    account: [Value; 3],
    settled: i64,
}
impl Record for Returned {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        let id = row.take()?;
        let account = [
            Value::Text(row.take()?),
            Value::Text(row.take()?),
            Value::Int(row.take()?),
        ];
        Ok(Self {
            id,
            account,
            settled: row.take()?,
        })
    }
}

/// Gives slices back: what they settled is spent, and the rest is there for everyone.
pub async fn return_slices(tx: &mut Tx, slices: &[SliceId]) -> Result<(), StoreError> {
    for slice in slices {
        let found = tx
            .query(
                "SELECT id, subject, period, period_start, settled FROM budget_slices WHERE id = $1",
            )
            .bind(*slice)
            .fetch_all()
            .await?;
        spend(tx, found).await?;
    }
    Ok(())
}

async fn spend(tx: &mut Tx, slices: Vec<Returned>) -> Result<(), StoreError> {
    let ids = slices.iter().map(|slice| vec![Value::from(slice.id)]);
    let ids = ids.collect();
    let row = |slice: Returned| {
        let mut row = Vec::from(slice.account);
        row.push(Value::from(slice.settled));
        row
    };
    tx.execute_many(
        concat!(
            "INSERT INTO budgets AS b (subject, period, period_start, spent) VALUES ($1, $2, $3, $4)
             ON CONFLICT (subject, period, period_start) DO UPDATE SET spent = ",
            sum!("b.spent", "excluded.spent")
        ),
        slices.into_iter().map(row).collect(),
    )
    .await?;
    tx.execute_many("DELETE FROM budget_slices WHERE id = $1", ids)
        .await
}

/// A server that may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerNode {
    pub id: LedgerNodeId,
    /// Until when, by that server's clock; 0 when it is being settled.
    pub deadline: Timestamp,
}
impl Record for LedgerNode {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            deadline: row.take()?,
        })
    }
}

/// The servers that may spend.
pub async fn list_nodes(db: &Db) -> Result<Vec<LedgerNode>, StoreError> {
    db.read("SELECT id, deadline FROM ledger_nodes")
        .fetch_all()
        .await
}

/// Writes the deadlines that have passed, as they are: if that works, whose they are could have moved
/// them.
pub async fn touch_ended(db: &Db, now: Timestamp) -> Result<(), StoreError> {
    db.transact(move |tx| {
        Box::pin(async move {
            tx.query("UPDATE ledger_nodes SET deadline = deadline WHERE deadline < $1")
                .bind(now)
                .execute()
                .await
                .map(drop)
        })
    })
    .await
}

/// Settles up to `most` calls or slices of a server unless it has moved its deadline since; true
/// when there is nothing left to do.
pub async fn settle_node(
    tx: &mut Tx,
    ended: LedgerNode,
    now: Timestamp,
    most: u32,
) -> Result<bool, StoreError> {
    let node = ended.id;
    let stopped = tx
        .query("UPDATE ledger_nodes SET deadline = 0 WHERE id = $1 AND (deadline = 0 OR deadline = $2)")
        .bind(node)
        .bind(ended.deadline)
        .execute()
        .await?;
    if stopped == 0 {
        return Ok(true);
    }
    if calls::close_left(tx, node, most).await? > 0 {
        return Ok(false);
    }
    let slices: Vec<Returned> = tx
        .query(
            "SELECT id, subject, period, period_start, settled FROM budget_slices
             WHERE node = $1 LIMIT $2",
        )
        .bind(node)
        .bind(most)
        .fetch_all()
        .await?;
    if !slices.is_empty() {
        remember(tx, &slices, now).await?;
        spend(tx, slices).await?;
        return Ok(false);
    }
    remove_node(tx, node).await?;
    Ok(true)
}

/// Notes whose these slices were.
async fn remember(tx: &mut Tx, slices: &[Returned], now: Timestamp) -> Result<(), StoreError> {
    let row = |slice: &Returned| {
        let mut row = vec![Value::from(slice.id)];
        row.extend(slice.account.iter().cloned());
        row.push(Value::from(now));
        row
    };
    tx.execute_many(
        "INSERT INTO settled_slices (id, subject, period, period_start, settled_at)
         VALUES ($1, $2, $3, $4, $5)",
        slices.iter().map(row).collect(),
    )
    .await
}

/// Removes a server that has neither slices nor open calls; left alone otherwise.
pub async fn remove_node(tx: &mut Tx, node: LedgerNodeId) -> Result<(), StoreError> {
    tx.query(
        "DELETE FROM ledger_nodes WHERE id = $1
         AND NOT EXISTS (SELECT 1 FROM budget_slices s WHERE s.node = $1)
         AND NOT EXISTS (SELECT 1 FROM calls c WHERE c.node = $1 AND c.open)",
    )
    .bind(node)
    .execute()
    .await
    .map(drop)
}

/// What is spent of an account, and the amounts of its slices: for displays and checks.
pub async fn position(db: &Db, account: Account) -> Result<(i64, Vec<(i64, i64)>), StoreError> {
    db.transact(move |tx| {
        let account = account.clone();
        Box::pin(async move {
            let spent = spent(tx, &account).await?;
            let slices = slices(tx, &account).await?;
            let pairs = slices.iter().map(|slice| (slice.amount, slice.settled));
            Ok((spent, pairs.collect()))
        })
    })
    .await
}

struct SpentRow {
    subject: String,
    period: String,
    start: Timestamp,
    spent: i64,
}
impl Record for SpentRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            subject: row.take()?,
            period: row.take()?,
            start: row.take()?,
            spent: row.take()?,
        })
    }
}

/// What ended calls have spent of budgets, in the order of `accounts`; for displays. Reservations do not count.
pub async fn spent_of(db: &Db, accounts: &[Account]) -> Result<Vec<i64>, StoreError> {
    let mut spent: HashMap<(String, String, Timestamp), i64> = HashMap::new();
    for page in accounts.chunks(MAX_IDS) {
        // An account has no more than these periods at a time, and a subject keeps many old ones.
        let starts = |period: Period| {
            let mut of_period = page.iter().filter(|account| account.period == period);
            of_period.next().map(|account| account.start)
        };
        for sql in [
            concat!(
                "SELECT subject, period, period_start, spent FROM budgets WHERE subject IN ",
                id_list!(),
                " AND period_start IN ($65, $66, 0)"
            ),
            concat!(
                "SELECT subject, period, period_start, settled FROM budget_slices WHERE subject IN ",
                id_list!(),
                " AND period_start IN ($65, $66, 0)"
            ),
        ] {
            let rows = bind_ids(db.read(sql), page.iter().map(Account::subject));
            let rows = rows
                .bind(starts(Period::Daily))
                .bind(starts(Period::Monthly));
            for row in rows.fetch_all::<SpentRow>().await? {
                let sum = spent
                    .entry((row.subject, row.period, row.start))
                    .or_default();
                *sum = sum.saturating_add(row.spent);
            }
        }
    }
    let of = |account: &Account| {
        let period = account.period.as_str().to_owned();
        let found = spent.get(&(hex::encode(account.subject), period, account.start));
        found.copied().unwrap_or(0)
    };
    Ok(accounts.iter().map(of).collect())
}

/// Forgets up to `most` slices that were settled before a moment.
pub async fn prune_settled(db: &Db, before: Timestamp, most: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM settled_slices WHERE id IN
               (SELECT id FROM settled_slices WHERE settled_at < $1 LIMIT $2)";
    prune(db, sql, before, most).await
}

/// Removes up to `most` periods that began before a moment; totals stay.
pub async fn prune_budgets(db: &Db, before: Timestamp, most: u32) -> Result<u64, StoreError> {
    let sql = "DELETE FROM budgets WHERE (subject, period, period_start) IN
               (SELECT subject, period, period_start FROM budgets
                WHERE period_start > 0 AND period_start < $1 LIMIT $2)";
    prune(db, sql, before, most).await
}
