//! The one place where a release changes its state.

use super::naming::tag;
use crate::platform::events::{NewEvent, record_events};
use crate::{Error, Result, Settings};
use estrade_model::release::ReleaseState;
use estrade_model::{ReleaseId, Timestamp};
use estrade_store::release_queue::{self, FinishedRelease};
use estrade_store::{ChangeKind, Tx, projects};
use std::time::Duration;

/// Longest message of a failure, in characters.
const MAX_MESSAGE_CHARS: usize = 8000;
/// How long a release may wait in the queue: behind others of its project, and for a build slot. Others
/// may have builds that take long, so this is no measure of anything but a queue that does not move.
pub(super) const MAX_QUEUED: Duration = Duration::from_hours(24);
/// How long a release may be PENDING once a worker has claimed it.
const MAX_PENDING: Duration = Duration::from_mins(15);
/// What an engine may need besides a build: to fetch, to unpack, to name.
const BUILD_OVERHEAD: Duration = Duration::from_mins(1);

/// How long a release may stay in a state.
pub(super) fn time_allowed(settings: &Settings, state: ReleaseState) -> Duration {
    match state {
        ReleaseState::Pending => MAX_PENDING,
        ReleaseState::Building => settings.containers.build_limit + BUILD_OVERHEAD,
        ReleaseState::Deploying => Duration::from_mins(2),
        _ => Duration::ZERO,
    }
}

/// Why a release ended badly.
#[derive(Debug, Clone)]
pub struct Failure {
    /// A stable code for programs.
    pub reason: &'static str,
    /// For a person, with what to do.
    pub message: String,
}

/// Sanitises untrusted text, such as the output of a program, for storage and display: bounds its length and
/// removes control characters.
pub(crate) fn presentable(text: &str) -> String {
    let visible = |c: &char| *c == '\n' || !c.is_control();
    let mut kept: String = text
        .chars()
        .filter(visible)
        .take(MAX_MESSAGE_CHARS)
        .collect();
    if kept.len() < text.len() && text.chars().nth(MAX_MESSAGE_CHARS).is_some() {
        kept.push('…');
    }
    kept
}

/// A move through one or more states, with nothing to do in between.
pub(super) struct Transition<'t> {
    pub(super) release: ReleaseId,
    pub(super) from: ReleaseState,
    pub(super) through: &'t [ReleaseState],
    /// The lease of the worker; none for a transition from outside, such as a cancellation.
    pub(super) lease: Option<&'t str>,
    /// Until when it may stay where it goes, if that is not an end.
    pub(super) deadline: Timestamp,
    pub(super) failure: Option<&'t Failure>,
}

/// Moves a release to another state, records an event for each step and notifies the change feed.
///
/// False when it is not in the expected state, or the lease was lost: then nothing was changed, and its
/// worker must stop.
pub(super) async fn apply_transition(
    tx: &mut Tx,
    transition: &Transition<'_>,
    now: Timestamp,
) -> Result<bool> {
    let to = last_step(transition)?;
    let message = transition
        .failure
        .map(|failure| (failure.reason, presentable(&failure.message)));
    let moved = if to.is_terminal() {
        let ending = FinishedRelease {
            state: to,
            at: now,
            failure: message
                .as_ref()
                .map(|(reason, message)| (*reason, message.as_str())),
        };
        release_queue::finish_release(
            tx,
            transition.release,
            transition.from,
            transition.lease,
            &ending,
        )
        .await?
    } else {
        let lease = transition
            .lease
            .ok_or_else(|| Error::internal("only a worker moves a release that goes on"))?;
        let step = (transition.from, to);
        release_queue::advance_release(tx, transition.release, step, lease, transition.deadline)
            .await?
    };
    let Some(moved) = moved else {
        return Ok(false);
    };
    if to == ReleaseState::Ready {
        projects::set_current_release(tx, moved.project, transition.release, now).await?;
        tx.changed(ChangeKind::Route, moved.project, now).await?;
    }
    let step = |state: &ReleaseState| NewEvent {
        action: "release",
        status: state.to_string(),
        release: Some((transition.release, tag(moved.number))),
    };
    let steps = transition.through.iter().map(step).collect();
    record_events(tx, moved.project, steps, now).await?;
    tx.changed(ChangeKind::Release, transition.release, now)
        .await?;
    Ok(true)
}

/// The last state, if every step is allowed.
fn last_step(transition: &Transition<'_>) -> Result<ReleaseState> {
    transition
        .through
        .iter()
        .try_fold(transition.from, |from, &to| {
            from.may_become(to).then_some(to)
        })
        .filter(|to| *to != transition.from)
        .ok_or_else(|| {
            Error::internal(format!(
                "no transition from {} through {:?}",
                transition.from, transition.through
            ))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_anybody_are_bounded_and_steer_nothing() {
        assert_eq!(presentable("exit 1\nlast line"), "exit 1\nlast line");
        assert_eq!(presentable("a\0b\u{1b}[31mc\r"), "ab[31mc");
        let long = presentable(&"é".repeat(MAX_MESSAGE_CHARS + 1));
        assert_eq!(long.chars().count(), MAX_MESSAGE_CHARS + 1);
        assert!(long.ends_with('…'));
    }
}
