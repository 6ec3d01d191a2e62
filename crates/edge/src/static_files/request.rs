//! The part of a request that static serving reads.

use std::borrow::Cow;

/// The methods that matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Other,
}

/// A header's value: several lines of one name stand side by side, with commas.
pub type Value<'r> = Option<Cow<'r, str>>;

/// One request, borrowed from wherever it was read into.
#[derive(Debug, Clone)]
pub struct StaticRequest<'r> {
    pub method: Method,
    /// The method as it came, for the access log.
    pub verb: &'r str,
    /// Whether it came over TLS.
    pub secure: bool,
    /// `Host`, or the authority of an HTTP/2 request.
    pub host: &'r str,
    /// The path, as it came.
    pub path: &'r str,
    /// What stands behind the `?`.
    pub query: Option<&'r str>,
    /// The headers that matter.
    pub headers: Headers<'r>,
}

/// The headers that static serving looks at.
#[derive(Debug, Clone, Default)]
pub struct Headers<'r> {
    pub accept: Value<'r>,
    pub accept_encoding: Value<'r>,
    pub if_match: Value<'r>,
    pub if_none_match: Value<'r>,
    pub if_modified_since: Value<'r>,
    pub if_unmodified_since: Value<'r>,
    pub if_range: Value<'r>,
    pub range: Value<'r>,
    /// `User-Agent`, for the access log.
    pub user_agent: Value<'r>,
    /// `Referer`, for the access log.
    pub referer: Value<'r>,
}

impl<'r> Headers<'r> {
    /// Notes a header if it matters. Names are compared without regard to case.
    pub fn add(&mut self, name: &str, value: &'r str) {
        let Some(slot) = self.slot(name) else { return };
        match slot {
            None => *slot = Some(Cow::Borrowed(value)),
            Some(earlier) => {
                let both = earlier.to_mut();
                both.push_str(", ");
                both.push_str(value);
            }
        }
    }

    fn slot(&mut self, name: &str) -> Option<&mut Value<'r>> {
        // By length first: most headers are none of ours, and this is asked for each one.
        let (known, slot) = match name.len() {
            5 => ("range", &mut self.range),
            6 => ("accept", &mut self.accept),
            7 => ("referer", &mut self.referer),
            8 if name.as_bytes()[3].eq_ignore_ascii_case(&b'r') => ("if-range", &mut self.if_range),
            8 => ("if-match", &mut self.if_match),
            10 => ("user-agent", &mut self.user_agent),
            13 => ("if-none-match", &mut self.if_none_match),
            15 => ("accept-encoding", &mut self.accept_encoding),
            17 => ("if-modified-since", &mut self.if_modified_since),
            19 => ("if-unmodified-since", &mut self.if_unmodified_since),
            _ => return None,
        };
        name.eq_ignore_ascii_case(known).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_matter_are_kept_and_joined() {
        let mut headers = Headers::default();
        for (name, value) in [
            ("If-Range", "r"),
            ("if-match", "\"a\""),
            ("IF-MATCH", "\"b\""),
            ("X-Other", "x"),
            ("Accept-Encoding", "br"),
        ] {
            headers.add(name, value);
        }
        assert_eq!(headers.if_range.as_deref(), Some("r"));
        assert_eq!(headers.if_match.as_deref(), Some("\"a\", \"b\""));
        assert_eq!(headers.accept_encoding.as_deref(), Some("br"));
        assert_eq!(headers.range, None);
    }
}
