//! The two text formats of metrics: `OpenMetrics`, and the older one of Prometheus, chosen by `Accept`.

use axum::http::HeaderValue;
use std::fmt::Write;

/// A text format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    OpenMetrics,
    Prometheus,
}

impl Format {
    /// The one that a client prefers; without a word of `OpenMetrics`, the one that every tool reads.
    pub(super) fn of(accept: Option<&HeaderValue>) -> Self {
        let text = accept.and_then(|value| value.to_str().ok());
        let quality = |kind: &str| {
            let ranges = text.unwrap_or_default().split(',');
            let of_kind = ranges.filter_map(|range| {
                let (name, parameters) = range.split_once(';').unwrap_or((range, ""));
                let is_kind = name.trim().eq_ignore_ascii_case(kind);
                is_kind.then(|| quality_of(parameters))
            });
            of_kind.fold(0.0, f64::max)
        };
        let open_metrics = quality("application/openmetrics-text");
        if open_metrics > 0.0 && open_metrics >= quality("text/plain") {
            Self::OpenMetrics
        } else {
            Self::Prometheus
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// `q` of a media range.
fn quality_of(parameters: &str) -> f64 {
    let mut values = parameters.split(';').filter_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let is_quality = name.trim().eq_ignore_ascii_case("q");
        is_quality.then(|| value.trim().parse().unwrap_or(0.0))
    });
    values.next_back().unwrap_or(1.0)
}

/// Converts `OpenMetrics` to Prometheus's older text format: counters are described by the name of their samples, and
/// units and the end marker are left out.
pub(super) fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(described) = line.strip_prefix("# HELP ") {
            help = described.split_once(' ');
        } else if let Some(typed) = line.strip_prefix("# TYPE ") {
            let Some((name, kind)) = typed.split_once(' ') else {
                continue;
            };
            let (suffix, kind) = match kind {
                "counter" => ("_total", kind),
                "unknown" => ("", "untyped"),
                _ => ("", kind),
            };
            // Writing into memory does not fail.
            if let Some((_, help)) = help.take().filter(|(described, _)| *described == name) {
                let _ = writeln!(text, "# HELP {name}{suffix} {help}");
            }
            let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_gets_what_it_prefers() {
        let of = |text: &'static str| Format::of(Some(&HeaderValue::from_static(text)));
        for open_metrics in [
            "application/openmetrics-text",
            "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2",
            "text/plain;q=0.1, Application/OpenMetrics-Text; q=0.2",
        ] {
            assert_eq!(of(open_metrics), Format::OpenMetrics, "{open_metrics}");
        }
        for prometheus in [
            "",
            "*/*",
            "text/html",
            "text/plain;version=0.0.4",
            "text/plain, application/openmetrics-text;q=0.5",
            "application/openmetrics-text;q=0",
            "application/openmetrics-text;q=x",
        ] {
            assert_eq!(of(prometheus), Format::Prometheus, "{prometheus}");
        }
        assert_eq!(Format::of(None), Format::Prometheus);
    }

    #[test]
    fn counters_are_described_by_the_name_of_their_samples() {
        let open_metrics = "# HELP a Help of a.\n# TYPE a counter\na_total{b=\"# TYPE x counter\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\n# UNIT t_seconds seconds\nt_seconds_sum 0.5\n\
            # HELP g G.\n# TYPE g unknown\ng 1\n# EOF\n";
        let prometheus = "# HELP a_total Help of a.\n# TYPE a_total counter\na_total{b=\"# TYPE x counter\"} 1\n\
            # HELP t_seconds Time.\n# TYPE t_seconds histogram\nt_seconds_sum 0.5\n\
            # HELP g G.\n# TYPE g untyped\ng 1\n";
        assert_eq!(to_prometheus(open_metrics), prometheus);
    }
}
