//! The keyring of the operating system: where tokens are kept if one answers.
//!
//! On Linux that is the Secret Service of the desktop (GNOME, KDE, KeePassXC), on macOS the keychain. A keyring may be
//! missing, locked or hang, on a server as well as on a desktop; so every answer is waited for within bounds, and
//! storing makes nobody ask for a password.

#[cfg(target_os = "macos")]
#[path = "keyring/keychain.rs"]
mod service;
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
#[path = "keyring/none.rs"]
mod service;
#[cfg(target_os = "linux")]
#[path = "keyring/secret_service.rs"]
mod service;

use estrade_model::secret::Secret;
use std::ffi::OsString;
use std::time::Duration;

/// How long it may take to store or to remove a token.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long it may take to read one: some keyrings ask their owner whether a program may.
const READ_TIMEOUT: Duration = Duration::from_secs(10);
/// `off` keeps tokens in a file.
const VARIABLE: &str = "ESTRADE_KEYRING";

/// Why the keyring is not used; the end of a sentence that begins with "the keyring".
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unusable(String);

impl Unusable {
    fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// The keyring of whoever runs this program.
#[derive(Debug, Clone, Copy)]
pub struct Keyring(());

impl Keyring {
    /// Finds it without asking it anything; `variable` reads the environment.
    pub fn locate(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, Unusable> {
        if variable(VARIABLE).is_some_and(|value| value == "off") {
            return Err(Unusable::new(format!("is turned off by {VARIABLE}=off")));
        }
        service::locate(variable).map(|()| Self(()))
    }

    /// Stores a secret under a name; people see the label.
    pub async fn store(&self, entry: &str, label: &str, secret: &Secret) -> Result<(), Unusable> {
        within(WRITE_TIMEOUT, service::store(entry, label, secret)).await
    }

    /// The secret of a name, if there is one.
    pub async fn read(&self, entry: &str) -> Result<Option<Secret>, Unusable> {
        within(READ_TIMEOUT, service::read(entry)).await
    }

    /// Removes the secret of a name; that there is none is no error.
    pub async fn remove(&self, entry: &str) -> Result<(), Unusable> {
        within(WRITE_TIMEOUT, service::remove(entry)).await
    }
}

async fn within<T>(
    timeout: Duration,
    answer: impl Future<Output = Result<T, Unusable>>,
) -> Result<T, Unusable> {
    let silent = |_| Unusable::new(format!("does not answer within {} s", timeout.as_secs()));
    tokio::time::timeout(timeout, answer)
        .await
        .map_err(silent)?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn located(set: &[(&str, &str)]) -> Result<(), String> {
        let find = |name: &str| {
            let found = set.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let located = Keyring::locate(find);
        located.map(|_| ()).map_err(|unusable| unusable.to_string())
    }

    #[test]
    fn it_can_be_turned_off() {
        let off = located(&[("DBUS_SESSION_BUS_ADDRESS", "x"), (VARIABLE, "off")]);
        assert!(off.unwrap_err().contains("ESTRADE_KEYRING=off"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn without_a_session_bus_there_is_none() {
        for set in [&[][..], &[("DBUS_SESSION_BUS_ADDRESS", "")]] {
            let reason = located(set).unwrap_err();
            assert!(reason.contains("DBUS_SESSION_BUS_ADDRESS"), "{reason}");
        }
        assert_eq!(located(&[("DBUS_SESSION_BUS_ADDRESS", "unix:x")]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_keyring_is_not_waited_for() {
        let never = std::future::pending::<Result<(), Unusable>>();
        let silent = within(WRITE_TIMEOUT, never).await.unwrap_err();
        assert_eq!(silent.to_string(), "does not answer within 2 s");
    }
}
