//! An installation for tests: several limiters on one set of shared buckets, in simulated time.

use super::bucket::{Bucket, BucketId, ONE, size};
use super::rate_limiter::{Exceeded, RateLimitCharge, RateLimiter};
use super::sharing::Sharing;
use super::taking::{TakeOutcome, Taking};
use crate::auth::{AuthContext, AuthorizedKey, AuthorizedWorkspace, RateLimits};
use crate::shared_rates::{SharedRates, SharedRatesUnavailable};
use estrade_model::Id;
use estrade_model::rate::{RateReply, RateReport, RateUnit};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use std::collections::HashMap;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The shared buckets as `store::rate_buckets` keeps them in PostgreSQL, for simulated time.
#[derive(Default)]
pub(super) struct Reference {
    pub(super) nodes: AtomicUsize,
    pub(super) is_down: AtomicBool,
    /// Reports arrive, and the replies come too late.
    pub(super) is_late: AtomicBool,
    /// How long an exchange takes, in milliseconds; 0: [`ROUND_TRIP`].
    pub(super) round_trip: AtomicU64,
    buckets: Mutex<HashMap<BucketId, Row>>,
    pub(super) exchanges: AtomicUsize,
}

struct Row {
    bucket: Bucket,
    at: Instant,
    limit: NonZeroU32,
}

impl Reference {
    /// What is used of a bucket in whole units, as of its last report, and its limit.
    pub(super) fn row(&self, id: BucketId) -> (u128, u32) {
        let buckets = self.buckets.lock().unwrap();
        let row = &buckets[&id];
        (row.bucket.used / ONE, row.limit.get())
    }

    fn take(&self, report: &RateReport) -> RateReply {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap();
        let id = (report.subject, report.unit);
        let row = buckets.entry(id).or_insert(Row {
            bucket: Bucket::default(),
            at: now,
            limit: report.limit,
        });
        let passed = u64::try_from((now - row.at).as_micros()).unwrap();
        row.bucket.leak(Some(row.limit), passed);
        (row.at, row.limit) = (now, report.limit);
        let bucket = &mut row.bucket;
        let used = i128::try_from(bucket.used).unwrap() + i128::from(report.change);
        let used = used.max(report.own.into()).max(0).cast_unsigned();
        let (first, all) = (report.first.cast_unsigned(), report.all.cast_unsigned());
        let (first, all) = (u128::from(first), u128::from(all));
        let room = size(report.limit).saturating_sub(used);
        let granted = match () {
            () if first == 0 => 0,
            () if used == 0 => first.max(all.min(size(report.limit))),
            () if first <= room => all.min(room / ONE * ONE),
            () => 0,
        };
        bucket.used = used + granted;
        RateReply {
            used: i64::try_from(bucket.used).unwrap(),
            granted: i64::try_from(granted).unwrap(),
        }
    }
}

/// How long an exchange takes.
pub(super) const ROUND_TRIP: Duration = Duration::from_millis(2);

impl SharedRates for Reference {
    fn is_alone(&self) -> bool {
        self.nodes() == 1
    }

    fn nodes(&self) -> usize {
        self.nodes.load(Ordering::Relaxed)
    }

    fn exchange<'a>(
        &'a self,
        reports: &'a [RateReport],
    ) -> BoxFuture<'a, Result<Vec<RateReply>, SharedRatesUnavailable>> {
        async {
            let half = match self.round_trip.load(Ordering::Relaxed) {
                0 => ROUND_TRIP / 2,
                millis => Duration::from_millis(millis) / 2,
            };
            sleep(half).await;
            if self.is_down.load(Ordering::Relaxed) {
                return Err(SharedRatesUnavailable);
            }
            self.exchanges.fetch_add(1, Ordering::Relaxed);
            let replies = reports.iter().map(|report| self.take(report)).collect();
            sleep(half).await;
            if self.is_late.load(Ordering::Relaxed) {
                sleep(Duration::from_secs(2)).await;
            }
            Ok(replies)
        }
        .boxed()
    }
}

/// An installation of some nodes.
pub(super) struct Cluster {
    pub(super) shared: Arc<Reference>,
    pub(super) nodes: Vec<Arc<RateLimiter>>,
    _tasks: JoinSet<()>,
}

