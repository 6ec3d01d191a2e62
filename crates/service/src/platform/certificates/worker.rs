//! Orders certificates: those that handshakes wait for, those of new custom domains, and those that
//! are to be renewed.

use super::Acme;
use crate::change_subscription::ChangeSubscription;
use crate::jobs::Job;
use crate::{Error, Result};
use estrade_acme::OrderError;
use estrade_model::domain::HostName;
use estrade_model::error::error_chain;
use estrade_store::ChangeKind;
use estrade_store::certificates::{
    claim_order, count_orders, delete_certificate, list_due, list_uncertified, release_all_orders,
    release_order, set_failure,
};
use estrade_store::{StoreError, acme};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

/// How many orders one node works on at once.
const MAX_CONCURRENT_ORDERS: usize = 4;
/// How often it polls although nothing woke it.
const POLL_INTERVAL: Duration = Duration::from_secs(30);
/// How soon it polls after a route has changed; deploys change routes all the time.
const CHANGE_DELAY: Duration = Duration::from_secs(1);
/// How long an order may take, and the lease on it, which is longer.
const ORDER_TIMEOUT: Duration = Duration::from_secs(150);
const LEASE: Duration = Duration::from_mins(3);
/// After a failure: servers allow only a few of them per host and hour.
const MIN_RETRY_DELAY: Duration = Duration::from_mins(5);
const MAX_RETRY_DELAY: Duration = Duration::from_hours(12);

/// What came of trying to begin an order.
enum Begun {
    Yes(u32),
    /// Not due, or another node is at it.
    No,
    /// The cap of the hour is reached.
    TooMany,
}

