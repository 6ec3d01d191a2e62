//! Releases: their states, the only transitions between them, and their wire bodies.

use crate::platform::Platform;
use crate::{Id, Invalid, ReleaseId, Timestamp, id::kind};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::fmt;
use std::str::FromStr;

/// Identifies what a release is made of.
pub type ArtifactId = Id<kind::Artifact>;

/// Identifies an archive that was uploaded.
pub type SourceId = Id<kind::Source>;

/// Identifies a line of a build log.
pub type LineId = Id<kind::Line>;

/// Gives an enum its wire names, once.
macro_rules! named_enum {
    ($(#[$meta:meta])* $name:ident { $($(#[$vmeta:meta])* $variant:ident = $text:literal),* $(,)? }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum $name { $($(#[$vmeta])* #[serde(rename = $text)] $variant),* }

        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            /// The name on the wire and in the database.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text),* }
            }
        }
        // By hand: the derive does not see names that come out of a macro.
        impl utoipa::PartialSchema for $name {
            fn schema() -> utoipa::openapi::RefOr<utoipa::openapi::Schema> {
                utoipa::openapi::ObjectBuilder::new()
                    .schema_type(utoipa::openapi::Type::String)
                    .enum_values(Some([$($text),*]))
                    .into()
            }
        }
        impl utoipa::ToSchema for $name {
            fn name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }
        }
        impl FromStr for $name {
            type Err = Invalid;

            fn from_str(text: &str) -> Result<Self, Invalid> {
                match text {
                    $($text => Ok(Self::$variant),)*
                    _ => Err(Invalid(format!("unknown value; choose one of {}", [$($text),*].join(", ")))),
                }
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.as_str())
            }
        }
    };
}

named_enum! {
    /// Why a release was made.
    ReleaseType {
        /// From files, a source or an image.
        Deploy = "DEPLOY",
        /// New environment variables for the same artifact.
        EnvUpdate = "ENV_UPDATE",
        /// Back to an earlier artifact, by a person.
        Rollback = "ROLLBACK",
        /// Back to an earlier artifact, because the new one failed.
        AutoRollback = "AUTO_ROLLBACK",
    }
}

named_enum! {
    /// Where a release stands.
    ReleaseState {
        /// Accepted, waiting for its turn.
        Pending = "PENDING",
        /// Being made from its source.
        Building = "BUILDING",
        /// Being put in place.
        Deploying = "DEPLOYING",
        /// Traffic has been switched to it.
        Ready = "READY",
        /// It never became healthy.
        Unhealthy = "UNHEALTHY",
        /// It could not be made or put in place.
        Failed = "FAILED",
        /// A step took too long.
        TimedOut = "TIMEDOUT",
        /// Stopped by a person.
        Canceled = "CANCELED",
    }
}

named_enum! {
    /// What kind of archive a source is.
    ArchiveFormat {
        /// A tar file, compressed with gzip.
        TarGz = "tar.gz",
        /// A zip file.
        Zip = "zip",
    }
}

impl ArchiveFormat {
    /// Tells by the first bytes; none when they are those of something else.
    pub fn of(head: &[u8]) -> Option<Self> {
        match head {
            [0x1f, 0x8b, ..] => Some(Self::TarGz),
            [b'P', b'K', 3, 4, ..] | [b'P', b'K', 5, 6, ..] => Some(Self::Zip),
            _ => None,
        }
    }

    /// Its media type.
    pub fn media_type(self) -> &'static str {
        match self {
            Self::TarGz => "application/gzip",
            Self::Zip => "application/zip",
        }
    }
}

impl ReleaseState {
    /// Whether the state never changes again.
    pub fn is_terminal(self) -> bool {
        !matches!(self, Self::Pending | Self::Building | Self::Deploying)
    }

    /// Whether a person may still stop it.
    pub fn is_cancelable(self) -> bool {
        self.may_become(Self::Canceled)
    }

    /// Whether the step from this state to `next` exists.
    pub fn may_become(self, next: Self) -> bool {
        match self {
            Self::Pending => matches!(next, Self::Building | Self::Canceled | Self::Failed),
            Self::Building => matches!(
                next,
                Self::Deploying | Self::Failed | Self::TimedOut | Self::Canceled
            ),
            Self::Deploying => matches!(
                next,
                Self::Ready | Self::Unhealthy | Self::Failed | Self::TimedOut
            ),
            _ => false,
        }
    }
}

