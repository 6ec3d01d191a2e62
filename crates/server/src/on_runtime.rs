//! Work that is polled on one thread but belongs to another runtime.
//!
//! A serving thread has a runtime of its own, which ends with it. Connections to the database, timers
//! and tasks that a handler begins must not end with it too: they belong to the runtime of the
//! process. So that runtime is entered whenever the work is polled.

use axum::body::{Body, Bytes, HttpBody};
use http_body::{Frame, SizeHint};
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::runtime::Handle;

/// A future or body that belongs to a runtime.
pub(crate) struct OnRuntime<T> {
    runtime: Handle,
    inner: T,
}

impl<T> OnRuntime<T> {
    /// Polls `inner` in the context of `runtime`.
    pub(crate) fn new(runtime: Handle, inner: T) -> Self {
        Self { runtime, inner }
    }
}

impl<F: Future + Unpin> Future for OnRuntime<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let Self { runtime, inner } = &mut *self;
        let _entered = runtime.enter();
        Pin::new(inner).poll(cx)
    }
}

impl HttpBody for OnRuntime<Body> {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let Self { runtime, inner } = &mut *self;
        let _entered = runtime.enter();
        Pin::new(inner).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
