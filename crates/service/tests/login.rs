//! Logging in, and how many guesses anyone has.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::account::{LoggedIn, Login};
use estrade_model::secret::Secret;
use estrade_model::time::Lifetime;
use estrade_model::token_scope::TokenScope;
use estrade_service::identity::accounts::EndedTokens;
use estrade_service::identity::credentials::AccountTokens;
use estrade_service::identity::login::Logins;
use estrade_service::identity::tokens::{TokenRequest, create_any_token};
use estrade_service::{
    Caller, Core, Credential, Error, Origin, Result, Settings, identity::accounts, identity::tokens,
};
use estrade_store::StoreError;
use estrade_store::tokens::{NewToken, insert_token};
use std::sync::Arc;
use std::time::Duration;
use support::{Installation, on_both_backends};
use tokio::task::JoinSet;

const RIGHT: &str = "correct horse";

on_both_backends! {
    the_right_password_makes_a_token_that_works
    wrong_unknown_and_disabled_look_alike
    two_hundred_guesses_at_once_get_ten_tries
    an_unknown_account_has_the_same_limit
    the_wait_doubles_and_ends
    others_do_not_slow_down_who_has_logged_in_before
    a_clock_that_went_back_locks_nobody_out
    an_account_that_is_attacked_opens_from_elsewhere_within_a_minute
    a_success_forgives_only_its_own_try
    an_address_has_fifty_tries_whatever_the_account
    zero_switches_the_limits_off
    a_changed_password_ends_sessions_and_by_choice_all_tokens
    a_login_does_not_outrun_a_change_of_the_password
    a_revoked_token_makes_no_other_one
    tokens_have_a_quota_and_the_oldest_session_ends
    a_flood_from_one_network_leaves_room_for_others
}

async fn try_from_address(
    logins: &Logins,
    ip: &str,
    email: &str,
    password: &str,
) -> Result<LoggedIn> {
    let login = Login {
        email: email.into(),
        password: Secret(password.into()),
        otp: None,
    };
    logins.log_in(ip.parse().unwrap(), login).await
}

async fn try_login(logins: &Logins, email: &str, password: &str) -> Result<LoggedIn> {
    try_from_address(logins, "192.0.2.1", email, password).await
}

fn assert_wrong(answer: &Result<LoggedIn>) {
    assert!(matches!(answer, Err(Error::WrongCredentials)), "{answer:?}");
}

fn assert_limited(answer: &Result<LoggedIn>) {
    match answer {
        Err(Error::RateLimited(wait)) => {
            assert!((1..=900).contains(&wait.as_secs()), "{wait:?}");
        }
        other => panic!("{other:?}"),
    }
}

async fn the_right_password_makes_a_token_that_works(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let answer = try_login(&at.services.logins, "Ada@Example.com", RIGHT)
        .await
        .unwrap();
    assert_eq!(
        (answer.email.as_str(), answer.fullname.as_str()),
        ("ada@example.com", "ada")
    );
    let caller = AccountTokens::new(&at.core)
        .authenticate(answer.api_token.expose(), Origin::default())
        .await
        .unwrap();
    assert_eq!(caller.account, ada.account);
    let listed = tokens::list_any_tokens(&at.core, ada.account, None, 10, 0)
        .await
        .unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].name, "login");
    let month = Duration::from_hours(30 * 24);
    assert_eq!(
        listed[0].expires_at,
        Some(listed[0].created_at.after(month))
    );
}

async fn wrong_unknown_and_disabled_look_alike(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    at.person_with("bob", Some(RIGHT)).await;
    at.person("tokens-only").await;
    accounts::disable_account(&at.core, &"bob@example.com".parse().unwrap())
        .await
        .unwrap();
    for (email, password) in [
        ("ada@example.com", "wrong horse"),
        ("ada@example.com", ""),
        ("bob@example.com", RIGHT),
        ("tokens-only@example.com", ""),
        ("nobody@example.com", RIGHT),
        ("not an address", RIGHT),
        ("a\0@example.com", RIGHT),
        ("", ""),
    ] {
        assert_wrong(&try_login(&at.services.logins, email, password).await);
    }
}

