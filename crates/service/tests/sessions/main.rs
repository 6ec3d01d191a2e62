//! Sessions of the account panel: made, used, listed, ended.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod recent_sign_in;
#[path = "../accounts_support/mod.rs"]
mod support;

use estrade_model::SessionId;
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_service::identity::accounts::{self, EndedTokens};
use estrade_service::identity::login::Logins;
use estrade_service::identity::sessions::{Client, NewSession, Sessions, SignIn, SignedIn};
use estrade_service::identity::tokens::{self, TokenRequest};
use estrade_service::{Caller, Core, Credential, Error, Result, Settings};
use estrade_store::StoreError;
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Installation, on_both_backends};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

const RIGHT: &str = "correct horse";
const ADA: &str = "ada@example.com";

on_both_backends! {
    a_sign_in_makes_a_session_with_its_device_and_address
    a_cookie_that_is_not_exactly_right_is_refused
    wrong_passwords_are_counted_together_with_those_of_the_api
    a_session_that_is_revoked_is_refused_at_once
    a_revocation_reaches_other_nodes_within_a_second
    what_outlives_its_request_ends_with_its_credential
    a_session_of_others_is_not_found
    all_other_sessions_end_and_the_own_one_stays
    a_session_ends_when_it_is_not_used_and_when_it_is_old
    a_session_that_is_used_on_another_node_does_not_become_idle
    a_session_is_listed_with_the_address_that_it_was_last_used_from
    a_new_password_ends_the_sessions
    who_changes_the_password_stays_signed_in
    a_disabled_account_is_signed_out_at_once
    an_account_has_a_hundred_sessions_and_the_oldest_ends
    a_sign_in_does_not_outrun_a_change_of_the_password
    a_session_makes_tokens_only_while_it_lasts
    revoking_every_token_ends_sessions_too
}

fn client() -> Client {
    Client {
        address: "192.0.2.1".parse().unwrap(),
        user_agent: "Firefox on a boat".into(),
    }
}

async fn try_sign_in(sessions: &Sessions, password: &str) -> Result<SignIn> {
    let password = Secret(password.into());
    sessions.sign_in(ADA, password, None, &client()).await
}

async fn sign_in(sessions: &Sessions) -> NewSession {
    match try_sign_in(sessions, RIGHT).await.unwrap() {
        SignIn::Done(session) => session,
        SignIn::SecondFactorRequired(_) => panic!("there is no second factor"),
    }
}

async fn enter(sessions: &Sessions, session: &NewSession) -> Result<SignedIn> {
    sessions
        .authenticate(session.secret.expose(), &client())
        .await
}

fn assert_refused<T: std::fmt::Debug>(answer: &Result<T>) {
    assert!(matches!(answer, Err(Error::Unauthenticated)), "{answer:?}");
}

/// Another server on the same database; the feed of changes ends with the token.
async fn another_node(at: &Installation) -> (Arc<Core>, Sessions, JoinSet<()>, CancellationToken) {
    let core = at.another_core(Settings::default()).await;
    let sessions = Sessions::new(&core, &Arc::new(Logins::new(&core)));
    let (mut tasks, stop) = (JoinSet::new(), CancellationToken::new());
    tasks.spawn(estrade_store::changes::follow(
        core.db.clone(),
        stop.clone(),
    ));
    (core, sessions, tasks, stop)
}

async fn a_sign_in_makes_a_session_with_its_device_and_address(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let hostile = Client {
        address: "::ffff:192.0.2.7".parse().unwrap(),
        user_agent: format!("a\u{0}b\n{}", "ü".repeat(1000)),
    };
    let made = sessions.sign_in("Ada@Example.com", Secret(RIGHT.into()), None, &hostile);
    let SignIn::Done(made) = made.await.unwrap() else {
        panic!("there is no second factor");
    };
    let text = made.secret.expose();
    assert_eq!(text.len(), 24 + 1 + 43, "{text}");
    let signed_in = enter(sessions, &made).await.unwrap();
    assert_eq!(signed_in.caller.account, ada.account);
    assert_eq!(signed_in.session, made.id);
    assert_eq!(signed_in.caller.credential.session(), Some(made.id));
    assert_eq!(signed_in.caller.origin.address, Some(client().address));
    signed_in.caller.require_recent(&at.core).unwrap();
    let timeless = Caller {
        authenticated_at: None,
        ..signed_in.caller.clone()
    };
    let refused = timeless.require_recent(&at.core);
    assert!(matches!(refused, Err(Error::ConfirmationRequired)));
    let listed = sessions.list(ada.account, None, 50).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].id, made.id);
    assert_eq!(listed[0].address, "192.0.2.7");
    assert_eq!(listed[0].user_agent, format!("ab{}", "ü".repeat(254)));
    // Neither the cookie nor its hash is in what a log could show.
    let secret = text.split_once('.').unwrap().1;
    let hash = format!("{:?}", signed_in.secret_hash);
    for shown in [
        format!("{made:?}"),
        format!("{signed_in:?}"),
        format!("{listed:?}"),
    ] {
        assert!(!shown.contains(secret) && !shown.contains(&hash), "{shown}");
    }
}

