//! The Secret Service of a desktop, over the session bus.

use super::Unusable;
use estrade_model::secret::Secret;
use secret_service::{EncryptionType, Error, SecretService};
use std::collections::HashMap;
use std::ffi::OsString;

const BUS: &str = "DBUS_SESSION_BUS_ADDRESS";

/// Without a session bus nobody is asked: looking for one would start a daemon.
pub(super) fn locate(variable: impl Fn(&str) -> Option<OsString>) -> Result<(), Unusable> {
    if variable(BUS).is_some_and(|address| !address.is_empty()) {
        return Ok(());
    }
    Err(Unusable::new(format!(
        "needs a session bus, and {BUS} is not set"
    )))
}

pub(super) async fn store(entry: &str, label: &str, secret: &Secret) -> Result<(), Unusable> {
    let service = connect().await?;
    // Making a collection, or unlocking one, would open a window on a screen that nobody may look at.
    let collection = service.get_default_collection().await;
    let collection = collection.map_err(unusable)?;
    collection.ensure_unlocked().await.map_err(unusable)?;
    let stored = collection
        .create_item(
            label,
            attributes(entry),
            secret.expose().as_bytes(),
            true,
            "text/plain",
        )
        .await;
    stored.map(drop).map_err(unusable)
}

pub(super) async fn read(entry: &str) -> Result<Option<Secret>, Unusable> {
    let service = connect().await?;
    let found = service.search_items(attributes(entry)).await;
    let found = found.map_err(unusable)?;
    let Some(item) = found.unlocked.first() else {
        return if found.locked.is_empty() {
            Ok(None)
        } else {
            Err(unusable(Error::Locked))
        };
    };
    let bytes = item.get_secret().await.map_err(unusable)?;
    let text = String::from_utf8(bytes)
        .map_err(|_| Unusable::new("has something else under the name of the token"))?;
    Ok(Some(Secret(text)))
}

pub(super) async fn remove(entry: &str) -> Result<(), Unusable> {
    let service = connect().await?;
    let found = service.search_items(attributes(entry)).await;
    let found = found.map_err(unusable)?;
    for item in found.unlocked {
        item.delete().await.map_err(unusable)?;
    }
    if found.locked.is_empty() {
        Ok(())
    } else {
        Err(unusable(Error::Locked))
    }
}

async fn connect() -> Result<SecretService<'static>, Unusable> {
    // On the way secrets are encrypted for the keyring: whatever records the bus has them not.
    SecretService::connect(EncryptionType::Dh)
        .await
        .map_err(unusable)
}

fn attributes(entry: &str) -> HashMap<&str, &str> {
    HashMap::from([("application", "estrade"), ("entry", entry)])
}

fn unusable(error: Error) -> Unusable {
    match error {
        Error::Locked | Error::Prompt => Unusable::new("is locked"),
        Error::NoResult => Unusable::new("has no place for new passwords yet"),
        Error::Unavailable => Unusable::new("is not there: nothing on the session bus offers one"),
        other => Unusable::new(format!("failed: {other}")),
    }
}