/// What 200 guesses at once were answered: (tried, refused).
async fn guess_at_once(core: &Arc<Core>, email: &'static str) -> (usize, usize) {
    let (logins, mut guesses) = (Arc::new(Logins::new(core)), JoinSet::new());
    for number in 0..200 {
        let logins = Arc::clone(&logins);
        guesses.spawn(async move {
            // Each from an address of its own, as a botnet would.
            let ip = format!("198.51.100.{number}");
            try_from_address(&logins, &ip, email, "a guess").await
        });
    }
    let (mut tried, mut refused) = (0, 0);
    for answer in guesses.join_all().await {
        match answer {
            Err(Error::WrongCredentials) => tried += 1,
            Err(Error::RateLimited(_)) => refused += 1,
            other => panic!("{other:?}"),
        }
    }
    (tried, refused)
}

async fn two_hundred_guesses_at_once_get_ten_tries(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let (tried, refused) = guess_at_once(&at.core, "ada@example.com").await;
    // A slow machine may take so long that the first waits are over.
    assert!((10..=13).contains(&tried), "{tried}");
    assert_eq!(tried + refused, 200);
}

async fn an_unknown_account_has_the_same_limit(at: &Installation) {
    let (tried, refused) = guess_at_once(&at.core, "nobody@example.com").await;
    assert!((10..=13).contains(&tried), "{tried}");
    assert_eq!(tried + refused, 200);
}

/// Longer than any password can be: not worth hashing, so the tests are quick.
fn wrong() -> String {
    "x".repeat(2000)
}

/// Fails until the next try would have to wait for so long; says how long the waits were. `guess` is
/// from where and for whom.
async fn fail_until(at: &Installation, guess: impl Fn(u32) -> [String; 2], least: u64) -> Vec<u64> {
    let mut waits = Vec::new();
    for number in 0..500 {
        let [ip, email] = guess(number);
        match try_from_address(&at.services.logins, &ip, &email, &wrong()).await {
            Err(Error::WrongCredentials) => {}
            Err(Error::RateLimited(wait)) => {
                waits.push(wait.as_secs());
                if wait.as_secs() >= least {
                    return waits;
                }
                at.core.clock.advance(wait);
            }
            other => panic!("{other:?}"),
        }
    }
    panic!("never had to wait for {least} s: {waits:?}");
}

async fn the_wait_doubles_and_ends(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    for email in ["ada@example.com", "nobody@example.com"] {
        let guess = |_| ["192.0.2.7".into(), email.to_owned()];
        let waits = fail_until(at, guess, 200).await;
        assert!(waits.is_sorted(), "{waits:?}");
        assert!((8..=10).contains(&waits.len()), "{waits:?}");
    }
    // Not even the right password opens it now, and another spelling is no way round.
    let from = async |email| try_from_address(&at.services.logins, "192.0.2.7", email, RIGHT).await;
    assert_limited(&from("ADA@example.COM").await);
    let Err(Error::RateLimited(wait)) = from("ada@example.com").await else {
        panic!("not limited");
    };
    // Repeating when told to must work.
    at.core.clock.advance(wait);
    from("ada@example.com").await.unwrap();
}

async fn a_clock_that_went_back_locks_nobody_out(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    assert_wrong(&try_login(&at.services.logins, "ada@example.com", "wrong").await);
    let ahead = at.core.db.transact(|tx| {
        Box::pin(async move {
            let all = tx.query("UPDATE login_failures SET last_at = last_at + 86400000");
            all.execute().await
        })
    });
    assert!(ahead.await.unwrap() > 0);
    try_login(&at.services.logins, "ada@example.com", RIGHT)
        .await
        .unwrap();
}

async fn others_do_not_slow_down_who_has_logged_in_before(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let home = async || try_login(&at.services.logins, "ada@example.com", RIGHT).await;
    home().await.unwrap();
    // A botnet guesses her password, and a neighbour those of others.
    let ada = || "ada@example.com".to_owned();
    let botnet = |number| [format!("198.51.100.{}", number % 256), ada()];
    fail_until(at, botnet, 30).await;
    home().await.unwrap();
    let address = || "192.0.2.1".to_owned();
    let neighbour = |number| [address(), format!("nobody{number}@example.com")];
    fail_until(at, neighbour, 100).await;
    assert_limited(&try_login(&at.services.logins, "eve@example.com", RIGHT).await);
    home().await.unwrap();
    // A guesser in her own network is slowed down there, and only there.
    fail_until(at, |_| [address(), ada()], 30).await;
    assert_limited(&home().await);
}

