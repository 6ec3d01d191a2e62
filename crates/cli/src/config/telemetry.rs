//! `[telemetry]`: traces of inference calls.

use super::secret::{MASK, Secret};
use super::text::Invalid;
use super::url::HttpUrl;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};

/// Traces of inference calls, for a collector that speaks OTLP over HTTP.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Telemetry {
    /// The collector; absent: no traces.
    pub otlp_endpoint: Option<HttpUrl>,
    /// What is sent along.
    pub otlp_headers: Headers,
    /// Of a hundred calls that belong to no trace, how many begin one.
    pub sample_percent: Percent,
}

impl Default for Telemetry {
    fn default() -> Self {
        Self {
            otlp_endpoint: None,
            otlp_headers: Headers::default(),
            sample_percent: Percent(100),
        }
    }
}

/// A whole number up to a hundred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "u64")]
pub struct Percent(pub u8);

impl TryFrom<u64> for Percent {
    type Error = String;

    fn try_from(number: u64) -> Result<Self, String> {
        match u8::try_from(number) {
            Ok(percent @ 0..=100) => Ok(Self(percent)),
            _ => Err(format!("must be 0 to 100, not {number}")),
        }
    }
}

/// Headers, written as `name: value`. Values may be keys, so none is shown.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Secret>", into = "Vec<String>")]
pub struct Headers(HeaderMap);

impl Headers {
    /// As the HTTP libraries take them.
    pub fn to_map(&self) -> HeaderMap {
        self.0.clone()
    }
}

impl TryFrom<Vec<Secret>> for Headers {
    type Error = Invalid;

    fn try_from(lines: Vec<Secret>) -> Result<Self, Invalid> {
        lines.iter().map(parse).collect::<Result<_, _>>().map(Self)
    }
}

impl From<Headers> for Vec<String> {
    fn from(Headers(map): Headers) -> Self {
        map.keys().map(|name| format!("{name}: {MASK}")).collect()
    }
}

fn parse(line: &Secret) -> Result<(HeaderName, HeaderValue), Invalid> {
    let wrong = || Invalid::from("each must be a header, written as `name: value`");
    let (name, value) = line.expose().split_once(':').ok_or_else(wrong)?;
    let name = name.trim().parse().map_err(|_| wrong())?;
    let mut value = HeaderValue::from_str(value.trim()).map_err(|_| wrong())?;
    value.set_sensitive(true);
    Ok((name, value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_checked_and_never_shown() {
        let good = r#"otlp_headers = ["authorization: Bearer k-123", "x-tenant:7"]"#;
        let read: Telemetry = toml::from_str(good).unwrap();
        let map = read.otlp_headers.to_map();
        assert_eq!(map["authorization"], "Bearer k-123");
        assert_eq!(map["x-tenant"], "7");
        let shown = format!("{read:?}{}{map:?}", toml::to_string(&read).unwrap());
        assert!(!shown.contains("k-123"), "{shown}");
        for bad in ["k-123", "a b: k-123", "a: k-123\u{1}"] {
            let bad = format!("otlp_headers = [{bad:?}]");
            let error = toml::from_str::<Telemetry>(&bad).unwrap_err();
            assert!(!error.message().contains("k-123"), "{error}");
        }
        toml::from_str::<Telemetry>("sample_percent = 101").unwrap_err();
    }
}
