//! The threads that talk to the bucket. The calls of a storage block, and their futures run here, so that they depend
//! on no runtime of the caller and none of them outlives the storage.

use std::future::Future;
use std::io;
use std::sync::mpsc;

use tokio::runtime::{Builder, Runtime};

const THREADS: usize = 2;
/// For writing to the cache and reading from spool files.
const MAX_BLOCKING_THREADS: usize = 8;

#[derive(Debug)]
pub(super) struct OwnRuntime(Option<Runtime>);

impl OwnRuntime {
    pub(super) fn new() -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("blobs-s3")
            .enable_all()
            .build()?;
        Ok(Self(Some(runtime)))
    }

    /// Runs a future to its end and waits for it.
    ///
    /// It waits on a channel instead of `block_on`, which panics on a thread of another runtime.
    pub(super) fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> io::Result<T> {
        let (sender, receiver) = mpsc::sync_channel(1);
        self.spawn(async move {
            // Nobody waits any more when the storage goes.
            let _ = sender.send(future.await);
        });
        receiver.recv().map_err(|_| ended())
    }

    /// Begins a future that ends by itself when nobody needs it any more.
    pub(super) fn spawn(&self, future: impl Future<Output = ()> + Send + 'static) {
        if let Some(runtime) = &self.0 {
            runtime.spawn(future);
        }
    }
}

/// Drops the futures that are left, without waiting: the storage may go on a thread that must not block.
impl Drop for OwnRuntime {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("a request to the bucket ended early")
}
