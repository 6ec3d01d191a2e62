//! The limiter of a node that is alone.

use super::bucket::RateLimitStatus;
use super::rate_limiter::{Exceeded, RateLimitCharge, RateLimiter};
use super::sharing::Sharing;
use super::taking::{TakeOutcome, Taking};
use crate::auth::{AuthContext, RateLimits};
use crate::auth::{AuthorizedKey, AuthorizedWorkspace};
use estrade_model::Id;
use estrade_model::rate::RateUnit;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What a node that is alone decides, which never waits.
fn take(
    limiter: &RateLimiter,
    auth: &AuthContext,
    unit: RateUnit,
    count: u64,
    now: Instant,
) -> TakeOutcome {
    match limiter.take(auth, unit, count, now) {
        Taking::Done(outcome) => outcome,
        Taking::Waits(_) => panic!("nothing to wait for"),
    }
}

fn rates(rpm: u32, tpm: u32) -> RateLimits {
    RateLimits {
        rpm: NonZeroU32::new(rpm),
        tpm: NonZeroU32::new(tpm),
    }
}

fn auth(number: u64, key: RateLimits, workspace: RateLimits) -> AuthContext {
    AuthContext {
        key: AuthorizedKey {
            id: Id::generate(1, number),
            owner: Id::generate(1, 1),
            models: None,
            cache: false,
            rates: key,
            budget: None,
        },
        workspace: Arc::new(AuthorizedWorkspace {
            id: Id::generate(1, number),
            preference: estrade_model::provider::Preference::Order,
            rates: workspace,
            budget: None,
        }),
    }
}

fn with_rates(of: &AuthContext, rates: RateLimits) -> AuthContext {
    let mut new = auth(0, rates, of.workspace.rates);
    new.workspace = Arc::clone(&of.workspace);
    new.key.id = of.key.id;
    new
}

fn request(
    limiter: &RateLimiter,
    auth: &AuthContext,
    now: Instant,
) -> Result<RateLimitStatus, Exceeded> {
    let charge = take(limiter, auth, RateUnit::Requests, 1, now)?;
    Ok(charge.unwrap().1)
}

fn tokens(
    limiter: &RateLimiter,
    auth: &AuthContext,
    count: u64,
    now: Instant,
) -> Result<(RateLimitCharge, RateLimitStatus), Exceeded> {
    Ok(take(limiter, auth, RateUnit::Tokens, count, now)?.unwrap())
}

#[test]
fn a_bucket_is_full_at_the_start_and_refills_without_steps() {
    let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(1, rates(60, 0), rates(0, 0));
    for left in (0..60).rev() {
        let status = request(&limiter, &auth, start).unwrap();
        assert_eq!(status.remaining, left);
    }
    let unlimited = take(&limiter, &auth, RateUnit::Tokens, 1 << 40, start).unwrap();
    assert!(unlimited.is_none());
    let refused = request(&limiter, &auth, start).unwrap_err();
    assert_eq!(
        (refused.unit, refused.of_workspace),
        (RateUnit::Requests, false)
    );
    assert_eq!(refused.retry, Duration::from_secs(1));
    assert_eq!(refused.status.reset, Duration::from_mins(1));
    let later = start + Duration::from_millis(999);
    assert!(request(&limiter, &auth, later).is_err());
    let later = start + Duration::from_secs(1);
    assert!(request(&limiter, &auth, later).is_ok());
    assert!(request(&limiter, &auth, later).is_err());
}

#[test]
fn tokens_are_estimated_then_settled() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(2, rates(0, 100), rates(0, 0));
    let (charge, status) = tokens(&limiter, &auth, 80, now).unwrap();
    assert_eq!(status.remaining, 20);
    let refused = tokens(&limiter, &auth, 30, now).unwrap_err();
    assert_eq!(refused.unit, RateUnit::Tokens);
    limiter.settle(&charge, 10, now);
    let (_, status) = tokens(&limiter, &auth, 30, now).unwrap();
    assert_eq!(status.remaining, 60);
}

