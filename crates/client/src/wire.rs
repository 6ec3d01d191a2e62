//! What responses say, as far as people are shown it. Names and states are texts: a newer server may have more.

use estrade_model::Timestamp;
use serde::Deserialize;

/// A project.
#[derive(Debug, Clone, Deserialize)]
pub struct Project {
    #[serde(rename = "_id")]
    pub id: String,
    pub project_id: String,
    #[serde(rename = "type")]
    pub platform: String,
    #[serde(rename = "planID")]
    pub plan: String,
    pub scale: u32,
    pub status: String,
    pub url: String,
    pub created_at: Timestamp,
    #[serde(rename = "isDeployed")]
    pub is_deployed: bool,
}

/// `GET /v1/projects`.
#[derive(Debug, Clone, Deserialize)]
pub struct ProjectList {
    pub projects: Vec<Project>,
}

/// A project as read alone.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ProjectDetail {
    #[serde(flatten)]
    pub project: Project,
    #[serde(default)]
    pub envs: Vec<EnvVar>,
    #[serde(default)]
    pub disks: Vec<Disk>,
    pub current_release: Option<String>,
    pub fail_reason: Option<String>,
}

/// `GET /v1/projects/{project_id}`.
#[derive(Debug, Clone, Deserialize)]
pub struct ProjectBody {
    pub project: ProjectDetail,
}

/// The answer to a new project.
#[derive(Debug, Clone, Deserialize)]
pub struct ProjectCreated {
    pub project: Project,
}

/// An environment variable. Its value is somebody's secret and not in `Debug`.
#[derive(Clone, Deserialize)]
pub struct EnvVar {
    pub key: String,
    pub value: String,
}

impl std::fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}=***", self.key)
    }
}

/// A disk.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Disk {
    pub name: String,
    pub size: u64,
    pub created_at: Timestamp,
}

/// `GET …/disks`.
#[derive(Debug, Clone, Deserialize)]
pub struct DiskList {
    pub disks: Vec<Disk>,
}

/// A release.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Release {
    #[serde(rename = "_id")]
    pub id: String,
    pub tag: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub state: String,
    pub project_type: String,
    pub port: u16,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    pub message: Option<String>,
    pub client: Option<String>,
    pub fail_reason: Option<String>,
    pub fail_message: Option<String>,
    #[serde(default)]
    pub warnings: Vec<String>,
    pub queue: Option<u64>,
    pub current: bool,
}

impl Release {
    /// Whether its state never changes again.
    pub fn is_finished(&self) -> bool {
        is_finished(&self.state)
    }

    /// Whether traffic was switched to it.
    pub fn is_ready(&self) -> bool {
        self.state == "READY"
    }

    /// Why it failed: the sentence that says so, and the lines with what it is about.
    pub fn failure(&self) -> Option<(&str, Vec<&str>)> {
        let message = self.fail_message.as_deref().or(self.fail_reason.as_deref());
        let mut lines = message?.lines();
        Some((lines.next().unwrap_or_default(), lines.collect()))
    }
}

/// Whether a state of a release never changes again.
pub fn is_finished(state: &str) -> bool {
    !matches!(state, "PENDING" | "BUILDING" | "DEPLOYING")
}

/// `GET /v1/releases/{releaseID}`.
#[derive(Debug, Clone, Deserialize)]
pub struct ReleaseBody {
    pub release: Release,
}

/// `GET /v1/projects/{project_id}/releases`.
#[derive(Debug, Clone, Deserialize)]
pub struct ReleaseList {
    pub releases: Vec<Release>,
}

/// The answer to a new release.
#[derive(Debug, Clone, Deserialize)]
pub struct ReleaseCreated {
    #[serde(rename = "releaseID")]
    pub release: String,
}

/// `GET /v2/releases/{releaseID}/build-logs`.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildLogs {
    pub release: BuildState,
    pub build_output: Vec<BuildLine>,
}

/// Where a release stands, beside its build log.
#[derive(Debug, Clone, Deserialize)]
pub struct BuildState {
    pub state: String,
}

/// One line of a build log.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuildLine {
    pub line: String,
    pub created_at: String,
}

/// `GET /v2/projects/{project_id}/logs`.
#[derive(Debug, Clone, Deserialize)]
pub struct Logs {
    pub data: Vec<ReleaseLines>,
}