impl Acme {
    /// Orders certificates until `stop`.
    pub fn run(self: Arc<Self>, stop: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let mut watch = ChangeSubscription::start(&self.core.db);
            report(self.take_over().await);
            let mut jobs = JoinSet::new();
            let mut poll_at = Instant::now();
            while !stop.is_cancelled() {
                if self.outdated.swap(false, Ordering::AcqRel) {
                    report(self.read_certified().await);
                }
                if poll_at <= Instant::now() {
                    poll_at = Instant::now() + POLL_INTERVAL;
                    let polled = self.poll().await;
                    if let Err(error) = &polled {
                        self.fail_job(error_chain(error));
                    }
                    let (jobs, now) = (&self.core.jobs, self.core.now());
                    jobs.finish(Job::OrderCertificates, now);
                    report(polled);
                }
                report(self.begin(&mut jobs, &stop).await);
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = self.work.notified() => {}
                    () = sleep_until(poll_at) => {}
                    Some(_) = jobs.join_next() => {}
                    () = watch.any_changed(&[ChangeKind::Route]) => {
                        poll_at = poll_at.min(Instant::now() + CHANGE_DELAY);
                    }
                }
            }
            while jobs.join_next().await.is_some() {}
        })
    }

    /// On SQLite no other server exists: leases are those of an earlier life of this one.
    async fn take_over(&self) -> Result<()> {
        if !self.core.db.is_sqlite() {
            return Ok(());
        }
        let released = self.core.db.transact(|tx| Box::pin(release_all_orders(tx)));
        Ok(released.await.map_err(|error: StoreError| error)?)
    }

    /// Finds hosts that need an order.
    async fn poll(&self) -> Result<()> {
        let most = u32::try_from(MAX_CONCURRENT_ORDERS).unwrap_or(u32::MAX);
        let mut hosts = list_due(&self.core.db, self.core.now(), most).await?;
        hosts.extend(list_uncertified(&self.core.db, most).await?);
        self.wanted().extend(hosts);
        Ok(())
    }

    /// Begins orders for as many wanted hosts as there is room for.
    async fn begin(
        self: &Arc<Self>,
        jobs: &mut JoinSet<()>,
        stop: &CancellationToken,
    ) -> Result<()> {
        while jobs.len() < MAX_CONCURRENT_ORDERS {
            let host = self.wanted().iter().next().cloned();
            let Some(host) = host else { break };
            self.wanted().remove(&host);
            match self.claim(&host).await? {
                Begun::No => {}
                Begun::TooMany => {
                    tracing::warn!(%host, "too many certificates were ordered within an hour, waiting");
                    // Due orders stay due; handshakes that wait time out and fall back.
                    self.wanted().clear();
                    break;
                }
                Begun::Yes(failures) => {
                    let (acme, stop) = (Arc::clone(self), stop.clone());
                    jobs.spawn(async move { acme.carry_out(&host, failures, &stop).await });
                }
            }
        }
        Ok(())
    }

    async fn claim(&self, host: &HostName) -> Result<Begun> {
        if !self.is_ours(host).await? {
            self.forget(host).await?;
            return Ok(Begun::No);
        }
        let (host, now) = (host.clone(), self.core.now());
        let (since, until) = (now.before(Duration::from_hours(1)), now.after(LEASE));
        let most = u64::from(self.orders_per_hour);
        self.core
            .db
            .transact(move |tx| {
                let host = host.clone();
                Box::pin(async move {
                    if count_orders(tx, since).await? >= most {
                        return Ok(Begun::TooMany);
                    }
                    let claimed = claim_order(tx, &host, now, until).await?;
                    Ok(claimed.map_or(Begun::No, Begun::Yes))
                })
            })
            .await
    }

    async fn carry_out(&self, host: &HostName, failures: u32, stop: &CancellationToken) {
        let ordered = tokio::select! {
            ordered = timeout(ORDER_TIMEOUT, self.order(host, failures)) => ordered.unwrap_or_else(|_| {
                Err(OrderError::Refused("the server did not answer in time".into()))
            }),
            () = stop.cancelled() => {
                report(self.release(host).await);
                return;
            }
        };
        match ordered {
            Ok(()) => tracing::info!(%host, "got a certificate"),
            Err(error) => {
                let problem = error_chain(&error);
                tracing::warn!(%host, problem, "could not get a certificate, trying again later");
                self.fail_job(format!("{host}: {problem}"));
                report(self.fail(host, failures, problem).await);
            }
        }
        self.issued.notify_waiters();
    }

    fn fail_job(&self, error: String) {
        let (jobs, now) = (&self.core.jobs, self.core.now());
        jobs.fail(Job::OrderCertificates, now, error);
    }

    async fn fail(&self, host: &HostName, failures: u32, problem: String) -> Result<()> {
        let wait = MIN_RETRY_DELAY.saturating_mul(1 << failures.min(16));
        let (host, order_at) = (
            host.clone(),
            self.core.now().after(wait.min(MAX_RETRY_DELAY)),
        );
        let noted = self.core.db.transact(move |tx| {
            let (host, problem) = (host.clone(), problem.clone());
            Box::pin(async move {
                acme::delete_challenges(tx, &host).await?;
                set_failure(tx, &host, &problem, order_at).await
            })
        });
        Ok(noted.await.map_err(|error: StoreError| error)?)
    }

    async fn release(&self, host: &HostName) -> Result<()> {
        let host = host.clone();
        let released = self.core.db.transact(move |tx| {
            let host = host.clone();
            Box::pin(async move { release_order(tx, &host).await })
        });
        Ok(released.await.map_err(|error: StoreError| error)?)
    }

    /// Forgets a host that is not ours any more.
    async fn forget(&self, host: &HostName) -> Result<()> {
        self.ready.remove(host);
        let gone = host.clone();
        self.core
            .db
            .transact(move |tx| {
                let host = gone.clone();
                Box::pin(async move { Ok::<_, Error>(delete_certificate(tx, &host).await?) })
            })
            .await?;
        self.outdated.store(true, Ordering::Release);
        Ok(())
    }
}

/// A database that is away for a while is no reason to stop: the next poll may succeed.
fn report(result: Result<()>) {
    if let Err(error) = result {
        let error = error_chain(&error);
        tracing::warn!(error, "certificates are ordered later");
    }
}
