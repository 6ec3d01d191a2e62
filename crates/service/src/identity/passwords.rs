//! Passwords: argon2id, off the async threads, a few at a time.
//!
//! Each hash takes tens of milliseconds of a core and 19 MiB.

use crate::{Error, Result};
use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier, phc::PasswordHash};
use estrade_model::AccountId;
use estrade_model::secret::Secret;
use estrade_store::accounts::{self, PasswordRow};
use estrade_store::{Tx, second_factors};
use std::sync::{Arc, LazyLock};
use tokio::sync::Semaphore;

/// How many passwords of strangers are checked at once: a flood of them takes half of the cores at most.
static STRANGERS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Semaphore::new((cores / 2).clamp(1, 4))
});
/// The same for logins from known networks, which do not queue behind others.
static KNOWN: Semaphore = Semaphore::const_new(1);

/// Stands in for the hash of an account that does not exist, so that the response takes as long.
static DECOY: LazyLock<Option<String>> = LazyLock::new(|| hash_now("decoy").ok());

/// Shortest and longest password, in bytes: argon2 does not mind, people and memory do.
const LENGTH: std::ops::RangeInclusive<usize> = 8..=1024;

fn hash_now(password: &str) -> Result<String> {
    let hash = Argon2::default()
        .hash_password(password.as_bytes())
        .map_err(Error::internal)?;
    Ok(hash.to_string())
}

/// Hashes a new password; refuses one that is too short or absurdly long.
pub(crate) async fn hash(password: Secret) -> Result<String> {
    hash_in_turn(&KNOWN, password).await
}

/// The same for whoever has a link: a flood of them does not delay logins from known networks.
pub(crate) async fn hash_of_stranger(password: Secret) -> Result<String> {
    hash_in_turn(&STRANGERS, password).await
}

async fn hash_in_turn(turns: &'static Semaphore, password: Secret) -> Result<String> {
    if !LENGTH.contains(&password.expose().len()) {
        return Err(Error::invalid("password: must be 8 to 1024 bytes long"));
    }
    off_thread(turns, move || hash_now(password.expose())).await?
}

/// Whether the password fits; `None` takes as long as a real hash and never fits.
///
/// `known` is for logins from known networks, which do not queue behind others.
pub(crate) async fn verify(password: Secret, hash: Option<String>, known: bool) -> Result<bool> {
    let turns = if known { &KNOWN } else { &*STRANGERS };
    off_thread(turns, move || {
        // Before the choice: making the decoy must not single out the first unknown account.
        let decoy = DECOY.as_deref();
        let (stored, real) = match &hash {
            Some(hash) => (Some(hash.as_str()), true),
            None => (decoy, false),
        };
        let fits = stored
            .and_then(|text| PasswordHash::new(text).ok())
            .is_some_and(|parsed| {
                // Longer than any password we ever stored: it cannot fit, and need not be hashed.
                password.expose().len() <= *LENGTH.end()
                    && Argon2::default()
                        .verify_password(password.expose().as_bytes(), &parsed)
                        .is_ok()
            });
        fits && real
    })
    .await
}

/// What a login proved, to be confirmed by the transaction that depends on it.
#[derive(Clone)]
pub(crate) struct LoginProof {
    pub(crate) account: AccountId,
    /// The hash that the password fitted.
    hash: Option<Arc<str>>,
    /// Whether a code of the second factor was right.
    factor: bool,
}

impl LoginProof {
    pub(crate) fn new(row: &PasswordRow, factor: bool) -> Self {
        Self {
            account: row.account,
            hash: row.hash.as_deref().map(Arc::from),
            factor,
        }
    }

    /// Refuses when the password was changed since, the account disabled, or a second factor switched on that
    /// was not given.
    pub(crate) async fn confirm(&self, tx: &mut Tx) -> Result<()> {
        let stored = accounts::find_password(tx, self.account).await?;
        let stored = stored.filter(|row| !row.disabled);
        let stored = stored.and_then(|row| row.hash);
        if stored.is_none() || stored.as_deref() != self.hash.as_deref() {
            return Err(Error::WrongCredentials);
        }
        if !self.factor && second_factors::is_enabled(tx, self.account).await? {
            return Err(Error::SecondFactorRequired);
        }
        Ok(())
    }
}

async fn off_thread<T: Send + 'static>(
    turns: &'static Semaphore,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T> {
    let turn = turns.acquire().await.map_err(Error::internal)?;
    // The permit is held until the work ends: a client that disconnects leaves the work running.
    let in_turn = move || {
        let _turn = turn;
        work()
    };
    tokio::task::spawn_blocking(in_turn)
        .await
        .map_err(Error::internal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_password_fits_its_own_hash_only() {
        let hash = hash(Secret("correct horse".into())).await.unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(
            verify(Secret("correct horse".into()), Some(hash.clone()), false)
                .await
                .unwrap()
        );
        assert!(
            !verify(Secret("wrong horse".into()), Some(hash), true)
                .await
                .unwrap()
        );
        assert!(!verify(Secret("decoy".into()), None, false).await.unwrap());
        assert!(super::hash(Secret("short".into())).await.is_err());
    }
}
