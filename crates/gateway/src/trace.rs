//! Traces: the trace context of a call, and the sink that gets its span when it has ended.

use estrade_model::call::Call;
use http::{HeaderMap, HeaderName};
use std::fmt;
use std::sync::Arc;

/// The header that says which trace a request belongs to (W3C Trace Context).
pub(crate) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A call's place in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trace {
    pub id: [u8; 16],
    /// The call in it.
    pub span: [u8; 8],
    /// What the call is part of; none: the trace begins with it.
    pub parent: Option<[u8; 8]>,
}

/// Learns of calls that have ended. Must not wait.
pub trait TraceSink: Send + Sync + 'static {
    /// A call has ended.
    fn call_ended(&self, trace: Trace, call: &Call);
}

/// Whether calls are traced, and where to.
#[derive(Clone)]
pub struct Tracing {
    pub sink: Arc<dyn TraceSink>,
    /// Of a hundred calls that belong to no trace, how many begin one.
    pub percent: u8,
}

impl fmt::Debug for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tracing")
            .field("percent", &self.percent)
            .finish_non_exhaustive()
    }
}

impl Tracing {
    /// The trace of a request, if it is to be traced. Whether a caller's own is, the caller decides.
    pub(crate) fn begin(&self, headers: &HeaderMap) -> Option<Trace> {
        let span = fastrand::u64(1..).to_be_bytes();
        match headers
            .get(TRACEPARENT)
            .map(|value| parse(value.as_bytes()))
        {
            Some(Some((id, parent, recorded))) => recorded.then_some(Trace {
                id,
                span,
                parent: Some(parent),
            }),
            _ => (fastrand::u8(..100) < self.percent).then(|| Trace {
                id: fastrand::u128(1..).to_be_bytes(),
                span,
                parent: None,
            }),
        }
    }
}

impl Trace {
    /// The `traceparent` for the provider, so that its spans are children of the call.
    pub(crate) fn header(&self) -> String {
        format!(
            "00-{:032x}-{:016x}-01",
            u128::from_be_bytes(self.id),
            u64::from_be_bytes(self.span)
        )
    }
}

/// The trace, the parent, and whether it is recorded.
fn parse(value: &[u8]) -> Option<([u8; 16], [u8; 8], bool)> {
    let text = std::str::from_utf8(value).ok()?;
    let mut parts = text.splitn(4, '-');
    let version = number::<2>(parts.next()?)?;
    let id = number::<32>(parts.next()?)?;
    let parent = number::<16>(parts.next()?)?;
    let rest = parts.next()?;
    // Later versions may say more behind the flags.
    let flags = match rest.split_once('-') {
        Some((flags, _)) if version > 0 => flags,
        _ => rest,
    };
    let flags = number::<2>(flags)?;
    if version == 0xff || id == 0 || parent == 0 {
        return None;
    }
    let parent = u64::try_from(parent).ok()?;
    Some((id.to_be_bytes(), parent.to_be_bytes(), flags & 1 == 1))
}

/// Lowercase hexadecimal digits, exactly so many.
fn number<const DIGITS: usize>(text: &str) -> Option<u128> {
    let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (text.len() == DIGITS && text.bytes().all(is_digit))
        .then(|| u128::from_str_radix(text, 16).ok())
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    struct Nobody;
    impl TraceSink for Nobody {
        fn call_ended(&self, _: Trace, _: &Call) {}
    }

    fn begin(percent: u8, parent: Option<&'static str>) -> Option<Trace> {
        let tracing = Tracing {
            sink: Arc::new(Nobody),
            percent,
        };
        let parent = parent.map(|text| (TRACEPARENT, HeaderValue::from_static(text)));
        tracing.begin(&parent.into_iter().collect())
    }

    #[test]
    fn a_call_joins_the_trace_of_its_caller() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let trace = begin(0, Some(parent)).unwrap();
        assert_eq!(
            trace.parent,
            Some([0xb7, 0xad, 0x6b, 0x71, 0x69, 0x20, 0x33, 0x31])
        );
        let sent = trace.header();
        assert!(sent.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && sent.ends_with("-01"));
        assert_ne!(sent, parent);
        // Its caller does not want it recorded.
        let unwanted = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";
        assert_eq!(begin(100, Some(unwanted)), None);
        let later = "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more";
        assert!(begin(0, Some(later)).is_some());
    }

    #[test]
    fn what_is_no_trace_counts_as_none() {
        for bad in [
            "",
            "00",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
        ] {
            assert_eq!(begin(0, Some(bad)), None, "{bad}");
            assert_eq!(begin(100, Some(bad)).unwrap().parent, None, "{bad}");
        }
        assert_eq!(begin(0, None), None);
    }
}
