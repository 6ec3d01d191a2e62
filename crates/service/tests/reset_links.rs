//! Links that set a password: one use, within an hour.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::AccountId;
use estrade_model::names::Email;
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_service::audit::list_entries;
use estrade_service::bootstrap::ADMIN;
use estrade_service::gc::rows::sweep;
use estrade_service::identity::access::scope_of;
use estrade_service::identity::credentials::AccountTokens;
use estrade_service::identity::reset_links::{self, FirstPassword, LinkKind};
use estrade_service::identity::sessions::{Client, SignIn};
use estrade_service::identity::tokens::{TokenRequest, create_any_token};
use estrade_service::identity::{accounts, second_factor};
use estrade_service::{Caller, Error, Origin, Result};
use estrade_store::accounts::account_by_email;
use estrade_store::audit::AuditFilter;
use std::time::Duration;
use support::{Installation, on_both_backends};
use tokio_util::sync::CancellationToken;

const OLD: &str = "correct horse";
const NEW: &str = "battery staple";

on_both_backends! {
    a_link_sets_a_password_once_and_signs_everybody_out
    a_reset_ends_every_token_and_the_first_password_none
    a_link_is_looked_at_without_being_used_up
    a_password_that_is_refused_leaves_the_link_good
    unknown_used_and_expired_links_look_alike
    a_new_link_ends_the_older_one
    a_password_that_was_set_in_another_way_ends_the_link
    two_at_once_use_a_link_once
    a_disabled_account_has_no_links
    only_administrators_make_links
    the_first_account_gets_its_link_once
    what_has_ended_is_removed
    only_a_hash_is_stored
}

fn client() -> Client {
    Client {
        address: "192.0.2.1".parse().unwrap(),
        user_agent: "Firefox".into(),
    }
}

async fn sign_in(at: &Installation, email: &str, password: &str) -> Result<SignIn> {
    let (sessions, password) = (&at.services.sessions, Secret(password.into()));
    sessions.sign_in(email, password, None, &client()).await
}

async fn link(at: &Installation, person: &Caller) -> Secret {
    let made = reset_links::create_any_reset_link(&at.core, person.account).await;
    made.unwrap()
}

async fn use_link(at: &Installation, code: &Secret, password: &str) -> Result<String> {
    let password = Secret(password.into());
    reset_links::use_reset_link(&at.core, code.expose(), password, client().origin()).await
}

fn assert_not_found<T: std::fmt::Debug>(answer: &Result<T>) {
    let not_found = matches!(answer, Err(Error::NotFound("the link")));
    assert!(not_found, "{answer:?}");
}

async fn a_link_sets_a_password_once_and_signs_everybody_out(at: &Installation) {
    let ada = at.person_with("ada", Some(OLD)).await;
    let Ok(SignIn::Done(session)) = sign_in(at, &ada.email, OLD).await else {
        unreachable!("not signed in");
    };
    let code = link(at, &ada).await;
    let url = reset_links::url(&at.core, LinkKind::Reset, &code);
    let expected = format!("http://127.0.0.1:3000/panel/reset/{}", code.expose());
    assert_eq!(url.expose(), expected);
    assert_eq!(use_link(at, &code, NEW).await.unwrap(), ada.email);
    let sessions = &at.services.sessions;
    let ended = sessions
        .authenticate(session.secret.expose(), &client())
        .await;
    assert!(ended.is_err());
    assert!(sign_in(at, &ada.email, OLD).await.is_err());
    sign_in(at, &ada.email, NEW).await.unwrap();
    assert_not_found(&use_link(at, &code, "a third password").await);
    sign_in(at, &ada.email, NEW).await.unwrap();
}

async fn token(at: &Installation, account: AccountId) -> Secret {
    let new = TokenRequest::full("ci", Lifetime(None));
    let made = create_any_token(&at.core, account, new).await.unwrap();
    made.api_token.unwrap()
}

