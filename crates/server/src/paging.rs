//! Lists: which part of one, and how it is written.
//!
//! A list without `page` and `count` is the whole list, written as it is read from the store, so
//! that its length does not matter. A short one, which most are, becomes one plain body.

use crate::api_error::ApiError;
use crate::error::ErrorShape;
use crate::query;
use axum::body::Body;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use bytes::Bytes;
use estrade_service::Error;
use futures_util::{Stream, StreamExt, stream};
use serde::{Deserialize, Serialize};
use std::marker::PhantomData;

/// `page` and `count` of a list, as the client wrote them. `E` is the error shape of the API.
pub struct Paging<E> {
    page: Option<u64>,
    count: Option<u64>,
    shape: PhantomData<fn() -> E>,
}

/// The requested part of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// How many to skip.
    pub offset: u64,
    /// How many to give.
    pub limit: u64,
}

impl<E> Paging<E> {
    /// The requested part, at most `max` long; `None` is everything.
    ///
    /// Numbers out of range are clamped: a client that requests too much gets what there is.
    pub fn window(&self, max: u64) -> Option<Window> {
        if self.page.is_none() && self.count.is_none() {
            return None;
        }
        let limit = self.count.unwrap_or(max).clamp(1, max);
        let before = self.page.unwrap_or(1).max(1) - 1;
        // Stores count in signed 64 bits.
        let offset = before.saturating_mul(limit).min(i64::MAX.unsigned_abs());
        Some(Window { offset, limit })
    }
}

impl<E> Paging<E> {
    /// The requested part, `default` long without a length, at most `max`.
    pub fn window_of(&self, default: u64, max: u64) -> Window {
        let asked = Self {
            count: Some(self.count.unwrap_or(default)),
            ..*self
        };
        let all = Window {
            offset: 0,
            limit: default,
        };
        asked.window(max).unwrap_or(all)
    }
}

impl<S: Send + Sync, E: ErrorShape> FromRequestParts<S> for Paging<E> {
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, E> {
        #[derive(Deserialize)]
        struct Raw {
            page: Option<String>,
            count: Option<String>,
        }
        let raw: Raw = query::parse(parts.uri.query().unwrap_or_default())?;
        Ok(Self {
            page: number("page", raw.page.as_deref())?,
            count: number("count", raw.count.as_deref())?,
            shape: PhantomData,
        })
    }
}

/// A whole number of any size; out of range becomes the nearest that fits.
fn number(name: &str, text: Option<&str>) -> Result<Option<u64>, Error> {
    let Some(text) = text.filter(|text| !text.is_empty()) else {
        return Ok(None);
    };
    let (digits, negative) = match text.strip_prefix('-') {
        Some(digits) => (digits, true),
        None => (text, false),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(Error::invalid(format!("{name}: must be a whole number")));
    }
    Ok(Some(if negative {
        0
    } else {
        digits.parse().unwrap_or(u64::MAX)
    }))
}

/// What a list has around its items, such as `{"projects":[` and `]}`.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Up to the first item.
    pub open: String,
    /// From the last item on.
    pub close: String,
}

impl Frame {
    /// A bare array.
    pub fn array() -> Self {
        Self::new("[", "]")
    }

    /// What comes before and after the items.
    pub fn new(open: impl Into<String>, close: impl Into<String>) -> Self {
        Self {
            open: open.into(),
            close: close.into(),
        }
    }
}

/// Writes a list as its parts arrive.
///
/// An error before the first part is an ordinary error. After it the connection is cut off, so that
/// half a list cannot be taken for the whole.
pub async fn json_list<T, S>(frame: Frame, parts: S) -> Result<Response, ApiError>
where
    T: Serialize + Send + 'static,
    S: Stream<Item = Result<Vec<T>, Error>> + Send + 'static,
{
    let mut parts = Box::pin(parts);
    let mut text = ListText::open(&frame);
    if let Some(part) = parts.next().await {
        text.push(&part?)?;
    }
    let Some(second) = parts.next().await else {
        return Ok(json_response(Body::from(text.close(&frame))));
    };
    let rest = stream::iter([second]).chain(parts);
    Ok(json_response(Body::from_stream(text_stream(
        frame, text, rest,
    ))))
}

fn json_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

