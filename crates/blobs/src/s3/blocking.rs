//! The client for callers that block: its futures run on threads of their own, so that they depend on no runtime of
//! the caller and none of them outlives the storage.

use std::io;
use std::sync::{Arc, mpsc};

use tokio::runtime::{Builder, Runtime};

use super::client::Client;
use super::failure::Failure;
use super::settings::S3Settings;

const THREADS: usize = 2;
/// For writing to the cache and reading from spool files.
const MAX_BLOCKING_THREADS: usize = 8;

#[derive(Debug)]
pub(super) struct BlockingClient {
    client: Arc<Client>,
    /// Present until it is dropped.
    runtime: Option<Runtime>,
}

impl BlockingClient {
    pub(super) fn new(settings: S3Settings) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .thread_name("blobs-s3")
            .enable_all()
            .build()?;
        Ok(Self {
            client: Arc::new(Client::new(settings)?),
            runtime: Some(runtime),
        })
    }

    /// Runs what `make` does with the client and waits for it.
    ///
    /// It waits on a channel instead of `block_on`, which panics on a thread of another runtime.
    pub(super) fn request<T, R>(&self, make: impl FnOnce(Arc<Client>) -> R) -> Result<T, Failure>
    where
        T: Send + 'static,
        R: Future<Output = Result<T, Failure>> + Send + 'static,
    {
        let (sender, receiver) = mpsc::sync_channel(1);
        let future = make(Arc::clone(&self.client));
        match &self.runtime {
            Some(runtime) => drop(runtime.spawn(async move {
                // Its only failure: nobody waits any more.
                let _ = sender.send(future.await);
            })),
            None => drop(sender),
        }
        let ended = |_| Failure::transient("a request to it ended early");
        receiver.recv().map_err(ended)?
    }

    /// Whether the bucket did not answer a moment ago.
    pub(super) fn is_out(&self) -> bool {
        self.client.is_out()
    }

    /// The client itself, for what takes no request.
    pub(super) fn local(&self) -> &Client {
        &self.client
    }
}

/// Drops the futures that are left, without waiting: the storage may go on a thread that must not block.
impl Drop for BlockingClient {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
