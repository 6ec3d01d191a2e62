//! Counting tries to log in, and the waits that follow from failures.

use crate::{Core, Error, Result};
use estrade_model::{AccountId, Timestamp};
use estrade_store::login_attempts::{self, Failures};
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Failures lose half of their weight in this time without a try.
const HALF_LIFE: Duration = Duration::from_mins(15);
/// After this time without a failure a sum has no weight any more.
pub(crate) const FAILURE_RETENTION: Duration = Duration::from_hours(2);
/// How many sums of failures are kept; those that were added to least recently go first.
pub(crate) const MAX_SUMS: u32 = 200_000;
/// The first wait beyond the allowance; each further failure doubles it.
const FIRST_DELAY: Duration = Duration::from_secs(1);
/// The longest wait for what comes from one network.
const MAX_DELAY: Duration = Duration::from_mins(15);
/// The longest delay for an account over all networks, and on a network that it is known at. Short: it also
/// delays the account's owner.
const MAX_ACCOUNT_DELAY: Duration = Duration::from_mins(1);
/// A sum does not grow beyond its allowance and this: then the wait is the longest one anyway.
const MAX_EXCESS: f64 = 12.0;
/// One failure, as it is stored.
const FAILURE: i32 = 1000;
/// How many networks of an account are remembered, and for how long after the last login.
const MAX_NETWORKS: u32 = 20;
pub(crate) const NETWORK_RETENTION: Duration = Duration::from_hours(90 * 24);

/// How many failures of a scope are free of a wait, and how long the wait becomes.
#[derive(Debug, Clone, Copy)]
struct Limit {
    scope: [u8; 32],
    allowance: u32,
    max_delay: Duration,
}

impl Limit {
    /// When the next try is taken.
    fn free_at(&self, failures: Failures) -> Timestamp {
        let excess = in_failures(failures.weight).round() - f64::from(self.allowance);
        if excess < 0.0 {
            return failures.last_at;
        }
        let delay = FIRST_DELAY.mul_f64(excess.min(MAX_EXCESS).exp2());
        failures.last_at.after(delay.min(self.max_delay))
    }

    /// The decayed sum of earlier failures. It decays only after the delay is over: otherwise the delay of an
    /// attacker that goes on guessing would stop growing once it decays as fast as it grows.
    fn faded(&self, failures: Failures, now: Timestamp) -> f64 {
        let age = now.millis() - self.free_at(failures).millis();
        let age = Duration::from_millis(u64::try_from(age).unwrap_or(0));
        let halvings = age.as_secs_f64() / HALF_LIFE.as_secs_f64();
        in_failures(failures.weight) * (-halvings).exp2()
    }

    /// The sum with one more failure.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "bounded by the allowance and the excess"
    )]
    fn add(&self, failures: Option<Failures>, now: Timestamp) -> Failures {
        let before = failures.map_or(0.0, |failures| self.faded(failures, now));
        let weight = (before + 1.0).min(f64::from(self.allowance) + MAX_EXCESS);
        Failures {
            weight: (weight * f64::from(FAILURE)).round() as i64,
            last_at: now,
        }
    }
}

/// A stored weight in failures.
fn in_failures(weight: i64) -> f64 {
    f64::from(i32::try_from(weight).unwrap_or(i32::MAX)) / f64::from(FAILURE)
}

/// A try, which counts as failed unless it is forgiven.
pub(crate) struct Attempt {
    pub(super) network: IpAddr,
    /// The account and the network together.
    pair: [u8; 32],
    /// Whether there was a successful login to the account from this network.
    pub(super) known: bool,
    limits: Vec<Limit>,
}

impl Attempt {
    pub(super) async fn new(core: &Core, address: IpAddr, typed: &str) -> Result<Self> {
        // As the address would be stored, so that another spelling is not another ten tries. Hashed,
        // because people also type their password here.
        let account = typed.to_lowercase();
        let network = network_of(address);
        let from = network.to_string();
        let pair = blake3::derive_key(
            "estrade login account and network",
            format!("{from}\n{account}").as_bytes(),
        );
        let known = login_attempts::is_known_network(&core.db, pair).await?;
        let settings = &core.settings;
        let mut limits = vec![Limit {
            scope: pair,
            allowance: settings.login_failures_per_account,
            max_delay: if known { MAX_ACCOUNT_DELAY } else { MAX_DELAY },
        }];
        if !known {
            limits.push(Limit {
                scope: blake3::derive_key("estrade login account", account.as_bytes()),
                allowance: settings.login_failures_per_account,
                max_delay: MAX_ACCOUNT_DELAY,
            });
            limits.push(Limit {
                scope: blake3::derive_key("estrade login network", from.as_bytes()),
                allowance: settings.login_failures_per_address,
                max_delay: MAX_DELAY,
            });
        }
        limits.retain(|limit| limit.allowance > 0);
        Ok(Self {
            network,
            pair,
            known,
            limits,
        })
    }

    /// Counts the attempt, or refuses it during a delay; refused attempts do not count.
    pub(super) async fn record(&self, core: &Core) -> Result<()> {
        record(core, self.limits.clone()).await
    }

