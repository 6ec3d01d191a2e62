//! Projects, their environment variables and networks on the wire.

use crate::disk::Disk;
use crate::id::kind;
use crate::names::{EnvKey, NetworkName, ProjectName};
use crate::platform::Platform;
use crate::{Id, Invalid, ProjectId, ReleaseId, Timestamp};
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Identifies a network.
pub type NetworkId = Id<kind::Network>;
/// Identifies an environment variable.
pub type EnvId = Id<kind::Env>;

/// Most environment variables of one project.
pub const MAX_ENVS: usize = 200;
/// Longest value of an environment variable, in bytes.
pub const MAX_ENV_VALUE_BYTES: usize = 32 * 1024;

/// How a project is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ProjectStatus {
    /// As it should be; also when switched off by `scale` 0.
    Active,
    /// A release is on its way.
    Deploying,
    /// Its instances keep dying.
    CrashLoop,
    /// Stopped by an administrator.
    Suspended,
}

impl ProjectStatus {
    /// As rows and responses name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "ACTIVE",
            Self::Deploying => "DEPLOYING",
            Self::CrashLoop => "CRASH_LOOP",
            Self::Suspended => "SUSPENDED",
        }
    }

    /// The status that a database row names; what it does not know is active.
    pub fn from_text(text: &str) -> Self {
        match text {
            "DEPLOYING" => Self::Deploying,
            "CRASH_LOOP" => Self::CrashLoop,
            "SUSPENDED" => Self::Suspended,
            _ => Self::Active,
        }
    }
}

/// How a request names a project. A name never looks like an id, so the two cannot be confused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProjectKey {
    Id(ProjectId),
    Name(ProjectName),
}

impl FromStr for ProjectKey {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.parse() {
            Ok(id) => Ok(Self::Id(id)),
            Err(_) => text.parse().map(Self::Name),
        }
    }
}

/// A project as listed.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct Project {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: ProjectId,
    /// When it was made.
    pub created_at: Timestamp,
    /// Its plan.
    #[serde(rename = "planID")]
    pub plan_id: String,
    /// Its bundle plan.
    #[serde(rename = "bundlePlanID")]
    pub bundle_plan_id: String,
    /// How many instances run; 0 is switched off.
    pub scale: u32,
    /// Its platform.
    #[serde(rename = "type")]
    pub platform: Platform,
    /// How it is doing.
    pub status: ProjectStatus,
    /// Its name, used in paths and as host name.
    pub project_id: String,
    /// Where it is served: at its default subdomain, else at its first verified domain; empty without either.
    pub url: String,
    /// The private network it is in.
    pub network: Option<NetworkRef>,
    /// Whether a release serves.
    #[serde(rename = "isDeployed")]
    pub is_deployed: bool,
}

/// A project as read alone: what the list shows, and more.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDetail {
    /// What the list shows.
    #[serde(flatten)]
    pub project: Project,
    /// Its environment variables; values are masked for viewers.
    pub envs: Vec<EnvVar>,
    /// Whether `{name}.{edge domain}` serves it.
    pub default_subdomain: bool,
    /// Whether releases replace each other without a dropped request.
    pub zero_downtime: bool,
    /// Whether instances see a read-only file system.
    pub read_only_root_filesystem: bool,
    /// Its disks, oldest first.
    pub disks: Vec<Disk>,
    /// Price per hour.
    pub hourly_price: u64,
    /// Disk space in GB that disks have reserved.
    pub reserved_disk_space: u64,
    /// The release that serves.
    pub current_release: Option<ReleaseId>,
    /// Why its instances do not run, with their last lines, while they do not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_reason: Option<String>,
}

/// `GET /v1/projects/{project_id}`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProjectBody {
    /// The project.
    pub project: ProjectDetail,
}

/// The answer to a new project.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProjectCreated {
    /// Identifier of the new project.
    #[serde(rename = "projectID")]
    pub id: ProjectId,
    /// The new project.
    pub project: Project,
}

/// `POST /v1/projects`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[schema(example = json!({"name": "hello", "platform": "static", "planID": "nano"}))]
pub struct CreateProject {
    /// Name, unique across the installation.
    pub name: ProjectName,
    /// Its platform.
    pub platform: Platform,
    /// Its plan.
    #[serde(rename = "planID")]
    pub plan_id: String,
    /// Its bundle plan: `free`, `basic`, `standard` or `pro`.
    #[serde(rename = "bundlePlanID", default)]
    pub bundle_plan_id: Option<String>,
    /// A private network, by name or id.
    #[serde(default)]
    pub network: Option<String>,
    /// Whether instances see a read-only file system.
    #[serde(rename = "readOnlyRootFilesystem", default)]
    pub read_only_root: Option<bool>,
}

/// `POST …/actions/scale`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct SetScale {
    /// How many instances; 0 switches off.
    pub scale: u32,
}

/// `POST …/resize`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct Resize {
    /// The new plan.
    #[serde(rename = "planID")]
    pub plan_id: String,
}

/// An environment variable.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct EnvVar {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: EnvId,
    /// Its name.
    pub key: EnvKey,
    /// Its value; `***` for those who may not see it.
    pub value: String,
    /// Always true: values are encrypted at rest.
    pub encrypted: bool,
}

/// `POST /v1/projects/update-envs`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct UpdateEnvs {
    /// The project, by name or id.
    pub project: String,
    /// The whole new set; the last of two with one key wins.
    #[schema(max_items = 200)]
    pub variables: Vec<EnvSetting>,
}

/// One variable of a request; `Debug` does not show its value.
#[derive(Clone, Deserialize, utoipa::ToSchema)]
pub struct EnvSetting {
    /// Its name.
    pub key: EnvKey,
    /// Its value, at most 32 KiB.
    pub value: String,
}

impl std::fmt::Debug for EnvSetting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=***", self.key)
    }
}

/// A network as projects show it.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
pub struct NetworkRef {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: NetworkId,
    /// Name, unique per owner.
    pub name: String,
}

/// A private network.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Network {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: NetworkId,
    /// Name, unique per owner.
    pub name: String,
    /// When it was made.
    pub created_at: Timestamp,
}

/// `POST /v1/networks`: `name`, or `networkName` as older clients say.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct CreateNetwork {
    /// The network's name.
    #[serde(alias = "networkName")]
    pub name: NetworkName,
}

/// The answer to a new network.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct NetworkBody {
    /// The network.
    pub network: Network,
}
