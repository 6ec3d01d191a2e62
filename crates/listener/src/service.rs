//! What serves the requests of a connection.

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Incoming};
use hyper::service::Service;
use std::convert::Infallible;
use std::error::Error;

pub trait HttpService<B>:
    Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Send + Sync + 'static
{
}
impl<S, B> HttpService<B> for S where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Send
        + Sync
        + 'static
{
}

/// The body of a response.
pub trait HttpBody: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}
impl<B> HttpBody for B where B: Body<Data = Bytes, Error: Into<BoxError>> + Send + Unpin + 'static {}

pub type BoxError = Box<dyn Error + Send + Sync>;
