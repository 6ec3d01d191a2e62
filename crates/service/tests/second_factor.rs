//! Second factors: switched on, asked for, used up, lost.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

#[path = "accounts_support/mod.rs"]
mod support;

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use estrade_model::account::{LoggedIn, Login};
use estrade_model::secret::Secret;
use estrade_service::identity::accounts::{self, EndedTokens};
use estrade_service::identity::second_factor;
use estrade_service::identity::sessions::{Client, NewSession, PendingSignIn, SignIn};
use estrade_service::{Caller, Error, Result};
use std::time::Duration;
use support::{Installation, on_both_backends};

const RIGHT: &str = "correct horse";
const ADA: &str = "ada@example.com";

on_both_backends! {
    a_factor_is_in_force_after_its_first_code
    a_secret_is_shown_again_until_it_is_used_or_old
    a_new_password_ends_a_secret_that_is_being_set_up
    the_token_api_is_no_way_around_it
    a_sign_in_goes_on_with_a_code
    a_sign_in_that_takes_too_long_begins_again
    a_code_is_taken_once
    two_at_once_with_one_code_get_one_session
    two_at_once_with_one_recovery_code_get_one_session
    a_recovery_code_works_once_and_new_ones_end_the_old
    guesses_of_codes_are_counted_like_passwords
    a_sign_in_does_not_outrun_its_second_factor
    a_session_is_confirmed_with_a_code_or_the_password
    without_a_factor_the_password_is_enough_again
    what_is_stored_is_neither_secret_nor_code
}

fn client() -> Client {
    Client {
        address: "192.0.2.1".parse().unwrap(),
        user_agent: "Firefox".into(),
    }
}

/// An authenticator app, written apart from the product.
struct App(Vec<u8>);

impl App {
    fn new(secret: &Secret) -> Self {
        Self(BASE32_NOPAD.decode(secret.expose().as_bytes()).unwrap())
    }

    fn code(&self, at: &Installation) -> String {
        let step = u64::try_from(at.core.now().millis()).unwrap() / 30_000;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let hash = tag.as_ref();
        let offset = usize::from(hash[19] & 15);
        let word = u32::from_be_bytes(hash[offset..offset + 4].try_into().unwrap());
        format!("{:06}", (word & 0x7fff_ffff) % 1_000_000)
    }

    /// The code of the next step: each is taken once.
    fn next_code(&self, at: &Installation) -> String {
        at.core.clock.advance(Duration::from_secs(30));
        self.code(at)
    }

    /// A code that is neither that of now nor of a neighbour.
    fn wrong_code(&self, at: &Installation) -> String {
        let now: u32 = self.code(at).parse().unwrap();
        let far = (0..).map(|add| (now + 111_111 + add) % 1_000_000);
        let neighbours = |number: u32| {
            let text = format!("{number:06}");
            [-30_000, 30_000].iter().any(|skew| {
                let step = (at.core.now().millis() + skew) / 30_000;
                self.at_step(step) == text
            })
        };
        let mut far = far.filter(|number| !neighbours(*number));
        format!("{:06}", far.next().unwrap())
    }

    fn at_step(&self, step: i64) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let hash = tag.as_ref();
        let offset = usize::from(hash[19] & 15);
        let word = u32::from_be_bytes(hash[offset..offset + 4].try_into().unwrap());
        format!("{:06}", (word & 0x7fff_ffff) % 1_000_000)
    }
}

/// A person with a second factor, their app and recovery codes.
async fn enrolled(at: &Installation) -> (Caller, App, Vec<Secret>) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let (app, codes) = enroll(at, &ada).await;
    (ada, app, codes)
}

async fn enroll(at: &Installation, person: &Caller) -> (App, Vec<Secret>) {
    let begun = second_factor::begin(&at.core, person).await.unwrap();
    let app = App::new(&begun.secret);
    let codes = second_factor::enable(&at.core, person, &app.code(at)).await;
    (app, codes.unwrap())
}

