//! What a provider answers: taken as a whole when it is there, passed on as it comes when it is not.

use crate::account::{Account, Ending};
use crate::attempt::UpstreamResponse;
use crate::body::GatewayBody;
use crate::cache::{CacheKey, Saving};
use crate::catalogue::Target;
use crate::error::Refusal;
use crate::metered::{Content, Metered, tokens};
use crate::model_name::{ModelRewriter, header_of_quoted, replace};
use crate::relay::{
    CACHE, CompleteResponse, MAX_HEADERS, Outcome, PROVIDER, UPSTREAM_MODEL, WorkerState,
};
use crate::scan::Scan;
use crate::sse::Events;
use crate::upstream::Connection;
use bytes::{Bytes, BytesMut};
use estrade_model::call::Operation;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A provider's complaint that is longer is not passed on.
const MAX_ERROR_BODY: usize = 256 * 1024;

/// What proxies between us and the caller are told about collecting what they pass on.
const BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

impl WorkerState {
    /// Takes in a provider's answer: as a whole if it is there already or is a complaint.
    pub(crate) async fn receive(
        self: &Arc<Self>,
        operation: Operation,
        mut answered: UpstreamResponse,
        cache_key: Option<CacheKey>,
        account: &mut Account,
    ) -> Result<Outcome, Refusal> {
        let head = &answered.head;
        if head.status >= 400 {
            // Also when the caller does not wait for its reasons.
            account.not_taken();
            return Box::pin(self.read_error(answered))
                .await
                .map(Outcome::Complete);
        }
        let whole = if head.events {
            None
        } else {
            answered.connection.take_whole()
        };
        let head = &answered.head;
        let json = head.content_type.clone();
        let readable = head.content_encoding.is_none();
        let keepable = head.status == 200 && readable;
        let key = cache_key.filter(|_| keepable && !head.events);
        let saving = key.map(|key| Saving {
            answers: Arc::clone(&self.gateway.answers),
            key,
            content_type: json.unwrap_or_else(|| HeaderValue::from_static("application/json")),
            body: Vec::new(),
        });
        let Some(mut body) = whole else {
            return Ok(Outcome::Streaming(Box::new(answered), saving));
        };
        let UpstreamResponse {
            target,
            mut head,
            connection,
            ..
        } = answered;
        // Some repeat what they were sent.
        if target.upstream.leaks_key(&body) {
            account.lost();
            return Err(Refusal::upstream_error(Some(head.status)));
        }
        let (waited, now) = (account.waited(), account.answered_at());
        self.pool.put(&target.upstream, connection, now);
        let mut scan = Scan::default();
        scan.feed(&body);
        let (tokens, estimated) = tokens(
            operation,
            scan.usage(),
            account.prompt_estimate,
            scan.said(),
        );
        target.health.succeeded(now);
        // All of it came at once.
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
        if let Some(saving) = saving {
            headers.insert(CACHE, HeaderValue::from_static("miss"));
            if !scan.is_open() && !scan.has_error() {
                saving
                    .answers
                    .keep(saving.key, &body, saving.content_type, tokens);
            }
        }
        let ending = Ending {
            status: head.status,
            estimated,
            unsettled: !readable,
            tokens,
            price: Some(target.price),
            ..Ending::default()
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

    /// A provider refuses the request: the caller learns why, in its words.
    async fn read_error(&self, answered: UpstreamResponse) -> Result<CompleteResponse, Refusal> {
        let UpstreamResponse {
            target,
            mut head,
            mut connection,
            ..
        } = answered;
        let status = head.status;
        let due = Instant::now() + target.upstream.timeouts.idle;
        let body = read_whole(&mut connection, due)
            .await
            .ok_or_else(|| Refusal::upstream_error(Some(status)))?;
        // It does its work: the request is at fault.
        let now = Instant::now();
        target.health.succeeded(now);
        if target.upstream.leaks_key(&body) {
            return Err(Refusal::upstream_error(Some(status)));
        }
        self.pool.put(&target.upstream, connection, now);
        let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
        head.pass_on(&mut headers);
        insert_origin_headers(&target, &mut headers);
        Ok(CompleteResponse {
            status: StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY),
            headers,
            body: GatewayBody::whole(body),
            ending: Ending {
                status,
                ..Ending::default()
            },
        })
    }

    /// An answer that comes as it comes.
    pub(crate) fn stream_response(
        self: &Arc<Self>,
        operation: Operation,
        answered: UpstreamResponse,
        saving: Option<Saving>,
        account: Box<Account>,
    ) -> Response<GatewayBody> {
        let UpstreamResponse {
            target,
            mut head,
            connection,
            hide_usage,
        } = answered;
        let status = head.status;
        let (events, readable) = (head.events, head.content_encoding.is_none());
        let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
        head.pass_on(&mut headers);
        insert_origin_headers(&target, &mut headers);
        let content = if events && readable {
            headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            // A proxy between us and the caller shall not collect events.
            headers.insert(BUFFERING, HeaderValue::from_static("no"));
            let model = Some(target.quoted_id.clone());
            Content::Events(Events::new(hide_usage, model))
        } else {
            if saving.is_some() {
                headers.insert(CACHE, HeaderValue::from_static("miss"));
            }
            // The name of the model may have another length.
            let left = connection.length().filter(|_| !readable);
            Content::Json {
                scan: Scan::default(),
                readable,
                left,
                saving,
                model: ModelRewriter::new(target.quoted_id.clone()),
            }
        };
        let flow = self.flows.add(|place| {
            let worker = Arc::clone(self);
            Metered::new(
                (worker, place),
                target,
                operation,
                status,
                connection,
                content,
                account,
            )
        });
        let mut response = Response::new(GatewayBody::metered(flow));
        *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
        *response.headers_mut() = headers;
        response
    }
}

/// Says who answers, and what the model is called there.
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
