//! Traces of calls, as a collector gets them: read with OpenTelemetry's own types.

use crate::support::{ECHO, MODEL, chat, chat_response, key, provide, say};
use estrade_mock_upstream::{Action, MockUpstream, json as answer_json};
use estrade_server::ai::traces::TraceOptions;
use estrade_testkit::{Backend, Setup, TestApp};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value as Any;
use opentelemetry_proto::tonic::trace::v1::{Span, span::SpanKind, status::StatusCode};
use serde_json::json;
use std::time::{Duration, Instant};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

async fn start(collector: &MockUpstream, percent: u8) -> TestApp {
    let mut setup = Setup::default();
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", "Bearer collector-key".parse().unwrap());
    setup.inference.traces = Some(TraceOptions {
        endpoint: format!("http://{}/v1/traces", collector.address)
            .parse()
            .unwrap(),
        headers,
        percent,
    });
    TestApp::start_with(Backend::Sqlite, setup).await
}

/// All spans that the collector was sent, once there are so many.
async fn spans(collector: &MockUpstream, count: usize) -> Vec<Span> {
    let begin = Instant::now();
    loop {
        let bodies = collector.requests();
        let spans: Vec<Span> = bodies.iter().flat_map(|asked| read(&asked.body)).collect();
        if spans.len() >= count {
            assert_eq!(spans.len(), count);
            return spans;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{spans:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn read(body: &str) -> Vec<Span> {
    let export: ExportTraceServiceRequest = serde_json::from_str(body).unwrap();
    let [resource] = export.resource_spans.try_into().unwrap();
    let service = &resource.resource.unwrap().attributes[0];
    assert_eq!(service.key, "service.name");
    resource
        .scope_spans
        .into_iter()
        .flat_map(|scope| scope.spans)
        .collect()
}

/// An attribute as a text.
fn attribute(span: &Span, key: &str) -> String {
    let found = span.attributes.iter().find(|one| one.key == key);
    match found.and_then(|one| one.value.clone()?.value) {
        Some(Any::StringValue(text)) => text,
        Some(Any::IntValue(number)) => number.to_string(),
        Some(Any::BoolValue(flag)) => flag.to_string(),
        _ => String::new(),
    }
}

#[tokio::test]
async fn a_call_is_a_span_of_its_callers_trace() {
    let collector = MockUpstream::new(|_| answer_json(200, "{}")).await;
    let upstream = MockUpstream::new(|_| answer_json(200, &chat_response(5))).await;
    let app = start(&collector, 0).await;
    provide(&app, &upstream).await;
    let ada = app.new_account("ada").await.ai();
    let (id, key) = key(&ada, "traced").await;
    let response = chat(&app, &key, MODEL, &json!({}))
        .header("traceparent", PARENT)
        .await
        .assert(200);
    let span = spans(&collector, 1).await.remove(0);
    assert_eq!(hex::encode(&span.trace_id), PARENT[3..35]);
    assert_eq!(hex::encode(&span.parent_span_id), PARENT[36..52]);
    assert_eq!(
        (span.name.as_str(), span.kind()),
        ("chat acme/large", SpanKind::Client)
    );
    for (key, value) in [
        ("gen_ai.operation.name", "chat"),
        ("gen_ai.provider.name", "acme"),
        ("gen_ai.request.model", MODEL),
        ("gen_ai.usage.input_tokens", "3"),
        ("gen_ai.usage.output_tokens", "5"),
        ("http.response.status_code", "200"),
        ("estrade.call.id", response.header("x-estrade-call")),
        ("estrade.key.id", &id),
        ("estrade.partial", "false"),
    ] {
        assert_eq!(attribute(&span, key), value, "{key}");
    }
    assert!(span.start_time_unix_nano > 1_700_000_000_000_000_000);
    assert!(span.end_time_unix_nano > span.start_time_unix_nano);
    assert!(span.status.is_none());
    // The provider's part hangs below the call.
    let told = &upstream.requests()[0].head;
    let below = format!(
        "traceparent: 00-{}-{}-01",
        &PARENT[3..35],
        hex::encode(&span.span_id)
    );
    assert!(told.contains(&below), "{told}");
    let collector_head = &collector.requests()[0].head;
    assert!(
        collector_head.contains("POST /v1/traces ") && collector_head.contains("collector-key")
    );
    // Recording these was not asked for.
    say(&app, &key).await.assert(200);
    let unwanted = PARENT.replace("-01", "-00");
    chat(&app, &key, ECHO, &json!({}))
        .header("traceparent", &unwanted)
        .await
        .assert(200);
    app.finish().await;
    assert_eq!(spans(&collector, 1).await.len(), 1);
}

#[tokio::test]
async fn every_call_begins_a_trace_when_all_are_sampled_and_a_failure_says_so() {
    let collector = MockUpstream::new(|number| match number {
        // A collector that is busy is asked again.
        0 => answer_json(503, "{}"),
        _ => answer_json(200, "{}"),
    })
    .await;
    let app = start(&collector, 100).await;
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "traced").await;
    say(&app, &key).await.assert(200);
    chat(&app, &key, "acme/none", &json!({})).await.assert(404);
    // What waits is sent before the server is gone.
    app.finish().await;
    let bodies = collector.requests();
    let mut all: Vec<Span> = bodies[1..]
        .iter()
        .flat_map(|asked| read(&asked.body))
        .collect();
    all.sort_by_key(|span| span.start_time_unix_nano);
    let [good, bad] = all.try_into().unwrap();
    assert_ne!(good.trace_id, bad.trace_id);
    assert!(good.parent_span_id.is_empty() && good.status.is_none());
    assert_eq!(bad.status.as_ref().unwrap().code(), StatusCode::Error);
    assert_eq!(attribute(&bad, "error.type"), "404");
}

#[tokio::test]
async fn a_collector_that_hangs_costs_no_call() {
    let collector = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let app = start(&collector, 100).await;
    let ada = app.new_account("ada").await.ai();
    let (_, key) = key(&ada, "traced").await;
    for _ in 0..50 {
        say(&app, &key).await.assert(200);
    }
    let begin = Instant::now();
    app.finish().await;
    assert!(
        begin.elapsed() < Duration::from_secs(30),
        "{:?}",
        begin.elapsed()
    );
}