async fn a_cookie_that_is_not_exactly_right_is_refused(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let (one, other) = (sign_in(sessions).await, sign_in(sessions).await);
    let (id, secret) = one.secret.expose().split_once('.').unwrap();
    let unknown: SessionId = "0123456789abcdef01234567".parse().unwrap();
    for bad in [
        String::new(),
        ".".into(),
        id.into(),
        secret.into(),
        format!("{id}."),
        format!("{id}.{secret}x"),
        format!("{id}.{}", secret.to_uppercase()),
        format!("{}.{secret}", other.id),
        format!("{}.{secret}", id.to_uppercase()),
        format!("{unknown}.{secret}"),
        "ä".repeat(5000),
    ] {
        assert_refused(&sessions.authenticate(&bad, &client()).await);
    }
    enter(sessions, &one).await.unwrap();
}

async fn wrong_passwords_are_counted_together_with_those_of_the_api(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let wrong = "x".repeat(2000);
    for number in 0..10 {
        let answer = if number % 2 == 0 {
            try_sign_in(&at.services.sessions, &wrong).await.map(drop)
        } else {
            let login = estrade_model::account::Login {
                email: ADA.into(),
                password: Secret(wrong.clone()),
                otp: None,
            };
            let logins = &at.services.logins;
            logins.log_in(client().address, login).await.map(drop)
        };
        assert!(matches!(answer, Err(Error::WrongCredentials)), "{answer:?}");
    }
    let answer = try_sign_in(&at.services.sessions, RIGHT).await;
    assert!(matches!(answer, Err(Error::RateLimited(_))), "{answer:?}");
}

async fn a_session_that_is_revoked_is_refused_at_once(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let (one, other) = (sign_in(sessions).await, sign_in(sessions).await);
    let caller = enter(sessions, &one).await.unwrap().caller;
    let gone = enter(sessions, &other).await.unwrap().caller;
    at.services.check_again(&gone).await.unwrap();
    sessions.revoke(&caller, other.id).await.unwrap();
    assert_refused(&enter(sessions, &other).await);
    assert_refused(&at.services.check_again(&gone).await);
    let again = sessions.revoke(&caller, other.id).await;
    assert!(matches!(again, Err(Error::NotFound(_))), "{again:?}");
    enter(sessions, &one).await.unwrap();
    sessions.sign_out(&caller).await.unwrap();
    sessions.sign_out(&caller).await.unwrap();
    assert_refused(&enter(sessions, &one).await);
}

