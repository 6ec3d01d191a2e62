//! What changes who gets in asks for the password again when the sign-in is old.

use crate::support::{Installation, on_both_backends};
use crate::{RIGHT, assert_refused, client, enter, sign_in};
use estrade_model::TeamId;
use estrade_model::secret::Secret;
use estrade_model::team::{CreateTeam, Invite, Role};
use estrade_model::time::Lifetime;
use estrade_service::audit::list_entries;
use estrade_service::identity::access::scope_of;
use estrade_service::identity::accounts;
use estrade_service::identity::invitations::create_invitation;
use estrade_service::identity::members::set_role;
use estrade_service::identity::reset_links::create_reset_link;
use estrade_service::identity::second_factor;
use estrade_service::identity::teams::create_team;
use estrade_service::identity::tokens::{self, TokenRequest};
use estrade_service::{Caller, Error, Result};
use estrade_store::audit::AuditFilter;
use std::time::Duration;

on_both_backends! {
    the_password_is_asked_for_again_after_ten_minutes
    an_old_sign_in_changes_nothing_about_who_gets_in
    who_confirms_with_a_wrong_password_is_counted
}

async fn the_password_is_asked_for_again_after_ten_minutes(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let (sessions, core) = (&at.services.sessions, &at.core);
    let session = sign_in(sessions).await;
    let is_recent = async || {
        let signed_in = enter(sessions, &session).await.unwrap();
        signed_in.caller.require_recent(core).is_ok()
    };
    core.clock.advance(Duration::from_mins(9));
    assert!(is_recent().await);
    core.clock.advance(Duration::from_mins(1));
    assert!(!is_recent().await);
    let signed_in = enter(sessions, &session).await.unwrap();
    let confirm = async |text: &str| {
        let secret = Secret(text.into());
        sessions.confirm(&signed_in, secret, &client()).await
    };
    let wrong = confirm("wrong horse").await;
    assert!(matches!(wrong, Err(Error::WrongCredentials)), "{wrong:?}");
    assert!(!is_recent().await);
    confirm(RIGHT).await.unwrap();
    assert!(is_recent().await);
    sessions
        .revoke(&signed_in.caller, session.id)
        .await
        .unwrap();
    assert_refused(&confirm(RIGHT).await);
}

async fn who_confirms_with_a_wrong_password_is_counted(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    let signed_in = enter(sessions, &session).await.unwrap();
    let caller = &signed_in.caller;
    let mut answers = Vec::new();
    for number in 0..11 {
        // What looks like a code counts as well.
        let text = if number % 2 == 0 { "123456" } else { "12345" };
        let secret = Secret(text.into());
        answers.push(sessions.confirm(&signed_in, secret, &client()).await);
    }
    let last = answers.pop().unwrap();
    assert!(matches!(last, Err(Error::RateLimited(_))), "{last:?}");
    for answer in answers {
        let refused = matches!(
            answer,
            Err(Error::WrongCredentials | Error::WrongSecondFactor)
        );
        assert!(refused, "{answer:?}");
    }
    at.services.logins.flush_refusals().await.unwrap();
    let scope = scope_of(&at.core, caller.clone(), None).await.unwrap();
    let filter = AuditFilter {
        action: "session.refuse".parse().unwrap(),
        ..AuditFilter::default()
    };
    let noted = list_entries(&at.core, &scope, &filter, None, 50, 0).await;
    assert_eq!(noted.unwrap().len(), 10);
}

/// What nobody may do with a browser that was left open, and how it ends.
async fn change_who_gets_in(
    at: &Installation,
    caller: &Caller,
    team: TeamId,
) -> Vec<(&'static str, &'static str)> {
    let core = &at.core;
    let outcome = |done: Result<()>| done.map_or_else(|error| error.code(), |()| "ok");
    let new_token = TokenRequest::full("ci", Lifetime(None));
    let invite = Invite {
        email: "new@example.com".parse().unwrap(),
        role: Role::Viewer,
    };
    let (email, name) = (
        "other@example.com".parse().unwrap(),
        "Other".parse().unwrap(),
    );
    let own = caller.account;
    vec![
        (
            "a token",
            outcome(
                tokens::create_token(core, caller, new_token)
                    .await
                    .map(drop),
            ),
        ),
        (
            "an invitation",
            outcome(
                create_invitation(core, caller, team, invite)
                    .await
                    .map(drop),
            ),
        ),
        (
            "a role",
            outcome(set_role(core, caller, team, own, Role::Owner).await),
        ),
        (
            "a secret",
            outcome(second_factor::begin(core, caller).await.map(drop)),
        ),
        (
            "an account",
            outcome(
                accounts::create_account_by(core, caller, email, name, true)
                    .await
                    .map(drop),
            ),
        ),
        (
            "an account that is let in",
            outcome(
                accounts::set_disabled_by(core, caller, own, false)
                    .await
                    .map(drop),
            ),
        ),
        (
            "a reset link",
            outcome(create_reset_link(core, caller, own).await.map(drop)),
        ),
        (
            "a password",
            outcome(accounts::change_password(core, caller, Secret(RIGHT.into())).await),
        ),
    ]
}

async fn an_old_sign_in_changes_nothing_about_who_gets_in(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let made = at.core.db.transact(|tx| {
        let sql = "UPDATE accounts SET admin = TRUE WHERE email = 'ada@example.com'";
        Box::pin(async move { tx.query(sql).execute().await })
    });
    made.await.unwrap();
    let new = CreateTeam {
        name: "The Analysts".parse().unwrap(),
    };
    let team = create_team(&at.core, &ada, new).await.unwrap().id;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    at.core.clock.advance(Duration::from_mins(10));
    let stale = enter(sessions, &session).await.unwrap();
    for (what, code) in change_who_gets_in(at, &stale.caller, team).await {
        assert_eq!(code, "confirmation_required", "{what}");
    }
    for refused in [
        second_factor::enable(&at.core, &stale.caller, "123456")
            .await
            .map(drop),
        second_factor::disable(&at.core, &stale.caller).await,
        second_factor::new_recovery_codes(&at.core, &stale.caller)
            .await
            .map(drop),
    ] {
        assert_eq!(refused.unwrap_err().code(), "confirmation_required");
    }
    // What only shuts people out is not held up.
    sessions.revoke_others(&stale.caller).await.unwrap();
    let secret = Secret(RIGHT.into());
    sessions.confirm(&stale, secret, &client()).await.unwrap();
    let fresh = enter(sessions, &session).await.unwrap();
    for (what, code) in change_who_gets_in(at, &fresh.caller, team).await {
        assert_eq!(code, "ok", "{what}");
    }
}
