//! The keychain of macOS.

use super::Unusable;
use estrade_model::secret::Secret;
use security_framework::base::Error;
use security_framework::passwords::{
    PasswordOptions, delete_generic_password, generic_password, set_generic_password,
};
use std::ffi::OsString;

/// What entries are called in Keychain Access.
const SERVICE: &str = "estrade";
/// `errSecItemNotFound`.
const NOT_FOUND: i32 = -25300;

pub(super) fn locate(_: impl Fn(&str) -> Option<OsString>) -> Result<(), Unusable> {
    Ok(())
}

pub(super) async fn store(entry: &str, _: &str, secret: &Secret) -> Result<(), Unusable> {
    let (entry, secret) = (entry.to_owned(), secret.clone());
    aside(move || set_generic_password(SERVICE, &entry, secret.expose().as_bytes())).await
}

pub(super) async fn read(entry: &str) -> Result<Option<Secret>, Unusable> {
    let entry = entry.to_owned();
    let read = move || {
        let options = PasswordOptions::new_generic_password(SERVICE, &entry);
        found(generic_password(options))
    };
    let Some(bytes) = aside(read).await? else {
        return Ok(None);
    };
    let text = String::from_utf8(bytes)
        .map_err(|_| Unusable::new("has something else under the name of the token"))?;
    Ok(Some(Secret(text)))
}

pub(super) async fn remove(entry: &str) -> Result<(), Unusable> {
    let entry = entry.to_owned();
    aside(move || found(delete_generic_password(SERVICE, &entry)).map(drop)).await
}

fn found<T>(outcome: Result<T, Error>) -> Result<Option<T>, Error> {
    match outcome {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code() == NOT_FOUND => Ok(None),
        Err(error) => Err(error),
    }
}

/// The keychain blocks its callers, for as long as it asks somebody for a password.
async fn aside<T: Send + 'static>(
    ask: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Unusable> {
    let failed = |error: &dyn std::fmt::Display| Unusable::new(format!("failed: {error}"));
    match tokio::task::spawn_blocking(ask).await {
        Ok(outcome) => outcome.map_err(|error| failed(&error)),
        Err(error) => Err(failed(&error)),
    }
}
