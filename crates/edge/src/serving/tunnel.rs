//! A visitor and an instance that speak a protocol of their own, such as WebSocket: bytes are passed
//! on both ways until one of them has enough.

use estrade_http1::Rewind;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadHalf, WriteHalf};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// What is passed on at once: little, since most connections of this kind wait most of the time…
const PIECE: usize = 2 * 1024;
/// …and more as long as it is filled each time.
const LARGEST_PIECE: usize = 64 * 1024;
/// How long the other side may go on when one has closed.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// Passes on what comes, until it ends or both sides were silent for `limit`.
pub(crate) async fn run(visitor: OnUpgrade, stream: TcpStream, read: Vec<u8>, limit: Duration) {
    let visitor = match visitor.await {
        Ok(visitor) => TokioIo::new(visitor),
        Err(error) => {
            tracing::debug!(%error, "a visitor has gone before its protocol was switched");
            return;
        }
    };
    let (from_visitor, to_visitor) = tokio::io::split(visitor);
    let (from_instance, to_instance) = tokio::io::split(Rewind::new(read, stream));
    let activity = Activity::default();
    let mut up = pin!(pump(from_visitor, to_instance, &activity));
    let mut down = pin!(pump(from_instance, to_visitor, &activity));
    // An error on either side is the end of both; an end leaves the other one a while.
    tokio::select! {
        ended = up.as_mut() => if ended.is_ok() {
            drop(timeout(LAST_WORDS, down).await);
        },
        ended = down.as_mut() => if ended.is_ok() {
            drop(timeout(LAST_WORDS, up).await);
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
    let mut piece = vec![0; PIECE];
    loop {
        let count = from.read(&mut piece).await?;
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&piece[..count]).await?;
        to.flush().await?;
        activity.count.fetch_add(1, Ordering::Relaxed);
        if count == piece.len() && count < LARGEST_PIECE {
            piece.resize(2 * count, 0);
        }
    }
}

/// Counts what was passed on.
#[derive(Default)]
struct Activity {
    count: AtomicU64,
}

impl Activity {
    /// Resolves when nothing was passed on for this long, or up to twice as long.
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