async fn log_in(at: &Installation, otp: Option<&str>) -> Result<LoggedIn> {
    let login = Login {
        email: ADA.into(),
        password: Secret(RIGHT.into()),
        otp: otp.map(|text| Secret(text.into())),
    };
    at.services.logins.log_in(client().address, login).await
}

async fn sign_in(at: &Installation, otp: Option<&str>) -> Result<SignIn> {
    let password = Secret(RIGHT.into());
    let sessions = &at.services.sessions;
    sessions.sign_in(ADA, password, otp, &client()).await
}

async fn pending(at: &Installation) -> PendingSignIn {
    match sign_in(at, None).await.unwrap() {
        SignIn::SecondFactorRequired(pending) => pending,
        SignIn::Done(_) => panic!("no code was asked for"),
    }
}

async fn go_on(at: &Installation, pending: &PendingSignIn, code: &str) -> Result<NewSession> {
    let sessions = &at.services.sessions;
    let PendingSignIn(text) = pending;
    sessions.second_factor(text.expose(), code, &client()).await
}

fn assert_wrong_code<T: std::fmt::Debug>(answer: &Result<T>) {
    assert!(
        matches!(answer, Err(Error::WrongSecondFactor)),
        "{answer:?}"
    );
}

fn assert_code_missing<T: std::fmt::Debug>(answer: &Result<T>) {
    let missing = matches!(answer, Err(Error::SecondFactorRequired));
    assert!(missing, "{answer:?}");
}

async fn a_factor_is_in_force_after_its_first_code(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let enable = async |code: &str| second_factor::enable(&at.core, &ada, code).await;
    let early = enable("123456").await;
    assert!(matches!(early, Err(Error::Conflict { .. })), "{early:?}");
    let begun = second_factor::begin(&at.core, &ada).await.unwrap();
    let app = App::new(&begun.secret);
    let url = begun.url.expose();
    assert!(url.starts_with("otpauth://totp/Estrade:ada%40example.com?secret="));
    assert!(url.contains(begun.secret.expose()));
    assert!(!format!("{begun:?}").contains(begun.secret.expose()));
    assert_wrong_code(&enable(&app.wrong_code(at)).await);
    assert_wrong_code(&enable("").await);
    log_in(at, None).await.unwrap();
    let status = second_factor::status(&at.core, ada.account).await.unwrap();
    assert!(status.enabled_at.is_none() && status.recovery_codes == 0);
    let codes = enable(&app.code(at)).await.unwrap();
    assert_eq!(codes.len(), 10);
    assert_code_missing(&log_in(at, None).await);
    let status = second_factor::status(&at.core, ada.account).await.unwrap();
    assert!(status.enabled_at.is_some() && status.recovery_codes == 10);
    assert_wrong_code(&enable(&app.next_code(at)).await);
    let again = second_factor::begin(&at.core, &ada).await;
    assert!(matches!(again, Err(Error::Conflict { .. })), "{again:?}");
}

async fn a_secret_is_shown_again_until_it_is_used_or_old(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    let begin = async || second_factor::begin(&at.core, &ada).await.unwrap().secret;
    let first = begin().await;
    at.core.clock.advance(Duration::from_mins(29));
    assert!(begin().await == first);
    at.core.clock.advance(Duration::from_mins(1));
    let second = begin().await;
    assert!(second != first);
    let old = second_factor::enable(&at.core, &ada, &App::new(&first).code(at)).await;
    assert_wrong_code(&old);
    let new = second_factor::enable(&at.core, &ada, &App::new(&second).code(at)).await;
    new.unwrap();
}

