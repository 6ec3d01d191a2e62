//! The body of a response.

use crate::error::GatewayError;
use crate::streaming::body_error::BodyError;
use crate::streaming::metered_response::{SharedResponse, lock};
use bytes::Bytes;
use estrade_http1::server::{OutgoingBody, OutputBuffer, Part};
use http::Response;
use http_body::{Body, Frame, SizeHint};
use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The body of a response: in memory, or forwarded from a provider.
pub struct GatewayBody(Kind);

enum Kind {
    Whole(Bytes),
    Pieces(VecDeque<Bytes>),
    Metered(SharedResponse),
}

impl Default for GatewayBody {
    fn default() -> Self {
        Self::whole(Bytes::new())
    }
}

impl GatewayBody {
    pub(crate) fn whole(bytes: Bytes) -> Self {
        Self(Kind::Whole(bytes))
    }

    pub(crate) fn pieces(pieces: VecDeque<Bytes>) -> Self {
        Self(Kind::Pieces(pieces))
    }

    pub(crate) fn metered(response: SharedResponse) -> Self {
        Self(Kind::Metered(response))
    }

    /// Whether it is a stream of events.
    pub(crate) fn is_stream(&self) -> bool {
        matches!(&self.0, Kind::Metered(response) if lock(response).is_stream())
    }
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let data = match &mut self.get_mut().0 {
            Kind::Whole(bytes) if bytes.is_empty() => None,
            Kind::Whole(bytes) => Some(std::mem::take(bytes)),
            Kind::Pieces(pieces) => pieces.pop_front(),
            Kind::Metered(response) => return lock(response).poll_frame(cx),
        };
        Poll::Ready(data.map(|data| Ok(Frame::data(data))))
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_empty(),
            Kind::Pieces(pieces) => pieces.is_empty(),
            Kind::Metered(response) => lock(response).has_ended(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces(_) => SizeHint::default(),
            Kind::Metered(response) => lock(response)
                .remaining()
                .map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}

impl OutgoingBody for GatewayBody {
    fn poll_part(&mut self, cx: &mut Context<'_>, output: &mut OutputBuffer<'_>) -> Poll<Part> {
        if let Kind::Metered(response) = &self.0
            && let Some(polled) = lock(response).poll_part(cx, output)
        {
            return polled;
        }
        self.poll_owned_part(cx, output)
    }
}

impl GatewayError {
    pub(crate) fn into_response(self) -> Response<GatewayBody> {
        self.into_bytes_response().map(GatewayBody::whole)
    }
}
