//! TraceSink of calls, sent to a collector: OTLP over HTTP, in the GenAI conventions of OpenTelemetry.
//!
//! A call that has ended is put into a bounded queue and nothing more; one task sends what is there.
//! A collector that does not keep up costs spans, which are counted, never calls.

use axum::http::{HeaderMap, HeaderValue, Request, Uri, header};
use bytes::Bytes;
use estrade_gateway::{Trace, TraceSink};
use estrade_model::call::{Call, Operation};
use estrade_model::error::error_chain;
use http_body_util::{BodyExt, Full, Limited};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

/// Spans that wait for the collector; more are dropped.
const MAX_QUEUED_SPANS: usize = 8192;
/// Spans that one export carries.
const MAX_BATCH: usize = 512;
/// How long a span waits for others of its batch.
const BATCH_DELAY: Duration = Duration::from_secs(1);
/// How long one attempt to export may take.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Before the second attempt and the following ones.
const RETRY_DELAYS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
];
/// How long the last export may take when the server stops.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(3);
/// A longer response of the collector is not read.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;

/// Where traces go.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// The collector's address for traces, with its path.
    pub endpoint: Uri,
    /// What is sent along, such as a key.
    pub headers: HeaderMap,
    /// Of a hundred calls that belong to no trace, how many begin one.
    pub percent: u8,
}

/// Takes the spans of calls that have ended.
pub(crate) struct SpanQueue {
    sender: mpsc::Sender<(Trace, Box<Call>)>,
    dropped: Arc<AtomicU64>,
}

impl TraceSink for SpanQueue {
    fn call_ended(&self, trace: Trace, call: &Call) {
        if self
            .sender
            .try_send((trace, Box::new(call.clone())))
            .is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Exporter {
    receiver: mpsc::Receiver<(Trace, Box<Call>)>,
    dropped: Arc<AtomicU64>,
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    options: TraceOptions,
    failing: bool,
}

/// Where spans go in, and what sends them.
pub(crate) fn open(options: TraceOptions) -> io::Result<(SpanQueue, Exporter)> {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_SPANS);
    let dropped = Arc::new(AtomicU64::new(0));
    let tls = estrade_tls::client_config(Vec::new()).map_err(io::Error::other)?;
    let connector = hyper_rustls::HttpsConnectorBuilder::new()
        .with_tls_config(tls)
        .https_or_http()
        .enable_http1()
        .build();
    let queue = SpanQueue {
        sender,
        dropped: Arc::clone(&dropped),
    };
    let exporter = Exporter {
        receiver,
        dropped,
        client: Client::builder(TokioExecutor::new()).build(connector),
        options,
        failing: false,
    };
    Ok((queue, exporter))
}

impl Exporter {
    /// Sends until `stop`, and then what is left.
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut spans = Vec::with_capacity(MAX_BATCH);
        while let Some(Some(first)) = stop.run_until_cancelled(self.receiver.recv()).await {
            spans.push(first);
            tokio::select! {
                () = self.fill(&mut spans) => {}
                () = sleep(BATCH_DELAY) => {}
                () = stop.cancelled() => {}
            }
            let sent = self.send_with_retries(&spans);
            // Not for long when the server stops.
            let sent = tokio::select! {
                sent = sent => sent,
                () = async { stop.cancelled().await; sleep(SHUTDOWN_TIMEOUT).await; } => false,
            };
            self.record(sent, spans.len());
            spans.clear();
        }
        // All senders are dropped.
        while !self.receiver.is_empty() {
            self.receiver.recv_many(&mut spans, MAX_BATCH).await;
            let sent = timeout(SHUTDOWN_TIMEOUT, self.send(&spans)).await;
            let taken = matches!(sent, Ok(Outcome::Accepted));
            self.record(taken, spans.len());
            spans.clear();
            if !taken {
                return;
            }
        }
    }

    async fn fill(&mut self, spans: &mut Vec<(Trace, Box<Call>)>) {
        while spans.len() < MAX_BATCH {
            let room = MAX_BATCH - spans.len();
            if self.receiver.recv_many(spans, room).await == 0 {
                std::future::pending::<()>().await;
            }
        }
    }

    async fn send_with_retries(&self, spans: &[(Trace, Box<Call>)]) -> bool {
        for pause in RETRY_DELAYS.into_iter().map(Some).chain([None]) {
            match (self.send(spans).await, pause) {
                (Outcome::Accepted, _) => return true,
                (Outcome::Refused, _) | (_, None) => return false,
                (Outcome::Retryable, Some(pause)) => sleep(pause).await,
            }
        }
        false
    }

