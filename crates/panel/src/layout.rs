//! The frame of every page: side bar, scope switch, toast.

use crate::assets;
use crate::icons::Icon;
use askama::filters::HtmlSafe;
use estrade_model::TeamId;
use estrade_model::team::{Role, Team};
use std::fmt;

/// Where a page is in the side bar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Section {
    Projects,
    Networks,
    Workspaces,
    Keys,
    Usage,
    Calls,
    Playground,
    Models,
    Team,
    Audit,
    Tokens,
    Sessions,
    Account,
    AdminAccounts,
    AdminProviders,
    AdminStatus,
    /// None of them.
    Other,
}

impl Section {
    /// Its first page.
    pub fn path(self) -> &'static str {
        match self {
            Self::Projects | Self::Other => "/panel/projects",
            Self::Networks => "/panel/networks",
            Self::Workspaces => "/panel/workspaces",
            Self::Keys => "/panel/keys",
            Self::Usage => "/panel/usage",
            Self::Calls => "/panel/calls",
            Self::Playground => "/panel/playground",
            Self::Models => "/panel/models",
            Self::Team => "/panel/team",
            Self::Audit => "/panel/audit",
            Self::Tokens => "/panel/tokens",
            Self::Sessions => "/panel/sessions",
            Self::Account => "/panel/account",
            Self::AdminAccounts => "/panel/admin/accounts",
            Self::AdminProviders => "/panel/admin/providers",
            Self::AdminStatus => "/panel/admin/status",
        }
    }

    /// What the side bar calls it.
    pub fn label(self) -> &'static str {
        match self {
            Self::Projects | Self::Other => "Projects",
            Self::Networks => "Networks",
            Self::Workspaces => "Workspaces",
            Self::Keys => "Keys",
            Self::Usage => "Usage",
            Self::Calls => "Calls",
            Self::Playground => "Playground",
            Self::Models => "Models",
            Self::Team => "Team",
            Self::Audit => "Audit log",
            Self::Tokens => "Tokens",
            Self::Sessions => "Sessions",
            Self::Account => "Account",
            Self::AdminAccounts => "Accounts",
            Self::AdminProviders => "Providers",
            Self::AdminStatus => "Status",
        }
    }

    /// Its picture.
    pub fn icon(self) -> Icon {
        Icon(match self {
            Self::Projects | Self::Other => "projects",
            Self::Networks => "network",
            Self::Workspaces => "workspaces",
            Self::Keys => "key",
            Self::Usage => "chart",
            Self::Calls => "calls",
            Self::Playground => "play",
            Self::Models => "model",
            Self::Team => "team",
            Self::Audit => "audit",
            Self::Tokens => "shield",
            Self::Sessions => "device",
            Self::Account => "person",
            Self::AdminAccounts => "accounts",
            Self::AdminProviders => "plug",
            Self::AdminStatus => "pulse",
        })
    }
}

/// A group of the side bar.
pub struct NavGroup {
    pub label: &'static str,
    pub sections: &'static [Section],
}

const GROUPS: &[NavGroup] = &[
    NavGroup {
        label: "Platform",
        sections: &[Section::Projects, Section::Networks],
    },
    NavGroup {
        label: "AI",
        sections: &[
            Section::Workspaces,
            Section::Keys,
            Section::Usage,
            Section::Calls,
            Section::Playground,
            Section::Models,
        ],
    },
    NavGroup {
        label: "People",
        sections: &[
            Section::Team,
            Section::Audit,
            Section::Tokens,
            Section::Sessions,
            Section::Account,
        ],
    },
];

const ADMINISTRATION: NavGroup = NavGroup {
    label: "Administration",
    sections: &[
        Section::AdminAccounts,
        Section::AdminProviders,
        Section::AdminStatus,
    ],
};

/// What a phone shows in its bar; the rest is behind its menu.
const BOTTOM_BAR: &[Section] = &[
    Section::Projects,
    Section::Keys,
    Section::Usage,
    Section::Team,
];

/// Who is signed in.
#[derive(Debug, Clone)]
pub struct Person {
    pub name: String,
    pub email: String,
    pub admin: bool,
}

/// What `layout.html` needs.
#[derive(Clone)]
pub struct Layout {
    pub title: String,
    pub section: Section,
    pub person: Person,
    /// The person's role in the scope.
    pub role: Role,
    pub team: Option<TeamId>,
    pub teams: Vec<Team>,
    /// Whether there are teams that the scope switch does not offer.
    pub more_teams: bool,
    pub toast: Option<String>,
    pub csrf: String,
}

