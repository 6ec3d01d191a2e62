//! Logging in with an address and a password.
//!
//! Password guessing is throttled, without locking accounts. Failures are summed up per account, per
//! network, and per account and network together; each sum decays by half in [`HALF_LIFE`]. Beyond an
//! allowance, each further failure doubles the delay until the next attempt (429). On a network from
//! which the account has logged in before, only the failures for that account from that very network
//! count: guessing from elsewhere does not slow down the account's owner.
//!
//! An attempt is counted before its password is checked, and taken back when the password is right; so
//! concurrent attempts cannot slip past together. An account that does not exist is counted, checked
//! and refused like one that does: a login does not reveal which accounts exist.
//!
//! Codes of second factors are counted as passwords are. The token API and the account panel sign people in
//! through [`Logins::verify`] alone.

mod attempt;
mod gate;
mod refusals;

pub(crate) use attempt::{
    Attempt, FAILURE_RETENTION, Guess, MAX_SUMS, NETWORK_RETENTION, network_of,
};

use crate::identity::access::Origin;
use crate::identity::passwords::{self, LoginProof};
use crate::identity::{second_factor, tokens};
use crate::{Core, Error, Result};
use estrade_model::account::{LoggedIn, Login};
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_store::accounts::{self, AccountRow, PasswordRow};
use futures_util::future::BoxFuture;
use gate::LoginGate;
use refusals::Refusals;
use std::net::IpAddr;
use std::sync::Arc;

/// Logs people in, a bounded number at once.
pub struct Logins {
    core: Arc<Core>,
    gate: LoginGate,
    refusals: Refusals,
}

/// A person who gave everything that was asked for. The try counts as failed until [`Attempt::succeed`].
pub(crate) struct Verified {
    pub(crate) proof: LoginProof,
    pub(crate) attempt: Attempt,
}

/// How a password was.
pub(crate) enum Verification {
    /// Right, and so is the second factor if there is one.
    Complete(Verified),
    /// Right, but the account has a second factor, whose code is missing.
    CodeMissing(PasswordRow),
}

impl Logins {
    /// Without a login under way.
    pub fn new(core: &Arc<Core>) -> Self {
        Self {
            core: Arc::clone(core),
            gate: LoginGate::default(),
            refusals: Refusals::default(),
        }
    }

    /// Checks a password, and a code when there is a second factor, and makes a token for the account.
    pub fn log_in(&self, address: IpAddr, login: Login) -> BoxFuture<'_, Result<LoggedIn>> {
        let core = &self.core;
        Box::pin(async move {
            let otp = login.otp.as_ref().map(Secret::expose);
            let verified = self.verify(address, &login.email, login.password, otp);
            let Verified { proof, attempt } = match verified.await? {
                Verification::Complete(verified) => verified,
                Verification::CodeMissing(_) => return Err(Error::SecondFactorRequired),
            };
            let id = proof.account;
            let account = accounts::account_by_id(&core.db, id)
                .await?
                .ok_or(Error::WrongCredentials)?;
            let origin = origin_of(address);
            let token = tokens::create_session(core, proof, &account.email, origin).await?;
            attempt.succeed(core, id).await?;
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

    /// Checks a password, and a code when there is a second factor.
    pub(crate) async fn verify(
        &self,
        address: IpAddr,
        email: &str,
        password: Secret,
        otp: Option<&str>,
    ) -> Result<Verification> {
        let core = &self.core;
        let attempt = Attempt::new(core, address, email).await?;
        let turn = self.gate.enter(attempt.network, attempt.known)?;
        attempt.record(core).await?;
        let checked = check_password(core, email, password, attempt.known).await;
        self.note_refusal(&checked, email, address);
        let row = checked?;
        drop(turn);
        let factor = second_factor::is_enabled(core, row.account).await?;
        match otp {
            None if factor => {
                attempt.take_back(core).await?;
                return Ok(Verification::CodeMissing(row));
            }
            Some(otp) if factor => {
                let taken = second_factor::take_code(core, row.account, otp).await;
                self.note_refusal(&taken, email, address);
                taken?;
            }
            _ => {}
        }
        let proof = LoginProof::new(&row, factor);
        Ok(Verification::Complete(Verified { proof, attempt }))
    }

    /// Checks a code of an account's second factor on its own; for who has given the password before.
    pub(crate) async fn verify_code(
        &self,
        address: IpAddr,
        account: &AccountRow,
        code: &str,
    ) -> Result<Attempt> {
        let attempt = Attempt::new(&self.core, address, &account.email).await?;
        attempt.record(&self.core).await?;
        let taken = second_factor::take_code(&self.core, account.id, code).await;
        self.note_refusal(&taken, &account.email, address);
        taken?;
        Ok(attempt)
    }

    /// Checks the password of an account, or a recovery code: for who is signed in and asked again.
    pub(crate) async fn verify_again(
        &self,
        address: IpAddr,
        account: &AccountRow,
        secret: Secret,
    ) -> Result<Attempt> {
        if second_factor::is_code(secret.expose()) {
            return self.verify_code(address, account, secret.expose()).await;
        }
        let core = &self.core;
        let attempt = Attempt::new(core, address, &account.email).await?;
        let turn = self.gate.enter(attempt.network, attempt.known)?;
        attempt.record(core).await?;
        let recovery = secret.clone();
        let checked = check_password(core, &account.email, secret, attempt.known).await;
        drop(turn);
        let checked = match checked {
            Err(Error::WrongCredentials) => {
                let taken = second_factor::take_code(core, account.id, recovery.expose());
                taken.await.map_err(|error| match error {
                    Error::WrongSecondFactor => Error::WrongCredentials,
                    other => other,
                })
            }
            other => other.map(drop),
        };
        self.note_refusal(&checked, &account.email, address);
        checked?;
        Ok(attempt)
    }
}

impl Logins {
    /// Remembers a wrong password or code for the audit log.
    fn note_refusal<T>(&self, checked: &Result<T>, typed: &str, address: IpAddr) {
        if let Err(Error::WrongCredentials | Error::WrongSecondFactor) = checked {
            let now = self.core.now();
            self.refusals.note(typed, origin_of(address), now);
        }
    }

    /// Writes refused sign-ins into the audit logs of their accounts; called every few seconds and at the end.
    pub async fn flush_refusals(&self) -> Result<()> {
        self.refusals.flush(&self.core).await
    }
}

/// Where somebody signs in from.
pub(crate) fn origin_of(address: IpAddr) -> Origin {
    Origin {
        address: Some(address),
        request: None,
    }
}

async fn check_password(
    core: &Core,
    typed: &str,
    password: Secret,
    known: bool,
) -> Result<PasswordRow> {
    let stored = match typed.parse::<Email>() {
        Ok(email) => accounts::password_by_email(&core.db, email.as_str()).await?,
        Err(_) => None,
    };
    let hash = stored.as_ref().and_then(|row| row.hash.clone());
    let fits = passwords::verify(password, hash, known).await?;
    match stored {
        Some(row) if fits && !row.disabled => Ok(row),
        _ => Err(Error::WrongCredentials),
    }
}