/// A release as listed and read.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: ReleaseId,
    /// Why it was made.
    #[serde(rename = "type")]
    pub kind: ReleaseType,
    /// Where it stands.
    pub state: ReleaseState,
    /// When it was accepted.
    pub created_at: Timestamp,
    /// `v1`, `v2`, … per project.
    pub tag: String,
    /// The platform it runs on.
    pub project_type: Platform,
    /// The port it listens on.
    pub port: u16,
    /// What its maker said of it.
    pub message: Option<String>,
    /// The commit it was made from, as the client sent it.
    #[schema(value_type = Option<Object>)]
    pub git_info: Option<Value>,
    /// The client that made it.
    pub client: Option<String>,
    /// A stable code that says why it ended badly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_reason: Option<String>,
    /// The same for a person, with what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_message: Option<String>,
    /// What its maker should know although it may have gone well, each with what to do.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// How many releases come before it; only while it waits. Those of its project, and if it needs a build,
    /// older ones of its owner's other projects that need one, too. Builds of other owners are not counted:
    /// turns at building go round over owners.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// When it reached a terminal state.
    pub finished_at: Option<Timestamp>,
    /// Whether its source can be downloaded.
    pub source_available: bool,
    /// Whether it is the one that serves.
    pub current: bool,
}

/// `GET /v1/releases/{releaseID}`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ReleaseBody {
    /// The release.
    pub release: Release,
}

/// The release list envelope.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseList {
    /// Platform of the project.
    pub platform: Platform,
    /// How many releases are READY.
    pub ready_releases_count: u64,
    /// How many releases there are.
    pub total: u64,
    /// The one that serves.
    pub current_release: Option<ReleaseId>,
    /// The releases, newest first.
    pub releases: Vec<Release>,
}

/// The answer to a new release.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ReleaseCreated {
    /// Identifier of the new release.
    #[serde(rename = "releaseID")]
    pub release_id: ReleaseId,
}

/// The answer to an uploaded source.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct SourceCreated {
    /// Identifier of the source, for a release.
    #[serde(rename = "sourceID")]
    pub source_id: SourceId,
}

/// Where a release stands, beside its build log.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildState {
    /// Where it stands.
    pub state: ReleaseState,
    /// A stable code that says why it ended badly.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_reason: Option<String>,
    /// The same for a person, with what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_message: Option<String>,
}

/// One line of a build log.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildLine {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: LineId,
    /// The release.
    #[serde(rename = "releaseID")]
    pub release_id: ReleaseId,
    /// The text, with its line end.
    #[schema(example = "Unpacked 214 files, 3.1 MB\n")]
    pub line: String,
    /// Always `STDOUT`: clients take anything else for the end.
    #[schema(example = "STDOUT")]
    pub stream: &'static str,
    /// When; unique within a release, and rising.
    pub created_at: Timestamp,
}

/// `GET /v2/releases/{releaseID}/build-logs`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildLogs {
    /// Where the release stands.
    pub release: BuildState,
    /// The lines, oldest first.
    pub build_output: Vec<BuildLine>,
}

/// What a create-release request says besides its files.
#[derive(Debug, Clone, Default)]
pub struct NewRelease {
    /// The platform, when it differs from the project's.
    pub platform: Option<Platform>,
    /// The port, when it differs from the platform's.
    pub port: Option<u16>,
    /// What its maker says of it.
    pub message: Option<String>,
    /// The commit it is made from.
    pub git_info: Option<Value>,
    /// The client that asks, from its `User-Agent`.
    pub client: Option<String>,
    /// Settings that the runtime reads: `envs`, `healthCheck`, `disks`, `args`, `build`, `platformConfig`.
    pub settings: serde_json::Map<String, Value>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_names_states_as_the_wire_does() {
        let schema =
            serde_json::to_value(<ReleaseState as utoipa::PartialSchema>::schema()).unwrap();
        let wire: Vec<_> = ReleaseState::ALL
            .iter()
            .map(|state| serde_json::to_value(state).unwrap())
            .collect();
        assert_eq!(schema["enum"], serde_json::Value::Array(wire));
    }

    #[test]
    fn only_the_transitions_of_the_contract_exist() {
        use ReleaseState::{
            Building, Canceled, Deploying, Failed, Pending, Ready, TimedOut, Unhealthy,
        };
        let allowed = [
            (Pending, Building),
            (Pending, Canceled),
            (Pending, Failed),
            (Building, Deploying),
            (Building, Failed),
            (Building, TimedOut),
            (Building, Canceled),
            (Deploying, Ready),
            (Deploying, Unhealthy),
            (Deploying, Failed),
            (Deploying, TimedOut),
        ];
        for &from in ReleaseState::ALL {
            for &to in ReleaseState::ALL {
                assert_eq!(
                    from.may_become(to),
                    allowed.contains(&(from, to)),
                    "{from} -> {to}"
                );
            }
            assert_eq!(
                from.is_terminal(),
                !ReleaseState::ALL.iter().any(|&to| from.may_become(to))
            );
        }
    }
}
