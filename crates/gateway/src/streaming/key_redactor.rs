//! Keeps a provider's key out of responses, also where it is split across parts.

use crate::upstream::Upstream;
use bytes::Bytes;
use estrade_model::secret_finder::SecretFinder;

/// Searches a response while it is forwarded. A suffix that may begin the key is held back until the next
/// part; most parts have none and are forwarded without a copy.
#[derive(Debug, Default)]
pub(crate) struct KeyRedactor {
    held: Vec<u8>,
}

impl KeyRedactor {
    /// What may be forwarded now; none: the part contains the key.
    pub(crate) fn filter(&mut self, upstream: &Upstream, part: Bytes) -> Option<Bytes> {
        let Some(secret) = upstream.secret() else {
            return Some(part);
        };
        if self.is_clean(upstream, &part) {
            return Some(part);
        }
        let part = if self.held.is_empty() {
            part
        } else {
            let mut joint = std::mem::take(&mut self.held);
            joint.extend_from_slice(&part);
            Bytes::from(joint)
        };
        if secret.is_in(&part) {
            return None;
        }
        let start = secret.partial_match_at(&part);
        self.held.extend_from_slice(&part[start..]);
        Some(part.slice(..start))
    }

    /// Whether a part may be forwarded as it is: nothing is held back, and nothing of the key is in it.
    pub(crate) fn is_clean(&self, upstream: &Upstream, part: &[u8]) -> bool {
        let harmless = |secret: &SecretFinder| {
            !secret.is_in(part) && secret.partial_match_at(part) == part.len()
        };
        self.held.is_empty() && upstream.secret().is_none_or(harmless)
    }

    /// The end of the response: what is held back was not the key.
    pub(crate) fn flush(&mut self) -> Bytes {
        Bytes::from(std::mem::take(&mut self.held))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::upstream::catalogue::Catalogue;
    use crate::upstream::catalogue::tests::{build, provider};
    use estrade_model::secret::Secret;
    use std::sync::Arc;

    const SECRET: &str = "sk-sk-0123456789abcdef";

    fn upstream() -> Arc<Upstream> {
        let mut provider = provider("a", 0, 0);
        provider.api_key = Some(Secret(SECRET.to_owned()));
        Arc::clone(&build(&[provider], &Catalogue::default()).upstreams[0])
    }

    /// What passes of a text in parts of this size, and whether all of it does.
    fn pass(text: &str, size: usize) -> (String, bool) {
        let (upstream, mut redactor, mut all) = (upstream(), KeyRedactor::default(), Vec::new());
        for part in text.as_bytes().chunks(size) {
            match redactor.filter(&upstream, Bytes::copy_from_slice(part)) {
                Some(part) => all.extend_from_slice(&part),
                None => return (String::from_utf8(all).unwrap(), false),
            }
        }
        all.extend_from_slice(&redactor.flush());
        (String::from_utf8(all).unwrap(), true)
    }

    #[test]
    fn a_key_in_pieces_does_not_pass_and_everything_else_does() {
        let harmless = format!("s sk- sk-sk-sk-0123 {} sk-sk-0", &SECRET[..21]);
        for size in 1..60 {
            for before in ["", "sk-", "sk-sk", "words "] {
                let (passed, whole) = pass(&format!("{before}{SECRET} after"), size);
                assert!(before.starts_with(&passed) && !whole, "{size}: {passed}");
            }
            assert_eq!(pass(&harmless, size), (harmless.clone(), true), "{size}");
        }
    }

    #[test]
    fn what_is_harmless_passes_without_a_copy() {
        let (upstream, mut redactor) = (upstream(), KeyRedactor::default());
        let part = Bytes::from_static(b"data: {\"k\":\"sk-\"}\n\n");
        let passed = redactor.filter(&upstream, part.clone()).unwrap();
        assert_eq!(passed.as_ptr(), part.as_ptr());
        assert_eq!(passed, part);
    }
}
