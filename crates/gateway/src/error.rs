//! What the relay refuses, in OpenAI's shape. Every code and every sentence is here.

use crate::accounting::usage_ledger::AdmissionError;
use crate::auth::AuthError;
use crate::limits::bucket::RateLimitStatus;
use crate::limits::rate_limiter::{Exceeded, RateLimitStatuses};
use crate::request::body_reader::BodyReadError;
use crate::request::field_policy::RefusedField;
use crate::request::request_fields::RequestError;
use crate::upstream::ResponseError;
use bytes::Bytes;
use estrade_model::Timestamp;
use estrade_model::rate::RateUnit;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use serde::Serialize;
use std::borrow::Cow;
use std::time::Duration;

const INVALID: &str = "invalid_request_error";
const SERVER: &str = "server_error";

/// A response that is an error of ours.
#[derive(Debug)]
pub(crate) struct GatewayError {
    pub(crate) status: StatusCode,
    kind: &'static str,
    code: &'static str,
    message: Cow<'static, str>,
    param: Option<Cow<'static, str>>,
    limit: Option<Box<Limit>>,
    headers: Vec<(HeaderName, HeaderValue)>,
}

/// The limit that was met, for programs.
#[derive(Debug, Serialize)]
struct Limit {
    of: &'static str,
    name: &'static str,
    value: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_in: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    resets_at: Option<String>,
}

#[derive(Serialize)]
struct Envelope<'e> {
    error: Wire<'e>,
}

#[derive(Serialize)]
struct Wire<'e> {
    message: &'e str,
    #[serde(rename = "type")]
    kind: &'e str,
    code: &'e str,
    param: Option<&'e str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<&'e Limit>,
}