async fn a_new_password_ends_a_secret_that_is_being_set_up(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    // Somebody with a stolen session has seen it.
    let seen = second_factor::begin(&at.core, &ada).await.unwrap().secret;
    accounts::change_password(&at.core, &ada, Secret("battery staple".into()))
        .await
        .unwrap();
    let code = App::new(&seen).code(at);
    let refused = second_factor::enable(&at.core, &ada, &code).await;
    assert_eq!(refused.unwrap_err().code(), "second_factor_not_begun");
    let fresh = second_factor::begin(&at.core, &ada).await.unwrap().secret;
    assert_ne!(fresh.expose(), seen.expose());
    let code = App::new(&fresh).code(at);
    second_factor::enable(&at.core, &ada, &code).await.unwrap();
    // One that is in force stays.
    accounts::change_password(&at.core, &ada, Secret("another staple".into()))
        .await
        .unwrap();
    let status = second_factor::status(&at.core, ada.account).await.unwrap();
    assert!(status.enabled_at.is_some() && status.recovery_codes > 0);
}

async fn the_token_api_is_no_way_around_it(at: &Installation) {
    let (_, app, _) = enrolled(at).await;
    assert_code_missing(&log_in(at, None).await);
    assert_wrong_code(&log_in(at, Some("")).await);
    assert_wrong_code(&log_in(at, Some(&app.wrong_code(at))).await);
    log_in(at, Some(&app.next_code(at))).await.unwrap();
    // The code alone opens nothing, and says nothing about the password.
    let login = Login {
        email: ADA.into(),
        password: Secret("wrong horse".into()),
        otp: Some(Secret(app.next_code(at))),
    };
    let answer = at.services.logins.log_in(client().address, login).await;
    assert!(matches!(answer, Err(Error::WrongCredentials)), "{answer:?}");
    // Nor was it used up.
    log_in(at, Some(&app.code(at))).await.unwrap();
}

async fn a_sign_in_goes_on_with_a_code(at: &Installation) {
    let (ada, app, _) = enrolled(at).await;
    let begun = pending(at).await;
    assert!(!format!("{begun:?}").contains(begun.0.expose()));
    assert_wrong_code(&go_on(at, &begun, &app.wrong_code(at)).await);
    let made = go_on(at, &begun, &app.next_code(at)).await.unwrap();
    let sessions = &at.services.sessions;
    let signed_in = sessions.authenticate(made.secret.expose(), &client()).await;
    assert_eq!(signed_in.unwrap().caller.account, ada.account);
    // Both at once, as in the API.
    let answer = sign_in(at, Some(&app.next_code(at))).await.unwrap();
    assert!(matches!(answer, SignIn::Done(_)), "{answer:?}");
    for made_up in ["", "AAAA", &"A".repeat(107), &"A".repeat(10_000)] {
        let made_up = PendingSignIn(Secret(made_up.to_owned()));
        let answer = go_on(at, &made_up, &app.next_code(at)).await;
        assert!(matches!(answer, Err(Error::Unauthenticated)), "{answer:?}");
    }
}

async fn a_sign_in_that_takes_too_long_begins_again(at: &Installation) {
    let (_, app, _) = enrolled(at).await;
    let begun = pending(at).await;
    at.core.clock.advance(Duration::from_mins(5));
    let late = go_on(at, &begun, &app.code(at)).await;
    assert!(matches!(late, Err(Error::Unauthenticated)), "{late:?}");
    // The password that was given is another one now.
    let begun = pending(at).await;
    let (email, new) = (ADA.parse().unwrap(), Secret("battery staple".into()));
    let changed = accounts::set_password(&at.core, &email, new, EndedTokens::Sessions).await;
    changed.unwrap();
    let old = go_on(at, &begun, &app.code(at)).await;
    assert!(matches!(old, Err(Error::Unauthenticated)), "{old:?}");
}