    async fn send(&self, spans: &[(Trace, Box<Call>)]) -> Outcome {
        let body = export(spans).to_string();
        let mut request = Request::post(self.options.endpoint.clone());
        if let Some(headers) = request.headers_mut() {
            headers.clone_from(&self.options.headers);
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        let Ok(request) = request.body(Full::from(body)) else {
            return Outcome::Refused;
        };
        match timeout(EXPORT_TIMEOUT, self.post(request)).await {
            Ok(Ok(status)) if (200..300).contains(&status) => Outcome::Accepted,
            Ok(Ok(429 | 502 | 503 | 504)) | Err(_) => Outcome::Retryable,
            Ok(Ok(status)) => {
                tracing::debug!(status, "the collector refuses traces");
                Outcome::Refused
            }
            Ok(Err(error)) => {
                tracing::debug!(
                    error = error_chain(&error),
                    "the collector cannot be reached"
                );
                Outcome::Retryable
            }
        }
    }

    async fn post(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<u16, hyper_util::client::legacy::Error> {
        let response = self.client.request(request).await?;
        let (head, body) = response.into_parts();
        // Read to its end, so that the connection can be used again.
        let _ = Limited::new(body, MAX_RESPONSE_BYTES).collect().await;
        Ok(head.status.as_u16())
    }

    /// Logs once when exports begin to fail, and once when they work again.
    fn record(&mut self, sent: bool, spans: usize) {
        if !sent {
            self.dropped.fetch_add(spans as u64, Ordering::Relaxed);
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        match (sent, self.failing) {
            (false, false) => {
                let endpoint = &self.options.endpoint;
                tracing::warn!(%endpoint, dropped, "traces cannot be sent");
            }
            (true, true) => tracing::info!(dropped, "traces are sent again"),
            _ => {}
        }
        self.failing = !sent;
    }
}

/// What became of an export.
enum Outcome {
    Accepted,
    /// Another time it may be taken.
    Retryable,
    Refused,
}

/// The body of an export.
fn export(spans: &[(Trace, Box<Call>)]) -> Value {
    let version = env!("CARGO_PKG_VERSION");
    let spans: Vec<_> = spans
        .iter()
        .map(|(trace, call)| span(trace, call))
        .collect();
    json!({ "resourceSpans": [{
        "resource": { "attributes": [
            text("service.name", "estrade"),
            text("service.version", version),
        ] },
        "scopeSpans": [{
            "scope": { "name": "estrade.gateway", "version": version },
            "spans": spans,
        }],
    }] })
}

fn span(trace: &Trace, call: &Call) -> Value {
    let operation = match call.operation {
        Operation::Chat => "chat",
        Operation::Embeddings => "embeddings",
        Operation::Images => "image_generation",
    };
    let start = i128::from(call.created_at.millis()) * 1_000_000;
    let after = |micros: u64| (start + i128::from(micros) * 1000).to_string();
    let mut span = json!({
        "traceId": hex::encode(trace.id),
        "spanId": hex::encode(trace.span),
        "name": format!("{operation} {}", call.model).trim_end(),
        // A client: of the provider.
        "kind": 3,
        "startTimeUnixNano": start.to_string(),
        "endTimeUnixNano": after(call.latency_us),
        "attributes": attributes(operation, call),
        "events": [{ "name": "first_byte", "timeUnixNano": after(call.ttfb_us) }],
    });
    if let Some(parent) = trace.parent {
        span["parentSpanId"] = hex::encode(parent).into();
    }
    if call.status >= 400 || call.partial {
        span["status"] = json!({ "code": 2 });
    }
    span
}

fn attributes(operation: &str, call: &Call) -> Vec<Value> {
    let mut all = vec![
        text("gen_ai.operation.name", operation),
        text("gen_ai.request.model", &call.model),
        number("gen_ai.usage.input_tokens", call.tokens.prompt),
        number("gen_ai.usage.output_tokens", call.tokens.completion),
        number("http.response.status_code", call.status.into()),
        text("estrade.call.id", &call.id.to_string()),
        text("estrade.workspace.id", &call.workspace.to_string()),
        text("estrade.key.id", &call.key.to_string()),
        text("estrade.cost", &call.cost.to_string()),
        number("estrade.attempts", call.attempts.into()),
        flag("estrade.streamed", call.streamed),
        flag("estrade.partial", call.partial),
        flag("estrade.estimated", call.estimated),
        flag("estrade.cached", call.cached),
    ];
    if !call.provider.is_empty() {
        all.push(text("gen_ai.provider.name", &call.provider));
    }
    if call.status >= 400 {
        all.push(text("error.type", &call.status.to_string()));
    } else if call.partial {
        all.push(text("error.type", "partial"));
    }
    all
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

/// 64-bit numbers are texts in the JSON of OTLP.
fn number(key: &str, value: u64) -> Value {
    let value = i64::try_from(value).unwrap_or(i64::MAX);
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn flag(key: &str, value: bool) -> Value {
    json!({ "key": key, "value": { "boolValue": value } })
}