impl GatewayError {
    fn new(
        status: StatusCode,
        kind: &'static str,
        code: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            status,
            kind,
            code,
            message: message.into(),
            param: None,
            limit: None,
            headers: Vec::new(),
        }
    }

    fn header(mut self, name: HeaderName, value: impl AsRef<str>) -> Self {
        if let Ok(value) = HeaderValue::from_str(value.as_ref()) {
            self.headers.push((name, value));
        }
        self
    }

    pub(crate) fn no_key() -> Self {
        let message = "an API key is needed: send it as 'Authorization: Bearer <key>'";
        Self::denied(AuthError::Unauthorized("missing_key", message))
    }

    pub(crate) fn denied(denied: AuthError) -> Self {
        match denied {
            AuthError::Unauthorized(code, message) => Self::new(
                StatusCode::UNAUTHORIZED,
                "authentication_error",
                code,
                message,
            )
            .header(header::WWW_AUTHENTICATE, "Bearer"),
            AuthError::Forbidden(code, message) => {
                Self::new(StatusCode::FORBIDDEN, "permission_error", code, message)
            }
            AuthError::WorkspaceRequired => Self::new(
                StatusCode::BAD_REQUEST,
                INVALID,
                "workspace_required",
                "this key has several workspaces: use the base URL /api/<workspace>/v1",
            ),
            AuthError::Unavailable => Self::unavailable(
                "keys_unavailable",
                "the key can not be checked at the moment; try again",
            ),
        }
    }

    fn unavailable(code: &'static str, message: &'static str) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, SERVER, code, message)
            .header(header::RETRY_AFTER, "1")
    }

    /// Strict mode: the response of a call that is not on disk is withheld. The call was made: clients must not retry it.
    pub(crate) fn not_recorded() -> Self {
        let message = "the call was made and will be charged, but it could not be written to disk in time: \
                    usage.durability is strict, so its answer is withheld";
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self::new(status, SERVER, "usage_not_recorded", message)
            .header(HeaderName::from_static("x-should-retry"), "false")
    }

    pub(crate) fn unknown_path() -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            INVALID,
            "not_found",
            "there is nothing at this path",
        )
    }

    pub(crate) fn wrong_method(allow: &'static str) -> Self {
        let message = "this path does not take that method";
        Self::new(
            StatusCode::METHOD_NOT_ALLOWED,
            INVALID,
            "method_not_allowed",
            message,
        )
        .header(header::ALLOW, allow)
    }

    pub(crate) fn too_large(most: u64) -> Self {
        let message = format!("the body is larger than {most} bytes");
        Self::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            INVALID,
            "body_too_large",
            message,
        )
        .header(header::CONNECTION, "close")
    }

    pub(crate) fn too_many_bodies() -> Self {
        let message = "too many large requests are under way; try again";
        Self::unavailable("overloaded", message).header(header::CONNECTION, "close")
    }

    pub(crate) fn too_many_connections() -> Self {
        let message = "too many calls to providers are under way; try again";
        Self::unavailable("overloaded", message)
    }

    pub(crate) fn too_many_own_bodies() -> Self {
        let message =
            "this account has too many large requests under way; wait until some have ended";
        Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "too_many_uploads",
            message,
        )
        .header(header::RETRY_AFTER, "1")
        .header(header::CONNECTION, "close")
    }

    pub(crate) fn slow_body() -> Self {
        let message = "the body did not arrive in time";
        Self::new(
            StatusCode::REQUEST_TIMEOUT,
            INVALID,
            "body_timeout",
            message,
        )
        .header(header::CONNECTION, "close")
    }

    pub(crate) fn broken_body() -> Self {
        Self::new(
            StatusCode::BAD_REQUEST,
            INVALID,
            "body_incomplete",
            "the body broke off",
        )
    }

    pub(crate) fn bad_body(bad: &RequestError) -> Self {
        let refuse =
            |code, message: String| Self::new(StatusCode::BAD_REQUEST, INVALID, code, message);
        match bad {
            RequestError::NotText => refuse("invalid_json", "the body is not UTF-8".to_owned()),
            RequestError::Json(malformed) => refuse(
                "invalid_json",
                format!(
                    "the body is not JSON that can be read: {} at byte {}",
                    malformed.why, malformed.at
                ),
            ),
            RequestError::NoModel => Self {
                param: Some("model".into()),
                ..refuse(
                    "model_required",
                    "model is missing: name the one to use".to_owned(),
                )
            },
            RequestError::Field(field, why) => Self {
                param: Some((*field).into()),
                ..refuse("invalid_value", format!("{field} {why}"))
            },
        }
    }

    pub(crate) fn field_not_allowed(field: RefusedField) -> Self {
        let RefusedField { param, pass_field } = field;
        let message = format!(
            "`{param}` is not passed to this model's provider, where it may change the model, the routing or the \
             price: leave it out, or ask the operator to add `{pass_field}` to the provider's pass_fields"
        );
        let status = StatusCode::BAD_REQUEST;
        Self {
            param: Some(param.into()),
            ..Self::new(status, INVALID, "field_not_allowed", message)
        }
    }

    pub(crate) fn echo(message: &'static str, param: &'static str) -> Self {
        Self {
            param: Some(param.into()),
            ..Self::new(StatusCode::BAD_REQUEST, INVALID, "invalid_value", message)
        }
    }

    pub(crate) fn model_not_allowed(model: &str) -> Self {
        let message = format!("this key may not use the model {}", shown(model));
        Self {
            param: Some("model".into()),
            ..Self::new(
                StatusCode::FORBIDDEN,
                "permission_error",
                "model_not_allowed",
                message,
            )
        }
    }

    pub(crate) fn model_not_found(model: &str) -> Self {
        let message = format!(
            "the model {} does not exist; GET models lists those that do",
            shown(model)
        );
        Self {
            param: Some("model".into()),
            ..Self::new(StatusCode::NOT_FOUND, INVALID, "model_not_found", message)
        }
    }

    pub(crate) fn rate(exceeded: &Exceeded) -> Self {
        let Exceeded {
            of_workspace,
            unit,
            status,
            retry,
        } = exceeded;
        let of = owner(*of_workspace);
        let (name, code) = match unit {
            RateUnit::Requests => ("requests", "rate_limit_requests"),
            RateUnit::Tokens => ("tokens", "rate_limit_tokens"),
        };
        let wait = span(*retry);
        let message = format!(
            "the {of} may use {} {name} per minute, and they are used up; try again in {wait}",
            status.limit
        );
        let mut refusal = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            code,
            message,
        );
        refusal.limit = Some(Box::new(Limit {
            of,
            name,
            value: status.limit.to_string(),
            resets_in: Some(span(status.reset)),
            resets_at: None,
        }));
        let mut headers = HeaderMap::new();
        standing_headers(*unit, status, &mut headers);
        refusal.headers.extend(
            headers
                .into_iter()
                .filter_map(|(name, value)| Some((name?, value))),
        );
        refusal.header(header::RETRY_AFTER, whole_seconds(*retry).to_string())
    }

    pub(crate) fn ledger(refused: AdmissionError, now: Timestamp) -> Self {
        let (of_workspace, budget, resets_at) = match refused {
            AdmissionError::Unavailable => {
                return Self::unavailable(
                    "ledger_unavailable",
                    "calls can not be recorded at the moment, so none is made; try again",
                );
            }
            AdmissionError::Budget {
                of_workspace,
                budget,
                resets_at,
            } => (of_workspace, budget, resets_at),
        };
        let (of, period) = (owner(of_workspace), budget.period.as_str());
        let until = resets_at.map_or_else(
            || "it does not reset".to_owned(),
            |at| format!("it resets at {at}"),
        );
        let message = format!(
            "the {period} budget of the {of}, {}, does not cover this call; {until}",
            budget.amount
        );
        let mut refusal = Self::new(
            StatusCode::PAYMENT_REQUIRED,
            "insufficient_quota",
            "budget_exceeded",
            message,
        );
        refusal.limit = Some(Box::new(Limit {
            of,
            name: "budget",
            value: budget.amount.to_string(),
            resets_in: None,
            resets_at: resets_at.map(|at| at.to_string()),
        }));
        refusal = refusal.header(
            HeaderName::from_static("x-ratelimit-limit-budget"),
            budget.amount.to_string(),
        );
        if let Some(at) = resets_at {
            let left = u64::try_from(at.millis().saturating_sub(now.millis())).unwrap_or(0);
            let left = Duration::from_millis(left);
            refusal = refusal
                .header(
                    HeaderName::from_static("x-ratelimit-reset-budget"),
                    span(left),
                )
                .header(header::RETRY_AFTER, whole_seconds(left).to_string());
        }
        refusal
    }

    pub(crate) fn no_target() -> Self {
        Self::unavailable(
            "no_target",
            "nobody answers this model at the moment; try again",
        )
    }

    pub(crate) fn upstream_auth() -> Self {
        let message =
            "the provider does not accept this gateway's credentials; its operator has to look";
        Self::new(StatusCode::BAD_GATEWAY, SERVER, "upstream_auth", message)
    }

    pub(crate) fn upstream_timeout() -> Self {
        let message = "the provider did not answer in time";
        Self::new(
            StatusCode::GATEWAY_TIMEOUT,
            SERVER,
            "upstream_timeout",
            message,
        )
    }

    pub(crate) fn upstream_error(status: Option<u16>) -> Self {
        let message: Cow<'static, str> = match status {
            Some(status) => format!("the provider answered {status}").into(),
            None => "the provider can not be reached or does not speak HTTP".into(),
        };
        Self::new(StatusCode::BAD_GATEWAY, SERVER, "upstream_error", message)
    }

    pub(crate) fn upstream_busy(retry_after: Option<Duration>) -> Self {
        let message = "the provider takes no more requests at the moment; try again later";
        let refusal = Self::new(
            StatusCode::TOO_MANY_REQUESTS,
            "rate_limit_error",
            "upstream_rate_limited",
            message,
        );
        let wait = whole_seconds(retry_after.unwrap_or(Duration::from_secs(1)));
        refusal.header(header::RETRY_AFTER, wait.to_string())
    }

    /// The response with this error, its body as bytes.
    pub(crate) fn into_bytes_response(self) -> Response<Bytes> {
        let envelope = Envelope {
            error: Wire {
                message: &self.message,
                kind: self.kind,
                code: self.code,
                param: self.param.as_deref(),
                limit: self.limit.as_deref(),
            },
        };
        let body = serde_json::to_vec(&envelope).unwrap_or_default();
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        );
        headers.extend(
            self.headers
                .into_iter()
                .map(|(name, value)| (Some(name), value)),
        );
        response
    }
}

