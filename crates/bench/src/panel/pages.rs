//! Which pages are measured.

use super::project;
use super::visitor::{Visitor, link, text};

/// Without anything of one account in their address.
const PAGES: &[&str] = &[
    "/panel/projects",
    "/panel/projects?q=bench-04",
    "/panel/projects?q=of-no-project",
    "/panel/new-project",
    "/panel/workspaces",
    "/panel/keys",
    "/panel/keys/new",
    "/panel/usage",
    "/panel/usage?by=hour",
    "/panel/usage?by=week",
    "/panel/usage?by=month",
    "/panel/usage?model=estrade%2Fecho",
    "/panel/calls",
    "/panel/calls?status=500",
    "/panel/playground",
    "/panel/models",
    "/panel/team",
    "/panel/tokens",
    "/panel/sessions",
    "/panel/account",
    "/panel/audit",
    "/panel/audit?action=project.delete",
    "/panel/audit?action=key",
    "/panel/admin/accounts",
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
];

/// Every page, with those of a project, of a key, and the second ones of the long lists.
pub(super) fn list(visitor: &Visitor, projects: usize) -> anyhow::Result<Vec<String>> {
    let mut pages: Vec<String> = PAGES.iter().map(|&page| page.to_owned()).collect();
    let one = format!("/panel/projects/{}", project(projects / 2));
    pages.extend(TABS.iter().map(|tab| format!("{one}{tab}")));
    for list in ["/panel/projects", "/panel/keys", "/panel/calls"] {
        let first = text(&visitor.get(list)?);
        pages.push(link(&first, &format!("{list}?"), "before=")?);
    }
    let keys = text(&visitor.get("/panel/keys")?).replace("/panel/keys/new", "");
    pages.push(link(&keys, "/panel/keys/", "")?);
    Ok(pages)
}

/// A path as a reader of the table knows it.
pub(super) fn name(path: &str) -> String {
    match path.split_once('?') {
        Some((path, query)) if query.contains("before=") => format!("{path}, second page"),
        _ => path.to_owned(),
    }
}
