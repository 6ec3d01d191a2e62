//! The numbers of every visited project, for Prometheus.

use crate::counters::{BUCKETS, Snapshot};
use crate::edge::Edge;
use crate::routing::route_table::Routes;
use estrade_listener::UpstreamBudget;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Collector of the counters, read at each scrape.
pub struct EdgeMetrics {
    routes: Arc<Routes>,
    upstreams: UpstreamBudget,
}

impl EdgeMetrics {
    pub fn new(edge: &Edge) -> Self {
        Self {
            routes: Arc::clone(edge.routes()),
            upstreams: edge.upstreams().clone(),
        }
    }

    fn encode_upstreams(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let name = "estrade_edge_upstream_connections";
        let help = "Open connections to instances, idle ones included";
        let open = i64::try_from(self.upstreams.open()).unwrap_or(i64::MAX);
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&open)?;
        let name = "estrade_edge_upstream_refused";
        let help = "Connections to instances that were not opened because too many are open";
        encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?
            .encode_counter::<NoLabelSet, _, u64>(&self.upstreams.refused(), None)
    }
}

impl fmt::Debug for EdgeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EdgeMetrics")
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

impl Collector for EdgeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.encode_upstreams(&mut encoder)?;
        let visited: Vec<(Box<str>, Snapshot)> = self
            .routes
            .visited()
            .iter()
            .filter_map(|route| Some((route.name.clone(), route.counters().snapshot()?)))
            .collect();
        let mut requests = encoder.encode_descriptor(
            "estrade_edge_requests",
            "Requests of visitors",
            None,
            MetricType::Counter,
        )?;
        for (project, numbers) in &visited {
            for (class, count) in CLASSES
                .iter()
                .zip(numbers.classes)
                .filter(|(_, count)| *count > 0)
            {
                let labels = [("project", &**project), ("status", class)];
                let mut metric = requests.encode_family(&labels)?;
                metric.encode_counter::<NoLabelSet, _, u64>(&count, None)?;
            }
        }
        let mut bytes = encoder.encode_descriptor(
            "estrade_edge_response_bytes",
            "Bytes of bodies sent to visitors",
            None,
            MetricType::Counter,
        )?;
        for (project, numbers) in &visited {
            let labels = [("project", &**project)];
            let mut metric = bytes.encode_family(&labels)?;
            metric.encode_counter::<NoLabelSet, _, u64>(&numbers.bytes, None)?;
        }
        let mut times = encoder.encode_descriptor(
            "estrade_edge_request_duration_seconds",
            "Time until an answer was sent",
            None,
            MetricType::Histogram,
        )?;
        for (project, numbers) in &visited {
            let bounds = BUCKETS
                .iter()
                .map(Duration::as_secs_f64)
                .chain([f64::INFINITY]);
            let buckets: Vec<_> = bounds.zip(numbers.buckets).collect();
            let labels = [("project", &**project)];
            let mut metric = times.encode_family(&labels)?;
            let count = numbers.buckets.iter().sum();
            metric.encode_histogram::<NoLabelSet>(
                numbers.duration.as_secs_f64(),
                count,
                &buckets,
                None,
            )?;
        }
        Ok(())
    }
}