async fn an_account_that_is_attacked_opens_from_elsewhere_within_a_minute(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let ada = || "ada@example.com".to_owned();
    let botnet = |number: u32| [format!("2001:db8:{number:x}::1"), ada()];
    fail_until(at, botnet, 60).await;
    let away =
        async || try_from_address(&at.services.logins, "192.0.2.9", "ada@example.com", RIGHT).await;
    let Err(Error::RateLimited(wait)) = away().await else {
        panic!("not limited");
    };
    assert!(wait <= Duration::from_mins(1), "{wait:?}");
    at.core.clock.advance(wait);
    away().await.unwrap();
}

async fn a_success_forgives_only_its_own_try(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let ada = "ada@example.com";
    try_login(&at.services.logins, ada, RIGHT).await.unwrap();
    for _ in 0..9 {
        assert_wrong(&try_login(&at.services.logins, ada, &wrong()).await);
    }
    for _ in 0..3 {
        try_login(&at.services.logins, ada, RIGHT).await.unwrap();
    }
    assert_wrong(&try_login(&at.services.logins, ada, &wrong()).await);
    assert_limited(&try_login(&at.services.logins, ada, &wrong()).await);
}

async fn an_address_has_fifty_tries_whatever_the_account(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let wrong = wrong();
    for number in 0..50 {
        let ip = format!("2001:db8::{number:x}");
        let email = format!("nobody{number}@example.com");
        assert_wrong(&try_from_address(&at.services.logins, &ip, &email, &wrong).await);
    }
    let from = async |ip| try_from_address(&at.services.logins, ip, "ada@example.com", RIGHT).await;
    assert_limited(&from("2001:db8::ffff:1").await);
    from("2001:db8:0:1::1").await.expect("another network");
}

async fn zero_switches_the_limits_off(at: &Installation) {
    let settings = Settings {
        login_failures_per_account: 0,
        login_failures_per_address: 0,
        ..Settings::default()
    };
    let logins = Logins::new(&at.another_core(settings).await);
    let wrong = wrong();
    for _ in 0..60 {
        assert_wrong(&try_login(&logins, "ada@example.com", &wrong).await);
    }
}

async fn is_live(tokens: &AccountTokens, token: &Secret) -> bool {
    tokens
        .authenticate(token.expose(), Origin::default())
        .await
        .is_ok()
}

async fn a_changed_password_ends_sessions_and_by_choice_all_tokens(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let bob = at.person_with("bob", Some(RIGHT)).await;
    let email = "ada@example.com".parse().unwrap();
    let tokens = AccountTokens::new(&at.core);
    let make = async |person: &Caller| {
        let made = create_any_token(
            &at.core,
            person.account,
            TokenRequest::full("ci", Lifetime(None)),
        )
        .await;
        made.unwrap().api_token.unwrap()
    };
    let (ci, other) = (make(&ada).await, make(&bob).await);
    let session = try_login(&at.services.logins, "ada@example.com", RIGHT)
        .await
        .unwrap();
    for token in [&ci, &other, &session.api_token] {
        assert!(is_live(&tokens, token).await);
    }
    let new = || Secret("battery staple".into());
    let ended = accounts::set_password(&at.core, &email, new(), EndedTokens::Sessions).await;
    assert_eq!(ended.unwrap(), 1);
    assert!(!is_live(&tokens, &session.api_token).await);
    assert!(is_live(&tokens, &ci).await);
    let ended = accounts::set_password(&at.core, &email, new(), EndedTokens::All).await;
    assert_eq!(ended.unwrap(), 1);
    assert!(!is_live(&tokens, &ci).await);
    assert!(is_live(&tokens, &other).await);
}

async fn a_login_does_not_outrun_a_change_of_the_password(at: &Installation) {
    at.person_with("ada", Some("password 0")).await;
    let email = "ada@example.com".parse().unwrap();
    let tokens = AccountTokens::new(&at.core);
    for round in 0..8 {
        let (old, new) = (
            format!("password {round}"),
            format!("password {}", round + 1),
        );
        let (login, changed) = tokio::join!(
            try_login(&at.services.logins, "ada@example.com", &old),
            accounts::set_password(&at.core, &email, Secret(new), EndedTokens::Sessions),
        );
        changed.unwrap();
        if let Ok(login) = login {
            assert!(!is_live(&tokens, &login.api_token).await);
        }
    }
}

