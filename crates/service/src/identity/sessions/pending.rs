//! A sign-in between its password and its second factor.

use crate::{Core, Error, Result};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::secret::Secret;
use estrade_model::{AccountId, Timestamp};
use estrade_store::accounts::{self, PasswordRow};
use std::time::Duration;

/// How long the code may take.
const LIFETIME: Duration = Duration::from_mins(5);
/// What it is sealed for.
const PURPOSE: &str = "pending sign-in";
/// Longer than any that we made.
const MAX_BYTES: usize = 256;

/// Says that the right password was given, for the form that asks for the code. Sealed: nobody makes one up, and
/// it says nothing. It ends with the password.
#[derive(Debug, Clone)]
pub struct PendingSignIn(pub Secret);

impl PendingSignIn {
    pub(super) fn new(core: &Core, row: &PasswordRow) -> Result<Self> {
        let expires_at = core.now().after(LIFETIME).millis();
        let mut plain = Vec::with_capacity(52);
        plain.extend_from_slice(row.account.as_bytes());
        plain.extend_from_slice(&expires_at.to_be_bytes());
        plain.extend_from_slice(&mark(row));
        let sealed = core.master.seal(PURPOSE, &plain)?;
        Ok(Self(Secret(URL_SAFE_NO_PAD.encode(sealed))))
    }

    /// The account whose password was given, unless it was changed since or it took too long.
    pub(super) async fn open(core: &Core, text: &str) -> Result<PasswordRow> {
        let (account, expires_at, marked) = parse(core, text).ok_or(Error::Unauthenticated)?;
        if expires_at <= core.now() {
            return Err(Error::Unauthenticated);
        }
        let row = accounts::password_by_id(&core.db, account).await?;
        let row = row.filter(|row| !row.disabled && mark(row) == marked);
        row.ok_or(Error::Unauthenticated)
    }
}

fn parse(core: &Core, text: &str) -> Option<(AccountId, Timestamp, [u8; 32])> {
    if text.len() > MAX_BYTES {
        return None;
    }
    let sealed = URL_SAFE_NO_PAD.decode(text).ok()?;
    let plain = core.master.open(PURPOSE, &sealed).ok()?;
    let (account, rest) = plain.split_first_chunk::<12>()?;
    let (expires_at, rest) = rest.split_first_chunk::<8>()?;
    let marked = rest.try_into().ok()?;
    let expires_at = Timestamp::from_millis(i64::from_be_bytes(*expires_at));
    Some((AccountId::from_bytes(*account), expires_at, marked))
}

/// Changes with the password.
fn mark(row: &PasswordRow) -> [u8; 32] {
    let hash = row.hash.as_deref().unwrap_or_default();
    blake3::derive_key("estrade pending sign-in", hash.as_bytes())
}
