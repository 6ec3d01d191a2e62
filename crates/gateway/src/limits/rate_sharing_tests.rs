//! Several limiters on one set of shared buckets, in simulated time.

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
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The shared buckets as `store::rate_buckets` keeps them in PostgreSQL, for simulated time.
#[derive(Default)]
struct Reference {
    nodes: AtomicUsize,
    is_down: AtomicBool,
    buckets: Mutex<HashMap<BucketId, (Bucket, Instant)>>,
    exchanges: AtomicUsize,
}

impl Reference {
    fn take(&self, report: &RateReport) -> RateReply {
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap();
        let id = (report.subject, report.unit);
        let (bucket, at) = buckets.entry(id).or_insert((Bucket::default(), now));
        let passed = u64::try_from((now - *at).as_micros()).unwrap();
        bucket.leak(Some(report.limit), passed);
        *at = now;
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
const ROUND_TRIP: Duration = Duration::from_millis(2);

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
            sleep(ROUND_TRIP / 2).await;
            if self.is_down.load(Ordering::Relaxed) {
                return Err(SharedRatesUnavailable);
            }
            self.exchanges.fetch_add(1, Ordering::Relaxed);
            let replies = reports.iter().map(|report| self.take(report)).collect();
            sleep(ROUND_TRIP / 2).await;
            Ok(replies)
        }
        .boxed()
    }
}

/// An installation of some nodes.
struct Cluster {
    shared: Arc<Reference>,
    nodes: Vec<Arc<RateLimiter>>,
    _tasks: JoinSet<()>,
}