async fn a_code_is_taken_once(at: &Installation) {
    let (_, app, _) = enrolled(at).await;
    // That which switched it on is used up, too.
    assert_wrong_code(&log_in(at, Some(&app.code(at))).await);
    let code = app.next_code(at);
    log_in(at, Some(&code)).await.unwrap();
    assert_wrong_code(&log_in(at, Some(&code)).await);
    assert_wrong_code(&sign_in(at, Some(&code)).await);
    let begun = pending(at).await;
    assert_wrong_code(&go_on(at, &begun, &code).await);
    // After a later one an earlier one is refused, although its time is not over.
    let earlier = app.next_code(at);
    log_in(at, Some(&app.next_code(at))).await.unwrap();
    assert_wrong_code(&log_in(at, Some(&earlier)).await);
}

async fn two_at_once_with_one_code_get_one_session(at: &Installation) {
    let (_, app, _) = enrolled(at).await;
    for _ in 0..5 {
        let (begun, code) = (pending(at).await, app.next_code(at));
        let (one, other) = tokio::join!(go_on(at, &begun, &code), go_on(at, &begun, &code));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        assert_wrong_code(if one.is_ok() { &other } else { &one });
        at.core.clock.advance(Duration::from_hours(1));
    }
}

async fn two_at_once_with_one_recovery_code_get_one_session(at: &Installation) {
    let (_, _, codes) = enrolled(at).await;
    for code in &codes[..5] {
        let begun = pending(at).await;
        let code = code.expose();
        let (one, other) = tokio::join!(go_on(at, &begun, code), go_on(at, &begun, code));
        assert!(one.is_ok() != other.is_ok(), "{one:?} {other:?}");
        at.core.clock.advance(Duration::from_hours(1));
    }
}

async fn a_recovery_code_works_once_and_new_ones_end_the_old(at: &Installation) {
    let (ada, _, codes) = enrolled(at).await;
    let typed = codes[0].expose().to_uppercase().replace('-', " ");
    log_in(at, Some(&typed)).await.unwrap();
    assert_wrong_code(&log_in(at, Some(codes[0].expose())).await);
    let begun = pending(at).await;
    go_on(at, &begun, codes[1].expose()).await.unwrap();
    let left = async || {
        let status = second_factor::status(&at.core, ada.account).await;
        status.unwrap().recovery_codes
    };
    assert_eq!(left().await, 8);
    let new = second_factor::new_recovery_codes(&at.core, &ada).await;
    let new = new.unwrap();
    assert_eq!((new.len(), left().await), (10, 10));
    assert_wrong_code(&log_in(at, Some(codes[2].expose())).await);
    log_in(at, Some(new[0].expose())).await.unwrap();
    // Those of others are of no use.
    let eve = at.person_with("eve", Some(RIGHT)).await;
    let (_, of_eve) = enroll(at, &eve).await;
    assert_wrong_code(&log_in(at, Some(of_eve[0].expose())).await);
    let mallory = at.person("mallory").await;
    let none = second_factor::new_recovery_codes(&at.core, &mallory).await;
    assert!(matches!(none, Err(Error::NotFound(_))), "{none:?}");
    let noted = "SELECT account_id FROM audit WHERE action = 'account.recovery_codes'";
    let noted: Vec<String> = at.core.db.read(noted).fetch_all().await.unwrap();
    assert_eq!(noted, [ada.account.to_string()]);
}

async fn guesses_of_codes_are_counted_like_passwords(at: &Installation) {
    let (_, app, _) = enrolled(at).await;
    // With the password the code may be asked for as often as one likes, which takes nothing back.
    for number in 0..10 {
        let wrong = app.wrong_code(at);
        let begun = pending(at).await;
        if number % 2 == 0 {
            assert_wrong_code(&go_on(at, &begun, &wrong).await);
        } else {
            assert_wrong_code(&log_in(at, Some(&wrong)).await);
        }
    }
    let code = app.next_code(at);
    let answer = log_in(at, Some(&code)).await;
    // Half a minute has passed, which is longer than the first wait.
    answer.unwrap();
    for _ in 0..3 {
        let _ = log_in(at, Some(&app.wrong_code(at))).await;
    }
    let answer = log_in(at, Some(&app.code(at))).await;
    assert!(matches!(answer, Err(Error::RateLimited(_))), "{answer:?}");
}

