//! Response bodies as hyper takes them: from memory, from files, or from an instance.

use crate::serving::logged_body::LoggedBody;
use crate::serving::worker::Worker;
use crate::static_files::content_cache::{Content, FileSlice};
use crate::static_files::response::{Body, StaticResponse};
use bytes::Bytes;
use estrade_listener::BoxError;
use futures_util::stream::{BoxStream, StreamExt, try_unfold};
use http::{HeaderValue, Response, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::{Full, StreamBody};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

/// What is read from a file at once.
const FILE_CHUNK: u64 = 64 * 1024;

/// A body as hyper takes it.
pub(crate) enum ResponseBody {
    /// It is in memory.
    Whole(Full<Bytes>),
    /// It is read from files.
    Files(StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>>),
    /// It comes from an instance.
    Proxied(Box<LoggedBody>),
}

impl Default for ResponseBody {
    fn default() -> Self {
        Self::Whole(Full::default())
    }
}

impl HttpBody for ResponseBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match self.get_mut() {
            Self::Whole(body) => Pin::new(body)
                .poll_frame(cx)
                .map_err(|never| match never {}),
            Self::Files(body) => Pin::new(body).poll_frame(cx).map_err(Into::into),
            Self::Proxied(body) => body.poll_frame(cx).map_err(Into::into),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(body) => body.is_end_stream(),
            Self::Files(body) => body.is_end_stream(),
            Self::Proxied(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(body) => body.size_hint(),
            Self::Files(body) => body.size_hint(),
            Self::Proxied(body) => body.size_hint(),
        }
    }
}

/// A response of the edge itself, as hyper takes it.
pub(crate) fn into_response(
    worker: &Worker,
    local: &StaticResponse,
    method: &http::Method,
) -> Response<ResponseBody> {
    let mut response = Response::new(match &local.body {
        _ if *method == http::Method::HEAD => ResponseBody::default(),
        Body::Empty => ResponseBody::default(),
        Body::One(Content::Bytes(bytes)) => ResponseBody::Whole(Full::new(bytes.clone())),
        Body::One(Content::File(slice)) => {
            ResponseBody::Files(stream(vec![Content::File(slice.clone())]))
        }
        Body::Many(pieces) => ResponseBody::Files(stream(pieces.clone())),
    });
    *response.status_mut() = local.status;
    *response.headers_mut() = local.header_map();
    if let Ok(date) = HeaderValue::from_str(worker.date(worker.edge.now()).http_date()) {
        response.headers_mut().insert(header::DATE, date);
    }
    response
}

fn stream(mut pieces: Vec<Content>) -> StreamBody<BoxStream<'static, io::Result<Frame<Bytes>>>> {
    pieces.reverse();
    let chunks = try_unfold(pieces, |mut pieces| async move {
        let Some(piece) = pieces.pop() else {
            return Ok(None);
        };
        let bytes = match piece {
            Content::Bytes(bytes) => bytes,
            Content::File(slice) => {
                let length = slice.length.min(FILE_CHUNK);
                let now = FileSlice {
                    length,
                    ..slice.clone()
                };
                if slice.length > length {
                    let (offset, length) = (slice.offset + length, slice.length - length);
                    pieces.push(Content::File(FileSlice {
                        offset,
                        length,
                        ..slice
                    }));
                }
                now.read().await?
            }
        };
        Ok(Some((Frame::data(bytes), pieces)))
    });
    StreamBody::new(chunks.boxed())
}
