//! The services' part of the configuration: values only, no state.

mod containers;
mod domains;

pub use containers::ContainerSettings;
pub(crate) use containers::LOG_RETENTION;
pub use domains::DomainSettings;
pub use estrade_ledger::UsageSettings;

use estrade_model::plan::Plans;
use std::time::Duration;

/// What happens to a workspace name that the owner does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum UnknownWorkspace {
    /// It is created.
    #[default]
    Create,
    /// The request is refused.
    Reject,
}

/// How much one owner may have; 0 is without limit.
#[derive(Debug, Clone)]
pub struct Quotas {
    /// Projects.
    pub projects: u64,
    /// AI keys.
    pub keys: u64,
    /// Workspaces.
    pub workspaces: u64,
    /// Tokens that an account made and that have not ended.
    pub tokens: u64,
    /// Teams that an account owns.
    pub teams: u64,
    /// Networks, the default one included.
    pub networks: u64,
    /// Domains of all projects together.
    pub domains: u64,
}

#[derive(Debug, Clone)]
pub struct Settings {
    /// The plans of this installation.
    pub plans: Plans,
    /// Quotas per owner.
    pub quotas: Quotas,
    /// Most instances of one project.
    pub max_instances: u32,
    /// Most files of one release.
    pub max_files: usize,
    /// Most bytes of one release request.
    pub max_release_bytes: u64,
    /// What to do with unknown workspace names.
    pub unknown_workspace: UnknownWorkspace,
    /// Failed logins per account before the next ones have to wait; 0 is without limit.
    pub login_failures_per_account: u32,
    /// Failed logins per address before the next ones have to wait; 0 is without limit.
    pub login_failures_per_address: u32,
    /// Whether invitations of people who are no administrators make accounts.
    pub invitations_create_accounts: bool,
    /// How many releases of a project keep what they were made of.
    pub release_history: u32,
    /// How long after it stopped being live the assets of a release stay reachable.
    pub skew: Duration,
    /// How long files that nothing names stay in the blob store.
    pub min_orphan_age: Duration,
    /// Where the platform API is reached, for links.
    pub public_url: String,
    /// The same where the configuration says it; otherwise a client finds the panel where it found the API.
    pub platform_public_url: Option<String>,
    /// Where the AI API is reached, for what people copy.
    pub ai_url: String,
    /// The same where the configuration says it; otherwise a client finds it beside the platform API.
    pub ai_public_url: Option<String>,
    /// What stands before a project's name in its URL, such as `http://`.
    pub edge_scheme: String,
    /// What stands behind it, such as `localhost:8080`.
    pub edge_authority: String,
    /// Host names of projects.
    pub domains: DomainSettings,
    /// How calls are accounted for.
    pub usage: UsageSettings,
    pub containers: ContainerSettings,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            plans: Plans::default(),
            quotas: Quotas {
                projects: 1000,
                keys: 100_000,
                workspaces: 10_000,
                tokens: 1000,
                teams: 1000,
                networks: 100,
                domains: 1000,
            },
            max_instances: 10,
            max_files: 10_000,
            max_release_bytes: 256 << 20,
            unknown_workspace: UnknownWorkspace::Create,
            login_failures_per_account: 10,
            login_failures_per_address: 50,
            invitations_create_accounts: false,
            release_history: 20,
            skew: Duration::from_hours(1),
            min_orphan_age: Duration::from_hours(24),
            public_url: "http://127.0.0.1:3000".into(),
            platform_public_url: None,
            ai_url: "http://127.0.0.1:3100".into(),
            ai_public_url: None,
            edge_scheme: "http".into(),
            edge_authority: "localhost:8080".into(),
            domains: DomainSettings::default(),
            usage: UsageSettings::default(),
            containers: ContainerSettings::default(),
        }
    }
}

impl Settings {
    /// Where a project is served.
    pub fn project_url(&self, name: &str) -> String {
        format!("{}://{name}.{}", self.edge_scheme, self.edge_authority)
    }

    /// Where a domain of a project is served: on the same port as the default subdomains.
    pub fn domain_url(&self, host: &str) -> String {
        let port = self.edge_authority.rsplit_once(':');
        let port = port.map_or_else(String::new, |(_, port)| format!(":{port}"));
        format!("{}://{host}{port}", self.edge_scheme)
    }
}
