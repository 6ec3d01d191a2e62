//! The numbers of inference, for Prometheus, named as OpenTelemetry names them.

use estrade_gateway::Gateway;
use estrade_gateway::metrics::{BOUNDS_MS, Snapshot};
use estrade_listener::UpstreamBudget;
use estrade_service::ai::usage::Ledger;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Collector of the gateway's counters, read at each scrape.
pub(crate) struct GatewayMetrics(pub(crate) Arc<Gateway>);

impl fmt::Debug for GatewayMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GatewayMetrics")
    }
}

/// What tells one series from another.
fn labels(series: &Snapshot) -> [(&'static str, &str); 2] {
    [
        ("gen_ai_request_model", &*series.model),
        ("gen_ai_provider_name", &*series.provider),
    ]
}

impl Collector for GatewayMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let all = self.0.snapshot();
        encode_calls(&all, &mut encoder)?;
        encode_tokens(&all, &mut encoder)?;
        encode_attempts(&all, &mut encoder)?;
        encode_connections(self.0.upstreams(), &mut encoder)?;
        encode_durations(&all, &mut encoder)
    }
}

fn encode_connections(
    upstreams: &UpstreamBudget,
    encoder: &mut DescriptorEncoder<'_>,
) -> fmt::Result {
    let name = "estrade_gen_ai_provider_connections";
    let help = "Open connections to providers, idle ones included";
    let open = i64::try_from(upstreams.open()).unwrap_or(i64::MAX);
    encoder
        .encode_descriptor(name, help, None, MetricType::Gauge)?
        .encode_gauge(&open)?;
    let name = "estrade_gen_ai_provider_connections_refused";
    let help = "Connections to providers that were not opened because too many are open";
    encoder
        .encode_descriptor(name, help, None, MetricType::Counter)?
        .encode_counter::<NoLabelSet, _, u64>(&upstreams.refused(), None)
}

/// Collector of the ledger's metrics, read at each scrape.
pub(crate) struct LedgerMetrics(pub(crate) Arc<Ledger>);

impl fmt::Debug for LedgerMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LedgerMetrics")
    }
}

impl Collector for LedgerMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "estrade_ledger_unwritten";
        let help = "Calls that wait for the database";
        let waiting = i64::try_from(self.0.unwritten()).unwrap_or(i64::MAX);
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&waiting)?;
        let name = "estrade_ledger_unrecorded";
        let help =
            "Calls that were not written down: too many waited, or the database refused them";
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&self.0.unrecorded(), None)
    }
}

fn encode_calls(all: &[Snapshot], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Inference calls by what the caller got";
    let mut calls =
        encoder.encode_descriptor("estrade_gen_ai_calls", help, None, MetricType::Counter)?;
    for series in all {
        let [model, provider] = labels(series);
        for (status, count) in &series.statuses {
            let status = status.to_string();
            let labels = [model, provider, ("status", &*status)];
            let mut metric = calls.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(count, None)?;
        }
    }
    Ok(())
}

fn encode_tokens(all: &[Snapshot], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Tokens of inference calls";
    let mut tokens =
        encoder.encode_descriptor("estrade_gen_ai_tokens", help, None, MetricType::Counter)?;
    for series in all {
        let [model, provider] = labels(series);
        for (kind, count) in [
            ("input", series.tokens.prompt),
            ("output", series.tokens.completion),
        ] {
            let labels = [model, provider, ("gen_ai_token_type", kind)];
            let mut metric = tokens.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
    }
    Ok(())
}

fn encode_attempts(all: &[Snapshot], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Requests to providers, repeated ones included";
    let mut attempts =
        encoder.encode_descriptor("estrade_gen_ai_attempts", help, None, MetricType::Counter)?;
    for series in all {
        let labels = labels(series);
        let mut metric = attempts.encode_family(&labels)?;
        metric.encode_counter::<NoLabelSet, _, u64>(&series.attempts, None)?;
    }
    Ok(())
}

fn encode_durations(all: &[Snapshot], encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let help = "Time until the end of the answer";
    let mut times = encoder.encode_descriptor(
        "estrade_gen_ai_duration_seconds",
        help,
        None,
        MetricType::Histogram,
    )?;
    for series in all {
        let seconds = |bound: &u64| Duration::from_millis(*bound).as_secs_f64();
        let bounds = BOUNDS_MS.iter().map(seconds);
        let bounds = bounds.chain([f64::INFINITY]);
        let buckets: Vec<(f64, u64)> = bounds.zip(series.durations).collect();
        let count = series.durations.iter().sum();
        let labels = labels(series);
        let mut metric = times.encode_family(&labels)?;
        metric.encode_histogram::<NoLabelSet>(series.total.as_secs_f64(), count, &buckets, None)?;
    }
    Ok(())
}