/// An entry of the scope switch.
pub struct ScopeLink {
    pub name: String,
    pub href: String,
    pub current: bool,
}

impl Layout {
    /// A path of the panel in the same scope.
    pub fn href(&self, path: &str) -> String {
        with_team(path, self.team)
    }

    /// A command of `estrade` that does the same in this scope, to copy.
    pub fn command(&self, words: &str) -> String {
        match self.team {
            Some(team) => format!("estrade {words} --team {team}"),
            None => format!("estrade {words}"),
        }
    }

    /// Where a file of `assets/` is served.
    pub fn asset(&self, name: &str) -> &'static str {
        assets::url(name)
    }

    /// The hidden field that every form has.
    pub fn csrf_field(&self) -> CsrfField<'_> {
        CsrfField(&self.csrf)
    }

    /// Whether the person may do what needs this role.
    pub fn may(&self, role: Role) -> bool {
        self.role >= role
    }

    /// Whether the person may deploy, set variables and manage keys.
    pub fn may_change(&self) -> bool {
        self.may(Role::Developer)
    }

    /// Whether the person may manage members and delete.
    pub fn may_manage(&self) -> bool {
        self.may(Role::Admin)
    }

    /// The groups of the side bar.
    pub fn groups(&self) -> impl Iterator<Item = &'static NavGroup> {
        let administration = self.person.admin.then_some(&ADMINISTRATION);
        GROUPS.iter().chain(administration)
    }

    /// What a phone shows in its bar.
    pub fn bottom_bar(&self) -> &'static [Section] {
        BOTTOM_BAR
    }

    /// Whether the page is in this section.
    pub fn is_in(&self, section: &Section) -> bool {
        self.section == *section
    }

    /// Whether the page is in a section that is behind a phone's menu.
    pub fn is_in_menu(&self) -> bool {
        !BOTTOM_BAR.contains(&self.section)
    }

    /// The name of the scope.
    pub fn scope_name(&self) -> &str {
        let team = self
            .team
            .and_then(|id| self.teams.iter().find(|team| team.id == id));
        match (self.team, team) {
            (_, Some(team)) => &team.name,
            (Some(_), None) => "Team",
            (None, _) => &self.person.name,
        }
    }

    /// The scopes to switch to: each leads to the first page of the same section.
    pub fn scope_links(&self) -> Vec<ScopeLink> {
        let path = self.section.path();
        let own = ScopeLink {
            name: self.person.name.clone(),
            href: path.to_owned(),
            current: self.team.is_none(),
        };
        let team = |team: &Team| ScopeLink {
            name: team.name.clone(),
            href: with_team(path, Some(team.id)),
            current: self.team == Some(team.id),
        };
        std::iter::once(own)
            .chain(self.teams.iter().map(team))
            .collect()
    }

    /// The first letters of the person's name.
    pub fn initials(&self) -> String {
        let words = self.person.name.split_whitespace();
        let letters: String = words
            .filter_map(|word| word.chars().next())
            .take(2)
            .collect();
        letters.to_uppercase()
    }
}

/// A path with the scope's `?team=`.
pub fn with_team(path: &str, team: Option<TeamId>) -> String {
    let Some(team) = team else {
        return path.to_owned();
    };
    let (path, fragment) = match path.split_once('#') {
        Some((path, fragment)) => (path, format!("#{fragment}")),
        None => (path, String::new()),
    };
    let mark = if path.contains('?') { '&' } else { '?' };
    format!("{path}{mark}team={team}{fragment}")
}

/// The hidden field with the token of a session's forms.
pub struct CsrfField<'l>(&'l str);

impl fmt::Display for CsrfField<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, r#"<input type="hidden" name="csrf" value="{}">"#, self.0)
    }
}

// The token is hexadecimal.
impl HtmlSafe for CsrfField<'_> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scope_stays_in_links() {
        let team: TeamId = "0123456789abcdef01234567".parse().unwrap();
        let link = |path| with_team(path, Some(team));
        assert_eq!(link("/panel/keys"), format!("/panel/keys?team={team}"));
        assert_eq!(
            link("/panel/keys?a=b#c"),
            format!("/panel/keys?a=b&team={team}#c")
        );
        assert_eq!(with_team("/panel/keys", None), "/panel/keys");
    }
}
