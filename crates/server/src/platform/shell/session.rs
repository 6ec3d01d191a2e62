//! One shell: from its WebSocket to the terminal and back.

use super::close_reason::CloseReason;
use super::frames::Frame;
use crate::app::AppState;
use axum::body::Bytes;
use axum::extract::ws::{Message, Utf8Bytes, WebSocket};
use estrade_service::CREDENTIAL_CHANGES;
use estrade_service::change_subscription::ChangeSubscription;
use estrade_service::platform::containers::shell::{
    OutputFrames, OutputStream, Shell, ShellControl, ShellRequest, TerminalSize,
};
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
pub(super) async fn serve(
    app: AppState,
    request: ShellRequest,
    socket: WebSocket,
    has_terminal: bool,
) {
    let (mut sink, mut stream) = socket.split();
    let session = run(&app, &request, (&mut sink, &mut stream), has_terminal);
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
    (sink, stream): (&mut Sink, &mut Stream),
    has_terminal: bool,
) -> CloseReason {
    let size = match timeout(START_TIMEOUT, first_frame(stream)).await {
        Ok(Ok(size)) => size,
        Ok(Err(end)) => return end,
        Err(_) => return CloseReason::BadFrame,
    };
    // From here on no change is missed. The client may have waited with its first frame.
    let changes = ChangeSubscription::start(&app.core.db);
    if is_refused(app, request).await {
        return CloseReason::NotAllowed;
    }
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
    let terminal = has_terminal.then_some(size);
    let opened = request.open(&app.core, instances, terminal);
    let shell = match opened.await {
        Ok(shell) => shell,
        Err(reason) => return CloseReason::None(reason),
    };
    let (project, account) = (request.project(), scope.caller.account);
    tracing::info!(%project, %account, "a shell was opened");
    let control = shell.control();
    let (output, input) = tokio::io::split(shell);
    let output = if has_terminal {
        Output::Terminal(output, vec![0; READ_BUFFER])
    } else {
        Output::Streams(OutputFrames::new(output, READ_BUFFER))
    };
    tokio::select! {
        end = forward_output(output, sink, &control) => end,
        end = forward_input(stream, input, &control, has_terminal) => end,
        end = recheck_access(app, request, changes) => end,
    }
}

async fn first_frame(stream: &mut Stream) -> Result<TerminalSize, CloseReason> {
    let message = next_message(stream).await?;
    match Frame::parse(message.bytes()) {
        Some(Frame::Start(size)) => Ok(size),
        _ => Err(CloseReason::BadFrame),
    }
}

/// What a client sends.
enum Received {
    Text(Utf8Bytes),
    Binary(Bytes),
}

impl Received {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

/// The next message of the client, with a read timeout.
async fn next_message(stream: &mut Stream) -> Result<Received, CloseReason> {
    loop {
        match timeout(READ_TIMEOUT, stream.next()).await {
            Ok(Some(Ok(Message::Text(text)))) => return Ok(Received::Text(text)),
            Ok(Some(Ok(Message::Binary(bytes)))) => return Ok(Received::Binary(bytes)),
            // The WebSocket library responds to pings.
            Ok(Some(Ok(Message::Ping(_) | Message::Pong(_)))) => {}
            Ok(Some(Ok(Message::Close(_))) | None) | Err(_) => {
                return Err(CloseReason::Disconnected);
            }
            Ok(Some(Err(_))) => return Err(CloseReason::Malformed),
        }
    }
}

/// What the command writes.
enum Output {
    Terminal(ReadHalf<Shell>, Vec<u8>),
    Streams(OutputFrames<ReadHalf<Shell>>),
}

impl Output {
    /// The next message for the client; none: the command has ended. It may be cancelled.
    async fn next(&mut self) -> Option<Bytes> {
        match self {
            Self::Terminal(output, chunk) => match output.read(chunk).await {
                Ok(count @ 1..) => Some(Bytes::copy_from_slice(&chunk[..count])),
                Ok(0) | Err(_) => None,
            },
            Self::Streams(frames) => {
                let (stream, piece) = frames.next().await.ok()??;
                let kind = match stream {
                    OutputStream::Stdout => 1,
                    OutputStream::Stderr => 2,
                };
                Some([&[kind], &piece[..]].concat().into())
            }
        }
    }
}

/// Sends what the command writes, and pings.
async fn forward_output(
    mut output: Output,
    sink: &mut Sink,
    control: &ShellControl,
) -> CloseReason {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    loop {
        let message = tokio::select! {
            piece = output.next() => match piece {
                Some(piece) => Message::Binary(piece),
                None => return CloseReason::Exited(exit_code(control).await),
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
    has_terminal: bool,
) -> CloseReason {
    loop {
        let message = match next_message(stream).await {
            Ok(message) => message,
            Err(end) => return end,
        };
        let written = match (&message, has_terminal) {
            (Received::Binary(bytes), false) => write(&mut input, bytes).await,
            _ => match Frame::parse(message.bytes()) {
                Some(Frame::Input(text)) => write(&mut input, text.as_bytes()).await,
                Some(Frame::Eof) if !has_terminal => input.shutdown().await,
                Some(Frame::Resize(size)) if has_terminal => {
                    if let Err(error) = control.resize(size.columns, size.rows).await {
                        tracing::debug!(%error, "a terminal keeps its size");
                    }
                    Ok(())
                }
                Some(Frame::Start(_) | Frame::Resize(_) | Frame::Eof) | None => {
                    return CloseReason::BadFrame;
                }
            },
        };
        if written.is_err() {
            // The command reads no more, or is about to end, which `forward_output` sees.
            while next_message(stream).await.is_ok() {}
            return CloseReason::Disconnected;
        }
    }
}

async fn write(input: &mut WriteHalf<Shell>, bytes: &[u8]) -> std::io::Result<()> {
    input.write_all(bytes).await?;
    input.flush().await
}

/// Ends when the caller may not do this any more.
async fn recheck_access(
    app: &AppState,
    request: &ShellRequest,
    mut changes: ChangeSubscription,
) -> CloseReason {
    loop {
        // The change feed reports a revoked credential, but not a removed member: that is polled.
        tokio::select! {
            () = sleep(PING_INTERVAL) => {}
            () = changes.any_changed(CREDENTIAL_CHANGES) => {}
        }
        if is_refused(app, request).await {
            return CloseReason::NotAllowed;
        }
    }
}

async fn is_refused(app: &AppState, request: &ShellRequest) -> bool {
    let token = app.services.check_again(&request.scope().caller).await;
    is_refusal(&token) || is_refusal(&request.check_again(&app.core).await)
}

/// A database that is away for a moment is no reason to hang up.
fn is_refusal(checked: &estrade_service::Result<()>) -> bool {
    use estrade_service::Error::{Forbidden, InsufficientScope, NotFound, Unauthenticated};
    matches!(
        checked,
        Err(Unauthenticated | Forbidden(_) | InsufficientScope { .. } | NotFound(_))
    )
}
