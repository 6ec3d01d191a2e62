//! Why a shell ended, and how its client hears of it.

use super::slots::{MAX_SHELLS, MAX_SHELLS_PER_OWNER, TooMany};
use axum::extract::ws::{CloseFrame, Message, WebSocket};
use estrade_service::platform::containers::shell::NoShell;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::time::timeout;

/// How long a client may take to hear it.
const GOODBYE: Duration = Duration::from_secs(2);
/// What fits into a close frame beside its code.
const LONGEST_REASON: usize = 123;

/// Why a shell ended.
#[derive(Debug)]
pub(super) enum End {
    /// The command ended; none: nobody knows with which code.
    Exited(Option<i64>),
    /// The client has left.
    Gone,
    /// A frame made no sense.
    Nonsense,
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

impl End {
    /// The code and the reason; none: nobody is there to read them.
    fn frame(&self) -> Option<CloseFrame> {
        let (code, reason) = match self {
            Self::Gone => return None,
            Self::Exited(Some(code)) => (1000, format!("exit code {code}")),
            Self::Exited(None) => (1000, "it has ended".to_owned()),
            Self::Stopping => (
                1001,
                "the server stops; connect again in a moment".to_owned(),
            ),
            Self::Malformed => (1009, "a message may have 64 KiB at most".to_owned()),
            Self::None(NoShell::Failed(reason)) => (1011, reason.clone()),
            Self::Nonsense => (
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
            reason: shortened(reason).into(),
        })
    }

    /// Says goodbye.
    pub(super) async fn tell(
        self,
        mut sink: SplitSink<WebSocket, Message>,
        mut stream: SplitStream<WebSocket>,
    ) {
        let Some(frame) = self.frame() else {
            return;
        };
        let goodbye = async {
            sink.send(Message::Close(Some(frame))).await.ok()?;
            // To close with something unread would take the frame away from the client.
            while let Some(Ok(_)) = stream.next().await {}
            Some(())
        };
        let _ = timeout(GOODBYE, goodbye).await;
    }
}

fn shortened(mut reason: String) -> String {
    reason.truncate(reason.floor_char_boundary(LONGEST_REASON));
    reason
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_fit_into_a_frame() {
        let long = End::None(NoShell::Failed("é".repeat(100)));
        let frame = long.frame().unwrap();
        assert_eq!(frame.reason.len(), 122);
        for end in [
            End::Exited(Some(-1)),
            End::Exited(None),
            End::Nonsense,
            End::Malformed,
            End::NotAllowed,
            End::None(NoShell::NothingRuns),
            End::TooLong,
            End::TooMany(TooMany::OfOwner),
            End::TooMany(TooMany::OfAll),
            End::Stopping,
        ] {
            let whole = end.frame().unwrap().reason.len();
            assert!(whole < LONGEST_REASON, "{end:?} is cut off");
        }
        assert!(End::Gone.frame().is_none());
    }
}