async fn a_revoked_token_makes_no_other_one(at: &Installation) {
    let ada = at.person("ada").await;
    let made = create_any_token(
        &at.core,
        ada.account,
        TokenRequest::full("ci", Lifetime(None)),
    )
    .await;
    // The caller was authenticated before the token was revoked.
    let caller = Caller {
        credential: Credential::Token(made.unwrap().id),
        ..ada
    };
    tokens::create_token(
        &at.core,
        &caller,
        TokenRequest::full("more", Lifetime(None)),
    )
    .await
    .unwrap();
    let ended = tokens::revoke_all_tokens(&at.core, Some(caller.account)).await;
    assert_eq!(ended.unwrap(), 2);
    let late = tokens::create_token(
        &at.core,
        &caller,
        TokenRequest::full("late", Lifetime(None)),
    )
    .await;
    assert!(matches!(late, Err(Error::Unauthenticated)), "{late:?}");
}

async fn tokens_have_a_quota_and_the_oldest_session_ends(at: &Installation) {
    let mut settings = Settings::default();
    settings.quotas.tokens = 2;
    let core = at.another_core(settings).await;
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let hour = Lifetime(Some(Duration::from_hours(1)));
    let first = create_any_token(&core, ada.account, TokenRequest::full("first", hour)).await;
    let caller = Caller {
        credential: Credential::Token(first.unwrap().id),
        ..ada.clone()
    };
    let create =
        async || tokens::create_token(&core, &caller, TokenRequest::full("more", hour)).await;
    create().await.unwrap();
    let refused = create().await;
    assert!(
        matches!(refused, Err(Error::Quota { what: "tokens", .. })),
        "{refused:?}"
    );
    // Those that have ended do not count.
    core.clock.advance(Duration::from_hours(2));
    create().await.unwrap();

    let now = core.now();
    let sessions = move |number: u32| NewToken {
        id: format!("{number:024x}").parse().unwrap(),
        account: ada.account,
        name: "login".into(),
        scope: TokenScope::Full,
        secret_hash: [0; 32],
        created_at: now,
        expires_at: None,
        session: true,
    };
    core.db
        .transact(move |tx| {
            Box::pin(async move {
                for number in 0..100 {
                    insert_token(tx, &sessions(number)).await?;
                }
                Ok::<_, StoreError>(())
            })
        })
        .await
        .unwrap();
    let logins = Logins::new(&core);
    try_login(&logins, "ada@example.com", RIGHT).await.unwrap();
    let listed = tokens::list_any_tokens(&core, ada.account, None, 1000, 0).await;
    let listed = listed.unwrap();
    let logins = listed.iter().filter(|token| token.name == "login");
    let ids: Vec<_> = logins.map(|token| token.id.to_string()).collect();
    assert_eq!(ids.len(), 100);
    assert!(!ids.contains(&format!("{:024x}", 0)), "the oldest stayed");
}

async fn a_flood_from_one_network_leaves_room_for_others(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    let mut flood = JoinSet::new();
    for number in 0..40 {
        let logins = Arc::clone(&at.services.logins);
        flood.spawn(async move {
            let email = format!("nobody{number}@example.com");
            try_from_address(&logins, "198.51.100.1", &email, "a guess").await
        });
    }
    try_login(&at.services.logins, "ada@example.com", RIGHT)
        .await
        .unwrap();
    for answer in flood.join_all().await {
        assert!(
            matches!(answer, Err(Error::WrongCredentials | Error::RateLimited(_))),
            "{answer:?}"
        );
    }
}

/// Both take one password hash; a shortcut for unknown accounts would be ten times faster.
#[tokio::test]
async fn an_unknown_account_takes_as_long_as_a_known_one() {
    let at = Installation::on_sqlite().await;
    at.person_with("ada", Some(RIGHT)).await;
    let mut fastest = [Duration::MAX; 2];
    for _ in 0..5 {
        for (index, email) in ["ada@example.com", "nobody@example.com"].iter().enumerate() {
            let start = cpu_time();
            assert_wrong(&try_login(&at.services.logins, email, "a guess").await);
            fastest[index] = fastest[index].min(cpu_time().saturating_sub(start));
        }
    }
    let [known, unknown] = fastest;
    assert!(unknown * 2 > known && known * 2 > unknown, "{fastest:?}");
    at.remove().await;
}

/// What all threads of this process worked: what else runs on the machine does not count.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