/// The lines of one release: when, in nanoseconds, and a JSON object with the text.
#[derive(Debug, Clone, Deserialize)]
pub struct ReleaseLines {
    pub values: Vec<(String, String)>,
}

/// One line of a stream of logs.
#[derive(Debug, Clone, Deserialize)]
pub struct StreamedLine {
    pub time: String,
    #[serde(rename = "_entry")]
    pub entry: String,
}

/// `GET /v1/me`.
#[derive(Debug, Clone, Deserialize)]
pub struct Me {
    pub user: User,
}

/// An account.
#[derive(Debug, Clone, Deserialize)]
pub struct User {
    pub email: String,
    pub fullname: String,
}

/// `GET /v1/tokens`.
#[derive(Debug, Clone, Deserialize)]
pub struct TokenList {
    pub tokens: Vec<Token>,
}

/// A token, without itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    #[serde(rename = "_id")]
    pub id: String,
    pub name: String,
    pub scope: String,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
    pub last_used_from: Option<String>,
}

/// `GET /v2/teams`.
#[derive(Debug, Clone, Deserialize)]
pub struct TeamList {
    pub teams: Vec<Team>,
}

/// A team.
#[derive(Debug, Clone, Deserialize)]
pub struct Team {
    #[serde(rename = "_id")]
    pub id: String,
    pub name: String,
}

/// `GET /v2/teams/{id}/members`.
#[derive(Debug, Clone, Deserialize)]
pub struct MemberList {
    pub members: Vec<Member>,
}

/// A member of a team.
#[derive(Debug, Clone, Deserialize)]
pub struct Member {
    #[serde(rename = "_id")]
    pub id: String,
    pub email: String,
    pub fullname: String,
    pub role: String,
}

/// The answer to a disk that was made or resized.
#[derive(Debug, Clone, Deserialize)]
pub struct DiskBody {
    pub disk: Disk,
}

/// `GET /v1/domains`.
#[derive(Debug, Clone, Deserialize)]
pub struct DomainList {
    pub domains: Vec<Domain>,
}

/// The answer to one domain.
#[derive(Debug, Clone, Deserialize)]
pub struct DomainBody {
    pub domain: Domain,
}

/// A host name of a project.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Domain {
    #[serde(rename = "_id")]
    pub id: String,
    pub name: String,
    pub status: String,
    pub project: DomainProject,
    pub created_at: Timestamp,
    pub problem: Option<String>,
    pub records: Vec<DnsRecord>,
}

/// Whose domain it is.
#[derive(Debug, Clone, Deserialize)]
pub struct DomainProject {
    pub project_id: String,
}

/// A record that proves a domain.
#[derive(Debug, Clone, Deserialize)]
pub struct DnsRecord {
    #[serde(rename = "type")]
    pub kind: String,
    pub name: String,
    pub value: String,
}

/// An AI key, without itself.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Key {
    #[serde(rename = "_id")]
    pub id: String,
    pub name: String,
    pub workspaces: Vec<WorkspaceRef>,
    pub enabled: bool,
    pub created_at: Timestamp,
    pub expires_at: Option<Timestamp>,
    pub last_used_at: Option<Timestamp>,
}

/// A workspace of a key.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkspaceRef {
    pub name: String,
}

/// `GET /v1/workspaces`.
#[derive(Debug, Clone, Deserialize)]
pub struct WorkspaceList {
    pub workspaces: Vec<Workspace>,
}

/// A workspace.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Workspace {
    #[serde(rename = "_id")]
    pub id: String,
    pub name: String,
    pub created_at: Timestamp,
}

/// `GET /v1/models`.
#[derive(Debug, Clone, Deserialize)]
pub struct ModelList {
    pub data: Vec<serde_json::Value>,
}

/// What was used in one hour, day, week or month.
#[derive(Debug, Clone, Deserialize)]
pub struct Activity {
    pub date: String,
    pub data: Vec<ModelActivity>,
}

/// The same of one model.
#[derive(Debug, Clone, Deserialize)]
pub struct ModelActivity {
    pub model: String,
    pub total_tokens: u64,
    pub total_cost: serde_json::Value,
    pub request_count: u64,
}