async fn a_reset_ends_every_token_and_the_first_password_none(at: &Installation) {
    let tokens = AccountTokens::new(&at.core);
    let is_good = async |token: &Secret| {
        let caller = tokens.authenticate(token.expose(), Origin::default()).await;
        caller.is_ok()
    };
    let admin: Email = ADMIN.parse().unwrap();
    let root = accounts::find_account(&at.core, &admin).await.unwrap();
    let of_root = token(at, root.id).await;
    let first = reset_links::create_welcome_link(&at.core, &admin).await;
    let FirstPassword::Link(code) = first.unwrap() else {
        unreachable!("a new installation has no password");
    };
    use_link(at, &code, NEW).await.unwrap();
    assert!(is_good(&of_root).await, "what the first start made");

    let eve = at.person("eve").await;
    let of_eve = token(at, eve.account).await;
    let made = reset_links::create_any_reset_link(&at.core, root.id).await;
    assert!(is_good(&of_root).await, "the link alone ends nothing");
    use_link(at, &made.unwrap(), OLD).await.unwrap();
    assert!(!is_good(&of_root).await);
    assert!(is_good(&of_eve).await);

    // Both entries say from where.
    let reader = Caller {
        account: root.id,
        ..eve
    };
    let scope = scope_of(&at.core, reader, None).await.unwrap();
    let filter = AuditFilter {
        action: "account.password".parse().unwrap(),
        ..AuditFilter::default()
    };
    let entries = list_entries(&at.core, &scope, &filter, None, 10, 0);
    let entries = entries.await.unwrap();
    let addresses: Vec<_> = entries
        .iter()
        .map(|entry| entry.address.as_deref())
        .collect();
    assert_eq!(addresses, [Some("192.0.2.1"); 2]);
}

async fn a_link_is_looked_at_without_being_used_up(at: &Installation) {
    let ada = at.person("ada").await;
    let code = link(at, &ada).await;
    for _ in 0..3 {
        let seen = reset_links::peek(&at.core, code.expose()).await.unwrap();
        let seen = seen.unwrap();
        assert_eq!(
            (seen.email, seen.kind),
            (ada.email.clone(), LinkKind::Reset)
        );
    }
    use_link(at, &code, NEW).await.unwrap();
    assert!(
        reset_links::peek(&at.core, code.expose())
            .await
            .unwrap()
            .is_none()
    );
}

async fn a_password_that_is_refused_leaves_the_link_good(at: &Installation) {
    let ada = at.person("ada").await;
    let code = link(at, &ada).await;
    let short = use_link(at, &code, "short").await;
    assert!(matches!(short, Err(Error::Invalid { .. })), "{short:?}");
    use_link(at, &code, NEW).await.unwrap();
}

async fn unknown_used_and_expired_links_look_alike(at: &Installation) {
    let ada = at.person_with("ada", Some(OLD)).await;
    let used = link(at, &ada).await;
    use_link(at, &used, NEW).await.unwrap();
    let expired = link(at, &ada).await;
    at.core.clock.advance(Duration::from_hours(1));
    let long = Secret("A".repeat(100_000));
    for code in [
        used,
        expired,
        long,
        Secret(String::new()),
        Secret("ä\0".into()),
    ] {
        let seen = reset_links::peek(&at.core, code.expose()).await;
        assert!(seen.unwrap().is_none());
        assert_not_found(&use_link(at, &code, "a third password").await);
        // Not even whether the password would do.
        assert_not_found(&use_link(at, &code, "short").await);
    }
    sign_in(at, &ada.email, NEW).await.unwrap();
}

async fn a_new_link_ends_the_older_one(at: &Installation) {
    let (ada, eve) = (at.person("ada").await, at.person("eve").await);
    let (older, of_eve) = (link(at, &ada).await, link(at, &eve).await);
    let newer = link(at, &ada).await;
    assert_not_found(&use_link(at, &older, NEW).await);
    assert_eq!(use_link(at, &newer, NEW).await.unwrap(), ada.email);
    assert_eq!(use_link(at, &of_eve, NEW).await.unwrap(), eve.email);
}

async fn a_password_that_was_set_in_another_way_ends_the_link(at: &Installation) {
    let ada = at.person_with("ada", Some(OLD)).await;
    let code = link(at, &ada).await;
    accounts::change_password(&at.core, &ada, Secret(NEW.into()))
        .await
        .unwrap();
    assert_not_found(&use_link(at, &code, "a third password").await);
}

async fn two_at_once_use_a_link_once(at: &Installation) {
    let ada = at.person("ada").await;
    for round in 0..5 {
        let code = link(at, &ada).await;
        let passwords = [format!("password {round} a"), format!("password {round} b")];
        let (one, other) = tokio::join!(
            use_link(at, &code, &passwords[0]),
            use_link(at, &code, &passwords[1]),
        );
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        let winner = if one.is_ok() {
            &passwords[0]
        } else {
            &passwords[1]
        };
        sign_in(at, &ada.email, winner).await.unwrap();
        assert_not_found(if one.is_ok() { &other } else { &one });
    }
}

