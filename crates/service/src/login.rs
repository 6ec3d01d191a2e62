//! Logging in with an address and a password.
//!
//! Guessing is limited per account and per network. A try is counted before its password is
//! looked at, and forgotten when the password fits; so tries that run at the same time cannot slip
//! past the limit together. An account that does not exist is counted, checked and answered like
//! one that does: nobody can find out by asking.

use crate::{Core, Error, Result, passwords, tokens};
use estrade_model::account::{LoggedIn, Login};
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_model::{AccountId, Timestamp};
use estrade_store::accounts;
use estrade_store::login_attempts::{self, AttemptId};
use futures_util::future::BoxFuture;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// How long a failed try counts.
pub(crate) const WINDOW: Duration = Duration::from_mins(15);
/// How long a login lasts.
const SESSION: Lifetime = Lifetime(Some(Duration::from_hours(30 * 24)));

/// Checks a password and makes a token for the account.
pub fn log_in(core: &Core, address: IpAddr, login: Login) -> BoxFuture<'_, Result<LoggedIn>> {
    Box::pin(async move {
        let attempt = record_attempt(core, limits(core, address, &login.email)).await?;
        let account = check_password(core, &login.email, login.password).await?;
        forget_attempt(core, attempt).await?;
        let token = tokens::create_token(core, account, "login", SESSION).await?;
        let account = accounts::account_by_id(&core.db, account)
            .await?
            .ok_or(Error::WrongCredentials)?;
        Ok(LoggedIn {
            api_token: token
                .api_token
                .ok_or_else(|| Error::internal("a new token has no text"))?,
            email: account.email,
            fullname: account.fullname,
            avatar: String::new(),
        })
    })
}

async fn check_password(core: &Core, typed: &str, password: Secret) -> Result<AccountId> {
    let stored = match typed.parse::<Email>() {
        Ok(email) => accounts::password_by_email(&core.db, email.as_str()).await?,
        Err(_) => None,
    };
    let hash = stored.as_ref().and_then(|row| row.hash.clone());
    let fits = passwords::verify(password, hash).await?;
    match stored {
        Some(row) if fits && !row.disabled => Ok(row.account),
        _ => Err(Error::WrongCredentials),
    }
}

/// At most so many failures of one account or network within [`WINDOW`].
#[derive(Debug, Clone, Copy)]
struct Limit {
    scope: [u8; 32],
    most: u32,
}

fn limits(core: &Core, address: IpAddr, typed: &str) -> Vec<Limit> {
    // As the address would be stored, so that another spelling is not another ten tries. Hashed,
    // because people also type their password here.
    let account = typed.to_lowercase();
    let network = network_of(address).to_string();
    let settings = &core.settings;
    let limits = [
        Limit {
            scope: blake3::derive_key("estrade login account", account.as_bytes()),
            most: settings.login_failures_per_account,
        },
        Limit {
            scope: blake3::derive_key("estrade login network", network.as_bytes()),
            most: settings.login_failures_per_address,
        },
    ];
    limits.into_iter().filter(|limit| limit.most > 0).collect()
}

/// Who has one IPv6 address has all 2^64 of its network: they count as one.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & (u128::MAX << 64))),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A try that counts as failed unless it is forgotten.
struct Attempt {
    id: AttemptId,
    scopes: Vec<[u8; 32]>,
    at: Timestamp,
}

/// Counts a try, or refuses it when a limit is reached; refused tries do not count.
async fn record_attempt(core: &Core, limits: Vec<Limit>) -> Result<Attempt> {
    let (id, now) = (core.new_id()?, core.now());
    let scopes: Vec<_> = limits.iter().map(|limit| limit.scope).collect();
    let counted = scopes.clone();
    core.db
        .transact(move |tx| {
            let (limits, scopes) = (limits.clone(), counted.clone());
            Box::pin(async move {
                let since = now.before(WINDOW);
                let mut free_at = None;
                for Limit { scope, most } in limits {
                    let oldest = login_attempts::nth_attempt(tx, scope, since, most).await?;
                    free_at = free_at.max(oldest.map(|at| at.after(WINDOW)));
                }
                match free_at {
                    Some(at) => Err(Error::RateLimited(span(now, at))),
                    None => Ok(login_attempts::insert_attempt(tx, id, &scopes, now).await?),
                }
            })
        })
        .await?;
    Ok(Attempt {
        id,
        scopes,
        at: now,
    })
}

async fn forget_attempt(core: &Core, attempt: Attempt) -> Result<()> {
    core.db
        .transact(move |tx| {
            let scopes = attempt.scopes.clone();
            let (id, at) = (attempt.id, attempt.at);
            Box::pin(async move { Ok(login_attempts::delete_attempt(tx, id, &scopes, at).await?) })
        })
        .await
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
}