async fn a_sign_in_does_not_outrun_its_second_factor(at: &Installation) {
    let ada = at.person_with("ada", Some(RIGHT)).await;
    for _ in 0..5 {
        let begun = second_factor::begin(&at.core, &ada).await.unwrap();
        let code = App::new(&begun.secret).code(at);
        let (made, enabled) = tokio::join!(
            sign_in(at, None),
            second_factor::enable(&at.core, &ada, &code)
        );
        enabled.unwrap();
        // Whichever came first, the next one needs a code.
        match made {
            Ok(SignIn::Done(_) | SignIn::SecondFactorRequired(_))
            | Err(Error::SecondFactorRequired) => {}
            other => panic!("{other:?}"),
        }
        assert_code_missing(&log_in(at, None).await);
        second_factor::disable(&at.core, &ada).await.unwrap();
        at.core.clock.advance(Duration::from_hours(1));
    }
}

async fn a_session_is_confirmed_with_a_code_or_the_password(at: &Installation) {
    let (_, app, codes) = enrolled(at).await;
    let SignIn::Done(session) = sign_in(at, Some(&app.next_code(at))).await.unwrap() else {
        panic!("not signed in");
    };
    let sessions = &at.services.sessions;
    let signed_in = async || {
        let cookie = session.secret.expose();
        sessions.authenticate(cookie, &client()).await.unwrap()
    };
    for secret in [
        RIGHT.to_owned(),
        String::new(),
        codes[0].expose().to_owned(),
    ] {
        at.core.clock.advance(Duration::from_mins(10));
        let stale = signed_in().await;
        stale.caller.require_recent(&at.core).unwrap_err();
        let secret = if secret.is_empty() {
            app.code(at)
        } else {
            secret
        };
        let confirm = async || {
            let secret = Secret(secret.clone());
            sessions.confirm(&stale, secret, &client()).await
        };
        confirm().await.unwrap();
        signed_in().await.caller.require_recent(&at.core).unwrap();
        if secret != RIGHT {
            confirm().await.unwrap_err();
        }
    }
}

async fn without_a_factor_the_password_is_enough_again(at: &Installation) {
    let (ada, app, codes) = enrolled(at).await;
    second_factor::disable(&at.core, &ada).await.unwrap();
    log_in(at, None).await.unwrap();
    let gone = second_factor::disable(&at.core, &ada).await;
    assert!(matches!(gone, Err(Error::NotFound(_))), "{gone:?}");
    // A new one has another secret and other recovery codes.
    let (new, _) = enroll(at, &ada).await;
    assert_wrong_code(&log_in(at, Some(&app.next_code(at))).await);
    assert_wrong_code(&log_in(at, Some(codes[0].expose())).await);
    log_in(at, Some(&new.next_code(at))).await.unwrap();
    second_factor::remove(&at.core, ada.account).await.unwrap();
    log_in(at, None).await.unwrap();
}

async fn what_is_stored_is_neither_secret_nor_code(at: &Installation) {
    let (_, app, codes) = enrolled(at).await;
    let db = &at.core.db;
    let sealed: Vec<u8> = db
        .read("SELECT sealed_secret FROM second_factors")
        .fetch_one()
        .await
        .unwrap();
    assert!(!sealed.windows(app.0.len()).any(|part| part == app.0));
    let hashes: Vec<Vec<u8>> = db
        .read("SELECT code_hash FROM recovery_codes")
        .fetch_all()
        .await
        .unwrap();
    assert_eq!(hashes.len(), 10);
    for (hash, code) in hashes.iter().zip(&codes) {
        assert!(hash.len() == 32 && hash != code.expose().as_bytes());
    }
}
