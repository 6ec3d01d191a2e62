//! Tokens that were handed out, and where they must not turn up again.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::Method;
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// What every AI key begins with: the start of its header in base64.
const KEY_PREFIX: &str = "eyJ0eXAiOiJlc3RyYWRlLWtleStqd3Qi";

/// The tokens of one app.
#[derive(Default)]
pub(crate) struct Secrets(Mutex<Vec<String>>);

impl Secrets {
    /// Notes a token that was handed out.
    pub(crate) fn remember(&self, token: &str) {
        self.tokens(|tokens| tokens.push(token.to_owned()));
    }

    fn tokens<T>(&self, f: impl FnOnce(&mut Vec<String>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Looks at a body: only the answers that are meant to show a token may show one, once.
    pub(crate) fn inspect(&self, method: &Method, path: &str, body: &[u8]) {
        let text = String::from_utf8_lossy(body);
        self.tokens(|tokens| {
            for token in tokens {
                assert!(
                    !text.contains(token.as_str()),
                    "{method} {path} shows a token again"
                );
            }
        });
        let path = path.split('?').next().unwrap_or_default();
        let path = path.trim_end_matches('/');
        let shows_key = path == "/v1/keys" || path.ends_with("/rotate");
        if text.contains(KEY_PREFIX) {
            assert!(
                method == Method::POST && shows_key,
                "{method} {path} shows a key: {text}"
            );
        }
        let json: Value = serde_json::from_slice(body).unwrap_or_default();
        for field in ["key", "api_token"] {
            if let Some(token) = json[field].as_str().filter(|text| is_jwt(text)) {
                self.remember(token);
            }
        }
    }

    /// What gives a token away: itself, what makes it unique, and its signature, in every form in
    /// which they could be written down.
    pub(crate) fn needles(&self) -> Vec<Vec<u8>> {
        self.tokens(|tokens| tokens.iter().flat_map(|token| traces(token)).collect())
    }
}

fn is_jwt(text: &str) -> bool {
    text.starts_with("eyJ") && text.matches('.').count() == 2
}

fn traces(token: &str) -> Vec<Vec<u8>> {
    let parts: Vec<_> = token.split('.').collect();
    let decode = |part: &str| URL_SAFE_NO_PAD.decode(part).expect("a JWT");
    let claims: Value = serde_json::from_slice(&decode(parts[1])).expect("claims");
    let jti = claims["jti"].as_str().expect("a jti").to_owned();
    let signature = decode(parts[2]);
    let mut traces = vec![
        token.as_bytes().to_vec(),
        jti.as_bytes().to_vec(),
        parts[2].as_bytes().to_vec(),
        hex::encode(&signature).into_bytes(),
        signature,
    ];
    for raw in [URL_SAFE_NO_PAD.decode(&jti).ok(), hex::decode(&jti).ok()] {
        let raw = raw.filter(|raw| raw.len() >= 16);
        traces.extend(raw.iter().map(|raw| hex::encode(raw).into_bytes()));
        traces.extend(raw);
    }
    traces
}

/// Whether a text or file holds a needle.
pub(crate) fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    // Few first bytes match, so this is fast enough for files of a test's size.
    let Some((first, rest)) = needle.split_first() else {
        return false;
    };
    let mut from = 0;
    while let Some(at) = haystack[from..].iter().position(|byte| byte == first) {
        let tail = &haystack[from + at + 1..];
        if tail.starts_with(rest) {
            return true;
        }
        from += at + 1;
    }
    false
}
