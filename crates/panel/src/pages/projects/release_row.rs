//! A release as tables and its own page show it.

use super::printable::short;
use crate::Visit;
use estrade_model::Timestamp;
use estrade_model::release::{Release, ReleaseState, ReleaseType};
use estrade_model::team::Role;
use estrade_service::platform::releases::AuthoredRelease;
use serde_json::Value;

/// Longest message in a table, in characters.
const MAX_MESSAGE_CHARS: usize = 160;
/// Longest name of a client or branch, in characters.
const MAX_NAME_CHARS: usize = 80;

/// What a row says.
pub(super) struct ReleaseRow {
    pub tag: String,
    pub href: String,
    /// `ok`, `busy`, `bad` or `off`.
    pub badge: &'static str,
    pub state: String,
    pub message: String,
    pub author: String,
    pub created_at: Timestamp,
    /// How long it took; empty while it is on its way.
    pub took: String,
    /// The commit and the branch, as far as the client named them; else the client.
    pub source: String,
    pub is_failed: bool,
    /// Where the person confirms a rollback to it; none when it cannot come back, or they may not.
    pub rollback_href: Option<String>,
    pub cancel_href: Option<String>,
}

impl ReleaseRow {
    pub(super) fn new(visit: &Visit, project: &str, authored: AuthoredRelease) -> Self {
        let AuthoredRelease { release, author } = authored;
        let path = format!("/panel/projects/{project}/releases/{}", release.id);
        let may_change = visit.scope.role >= Role::Developer;
        let can_return = release.state == ReleaseState::Ready && !release.current;
        let can_cancel = release.state.is_cancelable();
        let (badge, state) = badge_of(&release);
        Self {
            badge,
            state,
            message: message_of(&release),
            author: author.map_or_else(
                || author_of(release.kind).to_owned(),
                |name| short(&name, MAX_NAME_CHARS),
            ),
            created_at: release.created_at,
            took: took(&release),
            source: source_of(&release),
            is_failed: badge == "bad",
            rollback_href: (may_change && can_return)
                .then(|| visit.href(&format!("{path}/rollback"))),
            cancel_href: (may_change && can_cancel).then(|| visit.href(&format!("{path}/cancel"))),
            href: visit.href(&path),
            tag: release.tag,
        }
    }
}

/// The state of a release as a word with a colour.
fn badge_of(release: &Release) -> (&'static str, String) {
    let waiting = || match release.queue {
        Some(ahead) if ahead > 0 => format!("Waiting, {ahead} ahead"),
        _ => "Waiting".to_owned(),
    };
    match release.state {
        ReleaseState::Ready if release.current => ("ok", "Current".to_owned()),
        ReleaseState::Ready => ("off", "Ready".to_owned()),
        ReleaseState::Pending => ("busy", waiting()),
        ReleaseState::Building => ("busy", "Building".to_owned()),
        ReleaseState::Deploying => ("busy", "Deploying".to_owned()),
        ReleaseState::Unhealthy => ("bad", "Unhealthy".to_owned()),
        ReleaseState::Failed => ("bad", "Failed".to_owned()),
        ReleaseState::TimedOut => ("bad", "Timed out".to_owned()),
        ReleaseState::Canceled => ("off", "Canceled".to_owned()),
    }
}

fn message_of(release: &Release) -> String {
    let said = release
        .message
        .as_deref()
        .or_else(|| git_text(release, &["message", "subject"]));
    match said.map(|text| short(text, MAX_MESSAGE_CHARS)) {
        Some(text) if !text.is_empty() => text,
        _ => kind_label(release.kind).to_owned(),
    }
}

/// Why a release was made.
pub(super) fn kind_label(kind: ReleaseType) -> &'static str {
    match kind {
        ReleaseType::Deploy => "Deploy",
        ReleaseType::EnvUpdate => "Environment updated",
        ReleaseType::Rollback => "Roll back",
        ReleaseType::AutoRollback => "Automatic roll back",
    }
}

fn author_of(kind: ReleaseType) -> &'static str {
    match kind {
        ReleaseType::AutoRollback => "Estrade",
        _ => "",
    }
}

fn git_text<'r>(release: &'r Release, names: &[&str]) -> Option<&'r str> {
    let Some(Value::Object(info)) = &release.git_info else {
        return None;
    };
    names.iter().find_map(|name| info.get(*name)?.as_str())
}

fn source_of(release: &Release) -> String {
    let commit = git_text(
        release,
        &["commit", "commitSha", "sha", "hash", "commitHash"],
    );
    let branch = git_text(release, &["branch", "ref", "branchName"]);
    let commit = commit.map(|text| short(text, 10).trim_end_matches('…').to_owned());
    let branch = branch.map(|text| short(text, MAX_NAME_CHARS));
    match (commit, branch) {
        (Some(commit), Some(branch)) => format!("{commit} on {branch}"),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => release
            .client
            .as_deref()
            .map(client_label)
            .unwrap_or_default(),
    }
}

/// `curl/8.5.0`; a browser is one that was used here.
fn client_label(client: &str) -> String {
    if client.starts_with("Mozilla/") {
        return "panel".to_owned();
    }
    let first = client.split_whitespace().next().unwrap_or_default();
    short(first, MAX_NAME_CHARS)
}

fn took(release: &Release) -> String {
    let Some(finished) = release.finished_at else {
        return String::new();
    };
    let millis = (finished.millis() - release.created_at.millis()).max(0);
    match millis {
        0..1000 => format!("{millis} ms"),
        1000..60_000 => format!("{} s", millis / 1000),
        _ => format!("{} min {} s", millis / 60_000, millis / 1000 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_is_its_first_word() {
        assert_eq!(client_label("curl/8.5.0"), "curl/8.5.0");
        assert_eq!(client_label("estrade/1.0 (linux)"), "estrade/1.0");
        assert_eq!(client_label("Mozilla/5.0 (X11; Linux)"), "panel");
        assert_eq!(client_label(""), "");
    }
}
