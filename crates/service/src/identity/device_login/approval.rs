//! The person's side of a login of the command line: what waits for a code, and the answer.
//!
//! Only a session of the panel answers, never a token: what approves makes a token, so that it asks for a recent
//! sign-in as the page of tokens does. Wrong codes are counted for the account, as wrong passwords are.

use super::{REDEMPTION_LIFETIME, hash_user_code, token_name};
use crate::audit::PendingEntry;
use crate::identity::access::{Operation, require_visible_project};
use crate::identity::login::{Guess, network_of};
use crate::identity::tokens::require_room;
use crate::{Caller, Core, Error, Result};
use estrade_model::audit::Action;
use estrade_model::device_login::UserCode;
use estrade_model::token_scope::TokenScope;
use estrade_model::{AccountId, SessionId, Timestamp};
use estrade_store::device_codes::{self, Approval, WaitingLogin};
use estrade_store::{projects, sessions};
use std::net::IpAddr;

/// A login that waits, as its person sees it. The texts are what the client says of itself: anybody may send any.
#[derive(Debug, Clone)]
pub struct LoginRequest {
    pub host: String,
    pub user_agent: String,
    /// Where it was begun.
    pub address: String,
    pub created_at: Timestamp,
    pub scope: TokenScope,
    /// The name of the project that the scope is for.
    pub project: Option<String>,
    /// Whether the caller has approved it, and its client has not got the token yet.
    pub approved: bool,
}

impl LoginRequest {
    /// Whether it was begun in the network of this address. Machines change their addresses of IPv6 within it.
    pub fn is_from_network_of(&self, address: IpAddr) -> bool {
        let begun: Option<IpAddr> = self.address.parse().ok();
        begun.map(network_of) == Some(network_of(address))
    }
}

/// The login that waits for a code that somebody typed; one that the caller approved, too, until its client has the
/// token: it can still be denied.
pub async fn find_login(core: &Core, caller: &Caller, typed: &str) -> Result<LoginRequest> {
    let (account, _) = require_session(caller)?;
    caller.require_recent(core)?;
    let waiting = find_waiting(core, account, typed).await?;
    let project = match waiting.scope.project() {
        None => None,
        Some(id) => {
            core.db
                .transact(move |tx| {
                    Box::pin(async move {
                        require_visible_project(tx, account, id).await?;
                        Ok::<_, Error>(projects::find_name(tx, id).await?)
                    })
                })
                .await?
        }
    };
    Ok(LoginRequest {
        host: waiting.host,
        user_agent: waiting.user_agent,
        address: waiting.address,
        created_at: waiting.created_at,
        scope: waiting.scope,
        project,
        approved: waiting.account.is_some(),
    })
}

/// Lets the client that waits for this code have a token of the caller's account.
pub async fn approve(core: &Core, caller: &Caller, typed: &str) -> Result<()> {
    let (account, session) = require_session(caller)?;
    caller.require_recent(core)?;
    let waiting = find_waiting(core, account, typed).await?;
    let note = note(core, caller, Action::ApproveLogin, &waiting)?;
    let (quota, now) = (core.settings.quotas.tokens, core.now());
    let approval = Approval {
        account,
        session,
        at: now,
        expires_at: now.after(REDEMPTION_LIFETIME),
    };
    core.db
        .transact(move |tx| {
            let note = note.clone();
            Box::pin(async move {
                // A session that was ended meanwhile approves nothing.
                if !sessions::has_session(tx, account, session).await? {
                    return Err(Error::Unauthenticated);
                }
                require_room(tx, account, quota, now).await?;
                if let Some(project) = waiting.scope.project() {
                    require_visible_project(tx, account, project).await?;
                }
                if !device_codes::approve(tx, waiting.id, approval).await? {
                    return Err(unknown());
                }
                note.write(tx).await
            })
        })
        .await
}

/// Tells the client that waits for this code that it gets nothing, and takes the caller's approval back.
pub async fn deny(core: &Core, caller: &Caller, typed: &str) -> Result<()> {
    let (account, _) = require_session(caller)?;
    let waiting = find_waiting(core, account, typed).await?;
    let note = note(core, caller, Action::DenyLogin, &waiting)?;
    let now = core.now();
    core.db
        .transact(move |tx| {
            let note = note.clone();
            Box::pin(async move {
                if !device_codes::deny(tx, waiting.id, account, now).await? {
                    return Err(unknown());
                }
                note.write(tx).await
            })
        })
        .await
}

/// The account and the session of a person at the panel; a token of any scope is refused.
fn require_session(caller: &Caller) -> Result<(AccountId, SessionId)> {
    let account = caller.require(Operation::WriteTokens)?;
    let session = caller.credential.session().ok_or_else(|| {
        Error::Forbidden("only a person who is signed in to the panel answers a login".into())
    })?;
    Ok((account, session))
}

async fn find_waiting(core: &Core, account: AccountId, typed: &str) -> Result<WaitingLogin> {
    // What cannot be a code finds nothing, so it is no guess.
    let user_code: UserCode = typed.parse().map_err(|_| unknown())?;
    let guess = Guess::new(account);
    guess.record(core).await?;
    let hash = hash_user_code(&user_code);
    let found = device_codes::find_waiting(&core.db, hash, account, core.now()).await?;
    let found = found.ok_or_else(unknown)?;
    guess.take_back(core).await?;
    Ok(found)
}

fn note(
    core: &Core,
    caller: &Caller,
    action: Action,
    login: &WaitingLogin,
) -> Result<PendingEntry> {
    let note = PendingEntry::of(core, caller, caller.account.cast(), action, login.id)?;
    let note = note.about(&token_name(&login.host));
    Ok(note.detail(format!("{}, begun at {}", login.scope, login.address)))
}

/// The same whether the code is wrong, has expired, or was answered before.
fn unknown() -> Error {
    Error::Invalid {
        code: "unknown_code",
        message: "no login waits for this code: compare it with the one that your command line shows. It is good for \
                  ten minutes and for one answer"
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_same_network_is_not_elsewhere() {
        for (begun, browser, is_same) in [
            ("2001:db8:1:2::5", "2001:db8:1:2:8a2e:370:7334:1", true),
            ("2001:db8:1:2::5", "2001:db8:1:3::5", false),
            ("192.0.2.1", "::ffff:192.0.2.1", true),
            ("192.0.2.1", "192.0.2.2", false),
            ("", "192.0.2.2", false),
        ] {
            let request = LoginRequest {
                host: String::new(),
                user_agent: String::new(),
                address: begun.to_owned(),
                created_at: Timestamp::from_millis(0),
                scope: TokenScope::Full,
                project: None,
                approved: false,
            };
            let browser = browser.parse().unwrap();
            assert_eq!(request.is_from_network_of(browser), is_same, "{begun}");
        }
    }
}
