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
use estrade_service::credentials::AccountTokens;
use estrade_service::login::log_in;
use estrade_service::{Core, Error, Result, Settings, accounts, tokens};
use std::sync::Arc;
use std::time::{Duration, Instant};
use support::{Installation, on_both_engines};
use tokio::task::JoinSet;

const RIGHT: &str = "correct horse";

on_both_engines! {
    the_right_password_makes_a_token_that_works
    wrong_unknown_and_disabled_answer_alike
    two_hundred_guesses_at_once_get_ten_tries
    an_unknown_account_has_the_same_limit
    the_limit_ends_after_fifteen_minutes
    a_success_forgets_only_its_own_try
    an_address_has_fifty_tries_whatever_the_account
    zero_switches_the_limits_off
}

async fn try_from_address(core: &Core, ip: &str, email: &str, password: &str) -> Result<LoggedIn> {
    let login = Login {
        email: email.into(),
        password: Secret(password.into()),
    };
    log_in(core, ip.parse().unwrap(), login).await
}

async fn try_login(core: &Core, email: &str, password: &str) -> Result<LoggedIn> {
    try_from_address(core, "192.0.2.1", email, password).await
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
    let answer = try_login(&at.core, "Ada@Example.com", RIGHT).await.unwrap();
    assert_eq!(
        (answer.email.as_str(), answer.fullname.as_str()),
        ("ada@example.com", "ada")
    );
    let caller = AccountTokens::new(&at.core)
        .authenticate(answer.api_token.expose())
        .await
        .unwrap();
    assert_eq!(caller.account, ada.account);
    let listed = tokens::list_tokens(&at.core, ada.account, None, 10, 0)
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

async fn wrong_unknown_and_disabled_answer_alike(at: &Installation) {
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
        assert_wrong(&try_login(&at.core, email, password).await);
    }
}

/// What 200 guesses at once were answered: (tried, refused).
async fn guess_at_once(core: &Arc<Core>, email: &'static str) -> (usize, usize) {
    let mut guesses = JoinSet::new();
    for number in 0..200 {
        let core = Arc::clone(core);
        guesses.spawn(async move {
            // Each from an address of its own, as a botnet would.
            let ip = format!("198.51.100.{number}");
            try_from_address(&core, &ip, email, "a guess").await
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
    assert_eq!(guess_at_once(&at.core, "ada@example.com").await, (10, 190));
    // Not even the right password opens it now, and another spelling is no way round.
    assert_limited(&try_login(&at.core, "ada@example.com", RIGHT).await);
    assert_limited(&try_login(&at.core, "ADA@example.COM", RIGHT).await);
}

async fn an_unknown_account_has_the_same_limit(at: &Installation) {
    let answers = guess_at_once(&at.core, "nobody@example.com").await;
    assert_eq!(answers, (10, 190));
}

async fn the_limit_ends_after_fifteen_minutes(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    for _ in 0..10 {
        assert_wrong(&try_login(&at.core, "ada@example.com", "wrong").await);
    }
    let Err(Error::RateLimited(wait)) = try_login(&at.core, "ada@example.com", RIGHT).await else {
        panic!("not limited");
    };
    // Repeating when told to must work.
    at.core
        .clock
        .advance(wait.saturating_sub(Duration::from_secs(5)));
    assert_limited(&try_login(&at.core, "ada@example.com", RIGHT).await);
    at.core.clock.advance(Duration::from_secs(5));
    try_login(&at.core, "ada@example.com", RIGHT).await.unwrap();
}

async fn a_success_forgets_only_its_own_try(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    for _ in 0..9 {
        assert_wrong(&try_login(&at.core, "ada@example.com", "wrong").await);
    }
    for _ in 0..3 {
        try_login(&at.core, "ada@example.com", RIGHT).await.unwrap();
    }
    assert_wrong(&try_login(&at.core, "ada@example.com", "wrong").await);
    assert_limited(&try_login(&at.core, "ada@example.com", RIGHT).await);
}

async fn an_address_has_fifty_tries_whatever_the_account(at: &Installation) {
    at.person_with("ada", Some(RIGHT)).await;
    // Longer than any password can be: not worth hashing, so the test is quick.
    let wrong = "x".repeat(2000);
    for number in 0..50 {
        let ip = format!("2001:db8::{number:x}");
        let email = format!("nobody{number}@example.com");
        assert_wrong(&try_from_address(&at.core, &ip, &email, &wrong).await);
    }
    let from = async |ip| try_from_address(&at.core, ip, "ada@example.com", RIGHT).await;
    assert_limited(&from("2001:db8::ffff:1").await);
    from("2001:db8:0:1::1").await.expect("another network");
}

async fn zero_switches_the_limits_off(at: &Installation) {
    let settings = Settings {
        login_failures_per_account: 0,
        login_failures_per_address: 0,
        ..Settings::default()
    };
    let core = at.another_core(settings).await;
    let wrong = "x".repeat(2000);
    for _ in 0..60 {
        assert_wrong(&try_login(&core, "ada@example.com", &wrong).await);
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
            let start = Instant::now();
            assert_wrong(&try_login(&at.core, email, "a guess").await);
            fastest[index] = fastest[index].min(start.elapsed());
        }
    }
    let [known, unknown] = fastest;
    assert!(unknown * 2 > known && known * 2 > unknown, "{fastest:?}");
    at.remove().await;
}