#[test]
fn what_has_come_back_by_itself_is_not_given_back_again() {
    let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(7, rates(0, 600), rates(0, 0));
    let (slow, _) = tokens(&limiter, &auth, 600, start).unwrap();
    // All of it has come back, and somebody else has taken it.
    let later = start + Duration::from_mins(1);
    tokens(&limiter, &auth, 600, later).unwrap();
    limiter.settle(&slow, 10, later);
    assert!(tokens(&limiter, &auth, 1, later).is_err());
    // Half of it: the other half is given back.
    let much_later = later + Duration::from_mins(2);
    let (slow, _) = tokens(&limiter, &auth, 600, much_later).unwrap();
    let half = much_later + Duration::from_secs(30);
    tokens(&limiter, &auth, 300, half).unwrap();
    limiter.settle(&slow, 10, half);
    assert_eq!(tokens(&limiter, &auth, 1, half).unwrap().1.remaining, 299);
}

#[test]
fn what_was_used_beyond_the_estimate_counts_from_now_on() {
    let (limiter, start) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(8, rates(0, 600), rates(0, 0));
    let (charge, _) = tokens(&limiter, &auth, 1, start).unwrap();
    let later = start + Duration::from_mins(5);
    limiter.forget_all();
    limiter.settle(&charge, 601, later);
    let refused = tokens(&limiter, &auth, 1, later).unwrap_err();
    assert_eq!(refused.status.reset, Duration::from_mins(1));
    // Also when the bucket was not forgotten: what leaked before does not count.
    limiter.settle(&charge, 601, later + Duration::from_mins(5));
    assert!(tokens(&limiter, &auth, 1, later + Duration::from_mins(5)).is_err());
}

#[test]
fn more_than_the_whole_bucket_goes_only_when_it_is_full() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(3, rates(0, 60), rates(0, 0));
    tokens(&limiter, &auth, 600, now).unwrap();
    let refused = tokens(&limiter, &auth, 1, now + Duration::from_mins(1)).unwrap_err();
    assert_eq!(refused.retry, Duration::from_secs(600 - 60 - 60 + 1));
    assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(599)).is_err());
    assert!(tokens(&limiter, &auth, 600, now + Duration::from_secs(601)).is_ok());
}

#[test]
fn what_was_taken_is_given_back_when_the_workspace_refuses() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(4, rates(10, 1000), rates(1, 100));
    request(&limiter, &auth, now).unwrap();
    tokens(&limiter, &auth, 100, now).unwrap();
    for _ in 0..20 {
        let refused = request(&limiter, &auth, now).unwrap_err();
        assert!(refused.of_workspace, "{refused:?}");
        let refused = tokens(&limiter, &auth, 100, now).unwrap_err();
        assert!(refused.of_workspace, "{refused:?}");
    }
    let mut alone = with_rates(&auth, rates(10, 1000));
    alone.workspace = pass_without_limits(&alone);
    assert_eq!(request(&limiter, &alone, now).unwrap().remaining, 8);
    let (_, status) = tokens(&limiter, &alone, 100, now).unwrap();
    assert_eq!(status.remaining, 800);
}

fn pass_without_limits(of: &AuthContext) -> Arc<AuthorizedWorkspace> {
    Arc::new(AuthorizedWorkspace {
        id: of.workspace.id,
        preference: of.workspace.preference,
        rates: RateLimits::default(),
        budget: None,
    })
}

#[test]
fn a_changed_limit_keeps_what_was_used() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    let before = auth(5, rates(10, 0), rates(0, 0));
    for _ in 0..10 {
        request(&limiter, &before, now).unwrap();
    }
    let after = with_rates(&before, rates(12, 0));
    assert!(request(&limiter, &after, now).is_ok());
    assert!(request(&limiter, &after, now).is_ok());
    assert!(request(&limiter, &after, now).is_err());
}

#[test]
fn full_buckets_are_forgotten() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    for number in 0..100_000 {
        let at = now + Duration::from_millis(number);
        let auth = auth(number * 7, rates(60, 0), rates(0, 0));
        request(&limiter, &auth, at).unwrap();
    }
    let kept = limiter.bucket_count();
    assert!(kept < RateLimiter::MAX_UNPRUNED, "{kept}");
}

#[test]
fn many_threads_take_exactly_what_is_there() {
    let (limiter, now) = (RateLimiter::new(Sharing::default()), Instant::now());
    let auth = auth(6, rates(500, 0), rates(0, 0));
    let admitted: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    (0..200)
                        .filter(|_| request(&limiter, &auth, now).is_ok())
                        .count()
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 500);
}
