//! Periodic maintenance of rows: flushing last-use times, renewing leases, pruning expired rows.
//! One task, started by the server and ended by its token.

use crate::ai::key_check::KeyCheck;
use crate::idempotency::{Idempotency, RENEW_INTERVAL};
use crate::identity::credentials::AccountTokens;
use crate::identity::login::Logins;
use crate::identity::sessions::{self, Sessions};
use crate::jobs::Job;
use crate::platform::traffic::{HALF_HOURS_RETENTION, MINUTES_RETENTION};
use crate::{Core, Error, Result, ai::usage, audit, identity::login};
use estrade_ledger::retention;
use estrade_model::audit::Action;
use estrade_model::error::error_chain;
use estrade_model::{OwnerId, Timestamp};
use estrade_store::{
    Db, StoreError, acme, audit as entries, changes, device_codes, disks, former_names,
    idempotency as stored_responses, invitations, keys, login_attempts, rate_buckets, reset_links,
    sessions as session_rows, tokens, traffic,
};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

/// How often uses of tokens and keys are written down.
const FLUSH_INTERVAL: Duration = Duration::from_secs(5);
/// How often what has ended is removed.
const SWEEP_INTERVAL: Duration = Duration::from_mins(1);
/// How often calls and entries of the audit log that are too old or too many are removed.
const PRUNE_CALLS_INTERVAL: Duration = Duration::from_mins(10);
/// Rows that one transaction removes: a backlog never holds up the writer for long.
const BATCH_ROWS: u32 = 1000;
/// An owner without an entry of the audit log for so long was below the limit when it was last counted: longer than
/// [`PRUNE_CALLS_INTERVAL`] and a run take.
const SURPLUS_WINDOW: Duration = Duration::from_hours(1);
/// How long the change feed goes back; followers lag by a second, not by an hour.
const CHANGES_RETENTION: Duration = Duration::from_hours(1);
/// How long an expired token is still listed, so that its owner can see why it stopped working.
const EXPIRED_TOKENS_RETENTION: Duration = Duration::from_hours(7 * 24);
/// How long the name of a deleted project is remembered. It is reserved for a month, but DNS records that point to it
/// live longer.
const FORMER_NAMES_RETENTION: Duration = Duration::from_hours(365 * 24);

/// The buckets of rate limits are empty after minutes.
const RATE_BUCKETS_RETENTION: Duration = Duration::from_hours(1);

/// How long it is remembered that what a deleted disk held may be removed: its engine may be away.
const UNUSED_DISKS_RETENTION: Duration = Duration::from_hours(90 * 24);

/// Does the maintenance jobs until `stop`, and once more at the end.
pub fn run(
    core: Arc<Core>,
    tokens: Arc<AccountTokens>,
    sessions: Arc<Sessions>,
    keys: Arc<KeyCheck>,
    logins: Arc<Logins>,
    idempotency: Arc<Idempotency>,
    stop: CancellationToken,
) -> BoxFuture<'static, ()> {
    Box::pin(async move {
        // Concurrently: a long sweep must not delay the renewal of leases.
        tokio::join!(
            repeat(FLUSH_INTERVAL, &stop, || flush(
                &tokens, &sessions, &keys, &logins
            )),
            repeat(SWEEP_INTERVAL, &stop, || sweep(&core, &stop)),
            repeat(PRUNE_CALLS_INTERVAL, &stop, || prune_surplus(&core, &stop)),
            repeat(RENEW_INTERVAL, &stop, || renew_idempotency_leases(
                &idempotency
            )),
            release_as_dropped(&idempotency, &stop),
        );
        flush(&tokens, &sessions, &keys, &logins).await;
        release(&idempotency).await;
    })
}

/// Repeats a job until `stop`. A job that has begun is not cut off.
async fn repeat<F: Future<Output = ()>>(
    every: Duration,
    stop: &CancellationToken,
    job: impl Fn() -> F,
) {
    let mut ticks = interval_at(Instant::now() + every, every);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while stop.run_until_cancelled(ticks.tick()).await.is_some() {
        job().await;
    }
}