impl From<BodyReadError> for GatewayError {
    fn from(error: BodyReadError) -> Self {
        match error {
            BodyReadError::TooLarge(max) => Self::too_large(max),
            BodyReadError::NodeFull => Self::too_many_bodies(),
            BodyReadError::OwnerFull => Self::too_many_own_bodies(),
            BodyReadError::TooSlow => Self::slow_body(),
            BodyReadError::Incomplete => Self::broken_body(),
        }
    }
}

/// The last event of a stream that was cut.
pub(crate) fn last_event(cut: ResponseError) -> Bytes {
    Bytes::from_static(match cut {
        ResponseError::Closed | ResponseError::Garbage => b"data: {\"error\":{\"message\":\"the provider broke off before the end of its answer\",\"type\":\"server_error\",\"code\":\"upstream_error\",\"param\":null}}\n\n",
        ResponseError::Idle => b"data: {\"error\":{\"message\":\"the provider went silent before the end of its answer\",\"type\":\"server_error\",\"code\":\"upstream_timeout\",\"param\":null}}\n\n",
        ResponseError::Unread => b"data: {\"error\":{\"message\":\"the answer was not read for too long and was cut\",\"type\":\"invalid_request_error\",\"code\":\"answer_unread\",\"param\":null}}\n\n",
        ResponseError::NotRecorded => b"data: {\"error\":{\"message\":\"the call could not be written to disk in time, so its answer has no end\",\"type\":\"server_error\",\"code\":\"usage_not_recorded\",\"param\":null}}\n\n",
        ResponseError::TooLarge => b"data: {\"error\":{\"message\":\"the answer is too large and was cut\",\"type\":\"server_error\",\"code\":\"answer_too_large\",\"param\":null}}\n\n",
    })
}

