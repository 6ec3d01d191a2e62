//! Why a shell ended, and the close frame for it.

use crate::shell_slots::{MAX_SHELLS, MAX_SHELLS_PER_OWNER, TooMany};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use estrade_service::platform::containers::shell::NoShell;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::timeout;

/// How long a client may take to acknowledge the close frame.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
/// What fits into a close frame beside its code.
const MAX_REASON_BYTES: usize = 123;

/// Why a shell ended.
#[derive(Debug)]
pub(super) enum CloseReason {
    /// The command ended; none: its exit code is unknown.
    Exited(Option<i64>),
    /// The client has left.
    Disconnected,
    /// A frame made no sense.
    BadFrame,
    /// A message was too large, or not of a WebSocket.
    Malformed,
    /// The caller may not use it any more.
    NotAllowed,
    /// There is no shell.
    None(NoShell),
    /// It lasted as long as one may.
    TooLong,
    /// Too many are open.
    TooMany(TooMany),
    /// The server stops.
    Stopping,
}

impl CloseReason {
    /// The close frame; none: the client is gone.
    fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Disconnected => return None,
            Self::Exited(Some(code)) => (1000, format!("exit code {code}")),
            Self::Exited(None) => (1000, "it has ended".to_owned()),
            Self::Stopping => (
                1001,
                "the server stops; connect again in a moment".to_owned(),
            ),
            Self::Malformed => (1009, "a message may have 64 KiB at most".to_owned()),
            Self::None(NoShell::Failed(reason)) => (1011, reason.clone()),
            Self::BadFrame => (
                4400,
                "send {action:\"start\"} first, then {type:\"input\"} or {type:\"resize\"}"
                    .to_owned(),
            ),
            Self::NotAllowed => (4401, "you may not use this shell any more".to_owned()),
            Self::None(nothing @ NoShell::NothingRuns) => (4404, nothing.to_string()),
            Self::TooLong => (4408, "a shell may last 8 hours".to_owned()),
            Self::TooMany(TooMany::OfOwner) => (
                4429,
                format!(
                    "{MAX_SHELLS_PER_OWNER} shells of this owner are open on this node; close one"
                ),
            ),
            Self::TooMany(TooMany::OfAll) => (
                4429,
                format!("{MAX_SHELLS} shells are open on this node; try again later"),
            ),
        };
        Some(CloseFrame {
            code,
            reason: truncate(reason).into(),
        })
    }

    /// Sends the close frame and waits for the client to take it.
    pub(super) async fn send_close(
        self,
        mut sink: SplitSink<WebSocket, Message>,
        mut stream: SplitStream<WebSocket>,
    ) {
        let Some(frame) = self.frame() else {
            return;
        };
        let close = async {
            sink.send(Message::Close(Some(frame))).await.ok()?;
            // To close with something unread would take the frame away from the client.
            while let Some(Ok(_)) = stream.next().await {}
            Some(())
        };
        let _ = timeout(CLOSE_TIMEOUT, close).await;
    }
}

fn truncate(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(MAX_REASON_BYTES));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_fit_into_a_frame() {
        let long = CloseReason::None(NoShell::Failed("é".repeat(100)));
        let frame = long.frame().unwrap();
        assert_eq!(frame.reason.len(), 122);
        for end in [
            CloseReason::Exited(Some(-1)),
            CloseReason::Exited(None),
            CloseReason::BadFrame,
            CloseReason::Malformed,
            CloseReason::NotAllowed,
            CloseReason::None(NoShell::NothingRuns),
            CloseReason::TooLong,
            CloseReason::TooMany(TooMany::OfOwner),
            CloseReason::TooMany(TooMany::OfAll),
            CloseReason::Stopping,
        ] {
            let whole = end.frame().unwrap().reason.len();
            assert!(whole < MAX_REASON_BYTES, "{end:?} is cut off");
        }
        assert!(CloseReason::Disconnected.frame().is_none());
    }
}
