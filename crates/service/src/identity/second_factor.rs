//! Second factors: time-based one-time passwords (RFC 6238), and recovery codes for a lost device.
//!
//! A factor is in force once its first code was given. Each code is taken once: that of a time step only when
//! none of this step or of a later one was taken before. Secrets are sealed, recovery codes stored as hashes.

mod totp;

use crate::audit::{Actor, PendingEntry};
use crate::identity::access::Operation;
use crate::{Caller, Core, Error, Result, random};
use estrade_model::audit::Action;
use estrade_model::secret::Secret;
use estrade_model::{AccountId, Timestamp};
use estrade_store::Tx;
use estrade_store::second_factors::{self, SecondFactorRow};
use std::sync::Arc;
use std::time::Duration;
use zeroize::Zeroizing;

/// How many recovery codes there are at first.
const RECOVERY_CODES: usize = 10;
/// How long a secret that was shown is shown again before the first code.
const ENROLLMENT_LIFETIME: Duration = Duration::from_mins(30);
/// The name that an authenticator app shows.
const ISSUER: &str = "Estrade";

/// A secret on its way to an authenticator app.
#[derive(Debug, Clone)]
pub struct Enrollment {
    /// The secret in base 32, to be typed.
    pub secret: Secret,
    /// The same as an `otpauth://` URL, to be scanned.
    pub url: Secret,
}

/// What an account has.
#[derive(Debug, Clone, Copy)]
pub struct Status {
    /// Since when a second factor is in force.
    pub enabled_at: Option<Timestamp>,
    /// How many recovery codes are left.
    pub recovery_codes: u64,
}

/// What a secret is sealed for.
fn purpose(account: AccountId) -> String {
    format!("second factor:{account}")
}