impl Cluster {
    pub(super) fn new(nodes: usize) -> Self {
        let shared = Arc::new(Reference::default());
        shared.nodes.store(nodes, Ordering::Relaxed);
        let mut tasks = JoinSet::new();
        let new_node = |_| {
            let rates: Arc<dyn SharedRates> = Arc::clone(&shared) as _;
            let limiter = Arc::new(RateLimiter::new(Sharing::new(Some(rates))));
            let node = Arc::clone(&limiter);
            tasks.spawn(async move { node.share().await });
            limiter
        };
        let nodes = (0..nodes).map(new_node).collect();
        Self {
            shared,
            nodes,
            _tasks: tasks,
        }
    }
}

fn rates((rpm, tpm): (u32, u32)) -> RateLimits {
    RateLimits {
        rpm: NonZeroU32::new(rpm),
        tpm: NonZeroU32::new(tpm),
    }
}

pub(super) fn auth(key: (u32, u32), workspace: (u32, u32)) -> AuthContext {
    AuthContext {
        key: AuthorizedKey {
            id: Id::generate(1, 1),
            owner: Id::generate(1, 1),
            models: None,
            cache: false,
            rates: rates(key),
            budget: None,
        },
        workspace: Arc::new(AuthorizedWorkspace {
            id: Id::generate(1, 2),
            preference: estrade_model::provider::Preference::Order,
            rates: rates(workspace),
            budget: None,
        }),
    }
}

/// The same workspace with another limit of the key.
pub(super) fn with_key_limits(auth: &AuthContext, limits: (u32, u32)) -> AuthContext {
    let mut auth = auth.clone();
    auth.key.rates = rates(limits);
    auth
}

/// The bucket of a key.
pub(super) fn bucket_of(auth: &AuthContext, unit: RateUnit) -> BucketId {
    (*auth.key.id.as_bytes(), unit)
}

pub(super) async fn outcome(taking: Taking<'_>) -> TakeOutcome {
    match taking {
        Taking::Done(outcome) => outcome,
        Taking::Waits(waiting) => waiting.await,
    }
}

pub(super) async fn request(
    limiter: &RateLimiter,
    auth: &AuthContext,
) -> Result<RateLimitCharge, Exceeded> {
    let taken = limiter.take(auth, RateUnit::Requests, 1, Instant::now());
    outcome(taken).await.map(|taken| taken.unwrap().0)
}

pub(super) async fn tokens(
    limiter: &RateLimiter,
    auth: &AuthContext,
    count: u64,
) -> Result<RateLimitCharge, Exceeded> {
    let taken = limiter.take(auth, RateUnit::Tokens, count, Instant::now());
    outcome(taken).await.map(|taken| taken.unwrap().0)
}

/// Calls through every node at a rate of its own for so long; says when calls were admitted.
pub(super) async fn load(
    cluster: &Cluster,
    auth: &AuthContext,
    pauses: &[u64],
    span: Duration,
) -> Vec<Duration> {
    let (start, admitted) = (Instant::now(), Arc::new(Mutex::new(Vec::new())));
    let mut callers = JoinSet::new();
    for (node, pause) in cluster.nodes.iter().zip(pauses) {
        let (node, auth, admitted) = (Arc::clone(node), auth.clone(), Arc::clone(&admitted));
        let pause = Duration::from_micros(*pause);
        callers.spawn(async move {
            while start.elapsed() < span {
                if request(&node, &auth).await.is_ok() {
                    admitted.lock().unwrap().push(start.elapsed());
                }
                sleep(pause).await;
            }
        });
    }
    while callers.join_next().await.is_some() {}
    let mut admitted = std::mem::take(&mut *admitted.lock().unwrap());
    admitted.sort();
    admitted
}

pub(super) fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// However long one looks, and whenever one begins, a limit is exceeded by at most a tenth.
pub(super) fn assert_within(admitted: &[Duration], limit: u32) {
    let allowed = |span: Duration| 1.1 * f64::from(limit) * (1.0 + span.as_secs_f64() / 60.0);
    for (place, begin) in admitted.iter().enumerate() {
        for count in [1, 10, 100, 1_000, admitted.len() - place] {
            let Some(end) = admitted[place..].get(count - 1) else {
                continue;
            };
            let span = end.saturating_sub(*begin);
            assert!(
                number(count) <= allowed(span).max(1.0),
                "{count} in {span:?}"
            );
        }
    }
}
