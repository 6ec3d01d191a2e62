//! Providers: addresses, keys and request heads, models and their targets, health.
//!
//! `http1::client` sends requests and reads responses. Here is which target gets a call and what a response may show.

pub(crate) mod catalogue;
mod connection;
mod head;
pub(crate) mod health;
pub(crate) mod model_id;
pub(crate) mod probe;
mod stream;
pub(crate) mod target_order;
mod tls;

pub(crate) use connection::{
    Connection, Pool, ResponseError, STALE_CONNECTION_WINDOW, SendError, open,
};
pub(crate) use head::ResponseHead;
pub(crate) use tls::Trust;

use crate::request::field_policy::FieldPolicy;
use estrade_model::Invalid;
use estrade_model::call::Operation;
use estrade_model::provider::{OnDisconnect, Provider, Timeouts};
use estrade_model::secret::Secret;
use estrade_model::secret_finder::SecretFinder;
use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio_rustls::TlsConnector;

/// Shorter keys (`none`, `ollama`) are placeholders and not redacted: such words occur in many responses.
const MIN_SECRET: usize = 16;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// A provider with everything prepared that is the same for all calls.
pub(crate) struct Upstream {
    /// Key of its connections in the pool. A provider that was changed gets a new one, so that connections to the old
    /// address are not used again.
    pub(crate) number: u64,
    pub(crate) name: Arc<str>,
    pub(crate) name_header: HeaderValue,
    pub(crate) fingerprint: [u8; 32],
    pub(crate) timeouts: Timeouts,
    pub(crate) retries: u32,
    pub(crate) stream_usage: bool,
    pub(crate) on_disconnect: OnDisconnect,
    pub(crate) field_policy: FieldPolicy,
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    /// First part of every request head, per operation. Contains the provider's key: never log it.
    heads: [Box<[u8]>; 3],
    secret: Option<SecretFinder>,
}

impl Upstream {
    /// Prepares a provider. One of `known` with the same fingerprint is kept, and with it its connections.
    pub(crate) fn build(
        provider: &Provider,
        known: &[Arc<Self>],
        trust: &mut Trust,
    ) -> Result<Arc<Self>, Invalid> {
        let wrong = |what: String| Invalid::from(format!("provider {}: {what}", provider.name));
        let base = Base::parse(&provider.base_url).map_err(|what| wrong(what.to_owned()))?;
        let name_header = HeaderValue::from_str(&provider.name)
            .map_err(|_| wrong("its name can not be sent in a header".to_owned()))?;
        let certificates = match &provider.ca_file {
            None => Vec::new(),
            Some(path) => std::fs::read(path)
                .map_err(|error| wrong(format!("cannot read {}: {error}", path.display())))?,
        };
        let fingerprint = fingerprint(provider, &certificates);
        if let Some(same) = known.iter().find(|other| other.fingerprint == fingerprint) {
            return Ok(Arc::clone(same));
        }
        let tls = if base.secure {
            let name = ServerName::try_from(base.host.clone())
                .map_err(|_| wrong("its host can not have a certificate".to_owned()))?;
            Some((trust.connector(certificates).map_err(wrong)?, name))
        } else {
            None
        };
        let bearer = provider.api_key.as_ref().map(Secret::expose);
        if bearer.is_some_and(|key| HeaderValue::from_str(key).is_err()) {
            return Err(wrong("its key can not be sent in a header".to_owned()));
        }
        Ok(Arc::new(Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name: Arc::from(&*provider.name),
            name_header,
            fingerprint,
            timeouts: provider.timeouts,
            retries: provider.retries,
            stream_usage: provider.stream_usage,
            on_disconnect: provider.on_disconnect,
            field_policy: FieldPolicy::new(&provider.fields),
            heads: Operation::ALL.map(|operation| base.head(operation, bearer)),
            secret: bearer
                .filter(|key| key.len() >= MIN_SECRET)
                .and_then(|key| SecretFinder::new(key.as_bytes())),
            host: base.host,
            port: base.port,
            tls,
        }))
    }

    /// Searches for the provider's key, if it has one that is a secret.
    pub(crate) fn secret(&self) -> Option<&SecretFinder> {
        self.secret.as_ref()
    }

    /// Whether these bytes contain the provider's key.
    pub(crate) fn leaks_key(&self, bytes: &[u8]) -> bool {
        let secret = self.secret();
        secret.is_some_and(|secret| secret.is_in(bytes))
    }

    pub(crate) fn head(&self, operation: Operation) -> &[u8] {
        match operation {
            Operation::Chat => &self.heads[0],
            Operation::Embeddings => &self.heads[1],
            Operation::Images => &self.heads[2],
        }
    }
}

/// Hash of everything that a connection and the handling of its responses depend on.
fn fingerprint(provider: &Provider, certificates: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    let key = provider.api_key.as_ref().map(Secret::expose);
    for part in [
        &*provider.name,
        &*provider.base_url,
        key.unwrap_or_default(),
    ] {
        hasher
            .update(&part.len().to_le_bytes())
            .update(part.as_bytes());
    }
    let settings = (
        key.is_some(),
        provider.timeouts,
        provider.retries,
        provider.stream_usage,
        provider.on_disconnect,
        &provider.fields,
    );
    hasher.update(format!("{settings:?}").as_bytes());
    hasher.update(certificates);
    hasher.finalize().into()
}

/// Base URL, split.
struct Base {
    secure: bool,
    host: String,
    port: u16,
    authority: String,
    path: String,
}

impl Base {
    fn parse(url: &str) -> Result<Self, &'static str> {
        let uri: Uri = url.parse().map_err(|_| "its base URL is not a URL")?;
        let secure = match uri.scheme_str() {
            Some("http") => false,
            Some("https") => true,
            _ => return Err("its base URL must begin with http:// or https://"),
        };
        let authority = uri.authority().ok_or("its base URL has no host")?;
        if authority.as_str().contains('@') {
            return Err("its base URL must not have a user; use api_key");
        }
        if uri.query().is_some() {
            return Err("its base URL must not have a query");
        }
        let host = authority.host().trim_matches(['[', ']']);
        if host.is_empty() {
            return Err("its base URL has no host");
        }
        Ok(Self {
            secure,
            host: host.to_owned(),
            port: authority
                .port_u16()
                .unwrap_or(if secure { 443 } else { 80 }),
            authority: authority.as_str().to_owned(),
            path: uri.path().trim_end_matches('/').to_owned(),
        })
    }

    fn head(&self, operation: Operation, bearer: Option<&str>) -> Box<[u8]> {
        let (path, host) = (&self.path, &self.authority);
        let authorization = bearer.map_or_else(String::new, |key| {
            format!("authorization: Bearer {key}\r\n")
        });
        format!(
            "POST {path}/{} HTTP/1.1\r\nhost: {host}\r\n{authorization}content-type: application/json\r\n\
             accept-encoding: identity\r\nuser-agent: estrade/{}\r\n",
            operation.path(),
            env!("CARGO_PKG_VERSION"),
        )
        .into_bytes()
        .into()
    }
}