fn open_secret(core: &Core, account: AccountId, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>> {
    core.master.open(&purpose(account), sealed)
}

/// The account of a caller who may change how it signs in.
fn require_to_change(core: &Core, caller: &Caller) -> Result<AccountId> {
    let account = caller.require(Operation::WriteAccount)?;
    caller.require_recent(core)?;
    Ok(account)
}

/// A secret for the caller's authenticator app; 409 while a factor is in force.
///
/// Until the first code, or for half an hour, the same one again: the form may be shown once more.
pub async fn begin(core: &Core, caller: &Caller) -> Result<Enrollment> {
    let (account, now) = (require_to_change(core, caller)?, core.now());
    let fresh = random::bytes::<{ totp::SECRET_BYTES }>().map(Zeroizing::new)?;
    let sealed: Arc<[u8]> = core.master.seal(&purpose(account), &fresh[..])?.into();
    let stored = core.db.transact(move |tx| {
        let sealed = Arc::clone(&sealed);
        Box::pin(async move {
            let before = second_factors::find_factor(tx, account).await?;
            if before.as_ref().is_some_and(|row| row.enabled_at.is_some()) {
                return Err(Error::conflict(
                    "second_factor_enabled",
                    "this account has a second factor; remove it first",
                ));
            }
            let is_young = |row: &SecondFactorRow| row.created_at.after(ENROLLMENT_LIFETIME) > now;
            if let Some(row) = before.filter(is_young) {
                return Ok(row.sealed_secret);
            }
            second_factors::set_pending_factor(tx, account, &sealed, now).await?;
            Ok(sealed.to_vec())
        })
    });
    let secret = open_secret(core, account, &stored.await?)?;
    let text = totp::in_base32(&secret);
    Ok(Enrollment {
        url: Secret(totp::url(ISSUER, &caller.email, &text)),
        secret: Secret(text),
    })
}

/// Puts the caller's factor in force with its first code; returns the recovery codes, which are shown once.
///
/// Wrong codes are not counted: who gives one was shown the secret.
pub async fn enable(core: &Core, caller: &Caller, otp: &str) -> Result<Vec<Secret>> {
    let (account, now) = (require_to_change(core, caller)?, core.now());
    let pending = second_factors::read_factor(&core.db, account).await?;
    let pending = pending.ok_or_else(not_begun)?;
    let secret = open_secret(core, account, &pending.sealed_secret)?;
    let step = totp::find_step(&secret, otp, now).ok_or(Error::WrongSecondFactor)?;
    let codes = make_recovery_codes()?;
    let hashes = hash_all(account, &codes);
    let sealed: Arc<[u8]> = pending.sealed_secret.into();
    let own = account.cast();
    let note = PendingEntry::of(core, caller, own, Action::EnableSecondFactor, account)?;
    let note = note.about(&caller.email);
    core.db
        .transact(move |tx| {
            let (hashes, sealed) = (Arc::clone(&hashes), Arc::clone(&sealed));
            let note = note.clone();
            Box::pin(async move {
                let stored = second_factors::find_factor(tx, account).await?;
                let stored = stored.filter(|row| row.sealed_secret == *sealed);
                let stored = stored.ok_or_else(not_begun)?;
                if stored.enabled_at.is_some()
                    || !second_factors::take_step(tx, account, step).await?
                {
                    return Err(Error::WrongSecondFactor);
                }
                second_factors::enable_factor(tx, account, now).await?;
                note.write(tx).await?;
                Ok(second_factors::set_recovery_codes(tx, account, &hashes).await?)
            })
        })
        .await?;
    Ok(codes)
}

fn not_begun() -> Error {
    Error::conflict(
        "second_factor_not_begun",
        "no second factor is being set up; begin again",
    )
}

/// Ends the caller's second factor; 404 when there is none.
pub async fn disable(core: &Core, caller: &Caller) -> Result<()> {
    let account = require_to_change(core, caller)?;
    remove_by(core, account, Actor::caller(caller)).await
}

/// Ends the second factor of any account, for the administrator's command line; 404 when there is none.
pub async fn remove(core: &Core, account: AccountId) -> Result<()> {
    remove_by(core, account, Actor::command_line()).await
}

async fn remove_by(core: &Core, account: AccountId, actor: Actor) -> Result<()> {
    let (own, now) = (account.cast(), core.now());
    let note = PendingEntry::by(actor, own, Action::DisableSecondFactor, account, now)?;
    core.db
        .transact(move |tx| {
            let note = note.clone();
            Box::pin(async move {
                if !second_factors::delete_factor(tx, account).await? {
                    return Err(Error::NotFound("the second factor"));
                }
                note.write(tx).await
            })
        })
        .await
}

/// New recovery codes in place of the old ones, which end; 404 without a second factor.
pub async fn new_recovery_codes(core: &Core, caller: &Caller) -> Result<Vec<Secret>> {
    let account = require_to_change(core, caller)?;
    let codes = make_recovery_codes()?;
    let hashes = hash_all(account, &codes);
    let own = account.cast();
    let note = PendingEntry::of(core, caller, own, Action::ReplaceRecoveryCodes, account)?;
    let note = note.about(&caller.email);
    core.db
        .transact(move |tx| {
            let (hashes, note) = (Arc::clone(&hashes), note.clone());
            Box::pin(async move {
                if !second_factors::is_enabled(tx, account).await? {
                    return Err(Error::NotFound("the second factor"));
                }
                note.write(tx).await?;
                Ok(second_factors::set_recovery_codes(tx, account, &hashes).await?)
            })
        })
        .await?;
    Ok(codes)
}

/// Whether an account has a second factor, and how many recovery codes are left.
pub async fn status(core: &Core, account: AccountId) -> Result<Status> {
    let factor = second_factors::read_factor(&core.db, account).await?;
    Ok(Status {
        enabled_at: factor.and_then(|factor| factor.enabled_at),
        recovery_codes: second_factors::count_recovery_codes(&core.db, account).await?,
    })
}

pub(crate) async fn is_enabled(core: &Core, account: AccountId) -> Result<bool> {
    let factor = second_factors::read_factor(&core.db, account).await?;
    Ok(factor.is_some_and(|factor| factor.enabled_at.is_some()))
}

/// Whether a text is a code of an authenticator app by its looks. No password is so short.
pub(crate) fn is_code(text: &str) -> bool {
    totp::parse(text).is_some()
}

/// Takes a code or a recovery code of an account's second factor, which cannot be taken again.
pub(crate) async fn take_code(core: &Core, account: AccountId, otp: &str) -> Result<()> {
    let factor = second_factors::read_factor(&core.db, account).await?;
    let factor = factor.filter(|factor| factor.enabled_at.is_some());
    let factor = factor.ok_or(Error::WrongSecondFactor)?;
    let secret = open_secret(core, account, &factor.sealed_secret)?;
    let step = totp::find_step(&secret, otp, core.now());
    let recovery = parse_recovery_code(otp).map(|plain| hash_code(account, &plain));
    let sealed: Arc<[u8]> = factor.sealed_secret.into();
    let taken = core.db.transact(move |tx| {
        let sealed = Arc::clone(&sealed);
        Box::pin(async move {
            // Another factor may have taken its place.
            let stored = second_factors::find_factor(tx, account).await?;
            if stored.is_none_or(|row| row.enabled_at.is_none() || row.sealed_secret != *sealed) {
                return Ok(false);
            }
            take(tx, account, step, recovery).await
        })
    });
    if taken.await? {
        return Ok(());
    }
    Err(Error::WrongSecondFactor)
}

async fn take(
    tx: &mut Tx,
    account: AccountId,
    step: Option<i64>,
    recovery: Option<[u8; 32]>,
) -> Result<bool> {
    if let Some(step) = step {
        return Ok(second_factors::take_step(tx, account, step).await?);
    }
    let Some(hash) = recovery else {
        return Ok(false);
    };
    Ok(second_factors::take_recovery_code(tx, account, hash).await?)
}

/// Characters of a recovery code: 80 bits, so that its hash cannot be guessed backwards.
const RECOVERY_CODE_LENGTH: usize = 16;
/// Characters between two hyphens of a recovery code.
const GROUP_LENGTH: usize = 4;

fn make_recovery_codes() -> Result<Vec<Secret>> {
    let make = |_| {
        let text = totp::in_base32(&random::bytes::<10>()?).to_lowercase();
        let groups: Vec<_> = text
            .as_bytes()
            .chunks(GROUP_LENGTH)
            .map(String::from_utf8_lossy)
            .collect();
        Ok(Secret(groups.join("-")))
    };
    (0..RECOVERY_CODES).map(make).collect()
}

/// A recovery code without what people add to it; none when it cannot be one.
fn parse_recovery_code(text: &str) -> Option<String> {
    let is_filler = |c: char| c == '-' || c.is_whitespace();
    let code: String = text
        .chars()
        .filter(|c| !is_filler(*c))
        .take(RECOVERY_CODE_LENGTH + 1)
        .collect();
    (code.len() == RECOVERY_CODE_LENGTH && code.is_ascii()).then(|| code.to_ascii_lowercase())
}

fn hash_code(account: AccountId, code: &str) -> [u8; 32] {
    blake3::derive_key(
        "estrade recovery code",
        format!("{account}\n{code}").as_bytes(),
    )
}

fn hash_all(account: AccountId, codes: &[Secret]) -> Arc<[[u8; 32]]> {
    let codes = codes
        .iter()
        .filter_map(|code| parse_recovery_code(code.expose()));
    codes.map(|code| hash_code(account, &code)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recovery_codes_are_read_as_people_type_them() {
        let codes = make_recovery_codes().unwrap();
        assert_eq!(codes.len(), RECOVERY_CODES);
        for code in &codes {
            let text = code.expose();
            assert_eq!(text.len(), 19, "{text}");
            let plain = text.replace('-', "");
            assert_eq!(parse_recovery_code(text).as_deref(), Some(plain.as_str()));
            let typed = format!(" {} ", plain.to_uppercase());
            assert_eq!(parse_recovery_code(&typed).as_deref(), Some(plain.as_str()));
        }
        for bad in ["", "abcd", "abcd-efgh-ijkl-mnopq", "äbcd-efgh-ijkl-mno"] {
            assert_eq!(parse_recovery_code(bad), None, "{bad}");
        }
    }
}
