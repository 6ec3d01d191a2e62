//! Responses to requests whose body was not read.
//!
//! hyper closes a connection when the rest of a request's body has not arrived by the time the response is sent, but it
//! does not say so in the response. A client that keeps connections would send its next request into the closing one
//! and see it fail without a response. With `Connection: close` it opens another.

use axum::body::{Body, Bytes, HttpBody};
use axum::http::{HeaderValue, Request, Version, header};
use axum::response::Response;
use http_body::{Frame, SizeHint};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

/// Knows whether a request's body was read to its end.
pub(super) struct UnreadBody {
    ended: Option<Arc<AtomicBool>>,
}

impl UnreadBody {
    /// Watches the body of a request, if it has one; HTTP/2 resets the stream and keeps the connection.
    pub(super) fn watch<B>(request: Request<B>) -> (Request<Body>, Self)
    where
        B: HttpBody<Data = Bytes> + Send + 'static,
        B::Error: Into<axum::BoxError>,
    {
        if request.version() > Version::HTTP_11 || request.body().is_end_stream() {
            return (request.map(Body::new), Self { ended: None });
        }
        let ended = Arc::new(AtomicBool::new(false));
        let request = request.map(|body| {
            Body::new(Watched {
                body: Body::new(body),
                ended: Arc::clone(&ended),
            })
        });
        (request, Self { ended: Some(ended) })
    }

    /// Says in the response that the connection closes, if the body has not ended.
    pub(super) fn announce_close(self, response: &mut Response) {
        if self.ended.is_some_and(|it| !it.load(Ordering::Relaxed)) {
            let close = HeaderValue::from_static("close");
            response.headers_mut().insert(header::CONNECTION, close);
        }
    }
}

struct Watched {
    body: Body,
    ended: Arc<AtomicBool>,
}

impl HttpBody for Watched {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // A body with a length is not asked again after its last byte.
        if frame.is_none() || self.body.is_end_stream() {
            self.ended.store(true, Ordering::Relaxed);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::BodyExt;

    async fn closes(version: Version, body: &'static str, read: bool) -> bool {
        let mut request = Request::new(Body::from(body));
        *request.version_mut() = version;
        let (request, unread) = UnreadBody::watch(request);
        if read {
            request.into_body().collect().await.unwrap();
        }
        let mut response = Response::default();
        unread.announce_close(&mut response);
        response.headers().contains_key(header::CONNECTION)
    }

    #[tokio::test]
    async fn only_a_body_that_was_not_read_closes_the_connection() {
        assert!(closes(Version::HTTP_11, "some", false).await);
        assert!(closes(Version::HTTP_10, "some", false).await);
        assert!(!closes(Version::HTTP_11, "some", true).await);
        assert!(!closes(Version::HTTP_11, "", false).await);
        assert!(!closes(Version::HTTP_2, "some", false).await);
    }
}