async fn flush(tokens: &AccountTokens, sessions: &Sessions, keys: &KeyCheck, logins: &Logins) {
    report(
        "write down which tokens were used",
        tokens.flush_touches().await,
    );
    report(
        "write down which sessions were used",
        sessions.flush_touches().await,
    );
    report(
        "write down which keys were used",
        keys.flush_touches().await,
    );
    report(
        "write down which sign-ins were refused",
        logins.flush_refusals().await,
    );
}

async fn renew_idempotency_leases(idempotency: &Idempotency) {
    let renewed = idempotency.renew_leases().await;
    report("renew the leases of idempotency keys", renewed);
    // What could not be released when it was dropped.
    release(idempotency).await;
}

async fn release(idempotency: &Idempotency) {
    let released = idempotency.release_dropped().await;
    report("release idempotency keys", released);
}

async fn release_as_dropped(idempotency: &Idempotency, stop: &CancellationToken) {
    while stop
        .run_until_cancelled(idempotency.dropped())
        .await
        .is_some()
    {
        release(idempotency).await;
    }
}

/// Logs the failure of a job, which is repeated next time.
fn report(what: &'static str, result: Result<()>) {
    if let Err(error) = result {
        tracing::warn!(error = error_chain(&error), "cannot {what}");
    }
}

