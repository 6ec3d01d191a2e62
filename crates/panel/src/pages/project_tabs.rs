//! What all pages of one project begin with: its name, state, address, main actions and tabs.

use crate::{Layout, Visit};
use estrade_model::platform::Platform;
use estrade_model::project::{Project, ProjectStatus};
use estrade_model::team::Role;

/// The page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProjectTab {
    Overview,
    Releases,
    Logs,
    Environment,
    Domains,
    Disks,
    Settings,
}

impl ProjectTab {
    const ALL: [(Self, &'static str, &'static str); 7] = [
        (Self::Overview, "Overview", ""),
        (Self::Releases, "Releases", "/releases"),
        (Self::Logs, "Logs", "/logs"),
        (Self::Environment, "Environment", "/environment"),
        (Self::Domains, "Domains", "/domains"),
        (Self::Disks, "Disks", "/disks"),
        (Self::Settings, "Settings", "/settings"),
    ];
}

/// How a project is doing, as a word with a colour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProjectBadge {
    /// `ok`, `busy`, `bad` or `off`.
    pub kind: &'static str,
    pub text: String,
}

impl ProjectBadge {
    /// The badge of a project.
    pub fn of(project: &Project) -> Self {
        let (kind, text) = match project.status {
            ProjectStatus::Suspended => ("bad", "Suspended".to_owned()),
            ProjectStatus::CrashLoop => ("bad", "Crash loop".to_owned()),
            ProjectStatus::Deploying => ("busy", "Deploying".to_owned()),
            ProjectStatus::Active if !project.is_deployed => ("off", "Not deployed".to_owned()),
            ProjectStatus::Active if project.scale == 0 => ("off", "Switched off".to_owned()),
            ProjectStatus::Active if project.platform == Platform::Static => {
                ("ok", "Live".to_owned())
            }
            ProjectStatus::Active if project.scale == 1 => ("ok", "Running".to_owned()),
            ProjectStatus::Active => ("ok", format!("Running · {} instances", project.scale)),
        };
        Self { kind, text }
    }
}

/// A tab as the page links to it.
pub struct TabLink {
    pub label: &'static str,
    pub href: String,
    pub is_current: bool,
}

/// The head of a project's pages, for `projects/tabs.html`.
pub struct ProjectTabs {
    pub name: String,
    /// Where it is served; empty when nowhere.
    pub url: String,
    /// The address without its scheme.
    pub host: String,
    pub badge: ProjectBadge,
    /// Whether the person may deploy and change it.
    pub can_change: bool,
    /// Whether the head has the main actions.
    pub has_actions: bool,
    /// Whether the person may delete it and what is in it.
    pub can_delete: bool,
    pub projects_href: String,
    /// Where it is restarted, when it has instances.
    pub restart_href: Option<String>,
    pub deploy_href: String,
    pub links: Vec<TabLink>,
}

impl ProjectTabs {
    /// The head of the page `current` of a project, as this person sees it.
    pub fn new(visit: &Visit, project: &Project, current: ProjectTab) -> Self {
        let at = |rest: &str| visit.href(&format!("/panel/projects/{}{rest}", project.project_id));
        let link = |(tab, label, path): (ProjectTab, &'static str, &str)| TabLink {
            label,
            href: at(path),
            is_current: tab == current,
        };
        let role = visit.scope.role;
        let can_change = role >= Role::Developer;
        let runs = project.platform != Platform::Static && project.is_deployed;
        Self {
            name: project.project_id.clone(),
            host: host_of(&project.url).to_owned(),
            url: project.url.clone(),
            badge: ProjectBadge::of(project),
            can_change,
            has_actions: can_change,
            can_delete: role >= Role::Admin,
            projects_href: visit.href("/panel/projects"),
            restart_href: (runs && project.scale > 0).then(|| at("/restart")),
            deploy_href: at("/deploy"),
            links: ProjectTab::ALL.into_iter().map(link).collect(),
        }
    }

    /// A command of `estrade` about this project, to copy.
    pub fn command(&self, layout: &Layout, words: &str) -> String {
        layout.command(&format!("{words} --project {}", self.name))
    }

    /// The same head for a page that has an action of its own: a second one beside it would compete.
    #[must_use]
    pub fn without_actions(mut self) -> Self {
        self.has_actions = false;
        self
    }
}

fn host_of(url: &str) -> &str {
    url.split_once("://").map_or(url, |(_, host)| host)
}