/// What the limits of a key leave, for a response's headers.
pub(crate) fn rate_limit_headers(statuses: &RateLimitStatuses, headers: &mut HeaderMap) {
    if let Some(status) = &statuses.requests {
        standing_headers(RateUnit::Requests, status, headers);
    }
    if let Some(status) = &statuses.tokens {
        standing_headers(RateUnit::Tokens, status, headers);
    }
}

fn standing_headers(unit: RateUnit, status: &RateLimitStatus, headers: &mut HeaderMap) {
    const REQUESTS: [HeaderName; 3] = [
        HeaderName::from_static("x-ratelimit-limit-requests"),
        HeaderName::from_static("x-ratelimit-remaining-requests"),
        HeaderName::from_static("x-ratelimit-reset-requests"),
    ];
    const TOKENS: [HeaderName; 3] = [
        HeaderName::from_static("x-ratelimit-limit-tokens"),
        HeaderName::from_static("x-ratelimit-remaining-tokens"),
        HeaderName::from_static("x-ratelimit-reset-tokens"),
    ];
    let [limit, remaining, reset] = match unit {
        RateUnit::Requests => REQUESTS,
        RateUnit::Tokens => TOKENS,
    };
    headers.insert(limit, HeaderValue::from(status.limit));
    headers.insert(remaining, HeaderValue::from(status.remaining));
    headers.insert(reset, span_header(status.reset));
}

fn owner(of_workspace: bool) -> &'static str {
    if of_workspace { "workspace" } else { "key" }
}

fn whole_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// [`span`] as a header; most are short, and every response has two.
fn span_header(of: Duration) -> HeaderValue {
    if of < Duration::from_millis(999) {
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(of.as_nanos().div_ceil(1_000_000)).as_bytes();
        let mut text = [0; 5];
        text[..digits.len()].copy_from_slice(digits);
        text[digits.len()..digits.len() + 2].copy_from_slice(b"ms");
        if let Ok(value) = HeaderValue::from_bytes(&text[..digits.len() + 2]) {
            return value;
        }
    }
    HeaderValue::try_from(span(of)).unwrap_or_else(|_| HeaderValue::from_static("0ms"))
}

/// A span as OpenAI writes it: `6ms`, `1.2s`, `1m0s`, `2h3m0s`. Never less than it is.
fn span(span: Duration) -> String {
    let millis = span.as_nanos().div_ceil(1_000_000);
    let (tenths, seconds) = (millis.div_ceil(100), millis.div_ceil(1000));
    match (tenths, seconds) {
        _ if millis < 1000 => format!("{millis}ms"),
        (0..600, _) if tenths % 10 == 0 => format!("{}s", tenths / 10),
        (0..600, _) => format!("{}.{}s", tenths / 10, tenths % 10),
        (_, 0..3600) => format!("{}m{}s", seconds / 60, seconds % 60),
        _ => format!("{}h{}m{}s", seconds / 3600, seconds / 60 % 60, seconds % 60),
    }
}

/// A name that a caller made up, not longer than a line.
fn shown(name: &str) -> String {
    let short: String = name.chars().take(100).filter(|c| !c.is_control()).collect();
    format!("'{short}'")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_written_as_openai_does() {
        let shown = |millis| span(Duration::from_millis(millis));
        assert_eq!([shown(0), shown(6), shown(999)], ["0ms", "6ms", "999ms"]);
        for nanos in [
            0,
            1,
            5_000_001,
            998_999_999,
            999_000_000,
            999_000_001,
            61_000_000_000,
        ] {
            let span = Duration::from_nanos(nanos);
            assert_eq!(span_header(span), super::span(span));
        }
        assert_eq!(
            [shown(1000), shown(1200), shown(59_900)],
            ["1s", "1.2s", "59.9s"]
        );
        assert_eq!([shown(60_000), shown(61_001)], ["1m0s", "1m2s"]);
        assert_eq!([shown(59_901), shown(3_599_001)], ["1m0s", "1h0m0s"]);
        assert_eq!(shown(7_380_000), "2h3m0s");
        assert_eq!(span(Duration::from_micros(1)), "1ms");
    }

    #[test]
    fn the_last_events_are_json() {
        for cut in [
            ResponseError::Closed,
            ResponseError::Garbage,
            ResponseError::Idle,
            ResponseError::TooLarge,
            ResponseError::Unread,
        ] {
            let event = last_event(cut);
            let data = event
                .strip_prefix(b"data: ")
                .unwrap()
                .strip_suffix(b"\n\n")
                .unwrap();
            let value: serde_json::Value = serde_json::from_slice(data).unwrap();
            assert!(value["error"]["message"].is_string(), "{cut:?}");
        }
    }
}
