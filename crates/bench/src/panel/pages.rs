//! Which pages are measured.

use super::project;
use super::visitor::{Visitor, link, text};

/// Without anything of one account in their address.
const PAGES: &[&str] = &[
    "/panel/projects",
    "/panel/projects?q=bench-04",
    "/panel/projects?q=of-no-project",
    "/panel/new-project",
    "/panel/networks",
    "/panel/workspaces",
    "/panel/keys",
    "/panel/keys?q=k",
    "/panel/keys?q=of-no-key",
    "/panel/keys/new",
    "/panel/usage",
    "/panel/usage?by=hour",
    "/panel/usage?by=week",
    "/panel/usage?by=month",
    "/panel/usage?model=estrade%2Fecho",
    "/panel/calls",
    "/panel/calls?status=500",
    "/panel/calls?model=estrade%2Fecho",
    "/panel/playground",
    "/panel/models",
    "/panel/team",
    "/panel/tokens",
    "/panel/tokens/new",
    "/panel/sessions",
    "/panel/account",
    "/panel/audit",
    "/panel/audit?action=project.delete",
    "/panel/audit?action=key",
    "/panel/admin/accounts",
    "/panel/admin/accounts?q=admin",
    "/panel/admin/providers",
    "/panel/admin/status",
];

/// Of one project.
const TABS: &[&str] = &[
    "",
    "/releases",
    "/logs",
    "/environment",
    "/domains",
    "/disks",
    "/metrics",
    "/settings",
    "/deploy",
];

/// Of the team of the account, which has nothing else.
const OF_TEAM: &[&str] = &[
    "projects",
    "keys",
    "usage",
    "calls",
    "team",
    "team/invite",
    "audit",
];

/// Every page, with those of a project, of a key, of a team, and the second ones of the long lists.
pub(super) fn list(visitor: &Visitor, projects: usize, team: &str) -> anyhow::Result<Vec<String>> {
    let mut pages: Vec<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    let one = format!("/panel/projects/{}", project(projects / 2));
    pages.extend(TABS.iter().map(|tab| format!("{one}{tab}")));
    for list in ["releases", "domains"] {
        let list = format!("{one}/{list}");
        let shown = text(&visitor.get(&list)?);
        pages.push(link(&shown, &format!("{list}/"), "")?);
    }
    let in_team = |page: &&str| format!("/panel/{page}?team={team}");
    pages.extend(OF_TEAM.iter().map(in_team));
    for list in [
        "/panel/projects",
        "/panel/keys",
        "/panel/calls",
        "/panel/audit",
    ] {
        let first = text(&visitor.get(list)?);
        pages.push(link(&first, &format!("{list}?"), "before=")?);
    }
    let keys = text(&visitor.get("/panel/keys")?).replace("/panel/keys/new", "");
    let key = link(&keys, "/panel/keys/", "")?;
    let key_id = key.trim_start_matches("/panel/keys/");
    pages.push(format!("/panel/usage?key={key_id}"));
    pages.push(format!("/panel/calls?key={key_id}"));
    let calls = text(&visitor.get("/panel/calls")?);
    pages.push(link(&calls, "/panel/calls/", "")?);
    let workspaces = text(&visitor.get("/panel/workspaces")?);
    let workspace = link(&workspaces, "/panel/workspaces/", "")?;
    let workspace_id = workspace.trim_start_matches("/panel/workspaces/");
    pages.push(format!("/panel/keys?workspace={workspace_id}"));
    pages.push(format!("/panel/usage?workspace={workspace_id}"));
    pages.extend([key, workspace]);
    Ok(pages)
}

/// A path as a reader of the table knows it.
pub(super) fn name(path: &str) -> String {
    match path.split_once('?') {
        Some((path, query)) if query.contains("before=") => format!("{path}, second page"),
        _ => path.to_owned(),
    }
}