    /// Everything that was asked for was right: the try did not fail, and the network is known from now on.
    pub(crate) async fn succeed(&self, core: &Core, account: AccountId) -> Result<()> {
        self.forgive(core, Some(account)).await
    }

    /// The password was right, but a second factor is still to come: the try did not fail.
    pub(super) async fn take_back(&self, core: &Core) -> Result<()> {
        self.forgive(core, None).await
    }

    async fn forgive(&self, core: &Core, known_to: Option<AccountId>) -> Result<()> {
        let scopes: Vec<_> = self.limits.iter().map(|limit| limit.scope).collect();
        let (pair, now) = (self.pair, core.now());
        core.db
            .transact(move |tx| {
                let scopes = scopes.clone();
                Box::pin(async move {
                    login_attempts::forgive(tx, &scopes, FAILURE.into()).await?;
                    let Some(account) = known_to else {
                        return Ok(());
                    };
                    let most = MAX_NETWORKS;
                    Ok(login_attempts::remember_network(tx, account, pair, now, most).await?)
                })
            })
            .await
    }
}

/// How many wrong codes of a waiting login are free of a wait, for an account.
const GUESS_ALLOWANCE: u32 = 10;

/// A guess at the code of a waiting login by somebody who is signed in; wrong unless it is taken back.
pub(crate) struct Guess(Limit);

impl Guess {
    pub(crate) fn new(account: AccountId) -> Self {
        let scope = blake3::derive_key("estrade guesses at device codes", account.as_bytes());
        Self(Limit {
            scope,
            allowance: GUESS_ALLOWANCE,
            max_delay: MAX_DELAY,
        })
    }

    /// Counts it, or refuses it during a delay.
    pub(crate) async fn record(&self, core: &Core) -> Result<()> {
        record(core, vec![self.0]).await
    }

    /// There is a login with this code.
    pub(crate) async fn take_back(&self, core: &Core) -> Result<()> {
        let scope = self.0.scope;
        core.db
            .transact(move |tx| {
                Box::pin(
                    async move { Ok(login_attempts::forgive(tx, &[scope], FAILURE.into()).await?) },
                )
            })
            .await
    }
}

/// Counts a failure in each of the scopes, unless one of them still has to wait.
async fn record(core: &Core, limits: Vec<Limit>) -> Result<()> {
    let now = core.now();
    core.db
        .transact(move |tx| {
            let limits = limits.clone();
            Box::pin(async move {
                let mut free_at = now;
                let mut sums = Vec::with_capacity(limits.len());
                for limit in limits {
                    let failures = login_attempts::find_failures(tx, limit.scope).await?;
                    // Clamped: a clock that was set back, or that of another node, must not extend the delay.
                    let failures = failures.map(|sum| Failures {
                        last_at: sum.last_at.min(now),
                        ..sum
                    });
                    let free = failures.map_or(now, |failures| limit.free_at(failures));
                    free_at = free_at.max(free);
                    sums.push((limit.scope, limit.add(failures, now)));
                }
                if free_at > now {
                    return Err(Error::RateLimited(span(now, free_at)));
                }
                for (scope, sum) in sums {
                    login_attempts::set_failures(tx, scope, sum).await?;
                }
                Ok(())
            })
        })
        .await
}

/// An IPv6 client usually has a whole /64, so that its addresses count as one.
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// From one moment to a later one, in whole seconds, rounded up.
fn span(from: Timestamp, to: Timestamp) -> Duration {
    let millis = to.millis().saturating_sub(from.millis());
    Duration::from_secs(u64::try_from(millis).unwrap_or(0).div_ceil(1000).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ipv6_network_counts_as_one_and_a_mapped_address_as_ipv4() {
        let network = |text: &str| network_of(text.parse().unwrap()).to_string();
        assert_eq!(network("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:2::1"), "2001:db8:1:2::");
        assert_eq!(network("2001:db8:1:3::1"), "2001:db8:1:3::");
        assert_eq!(network("::ffff:192.0.2.1"), "192.0.2.1");
        assert_eq!(network("192.0.2.2"), "192.0.2.2");
    }

    #[test]
    fn waiting_times_are_rounded_up() {
        let at = Timestamp::from_millis;
        assert_eq!(span(at(0), at(1001)), Duration::from_secs(2));
        assert_eq!(span(at(0), at(1000)), Duration::from_secs(1));
        assert_eq!(span(at(5), at(5)), Duration::from_secs(1));
    }

    #[test]
    fn the_wait_doubles_up_to_the_longest_and_fades() {
        let limit = Limit {
            scope: [0; 32],
            allowance: 3,
            max_delay: Duration::from_secs(10),
        };
        let mut now = Timestamp::from_millis(0);
        let mut sum = None;
        let mut waits = Vec::new();
        for _ in 0..9 {
            let failures = limit.add(sum, now);
            let free_at = limit.free_at(failures);
            waits.push((free_at.millis() - now.millis()) / 1000);
            (sum, now) = (Some(failures), free_at);
        }
        assert_eq!(waits, [0, 0, 1, 2, 4, 8, 10, 10, 10]);
        // An hour later it is as if nothing had happened.
        let later = now.after(Duration::from_hours(1));
        let failures = limit.add(sum, later);
        assert_eq!(limit.free_at(failures), later);
    }
}
