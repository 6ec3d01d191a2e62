//! Tokens that were handed out, and where they must not turn up again.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::sync::MutexExt;
use http::Method;
use serde_json::Value;
use std::collections::HashMap;
use std::sync::Mutex;

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
        f(&mut self.0.lock_ignoring_poison())
    }

    /// Looks at a body: only the responses that are meant to show a token may show one, once.
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
        let makes_key = matches!(path, "/v1/keys" | "/panel/keys/new");
        let shows_key = makes_key || path.ends_with("/rotate");
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
    pub(crate) fn needles(&self) -> Needles {
        self.tokens(|tokens| Needles::new(tokens.iter().flat_map(|token| traces(token)).collect()))
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

/// Texts to look for, all in one pass: files are searched for hundreds of them in a debug build.
pub(crate) struct Needles {
    /// By their first two bytes.
    texts: HashMap<usize, Vec<Vec<u8>>>,
    /// Which two bytes one of them begins with; far quicker to ask than the map.
    starts: Vec<bool>,
}

impl Needles {
    pub(crate) fn new(all: Vec<Vec<u8>>) -> Self {
        let mut texts: HashMap<usize, Vec<Vec<u8>>> = HashMap::new();
        let mut starts = vec![false; 1 << 16];
        for text in all {
            let start = start(text[0], text[1]);
            starts[start] = true;
            texts.entry(start).or_default().push(text);
        }
        Self { texts, starts }
    }

    /// The first of them that is in there.
    pub(crate) fn found_in(&self, hay: &[u8]) -> Option<String> {
        let mut last = *hay.first()?;
        let mut at = 1;
        while at < hay.len() {
            let next = hay[at];
            let pair = start(last, next);
            if self.starts[pair] {
                let rest = &hay[at - 1..];
                if let Some(text) = self.texts[&pair].iter().find(|text| rest.starts_with(text)) {
                    return Some(String::from_utf8_lossy(text).into_owned());
                }
            }
            last = next;
            at += 1;
        }
        None
    }
}

fn start(first: u8, second: u8) -> usize {
    usize::from(first) << 8 | usize::from(second)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `{"typ":"estrade-key+jwt"}`, `{"jti":"AAECAwQFBgcICQoLDA0ODw"}` and a signature of 0x5a bytes.
    fn token() -> String {
        let part = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
        let claims = br#"{"jti":"AAECAwQFBgcICQoLDA0ODw"}"#;
        let header = br#"{"typ":"estrade-key+jwt"}"#;
        format!("{}.{}.{}", part(header), part(claims), part(&[0x5a; 64]))
    }

    #[test]
    fn a_token_is_found_in_whatever_form_it_was_written_down() {
        let secrets = Secrets::default();
        secrets.remember(&token());
        let needles = secrets.needles();
        let jti: Vec<u8> = (0..16).collect();
        for leak in [
            token().into_bytes(),
            b"AAECAwQFBgcICQoLDA0ODw".to_vec(),
            jti.clone(),
            hex::encode(jti).into_bytes(),
            vec![0x5a; 64],
            hex::encode([0x5a; 64]).into_bytes(),
        ] {
            for around in ["", "x", "\u{0}eyJ0"] {
                let hay = [around.as_bytes(), leak.as_slice(), around.as_bytes()].concat();
                assert!(needles.found_in(&hay).is_some(), "{leak:?}");
            }
            assert_eq!(needles.found_in(&leak[..leak.len() - 1]), None);
        }
        assert_eq!(needles.found_in(b""), None);
    }

    #[test]
    #[should_panic(expected = "shows a token again")]
    fn a_token_that_comes_back_is_noticed() {
        let secrets = Secrets::default();
        let body = format!(r#"{{"key":"{}"}}"#, token());
        secrets.inspect(&Method::POST, "/v1/keys", body.as_bytes());
        secrets.inspect(&Method::GET, "/v1/keys/1", body.as_bytes());
    }

    #[test]
    #[should_panic(expected = "shows a key")]
    fn a_key_in_another_response_is_noticed() {
        let body = format!(r#"{{"token":"{}"}}"#, token());
        Secrets::default().inspect(&Method::GET, "/v1/projects", body.as_bytes());
    }
}
