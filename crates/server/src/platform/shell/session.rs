//! One shell: from its WebSocket to the terminal and back.

use super::ending::End;
use super::frames::{Frame, Size};
use crate::app::AppState;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use estrade_service::platform::containers::shell::{Shell, ShellControl, ShellRequest};
use estrade_service::watch::Watch;
use estrade_store::ChangeKind;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, interval_at, sleep, timeout};

/// How long a shell may last.
const LONGEST: Duration = Duration::from_hours(8);
/// How long a client may take to begin.
const BEGIN: Duration = Duration::from_secs(30);
/// How often a client is asked whether it is there, and whether it may still be.
const PING: Duration = Duration::from_secs(30);
/// A client that says nothing for so long, not even to pings, is gone.
const SILENCE: Duration = Duration::from_secs(80);
/// So is one that takes nothing for so long.
const STALL: Duration = Duration::from_mins(1);
/// What is read of the terminal at once.
const CHUNK: usize = 16 * 1024;
/// The engine may need a moment to say how a command ended.
const CODE_TRIES: u32 = 20;
const CODE_PAUSE: Duration = Duration::from_millis(50);

type Sink = SplitSink<WebSocket, Message>;
type Stream = SplitStream<WebSocket>;

/// Serves one client, to its end.
pub(super) async fn serve(app: AppState, request: ShellRequest, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let session = run(&app, &request, &mut sink, &mut stream);
    // Whatever ends it, the shell is dropped with the session, which hangs up.
    let end = tokio::select! {
        end = session => end,
        () = app.shutdown.cancelled() => End::Stopping,
        () = sleep(LONGEST) => End::TooLong,
    };
    tracing::debug!(?end, "a shell has ended");
    end.tell(sink, stream).await;
}

async fn run(app: &AppState, request: &ShellRequest, sink: &mut Sink, stream: &mut Stream) -> End {
    let size = match timeout(BEGIN, first_frame(stream)).await {
        Ok(Ok(size)) => size,
        Ok(Err(end)) => return end,
        Err(_) => return End::Nonsense,
    };
    let instances = match request.instances(&app.core).await {
        Ok(instances) => instances,
        Err(reason) => return End::None(reason),
    };
    let scope = request.scope();
    // Not before there is something to open: who only connects takes room from nobody.
    let _slot = match app.shells.take(scope.owner) {
        Ok(slot) => slot,
        Err(too_many) => return End::TooMany(too_many),
    };
    let opened = request.open(&app.core, instances, (size.columns, size.rows));
    let shell = match opened.await {
        Ok(shell) => shell,
        Err(reason) => return End::None(reason),
    };
    let (project, account) = (request.project(), scope.caller.account);
    tracing::info!(%project, %account, "a shell was opened");
    let control = shell.control();
    let (shown, typed) = tokio::io::split(shell);
    tokio::select! {
        end = show(shown, sink, &control) => end,
        end = type_in(stream, typed, &control) => end,
        end = watch(app, request) => end,
    }
}

async fn first_frame(stream: &mut Stream) -> Result<Size, End> {
    let message = next_message(stream).await?;
    match Frame::parse(&message) {
        Some(Frame::Start(size)) => Ok(size),
        _ => Err(End::Nonsense),
    }
}

/// The next text of the client. Who says nothing for long is gone.
async fn next_message(stream: &mut Stream) -> Result<Bytes, End> {
    loop {
        match timeout(SILENCE, stream.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => return Ok(text.into()),
            Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(bytes),
            // Pings are answered below us.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(Message::Close(_))) | None) | Err(_) => return Err(End::Gone),
            Ok(Some(Err(_))) => return Err(End::Malformed),
        }
    }
}

/// Sends what the terminal shows, and pings.
async fn show(mut shown: ReadHalf<Shell>, sink: &mut Sink, control: &ShellControl) -> End {
    let mut pings = interval_at(Instant::now() + PING, PING);
    let mut chunk = vec![0; CHUNK];
    loop {
        let message = tokio::select! {
            read = shown.read(&mut chunk) => match read {
                Ok(count @ 1..) => Message::Binary(Bytes::copy_from_slice(&chunk[..count])),
                Ok(0) | Err(_) => return End::Exited(exit_code(control).await),
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if !matches!(timeout(STALL, sink.send(message)).await, Ok(Ok(()))) {
            return End::Gone;
        }
    }
}

async fn exit_code(control: &ShellControl) -> Option<i64> {
    for _ in 0..CODE_TRIES {
        match control.exit_code().await {
            Ok(Some(code)) => return Some(code),
            Ok(None) => sleep(CODE_PAUSE).await,
            Err(_) => return None,
        }
    }
    None
}

/// Types what the client sends. Beside [`show`] and not in turn with it: a command may wait for us to
/// read before it reads itself.
async fn type_in(stream: &mut Stream, mut typed: WriteHalf<Shell>, control: &ShellControl) -> End {
    loop {
        let message = match next_message(stream).await {
            Ok(message) => message,
            Err(end) => return end,
        };
        match Frame::parse(&message) {
            Some(Frame::Input(text)) => {
                if typed.write_all(text.as_bytes()).await.is_err() || typed.flush().await.is_err() {
                    // It is about to end, which `show` sees.
                    std::future::pending::<()>().await;
                }
            }
            Some(Frame::Resize(size)) => {
                if let Err(error) = control.resize(size.columns, size.rows).await {
                    tracing::debug!(%error, "a terminal keeps its size");
                }
            }
            Some(Frame::Start(_)) | None => return End::Nonsense,
        }
    }
}

/// Ends when the caller may not do this any more.
async fn watch(app: &AppState, request: &ShellRequest) -> End {
    let mut changes = Watch::start(&app.core);
    loop {
        // A token that is revoked is heard of; who leaves a team is not.
        tokio::select! {
            () = sleep(PING) => {}
            () = changes.any_changed(ChangeKind::Token) => {}
        }
        let token = app.tokens.check_again(&request.scope().caller).await;
        if is_refusal(&token) || is_refusal(&request.check_again(&app.core).await) {
            return End::NotAllowed;
        }
    }
}

/// A database that is away for a moment is no reason to hang up.
fn is_refusal(checked: &estrade_service::Result<()>) -> bool {
    use estrade_service::Error::{Forbidden, NotFound, Unauthenticated};
    matches!(checked, Err(Unauthenticated | Forbidden(_) | NotFound(_)))
}
