//! One shell: from its WebSocket to the terminal and back.

use super::close_reason::CloseReason;
use super::frames::{Frame, Size};
use crate::app::AppState;
use axum::body::Bytes;
use axum::extract::ws::{Message, WebSocket};
use estrade_service::CREDENTIAL_CHANGES;
use estrade_service::platform::containers::shell::{Shell, ShellControl, ShellRequest};
use estrade_service::watch::Watch;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{Instant, interval_at, sleep, timeout};

/// How long a shell may last.
const MAX_SESSION: Duration = Duration::from_hours(8);
/// How long a client may take to begin.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// How often a client gets a ping and its authorization is checked again.
const PING_INTERVAL: Duration = Duration::from_secs(30);
/// A client that sends nothing for so long, not even pongs, is gone.
const READ_TIMEOUT: Duration = Duration::from_secs(80);
/// So is one that takes nothing for so long.
const WRITE_TIMEOUT: Duration = Duration::from_mins(1);
/// What is read of the terminal at once.
const READ_BUFFER: usize = 16 * 1024;
/// The engine may report the exit code of a command with a delay.
const EXIT_CODE_ATTEMPTS: u32 = 20;
const EXIT_CODE_RETRY_DELAY: Duration = Duration::from_millis(50);

type Sink = SplitSink<WebSocket, Message>;
type Stream = SplitStream<WebSocket>;

/// Serves one client, to its end.
pub(super) async fn serve(app: AppState, request: ShellRequest, socket: WebSocket) {
    let (mut sink, mut stream) = socket.split();
    let session = run(&app, &request, &mut sink, &mut stream);
    // Whatever ends it, the shell is dropped with the session, which hangs up.
    let end = tokio::select! {
        end = session => end,
        () = app.shutdown.cancelled() => CloseReason::Stopping,
        () = sleep(MAX_SESSION) => CloseReason::TooLong,
    };
    tracing::debug!(?end, "a shell has ended");
    end.send_close(sink, stream).await;
}

async fn run(
    app: &AppState,
    request: &ShellRequest,
    sink: &mut Sink,
    stream: &mut Stream,
) -> CloseReason {
    let size = match timeout(START_TIMEOUT, first_frame(stream)).await {
        Ok(Ok(size)) => size,
        Ok(Err(end)) => return end,
        Err(_) => return CloseReason::BadFrame,
    };
    let instances = match request.instances(&app.core).await {
        Ok(instances) => instances,
        Err(reason) => return CloseReason::None(reason),
    };
    let scope = request.scope();
    // Only once there is a shell to open: a connection alone takes no slot.
    let _slot = match app.shells.take(request.owner()) {
        Ok(slot) => slot,
        Err(too_many) => return CloseReason::TooMany(too_many),
    };
    let opened = request.open(&app.core, instances, (size.columns, size.rows));
    let shell = match opened.await {
        Ok(shell) => shell,
        Err(reason) => return CloseReason::None(reason),
    };
    let (project, account) = (request.project(), scope.caller.account);
    tracing::info!(%project, %account, "a shell was opened");
    let control = shell.control();
    let (output, input) = tokio::io::split(shell);
    tokio::select! {
        end = forward_output(output, sink, &control) => end,
        end = forward_input(stream, input, &control) => end,
        end = recheck_access(app, request) => end,
    }
}

async fn first_frame(stream: &mut Stream) -> Result<Size, CloseReason> {
    let message = next_message(stream).await?;
    match Frame::parse(&message) {
        Some(Frame::Start(size)) => Ok(size),
        _ => Err(CloseReason::BadFrame),
    }
}

/// The next message of the client, with a read timeout.
async fn next_message(stream: &mut Stream) -> Result<Bytes, CloseReason> {
    loop {
        match timeout(READ_TIMEOUT, stream.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => return Ok(text.into()),
            Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(bytes),
            // The WebSocket library responds to pings.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(Message::Close(_))) | None) | Err(_) => {
                return Err(CloseReason::Disconnected);
            }
            Ok(Some(Err(_))) => return Err(CloseReason::Malformed),
        }
    }
}

/// Sends what the terminal shows, and pings.
async fn forward_output(
    mut output: ReadHalf<Shell>,
    sink: &mut Sink,
    control: &ShellControl,
) -> CloseReason {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    let mut chunk = vec![0; READ_BUFFER];
    loop {
        let message = tokio::select! {
            read = output.read(&mut chunk) => match read {
                Ok(count @ 1..) => Message::Binary(Bytes::copy_from_slice(&chunk[..count])),
                Ok(0) | Err(_) => return CloseReason::Exited(exit_code(control).await),
            },
            _ = pings.tick() => Message::Ping(Bytes::new()),
        };
        if !matches!(timeout(WRITE_TIMEOUT, sink.send(message)).await, Ok(Ok(()))) {
            return CloseReason::Disconnected;
        }
    }
}

async fn exit_code(control: &ShellControl) -> Option<i64> {
    for _ in 0..EXIT_CODE_ATTEMPTS {
        match control.exit_code().await {
            Ok(Some(code)) => return Some(code),
            Ok(None) => sleep(EXIT_CODE_RETRY_DELAY).await,
            Err(_) => return None,
        }
    }
    None
}

/// Forwards what the client sends. Beside [`forward_output`] and not in turn with it: a command may wait for us to
/// read before it reads itself.
async fn forward_input(
    stream: &mut Stream,
    mut input: WriteHalf<Shell>,
    control: &ShellControl,
) -> CloseReason {
    loop {
        let message = match next_message(stream).await {
            Ok(message) => message,
            Err(end) => return end,
        };
        match Frame::parse(&message) {
            Some(Frame::Input(text)) => {
                if input.write_all(text.as_bytes()).await.is_err() || input.flush().await.is_err() {
                    // It is about to end, which `show` sees.
                    std::future::pending::<()>().await;
                }
            }
            Some(Frame::Resize(size)) => {
                if let Err(error) = control.resize(size.columns, size.rows).await {
                    tracing::debug!(%error, "a terminal keeps its size");
                }
            }
            Some(Frame::Start(_)) | None => return CloseReason::BadFrame,
        }
    }
}

/// Ends when the caller may not do this any more.
async fn recheck_access(app: &AppState, request: &ShellRequest) -> CloseReason {
    let mut changes = Watch::start(&app.core.db);
    loop {
        // The change feed reports a revoked credential, but not a removed member: that is polled.
        tokio::select! {
            () = sleep(PING_INTERVAL) => {}
            () = changes.any_changed(CREDENTIAL_CHANGES) => {}
        }
        let token = app.services.check_again(&request.scope().caller).await;
        if is_refusal(&token) || is_refusal(&request.check_again(&app.core).await) {
            return CloseReason::NotAllowed;
        }
    }
}

/// A database that is away for a moment is no reason to hang up.
fn is_refusal(checked: &estrade_service::Result<()>) -> bool {
    use estrade_service::Error::{Forbidden, InsufficientScope, NotFound, Unauthenticated};
    matches!(
        checked,
        Err(Unauthenticated | Forbidden(_) | InsufficientScope { .. } | NotFound(_))
    )
}
