//! Receives a provider's response: as a whole if it has arrived completely, else as a stream.

use crate::accounting::account::{CallAccount, CallEnd};
use crate::accounting::usage::tokens;
use crate::cache::{CacheKey, CacheWriter};
use crate::error::GatewayError;
use crate::headers::{CACHE, MAX_HEADERS, PROVIDER, UPSTREAM_MODEL};
use crate::relay::fallback::UpstreamResponse;
use crate::relay::outcome::{CompleteResponse, Outcome};
use crate::streaming::body::GatewayBody;
use crate::streaming::content::Content;
use crate::streaming::metered_response::MeteredResponse;
use crate::streaming::model_name::{ModelRewriter, replace};
use crate::streaming::response_scanner::ResponseScanner;
use crate::streaming::sse::EventStream;
use crate::streaming::worker::WorkerState;
use crate::upstream::Connection;
use crate::upstream::catalogue::Target;
use crate::upstream::model_id::header_of_quoted;
use bytes::{Bytes, BytesMut};
use estrade_model::call::Operation;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A provider's error body that is longer is not forwarded.
const MAX_ERROR_BODY: usize = 256 * 1024;

/// Tells proxies such as nginx not to buffer the response.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

impl WorkerState {
    /// Receives a provider's response: as a whole if it has arrived completely or is an error, else as a stream.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        operation: Operation,
        mut received: UpstreamResponse,
        cache_key: Option<CacheKey>,
        account: &mut CallAccount,
    ) -> Result<Outcome, GatewayError> {
        let head = &received.head;
        if head.status >= 400 {
            // First, so that it also holds when the client disconnects while the error body is read.
            account.record_unbilled();
            return Box::pin(self.read_error(received))
                .await
                .map(Outcome::Complete);
        }
        let whole = if head.events {
            None
        } else {
            received.connection.take_whole()
        };
        let head = &received.head;
        let json = head.content_type.clone();
        let readable = head.content_encoding.is_none();
        let keepable = head.status == 200 && readable;
        let key = cache_key.filter(|_| keepable && !head.events);
        let cache_writer = key.map(|key| CacheWriter {
            cache: Arc::clone(&self.gateway.response_cache),
            key,
            content_type: json.unwrap_or_else(|| HeaderValue::from_static("application/json")),
            body: Vec::new(),
        });
        let Some(mut body) = whole else {
            return Ok(Outcome::Streaming(Box::new(received), cache_writer));
        };
        let UpstreamResponse {
            target,
            mut head,
            connection,
            ..
        } = received;
        // Some providers repeat the key that they were sent.
        if target.upstream.leaks_key(&body) {
            account.record_lost();
            return Err(GatewayError::upstream_error(Some(head.status)));
        }
        let (waited, now) = (account.time_to_first_byte(), account.first_byte_at());
        self.pool
            .put(target.upstream.number, connection, now, || ());
        let mut scan = ResponseScanner::default();
        scan.feed(&body);
        let (tokens, estimated) = tokens(
            operation,
            scan.usage(),
            account.prompt_estimate,
            scan.content_bytes(),
        );
        target.health.succeeded(now);
        // The whole response arrived at once, so there is no generation time.
        target.measured(waited, Duration::ZERO, tokens, estimated);
        let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
        head.pass_on(&mut headers);
        insert_origin_headers(&target, &mut headers);
        if let (Some(span), true) = (scan.model().whole(), readable)
            && body[span.clone()] != target.quoted_id
        {
            if let Some(name) = header_of_quoted(&body[span.clone()]) {
                headers.insert(UPSTREAM_MODEL, name);
            }
            body = replace(&body, span, &target.quoted_id);
        }
        if let Some(cache_writer) = cache_writer {
            headers.insert(CACHE, HeaderValue::from_static("miss"));
            if !scan.is_open() && !scan.has_error() {
                cache_writer.cache.insert(
                    cache_writer.key,
                    &body,
                    cache_writer.content_type,
                    tokens,
                );
            }
        }
        let ending = CallEnd {
            status: head.status,
            estimated,
            unsettled: !readable,
            tokens,
            price: Some(target.price),
            ..CallEnd::default()
        };
        let status = StatusCode::from_u16(head.status).unwrap_or(StatusCode::OK);
        let body = GatewayBody::whole(body);
        Ok(Outcome::Complete(CompleteResponse {
            status,
            headers,
            body,
            ending,
        }))
    }

    /// Reads the error body of a provider that refuses the request; it is forwarded as it is.
    async fn read_error(
        &self,
        received: UpstreamResponse,
    ) -> Result<CompleteResponse, GatewayError> {
        let UpstreamResponse {
            target,
            mut head,
            mut connection,
            ..
        } = received;
        let status = head.status;
        let due = Instant::now() + target.upstream.timeouts.idle;
        let body = read_whole(&mut connection, due)
            .await
            .ok_or_else(|| GatewayError::upstream_error(Some(status)))?;
        // The provider works: the request is at fault.
        let now = Instant::now();
        target.health.succeeded(now);
        if target.upstream.leaks_key(&body) {
            return Err(GatewayError::upstream_error(Some(status)));
        }
        self.pool
            .put(target.upstream.number, connection, now, || ());
        let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
        head.pass_on(&mut headers);
        insert_origin_headers(&target, &mut headers);
        Ok(CompleteResponse {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
            headers,
            body: GatewayBody::whole(body),
            ending: CallEnd {
                status,
                ..CallEnd::default()
            },
        })
    }

    /// A response that is forwarded while it arrives.
    pub(crate) fn stream_response(
        self: &Arc<Self>,
        operation: Operation,
        received: UpstreamResponse,
        cache_writer: Option<CacheWriter>,
        account: Box<CallAccount>,
    ) -> Response<GatewayBody> {
        let UpstreamResponse {
            target,
            mut head,
            connection,
            hide_usage,
        } = received;
        let status = head.status;
        let (events, readable) = (head.events, head.content_encoding.is_none());
        let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
        head.pass_on(&mut headers);
        insert_origin_headers(&target, &mut headers);
        let content = if events && readable {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // nginx and others would hold events back otherwise.
            headers.insert(BUFFERING, HeaderValue::from_static("no"));
            let model = Some(target.quoted_id.clone());
            Content::Events(EventStream::new(hide_usage, model))
        } else {
            if cache_writer.is_some() {
                headers.insert(CACHE, HeaderValue::from_static("miss"));
            }
            // Unknown if the model's name is rewritten, which may change the length.
            let left = connection.remaining().filter(|_| !readable);
            Content::Json {
                scan: ResponseScanner::default(),
                readable,
                left,
                cache_writer,
                model: ModelRewriter::new(target.quoted_id.clone()),
            }
        };
        let response = self.active_responses.add(|slot| {
            let worker = Arc::clone(self);
            MeteredResponse::new(
                (worker, slot),
                target,
                operation,
                status,
                connection,
                content,
                account,
            )
        });
        let mut response = Response::new(GatewayBody::metered(response));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        *response.headers_mut() = headers;
        response
    }
}

/// Names the provider, and its name of the model.
fn insert_origin_headers(target: &Target, headers: &mut HeaderMap) {
    headers.insert(PROVIDER, target.provider().1.clone());
    if let Some(name) = &target.name_header {
        headers.insert(UPSTREAM_MODEL, name.clone());
    }
}

async fn read_whole(connection: &mut Connection, due: Instant) -> Option<Bytes> {
    if let Some(whole) = connection.take_whole() {
        return Some(whole);
    }
    let mut all = BytesMut::new();
    loop {
        let part = poll_fn(|cx| match connection.poll_data(cx) {
            Poll::Ready(outcome) => Poll::Ready(outcome.ok()),
            Poll::Pending => connection.poll_deadline(cx, due).map(|()| None),
        });
        match part.await? {
            None => return Some(all.freeze()),
            Some(data) if all.len() + data.len() > MAX_ERROR_BODY => return None,
            Some(data) => all.extend_from_slice(&data),
        }
    }
}
