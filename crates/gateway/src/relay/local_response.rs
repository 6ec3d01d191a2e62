//! Responses that no provider is asked for: of the built-in echo model, and from the cache.

use super::outcome::{CompleteResponse, Outcome};
use crate::accounting::account::{CallAccount, CallEnd};
use crate::cache::{CacheKey, CachedResponse, ResponseCache};
use crate::echo;
use crate::error::GatewayError;
use crate::headers::{BETA, CACHE, MAX_HEADERS};
use crate::request::request_fields::RequestFields;
use crate::streaming::body::GatewayBody;
use crate::upstream::catalogue::ECHO_PROVIDER;
use bytes::Bytes;
use estrade_model::call::Operation;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use std::sync::Arc;
use tokio::time::Instant;

/// Answers a call to the built-in model that repeats what it is sent.
pub(super) fn echo(
    operation: Operation,
    body: &Bytes,
    account: &mut CallAccount,
) -> Result<Outcome, GatewayError> {
    let Some(call) = account.call() else {
        return Err(GatewayError::no_target());
    };
    call.provider = Arc::from(ECHO_PROVIDER);
    call.attempts = 1;
    let mut response = echo::respond(operation, body, call.id, call.created_at)?;
    account.record_first_byte(Instant::now());
    let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static(response.content_type),
    );
    let body = if response.pieces.len() == 1 {
        GatewayBody::whole(response.pieces.pop_front().unwrap_or_default())
    } else {
        GatewayBody::pieces(response.pieces)
    };
    let ending = CallEnd {
        status: 200,
        tokens: response.tokens,
        ..CallEnd::default()
    };
    let status = StatusCode::OK;
    Ok(Outcome::Complete(CompleteResponse {
        status,
        headers,
        body,
        ending,
    }))
}

/// The key of the response in the cache, if it may be cached.
pub(super) fn cache_key(
    operation: Operation,
    fields: &RequestFields,
    body: &Bytes,
    headers: &HeaderMap,
    account: &CallAccount,
) -> Option<CacheKey> {
    let wanted = match headers.get(CACHE).map(HeaderValue::as_bytes) {
        Some(b"on") => true,
        Some(b"off") => false,
        _ => account.auth.key.cache,
    };
    let same = fields.deterministic || operation == Operation::Embeddings;
    (wanted && same && !fields.stream).then(|| {
        let around = fields.around_model(body);
        // This header may change the response.
        let beta = headers.get(BETA).map_or(&[][..], HeaderValue::as_bytes);
        ResponseCache::key(
            account.auth.key.owner,
            operation,
            &fields.model,
            beta,
            around,
        )
    })
}

/// The response to a call that was kept from an earlier one.
pub(super) fn from_cache(kept: CachedResponse) -> CompleteResponse {
    let mut headers = HeaderMap::with_capacity(MAX_HEADERS);
    headers.insert(header::CONTENT_TYPE, kept.content_type);
    headers.insert(CACHE, HeaderValue::from_static("hit"));
    CompleteResponse {
        status: StatusCode::OK,
        headers,
        body: GatewayBody::whole(kept.body),
        ending: CallEnd {
            status: 200,
            cached: true,
            tokens: kept.tokens,
            ..CallEnd::default()
        },
    }
}