/// The text of a list, part by part; ends after the first error.
fn text_stream<T, S>(
    frame: Frame,
    text: ListText,
    parts: S,
) -> impl Stream<Item = Result<Bytes, Error>>
where
    T: Serialize,
    S: Stream<Item = Result<Vec<T>, Error>> + Unpin,
{
    stream::unfold(Some((frame, text, parts)), |state| async {
        let (frame, mut text, mut parts) = state?;
        let ready = text.take();
        let written = match parts.next().await {
            None => return Some((Ok(text.close_after(ready, &frame)), None)),
            Some(part) => part.and_then(|part| text.push(&part)),
        };
        if let Err(error) = written {
            tracing::error!(%error, cause = ?std::error::Error::source(&error), "a list was cut off");
            return Some((Err(error), None));
        }
        Some((Ok(ready.into()), Some((frame, text, parts))))
    })
}

/// The part of a list's text that has not been sent.
struct ListText {
    buffer: Vec<u8>,
    first: bool,
}

impl ListText {
    fn open(frame: &Frame) -> Self {
        Self {
            buffer: frame.open.clone().into_bytes(),
            first: true,
        }
    }

    fn push<T: Serialize>(&mut self, items: &[T]) -> Result<(), Error> {
        for item in items {
            if !std::mem::take(&mut self.first) {
                self.buffer.push(b',');
            }
            serde_json::to_writer(&mut self.buffer, item).map_err(Error::internal)?;
        }
        Ok(())
    }

    /// What is there, leaving room for as much again.
    fn take(&mut self) -> Vec<u8> {
        let room = Vec::with_capacity(self.buffer.len());
        std::mem::replace(&mut self.buffer, room)
    }

    fn close(mut self, frame: &Frame) -> Vec<u8> {
        self.buffer.extend_from_slice(frame.close.as_bytes());
        self.buffer
    }

    fn close_after(self, mut ready: Vec<u8>, frame: &Frame) -> Bytes {
        ready.extend_from_slice(&self.close(frame));
        ready.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::PlatformError;
    use axum::body::{HttpBody, to_bytes};
    use axum::http::Request;
    use axum::response::IntoResponse;

    async fn window(query: &str) -> Result<Option<Window>, u16> {
        let uri = format!("/v1/projects?{query}");
        let (mut parts, ()) = Request::builder().uri(uri).body(()).unwrap().into_parts();
        match Paging::<PlatformError>::from_request_parts(&mut parts, &()).await {
            Ok(paging) => Ok(paging.window(100)),
            Err(error) => Err(error.into_response().status().as_u16()),
        }
    }

    #[tokio::test]
    async fn numbers_are_moved_into_range_and_other_text_is_refused() {
        let part = |offset, limit| Ok(Some(Window { offset, limit }));
        assert_eq!(window("").await, Ok(None));
        assert_eq!(window("page=&other=1").await, Ok(None));
        assert_eq!(window("page=3&count=20").await, part(40, 20));
        assert_eq!(window("count=5000").await, part(0, 100));
        assert_eq!(window("page=0&count=-7").await, part(0, 1));
        assert_eq!(window("page=2").await, part(100, 100));
        let far = window("page=99999999999999999999999")
            .await
            .unwrap()
            .unwrap();
        assert!(i64::try_from(far.offset).is_ok());
        for bad in [
            "page=x",
            "count=1.5",
            "page=-",
            "count=%00",
            "page=1&page=2",
        ] {
            assert_eq!(window(bad).await, Err(400), "{bad}");
        }
    }

    async fn list(parts: Vec<Result<Vec<u32>, Error>>) -> Result<Response, ApiError> {
        json_list(
            Frame::new("{\"n\":[", "],\"total\":3}"),
            stream::iter(parts),
        )
        .await
    }

    #[tokio::test]
    async fn a_short_list_is_one_body_and_a_long_one_is_streamed() {
        for (parts, text, plain) in [
            (vec![], r#"{"n":[],"total":3}"#, true),
            (vec![Ok(vec![1, 2])], r#"{"n":[1,2],"total":3}"#, true),
            (
                vec![Ok(vec![1, 2]), Ok(vec![]), Ok(vec![3])],
                r#"{"n":[1,2,3],"total":3}"#,
                false,
            ),
        ] {
            let response = list(parts).await.unwrap();
            assert_eq!(response.headers()["content-type"], "application/json");
            assert_eq!(response.body().size_hint().exact().is_some(), plain);
            assert_eq!(to_bytes(response.into_body(), 1000).await.unwrap(), text);
        }
    }

    #[tokio::test]
    async fn an_error_is_never_taken_for_the_end() {
        let broken = || Err(Error::internal("disk gone"));
        assert!(list(vec![broken()]).await.is_err());
        let response = list(vec![Ok(vec![1]), broken()]).await.unwrap();
        assert!(to_bytes(response.into_body(), 1000).await.is_err());
    }
}
