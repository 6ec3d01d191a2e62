//! Tunnel between a client and an instance after a protocol upgrade, such as to WebSocket: copies bytes
//! in both directions until one side closes.

use estrade_http1::Rewind;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::time::{sleep, timeout};

/// Initial copy buffer: small, because most tunnels are idle most of the time…
const MIN_BUFFER: usize = 2 * 1024;
/// …and doubled up to this size whenever a read fills it.
const MAX_BUFFER: usize = 64 * 1024;
/// How long the other direction may go on when one has closed.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_secs(10);

/// Copies in both directions until one side closes or both were silent for `limit`.
pub(crate) async fn run<S: AsyncRead + AsyncWrite + Unpin>(
    client: OnUpgrade,
    stream: S,
    read: Vec<u8>,
    limit: Duration,
) {
    let client = match client.await {
        Ok(client) => TokioIo::new(client),
        Err(error) => {
            tracing::debug!(%error, "a visitor has gone before its protocol was switched");
            return;
        }
    };
    let (from_client, to_client) = tokio::io::split(client);
    let (from_instance, to_instance) = tokio::io::split(Rewind::new(read, stream));
    let activity = Activity::default();
    let mut up = pin!(pump(from_client, to_instance, &activity));
    let mut down = pin!(pump(from_instance, to_client, &activity));
    // An error ends both directions; an end of file leaves the other one some time.
    tokio::select! {
        ended = up.as_mut() => if ended.is_ok() {
            drop(timeout(HALF_CLOSED_TIMEOUT, down).await);
        },
        ended = down.as_mut() => if ended.is_ok() {
            drop(timeout(HALF_CLOSED_TIMEOUT, up).await);
        },
        () = activity.silence(limit) => {}
    }
}

async fn pump<R, W>(
    mut from: ReadHalf<R>,
    mut to: WriteHalf<W>,
    activity: &Activity,
) -> io::Result<()>
where
    R: AsyncRead,
    W: AsyncWrite,
{
    let mut piece = vec![0; MIN_BUFFER];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..count]).await?;
        to.flush().await?;
        activity.count.fetch_add(1, Ordering::Relaxed);
        if count == piece.len() && count < MAX_BUFFER {
            piece.resize(2 * count, 0);
        }
    }
}

/// Counts the reads of both directions.
#[derive(Default)]
struct Activity {
    count: AtomicU64,
}

impl Activity {
    /// Resolves when nothing was copied for `limit`, at most twice that after the last read.
    async fn silence(&self, limit: Duration) {
        let mut before = self.count.load(Ordering::Relaxed);
        loop {
            sleep(limit).await;
            let now = self.count.load(Ordering::Relaxed);
            if now == before {
                return;
            }
            before = now;
        }
    }
}