/// Removes what has ended, table by table, a batch at a time.
pub async fn sweep(core: &Core, stop: &CancellationToken) {
    let (db, now) = (&core.db, core.now());
    let old = now.before(CHANGES_RETENTION);
    drain(core, "changes", stop, || {
        changes::prune_changes(db, old, BATCH_ROWS)
    })
    .await;
    let old = oldest_failure_kept(core).await;
    drain(core, "login_failures", stop, || {
        login_attempts::prune_failures(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(login::NETWORK_RETENTION);
    drain(core, "login_networks", stop, || {
        login_attempts::prune_networks(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(EXPIRED_TOKENS_RETENTION);
    drain(core, "tokens", stop, || {
        tokens::prune_tokens(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(sessions::RETENTION);
    drain(core, "sessions", stop, || {
        session_rows::prune_sessions(db, old, BATCH_ROWS)
    })
    .await;
    drain(core, "reset_links", stop, || {
        reset_links::prune_links(db, now, BATCH_ROWS)
    })
    .await;
    drain(core, "device_codes", stop, || {
        device_codes::prune_codes(db, now, BATCH_ROWS)
    })
    .await;
    drain(core, "idempotency", stop, || {
        stored_responses::prune_idempotency(db, now, BATCH_ROWS)
    })
    .await;
    drain(core, "invitations", stop, || {
        invitations::prune_invitations(db, now, BATCH_ROWS)
    })
    .await;
    let old = now.before(FORMER_NAMES_RETENTION);
    drain(core, "former_names", stop, || {
        former_names::prune_former_names(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(UNUSED_DISKS_RETENTION);
    drain(core, "unused_disks", stop, || {
        disks::prune_unused(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(MINUTES_RETENTION);
    drain(core, "project_traffic", stop, || {
        traffic::prune_minutes(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(HALF_HOURS_RETENTION);
    drain(core, "project_traffic", stop, || {
        traffic::prune_half_hours(db, old, BATCH_ROWS)
    })
    .await;
    let old = now.before(audit::RETENTION);
    drain(core, "audit", stop, || {
        entries::prune_entries(db, old, BATCH_ROWS)
    })
    .await;
    drain(core, "acme_challenges", stop, || {
        acme::prune_challenges(db, now, BATCH_ROWS)
    })
    .await;
    drain(core, "key_old_secrets", stop, || {
        keys::prune_old_secrets(db, now, BATCH_ROWS)
    })
    .await;
    let old = now.before(RATE_BUCKETS_RETENTION);
    drain(core, "rate_buckets", stop, || {
        rate_buckets::prune_rate_buckets(db, old, BATCH_ROWS)
    })
    .await;
    core.jobs.finish(Job::RemoveExpired, core.now());
}

/// Removes what is too much: entries of audit logs, and calls.
async fn prune_surplus(core: &Core, stop: &CancellationToken) {
    let cut = prune_surplus_entries(core, stop).await;
    if let Err(error) = &cut {
        let text = format!("audit: {}", error_chain(error));
        core.jobs.fail(Job::PruneCalls, core.now(), text);
    }
    report("remove entries of the audit log", cut);
    let pruned = retention::prune(&usage::ledger_context(core), stop).await;
    if let Err(error) = &pruned {
        core.jobs
            .fail(Job::PruneCalls, core.now(), error_chain(error));
    }
    report("remove calls that are too old", pruned.map_err(Error::from));
    core.jobs.finish(Job::PruneCalls, core.now());
}

/// Removes the oldest entries of owners that have too many. Only who has written lately can have: the others are not
/// counted every time.
pub async fn prune_surplus_entries(core: &Core, stop: &CancellationToken) -> Result<()> {
    let (db, since) = (&core.db, core.now().before(SURPLUS_WINDOW));
    let mut after = None;
    loop {
        let owners = entries::list_owners_since(db, since, after, BATCH_ROWS).await?;
        for owner in &owners {
            if stop.is_cancelled() {
                return Ok(());
            }
            let gone = prune_surplus_of(db, *owner, stop).await?;
            if gone > 0 {
                tracing::warn!(%owner, gone, "an audit log is too long, its oldest entries were removed");
            }
        }
        match owners.last() {
            Some(last) if owners.len() >= BATCH_ROWS as usize => after = Some(*last),
            _ => return Ok(()),
        }
    }
}

/// Removes the oldest entries of an owner that has too many; returns how many there were.
async fn prune_surplus_of(
    db: &Db,
    owner: OwnerId,
    stop: &CancellationToken,
) -> std::result::Result<u64, StoreError> {
    let mut gone = 0;
    let prune = |kind, last| {
        remove_all(stop, move || {
            entries::prune_entries_of(db, owner, kind, last, BATCH_ROWS)
        })
    };
    let kept = audit::MAX_ENTRIES;
    if let Some(last) = entries::newest_surplus_of_resources(db, owner, kept).await? {
        for kind in entries::RESOURCE_KINDS {
            gone += prune(*kind, last).await?;
        }
    }
    let kinds = Action::ALL.iter().map(|action| action.kind());
    let mut others: Vec<_> = kinds
        .filter(|kind| !entries::RESOURCE_KINDS.contains(kind))
        .collect();
    others.dedup();
    for kind in others {
        if let Some(last) = entries::newest_surplus_of_kind(db, owner, kind, kept).await? {
            gone += prune(kind, last).await?;
        }
    }
    Ok(gone)
}

/// Sums of failed logins from before this moment have faded, or are too many.
async fn oldest_failure_kept(core: &Core) -> Timestamp {
    let faded = core.now().before(login::FAILURE_RETENTION);
    let surplus = login_attempts::nth_latest_failure(&core.db, login::MAX_SUMS).await;
    surplus.ok().flatten().map_or(faded, |at| at.max(faded))
}

async fn drain<F>(core: &Core, table: &'static str, stop: &CancellationToken, prune: impl Fn() -> F)
where
    F: Future<Output = std::result::Result<u64, StoreError>>,
{
    if let Err(error) = remove_all(stop, prune).await {
        let error = error_chain(&error);
        tracing::warn!(table, error, "cannot remove what has ended");
        let text = format!("{table}: {error}");
        core.jobs.fail(Job::RemoveExpired, core.now(), text);
    }
}

/// Removes batches until one is not full; returns how many rows there were.
async fn remove_all<F>(
    stop: &CancellationToken,
    prune: impl Fn() -> F,
) -> std::result::Result<u64, StoreError>
where
    F: Future<Output = std::result::Result<u64, StoreError>>,
{
    let mut all = 0;
    while !stop.is_cancelled() {
        let gone = prune().await?;
        all += gone;
        if gone < u64::from(BATCH_ROWS) {
            break;
        }
    }
    Ok(all)
}
