//! Identifiers: 24 lowercase hexadecimal characters, roughly time-ordered.

use crate::Invalid;
use crate::sync::MutexExt;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::str::FromStr;
use std::sync::Mutex;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType, Type};

/// An identifier of a `T`: 48 bits of milliseconds, then 48 random bits.
///
/// Ids made by one process rise strictly, so "newest first" is "highest id first".
pub struct Id<T> {
    bytes: [u8; 12],
    kind: PhantomData<fn() -> T>,
}

/// What an [`Id`] points at; never built, only named.
pub mod kind {
    macro_rules! kinds {
        ($($name:ident)*) => { $(#[doc = concat!("Marks the id of: ", stringify!($name), ".")] #[derive(Debug)] pub enum $name {})* };
    }
    kinds!(Account Team Owner Token Session Project Release Artifact Source Network Event Key Workspace Invitation Env Line Domain Call Slice LedgerNode Node Audit Provider Disk DeviceCode);
}

/// Identifies an account.
pub type AccountId = Id<kind::Account>;
/// Identifies a team.
pub type TeamId = Id<kind::Team>;
/// Identifies who owns a thing: an account or a team.
pub type OwnerId = Id<kind::Owner>;
/// Identifies an account token.
pub type TokenId = Id<kind::Token>;
/// Identifies a signed-in browser.
pub type SessionId = Id<kind::Session>;
/// Identifies a project.
pub type ProjectId = Id<kind::Project>;
/// Identifies a release.
pub type ReleaseId = Id<kind::Release>;
/// Identifies an AI key.
pub type KeyId = Id<kind::Key>;
/// Identifies a workspace.
pub type WorkspaceId = Id<kind::Workspace>;

const LOW_48: u64 = (1 << 48) - 1;

/// The last id handed out, so that the next one is higher.
static LAST: Mutex<(u64, u64)> = Mutex::new((0, 0));

impl<T> Id<T> {
    /// Makes a new id from the present time and random bits.
    pub fn generate(now_ms: i64, random: u64) -> Self {
        let now = u64::try_from(now_ms).unwrap_or(0) & LOW_48;
        // Half the random space is kept free, so that counting up within a millisecond cannot wrap.
        let random = random & (LOW_48 >> 1);
        let (millis, tail) = {
            let mut last = LAST.lock_ignoring_poison();
            *last = if now > last.0 {
                (now, random)
            } else {
                (last.0, last.1 + 1 + (random & 0xff))
            };
            *last
        };
        let mut bytes = [0; 12];
        bytes[..6].copy_from_slice(&millis.to_be_bytes()[2..]);
        bytes[6..].copy_from_slice(&tail.to_be_bytes()[2..]);
        Self {
            bytes,
            kind: PhantomData,
        }
    }

    /// When it was made, in milliseconds since the epoch.
    pub fn millis(self) -> i64 {
        self.bytes[..6]
            .iter()
            .fold(0, |millis, byte| millis << 8 | i64::from(*byte))
    }

    /// The identifier that has these bytes.
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        Self {
            bytes,
            kind: PhantomData,
        }
    }

    /// The identifier's twelve bytes.
    pub fn as_bytes(&self) -> &[u8; 12] {
        &self.bytes
    }

    /// The same identifier seen as another kind, for the few places where two kinds share a row.
    pub fn cast<U>(self) -> Id<U> {
        Id {
            bytes: self.bytes,
            kind: PhantomData,
        }
    }
}

impl<T> Clone for Id<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Id<T> {}
impl<T> PartialEq for Id<T> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl<T> Eq for Id<T> {}
impl<T> PartialOrd for Id<T> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl<T> Ord for Id<T> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}
impl<T> Hash for Id<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bytes.hash(state);
    }
}

impl<T> fmt::Display for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0; 24];
        hex::encode_to_slice(self.bytes, &mut text).map_err(|_| fmt::Error)?;
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}
impl<T> fmt::Debug for Id<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl<T> FromStr for Id<T> {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let mut bytes = [0; 12];
        let lower = text
            .bytes()
            .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !lower || hex::decode_to_slice(text, &mut bytes).is_err() {
            return Err(Invalid::from("must be 24 lowercase hexadecimal characters"));
        }
        Ok(Self {
            bytes,
            kind: PhantomData,
        })
    }
}

impl<T> Serialize for Id<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut text = [0; 24];
        hex::encode_to_slice(self.bytes, &mut text).map_err(serde::ser::Error::custom)?;
        serializer.serialize_str(std::str::from_utf8(&text).map_err(serde::ser::Error::custom)?)
    }
}
impl<'de, T> Deserialize<'de> for Id<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

impl<T> utoipa::PartialSchema for Id<T> {
    fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::Type(Type::String))
            .pattern(Some("^[a-f0-9]{24}$"))
            .description(Some(
                "24 lowercase hexadecimal characters, roughly time-ordered.",
            ))
            .into()
    }
}
impl<T> utoipa::ToSchema for Id<T> {
    fn name() -> std::borrow::Cow<'static, str> {
        "Id".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_strictly_even_within_a_millisecond_or_when_the_clock_steps_back() {
        let ids: Vec<ProjectId> = (0..1000_i64)
            .map(|i| Id::generate(5 - i % 2, u64::MAX))
            .collect();
        assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn text_round_trips_and_bad_text_is_refused() {
        let id: KeyId = Id::generate(4_000_000_000_000, 42);
        assert!(id.millis() >= 4_000_000_000_000);
        assert_eq!(id.to_string().parse::<KeyId>(), Ok(id));
        assert_eq!(
            serde_json::from_str::<KeyId>(&serde_json::to_string(&id).unwrap()).unwrap(),
            id
        );
        for bad in [
            "",
            "abc",
            "0123456789abcdef0123456",
            "0123456789ABCDEF01234567",
            "0123456789abcdef0123456\n",
        ] {
            assert!(bad.parse::<KeyId>().is_err(), "{bad:?}");
        }
    }
}
