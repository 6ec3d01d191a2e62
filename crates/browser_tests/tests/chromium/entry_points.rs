//! Where to begin, so that links lead to every page.

use crate::furnish::Furnished;

/// Pages that are not there, or not for this person: which are pages, too.
const REFUSED: [&str; 3] = [
    "/panel/no-such-page",
    "/panel/welcome/used",
    "/panel/projects?team=ffffffffffffffffffffffff",
];
/// Pages that look different in a team, or are there only in one.
const IN_A_TEAM: [&str; 8] = [
    "projects",
    "keys",
    "team",
    "team/invite",
    "team/delete",
    "audit",
    "new-project",
    "workspaces",
];

/// Also what no link leads to, and the same of a team.
pub(crate) fn everywhere(furnished: &Furnished) -> Vec<String> {
    let team = &furnished.team;
    let mut paths: Vec<String> = ["projects", "keys", "audit", "confirm"]
        .map(|page| format!("/panel/{page}"))
        .into();
    paths.extend(REFUSED.map(str::to_owned));
    paths.extend(IN_A_TEAM.map(|page| format!("/panel/{page}?team={team}")));
    paths
}

/// Whether a page is one of those that say no.
pub(crate) fn is_refused(path: &str) -> bool {
    REFUSED.contains(&path)
}
