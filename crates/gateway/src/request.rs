//! A request as the relay takes it, however it came in.

use bytes::Bytes;
use http::{HeaderMap, Request};
use hyper::body::Incoming;

/// A request for inference, whose path was understood already.
pub struct CallRequest {
    /// Its headers; at least those that a call looks at.
    pub headers: HeaderMap,
    /// Its body.
    pub body: CallBody,
}

/// The body of a request.
pub enum CallBody {
    /// As it comes from the caller.
    Incoming(Incoming),
    /// It is there.
    Whole(Bytes),
}

impl From<Request<Incoming>> for CallRequest {
    fn from(request: Request<Incoming>) -> Self {
        let (parts, body) = request.into_parts();
        Self {
            headers: parts.headers,
            body: CallBody::Incoming(body),
        }
    }
}
