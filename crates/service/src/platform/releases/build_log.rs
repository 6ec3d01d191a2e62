//! The build log of a release.
//!
//! Lines are buffered until the next commit of the release: a line costs no fsync of its own.

use super::naming::NOT_FOUND;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope};
use estrade_model::release::{BuildLine, BuildLogs, BuildState, LineId, ReleaseState};
use estrade_model::{ReleaseId, Timestamp};
use estrade_store::build_logs::{self, LineRow};
use estrade_store::{Tx, releases};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::time::Duration;

/// Longest line, in characters.
const MAX_LINE_CHARS: usize = 2000;
/// Most lines of one response; a follower requests the next ones after the last.
const MAX_LINES: u32 = 1000;
/// How often a follower looks for lines.
const FOLLOW_INTERVAL: Duration = Duration::from_millis(500);

/// Lines that wait to be written.
#[derive(Debug, Default)]
pub(super) struct BuildLog(Vec<String>);

impl BuildLog {
    /// Adds a line.
    pub(super) fn push(&mut self, line: impl AsRef<str>) {
        let printable = line.as_ref().chars().filter(|c| !c.is_control());
        self.0.push(printable.take(MAX_LINE_CHARS).collect());
    }

    /// Writes the lines after those that the release has.
    pub(super) async fn write(
        &self,
        tx: &mut Tx,
        release: ReleaseId,
        now: Timestamp,
    ) -> Result<()> {
        Ok(build_logs::append_lines(tx, release, &self.0, now).await?)
    }
}

/// Notes what the maker of a release should know, with the release and in its log.
pub(super) async fn note_warnings(
    tx: &mut Tx,
    release: ReleaseId,
    warnings: &[String],
    now: Timestamp,
) -> Result<()> {
    if warnings.is_empty() {
        return Ok(());
    }
    let json = serde_json::to_string(warnings).map_err(Error::internal)?;
    releases::set_warnings(tx, release, &json).await?;
    let mut log = BuildLog::default();
    for warning in warnings {
        log.push(format!("Warning: {warning}"));
    }
    log.write(tx, release, now).await
}

/// The build log of a release strictly after `since`, and the state of the release.
pub async fn read_build_logs(
    core: &Core,
    scope: &Scope,
    id: ReleaseId,
    since: Option<Timestamp>,
) -> Result<BuildLogs> {
    // The state first: a reader that sees a terminal state gets every line with it at the latest.
    let row = releases::read_release(&core.db, scope.projects(ProjectOperation::Read)?, id).await?;
    let row = row.ok_or(NOT_FOUND)?;
    let lines = build_logs::list_lines(&core.db, id, since, MAX_LINES).await?;
    let build_output = lines
        .into_iter()
        .map(|line| on_the_wire(id, line))
        .collect::<Result<_>>()?;
    Ok(BuildLogs {
        release: BuildState {
            state: row.state,
            fail_reason: row.fail_reason,
            fail_message: row.fail_message,
        },
        build_output,
    })
}

/// Follows the build log of a release, from a line that was seen on.
pub fn follow_build_log(
    core: &Arc<Core>,
    scope: &Scope,
    id: ReleaseId,
    after: Option<Timestamp>,
) -> BuildLogFollower {
    BuildLogFollower {
        core: Arc::clone(core),
        scope: scope.clone(),
        id,
        after,
        state: None,
    }
}

/// Reads the lines of a release as they are written.
pub struct BuildLogFollower {
    core: Arc<Core>,
    scope: Scope,
    id: ReleaseId,
    after: Option<Timestamp>,
    /// The state that was last returned.
    state: Option<ReleaseState>,
}

impl BuildLogFollower {
    /// Waits for the next lines or another state; none once the release has ended and every line was returned.
    ///
    /// A call that is dropped while it waits loses nothing.
    pub fn next_lines(&mut self) -> BoxFuture<'_, Result<Option<BuildLogs>>> {
        Box::pin(async move {
            loop {
                // A member who was removed from the team since the stream began gets no more lines.
                self.scope = self.scope.renew(&self.core).await?;
                let logs = read_build_logs(&self.core, &self.scope, self.id, self.after).await?;
                let state = logs.release.state;
                if !logs.build_output.is_empty() || self.state != Some(state) {
                    let last = logs.build_output.last().map(|line| line.created_at);
                    self.after = last.or(self.after);
                    self.state = Some(state);
                    return Ok(Some(logs));
                }
                if state.is_terminal() {
                    return Ok(None);
                }
                tokio::time::sleep(FOLLOW_INTERVAL).await;
            }
        })
    }
}

fn on_the_wire(release: ReleaseId, LineRow { at, line }: LineRow) -> Result<BuildLine> {
    Ok(BuildLine {
        id: line_id(release, at)?,
        release_id: release,
        line: format!("{line}\n"),
        stream: "STDOUT",
        created_at: at,
    })
}

/// The time of a line, which is unique within its release, and the end of the release's id.
fn line_id(release: ReleaseId, at: Timestamp) -> Result<LineId> {
    let release = release.to_string();
    Ok(format!("{:012x}{}", at.millis(), &release[12..]).parse()?)
}