async fn a_disabled_account_has_no_links(at: &Installation) {
    let ada = at.person_with("ada", Some(OLD)).await;
    let code = link(at, &ada).await;
    let email: Email = ada.email.parse().unwrap();
    accounts::disable_account(&at.core, &email).await.unwrap();
    assert_not_found(&use_link(at, &code, NEW).await);
    let made = reset_links::create_any_reset_link(&at.core, ada.account).await;
    assert!(matches!(made, Err(Error::Conflict { .. })), "{made:?}");
}

async fn only_administrators_make_links(at: &Installation) {
    let (ada, eve) = (at.person("ada").await, at.person("eve").await);
    let refused = reset_links::create_reset_link(&at.core, &eve, ada.account).await;
    assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
    // That somebody is no administrator any more is found out by the transaction.
    let former = Caller { admin: true, ..eve };
    let refused = reset_links::create_reset_link(&at.core, &former, ada.account).await;
    assert!(matches!(refused, Err(Error::Forbidden(_))), "{refused:?}");
    let root = account_by_email(&at.core.db, ADMIN).await.unwrap().unwrap();
    let root = Caller {
        account: root.id,
        admin: true,
        ..former
    };
    let code = reset_links::create_reset_link(&at.core, &root, ada.account).await;
    use_link(at, &code.unwrap(), NEW).await.unwrap();
    let unknown = "0123456789abcdef01234567".parse().unwrap();
    let unknown = reset_links::create_reset_link(&at.core, &root, unknown).await;
    assert!(matches!(unknown, Err(Error::NotFound(_))), "{unknown:?}");
}

async fn the_first_account_gets_its_link_once(at: &Installation) {
    let admin: Email = ADMIN.parse().unwrap();
    let first = async || {
        reset_links::create_welcome_link(&at.core, &admin)
            .await
            .unwrap()
    };
    let FirstPassword::Link(code) = first().await else {
        unreachable!("a new installation has no password");
    };
    assert!(reset_links::path(LinkKind::Welcome, &code).starts_with("/panel/welcome/"));
    let seen = reset_links::peek(&at.core, code.expose()).await.unwrap();
    assert_eq!(seen.unwrap().kind, LinkKind::Welcome);
    assert!(matches!(first().await, FirstPassword::LinkWasShown));
    // That it was shown is known after it has expired, too.
    at.core.clock.advance(Duration::from_hours(2));
    sweep(&at.core, &CancellationToken::new()).await;
    assert!(matches!(first().await, FirstPassword::LinkWasShown));
    assert_not_found(&use_link(at, &code, NEW).await);
    let root = accounts::find_account(&at.core, &admin).await.unwrap();
    let made = reset_links::create_any_reset_link(&at.core, root.id).await;
    assert_eq!(use_link(at, &made.unwrap(), NEW).await.unwrap(), ADMIN);
    assert!(matches!(first().await, FirstPassword::Exists));
    let status = second_factor::status(&at.core, root.id).await.unwrap();
    assert!(status.enabled_at.is_none());
}

async fn what_has_ended_is_removed(at: &Installation) {
    let (ada, eve) = (at.person("ada").await, at.person("eve").await);
    link(at, &ada).await;
    at.core.clock.advance(Duration::from_mins(59));
    let kept = link(at, &eve).await;
    at.core.clock.advance(Duration::from_mins(1));
    sweep(&at.core, &CancellationToken::new()).await;
    let count = at.core.db.read("SELECT COUNT(*) FROM reset_links");
    assert_eq!(count.fetch_one::<u64>().await.unwrap(), 1);
    use_link(at, &kept, NEW).await.unwrap();
}

async fn only_a_hash_is_stored(at: &Installation) {
    let ada = at.person("ada").await;
    let code = link(at, &ada).await;
    assert!(!format!("{code:?}").contains(code.expose()));
    let stored = at.core.db.read("SELECT secret_hash FROM reset_links");
    let stored: Vec<u8> = stored.fetch_one().await.unwrap();
    assert_eq!(stored.len(), 32);
    assert!(stored != code.expose().as_bytes()[..32]);
}