impl Cluster {
    fn new(nodes: usize) -> Self {
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

fn auth(key: (u32, u32), workspace: (u32, u32)) -> AuthContext {
    let rates = |(rpm, tpm)| RateLimits {
        rpm: NonZeroU32::new(rpm),
        tpm: NonZeroU32::new(tpm),
    };
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

async fn outcome(taking: Taking<'_>) -> TakeOutcome {
    match taking {
        Taking::Done(outcome) => outcome,
        Taking::Waits(waiting) => waiting.await,
    }
}

async fn request(limiter: &RateLimiter, auth: &AuthContext) -> Result<RateLimitCharge, Exceeded> {
    let taken = limiter.take(auth, RateUnit::Requests, 1, Instant::now());
    outcome(taken).await.map(|taken| taken.unwrap().0)
}

async fn tokens(
    limiter: &RateLimiter,
    auth: &AuthContext,
    count: u64,
) -> Result<RateLimitCharge, Exceeded> {
    let taken = limiter.take(auth, RateUnit::Tokens, count, Instant::now());
    outcome(taken).await.map(|taken| taken.unwrap().0)
}

/// Calls through every node at a rate of its own for so long; says when calls were admitted.
async fn load(
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

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap())
}

/// However long one looks, and whenever one begins, a limit is exceeded by at most a tenth.
fn assert_within(admitted: &[Duration], limit: u32) {
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

#[tokio::test(start_paused = true)]
async fn three_nodes_admit_what_one_would() {
    for (limit, pauses) in [
        (60, [100_000, 90_000, 110_000]),
        (60, [10_000, 500_000, 3_000_000]),
        (6_000, [1_000, 1_300, 1_700]),
        (7, [300_000, 400_000, 500_000]),
    ] {
        let cluster = Cluster::new(3);
        let auth = auth((limit, 0), (0, 0));
        let admitted = load(&cluster, &auth, &pauses, Duration::from_secs(100)).await;
        assert_within(&admitted, limit);
        let due = f64::from(limit) * (1.0 + 100.0 / 60.0);
        let count = number(admitted.len());
        assert!(count >= 0.97 * due - 1.0, "{limit}: {count} of {due}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_a_workspace_is_shared_like_that_of_a_key() {
    let cluster = Cluster::new(3);
    let auth = auth((600, 0), (60, 0));
    let admitted = load(&cluster, &auth, &[20_000; 3], Duration::from_mins(1)).await;
    assert_within(&admitted, 60);
    assert!(admitted.len() >= 116, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn calls_below_the_limit_never_wait() {
    let cluster = Cluster::new(3);
    let auth = auth((6_000, 0), (0, 0));
    for _ in 0..500 {
        for node in &cluster.nodes {
            assert!(request(node, &auth).now_or_never().unwrap().is_ok());
        }
        sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_refused_asks_a_few_times_a_second() {
    let cluster = Cluster::new(2);
    let auth = auth((60, 0), (0, 0));
    load(&cluster, &auth, &[1_000, 1_000], Duration::from_secs(1)).await;
    let before = cluster.shared.exchanges.load(Ordering::Relaxed);
    load(&cluster, &auth, &[200, 200], Duration::from_secs(10)).await;
    let exchanges = cluster.shared.exchanges.load(Ordering::Relaxed) - before;
    assert!(exchanges < 2 * 10 * (4 + 2) * 2, "{exchanges}");
}

#[tokio::test(start_paused = true)]
async fn what_tokens_turn_out_to_be_counts_on_every_node() {
    let cluster = Cluster::new(2);
    let auth = auth((0, 1_000), (0, 0));
    let [one, other] = &cluster.nodes[..] else {
        panic!()
    };
    let charge = tokens(one, &auth, 900).await.unwrap();
    assert!(tokens(other, &auth, 200).await.is_err());
    one.settle(&charge, 100, Instant::now());
    sleep(Duration::from_millis(300)).await;
    let charge = tokens(other, &auth, 800).await.unwrap();
    // It was longer than estimated: that is owed, on both nodes.
    other.settle(&charge, 1_800, Instant::now());
    sleep(Duration::from_millis(300)).await;
    for node in [one, other] {
        // More than a node may use before it has heard of what others did.
        let refused = tokens(node, &auth, 100).await.unwrap_err();
        assert!(refused.retry > Duration::from_secs(50), "{refused:?}");
    }
    // More than the whole bucket is given when it is empty.
    sleep(Duration::from_mins(3)).await;
    assert!(tokens(one, &auth, 5_000).await.is_ok());
    assert!(tokens(other, &auth, 100).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn callers_who_leave_take_nothing_with_them() {
    let cluster = Cluster::new(3);
    let auth = auth((0, 1_000), (0, 0));
    for moment in 0..6 {
        let mut leaving = Box::pin(tokens(&cluster.nodes[0], &auth, 900));
        assert!((&mut leaving).now_or_never().is_none(), "it has to wait");
        // Before the report, on its way, and when the reply is there.
        sleep(ROUND_TRIP * moment / 4).await;
        drop(leaving);
        sleep(Duration::from_millis(300)).await;
        let charge = tokens(&cluster.nodes[1], &auth, 900).await;
        let charge = charge.unwrap_or_else(|refused| panic!("{moment}: {refused:?}"));
        cluster.nodes[1].settle(&charge, 0, Instant::now());
        sleep(Duration::from_millis(300)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn while_the_shared_buckets_are_away_each_node_admits_its_share() {
    let cluster = Cluster::new(3);
    let auth = auth((600, 0), (0, 0));
    cluster.shared.is_down.store(true, Ordering::Relaxed);
    // The first call that has to wait finds out.
    let admitted = load(&cluster, &auth, &[10_000; 3], Duration::from_mins(1)).await;
    assert!(
        (1_100..=1_260).contains(&admitted.len()),
        "{}",
        admitted.len()
    );
    // What was used meanwhile is known to all afterwards.
    cluster.shared.is_down.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(2)).await;
    let after = load(&cluster, &auth, &[10_000; 3], Duration::from_secs(6)).await;
    assert!(after.len() <= 100, "{}", after.len());
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_alone_has_used_what_it_has_used() {
    let cluster = Cluster::new(2);
    let auth = auth((60, 0), (0, 0));
    cluster.shared.nodes.store(1, Ordering::Relaxed);
    for _ in 0..60 {
        assert!(
            request(&cluster.nodes[0], &auth)
                .now_or_never()
                .unwrap()
                .is_ok()
        );
    }
    assert!(
        request(&cluster.nodes[0], &auth)
            .now_or_never()
            .unwrap()
            .is_err()
    );
    cluster.shared.nodes.store(2, Ordering::Relaxed);
    assert!(request(&cluster.nodes[0], &auth).await.is_err());
    sleep(Duration::from_millis(50)).await;
    let admitted = load(&cluster, &auth, &[1_000, 1_000], Duration::from_secs(1)).await;
    assert!(admitted.len() <= 60 / 20 + 2, "{}", admitted.len());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_when_sharing_ends() {
    let cluster = Cluster::new(2);
    let auth = auth((5, 0), (0, 0));
    let limiter = RateLimiter::new(Sharing::new(Some(Arc::clone(&cluster.shared) as _)));
    let waiting = request(&limiter, &auth);
    let (admitted, ()) = tokio::join!(waiting, limiter.stop_sharing());
    assert!(admitted.is_ok());
    assert!(request(&limiter, &auth).now_or_never().is_some());
}