async fn a_revocation_reaches_other_nodes_within_a_second(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let here = &at.services.sessions;
    let (core, there, mut tasks, stop) = another_node(at).await;
    for _ in 0..3 {
        let session = sign_in(here).await;
        let caller = enter(&there, &session).await.unwrap().caller;
        here.revoke(&caller, session.id).await.unwrap();
        let revoked = Instant::now();
        while enter(&there, &session).await.is_ok() {
            let waited = revoked.elapsed();
            assert!(waited < Duration::from_secs(1), "{waited:?}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    stop.cancel();
    tasks.join_next().await;
    core.db.close().unwrap();
}

async fn what_outlives_its_request_ends_with_its_credential(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let (one, other) = (sign_in(sessions).await, sign_in(sessions).await);
    let caller = enter(sessions, &one).await.unwrap().caller;
    let ended = at.services.credential_ended(&at.core.db, &caller);
    let mut ended = std::pin::pin!(ended);
    let brief = Duration::from_millis(100);
    sessions.revoke(&caller, other.id).await.unwrap();
    assert!(tokio::time::timeout(brief, &mut ended).await.is_err());
    sessions.revoke(&caller, one.id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(1), ended)
        .await
        .unwrap();

    let made = tokens::create_any_token(
        &at.core,
        ada.account,
        TokenRequest::full("ci", Lifetime(None)),
    )
    .await;
    let id = made.unwrap().id;
    let caller = Caller {
        credential: Credential::Token(id),
        ..ada
    };
    let ended = at.services.credential_ended(&at.core.db, &caller);
    let mut ended = std::pin::pin!(ended);
    assert!(tokio::time::timeout(brief, &mut ended).await.is_err());
    tokens::delete_token(&at.core, &caller, id).await.unwrap();
    tokio::time::timeout(Duration::from_secs(1), ended)
        .await
        .unwrap();
}

async fn a_session_of_others_is_not_found(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let eve = at.person_with("eve", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    let answer = sessions.revoke(&eve, session.id).await;
    assert!(matches!(answer, Err(Error::NotFound(_))), "{answer:?}");
    assert_eq!(sessions.revoke_others(&eve).await.unwrap(), 0);
    assert!(
        sessions
            .list(eve.account, None, 50)
            .await
            .unwrap()
            .is_empty()
    );
    enter(sessions, &session).await.unwrap();
}

async fn all_other_sessions_end_and_the_own_one_stays(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let own = sign_in(sessions).await;
    let others = [sign_in(sessions).await, sign_in(sessions).await];
    for session in &others {
        enter(sessions, session).await.unwrap();
    }
    let caller = enter(sessions, &own).await.unwrap().caller;
    assert_eq!(sessions.revoke_others(&caller).await.unwrap(), 2);
    for session in &others {
        assert_refused(&enter(sessions, session).await);
    }
    enter(sessions, &own).await.unwrap();
}

async fn a_session_ends_when_it_is_not_used_and_when_it_is_old(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let (sessions, clock) = (&at.services.sessions, &at.core.clock);
    let listed = async || sessions.list(ada.account, None, 50).await.unwrap().len();
    let idle = sign_in(sessions).await;
    clock.advance(Duration::from_hours(12) - Duration::from_secs(10));
    enter(sessions, &idle).await.unwrap();
    // The use counts before it is written down, and after.
    clock.advance(Duration::from_hours(11));
    enter(sessions, &idle).await.unwrap();
    sessions.flush_touches().await.unwrap();
    assert_eq!(listed().await, 1);
    clock.advance(Duration::from_hours(12));
    assert_refused(&enter(sessions, &idle).await);
    assert_eq!(listed().await, 0);

    let old = sign_in(sessions).await;
    for _ in 0..71 {
        clock.advance(Duration::from_hours(10));
        enter(sessions, &old).await.unwrap();
    }
    sessions.flush_touches().await.unwrap();
    assert_eq!(listed().await, 1);
    clock.advance(Duration::from_hours(10));
    assert_refused(&enter(sessions, &old).await);
    assert_eq!(listed().await, 0);
}

async fn a_session_is_listed_with_the_address_that_it_was_last_used_from(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let (sessions, clock) = (&at.services.sessions, &at.core.clock);
    let session = sign_in(sessions).await;
    let listed = async || sessions.list(ada.account, None, 50).await.unwrap();
    let signed_in_at = listed().await[0].created_at;
    assert_eq!(listed().await[0].address, "192.0.2.1");
    clock.advance(Duration::from_mins(2));
    let elsewhere = Client {
        address: "::ffff:198.51.100.9".parse().unwrap(),
        ..client()
    };
    let secret = session.secret.expose();
    sessions.authenticate(secret, &elsewhere).await.unwrap();
    sessions.flush_touches().await.unwrap();
    let row = &listed().await[0];
    assert_eq!(row.address, "198.51.100.9");
    assert_eq!(row.created_at, signed_in_at);
    assert!(row.last_seen_at >= signed_in_at.after(Duration::from_mins(2)));
}

async fn a_session_that_is_used_on_another_node_does_not_become_idle(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let here = &at.services.sessions;
    let core = at.another_core(Settings::default()).await;
    let there = Sessions::new(&core, &Arc::new(Logins::new(&core)));
    let session = sign_in(here).await;
    enter(here, &session).await.unwrap();
    for _ in 0..2 {
        at.core.clock.advance(Duration::from_hours(7));
        core.clock.advance(Duration::from_hours(7));
        enter(&there, &session).await.unwrap();
        there.flush_touches().await.unwrap();
    }
    enter(here, &session).await.unwrap();
    core.db.close().unwrap();
}

async fn a_new_password_ends_the_sessions(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    enter(sessions, &session).await.unwrap();
    let email = ADA.parse().unwrap();
    let new = Secret("battery staple".into());
    let ended = accounts::set_password(&at.core, &email, new, EndedTokens::Sessions).await;
    assert_eq!(ended.unwrap(), 1);
    assert_refused(&enter(sessions, &session).await);
}

async fn who_changes_the_password_stays_signed_in(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let (own, other) = (sign_in(sessions).await, sign_in(sessions).await);
    let caller = enter(sessions, &own).await.unwrap().caller;
    let ended = enter(sessions, &other).await.unwrap().caller;
    let change = async |caller: &Caller, text: &str| {
        accounts::change_password(&at.core, caller, Secret(text.into())).await
    };
    let short = change(&caller, "short").await;
    assert!(matches!(short, Err(Error::Invalid { .. })), "{short:?}");
    enter(sessions, &other).await.unwrap();
    change(&caller, "battery staple").await.unwrap();
    enter(sessions, &own).await.unwrap();
    assert_refused(&enter(sessions, &other).await);
    assert_refused(&change(&ended, "another password").await);
    let old = try_sign_in(sessions, RIGHT).await;
    assert!(matches!(old, Err(Error::WrongCredentials)), "{old:?}");
    try_sign_in(sessions, "battery staple").await.unwrap();
}

async fn a_disabled_account_is_signed_out_at_once(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    enter(sessions, &session).await.unwrap();
    let email = ADA.parse().unwrap();
    accounts::disable_account(&at.core, &email).await.unwrap();
    assert_refused(&enter(sessions, &session).await);
    let answer = try_sign_in(sessions, RIGHT).await;
    assert!(matches!(answer, Err(Error::WrongCredentials)), "{answer:?}");
}

async fn an_account_has_a_hundred_sessions_and_the_oldest_ends(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let first = sign_in(sessions).await;
    enter(sessions, &first).await.unwrap();
    let now = at.core.now();
    let row = move |number: u32| estrade_store::sessions::NewSession {
        id: format!("f{number:023x}").parse().unwrap(),
        account: ada.account,
        secret_hash: [0; 32],
        created_at: now,
        address: String::new(),
        user_agent: String::new(),
    };
    let fill = at.core.db.transact(move |tx| {
        Box::pin(async move {
            for number in 0..99 {
                estrade_store::sessions::insert_session(tx, &row(number)).await?;
            }
            Ok::<_, StoreError>(())
        })
    });
    fill.await.unwrap();
    enter(sessions, &first).await.unwrap();
    sign_in(sessions).await;
    assert_refused(&enter(sessions, &first).await);
    let listed = sessions.list(ada.account, None, 1000).await.unwrap();
    assert_eq!(listed.len(), 100);
    let page = sessions.list(ada.account, Some(listed[9].id), 20).await;
    let ids = |rows: &[estrade_service::identity::sessions::SessionRow]| -> Vec<_> {
        rows.iter().map(|row| row.id).collect()
    };
    assert_eq!(ids(&page.unwrap()), ids(&listed[10..30]));
}

async fn a_sign_in_does_not_outrun_a_change_of_the_password(at: &Installation) {
    at.person_with("ada", Some("password 0")).await;
    let (sessions, email) = (&at.services.sessions, ADA.parse().unwrap());
    for round in 0..8 {
        let (old, new) = (
            format!("password {round}"),
            format!("password {}", round + 1),
        );
        let (made, changed) = tokio::join!(
            try_sign_in(sessions, &old),
            accounts::set_password(&at.core, &email, Secret(new), EndedTokens::Sessions),
        );
        changed.unwrap();
        if let Ok(SignIn::Done(session)) = made {
            assert_refused(&enter(sessions, &session).await);
        }
    }
}

async fn a_session_makes_tokens_only_while_it_lasts(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    let caller = enter(sessions, &session).await.unwrap().caller;
    let create = async || {
        tokens::create_token(&at.core, &caller, TokenRequest::full("ci", Lifetime(None))).await
    };
    create().await.unwrap();
    // The request was authenticated before the session was ended.
    sessions.revoke(&caller, session.id).await.unwrap();
    assert_refused(&create().await);
}

async fn revoking_every_token_ends_sessions_too(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let sessions = &at.services.sessions;
    let session = sign_in(sessions).await;
    enter(sessions, &session).await.unwrap();
    tokens::revoke_all_tokens(&at.core, None).await.unwrap();
    assert_refused(&enter(sessions, &session).await);
}
