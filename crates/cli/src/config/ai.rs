//! `[ai]`: the AI API and the providers behind it.

use super::listeners::{Metrics, Tls, loopback};
use super::secret::Secret;
use super::text::deserialize_listen;
use super::url::{HttpUrl, WebOrigin};
use estrade_model::amount::Amount;
use estrade_model::provider::{OnDisconnect, PassFields, Retries};
use serde::{Deserialize, Serialize};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

/// The AI API: keys, workspaces and inference.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Ai {
    /// Where it listens.
    #[serde(deserialize_with = "deserialize_listen")]
    pub listen: SocketAddr,
    /// How the outside world reaches it.
    pub public_url: Option<HttpUrl>,
    /// Who may read `/metrics`.
    pub metrics: Metrics,
    /// What happens to a workspace name that a key request invents.
    pub unknown_workspace: UnknownWorkspace,
    /// Whether the built-in test model `estrade/echo` exists.
    pub echo: bool,
    /// Most bytes of an inference request.
    pub body_bytes: NonZeroU64,
    /// The origins whose scripts may call models from a browser.
    pub cors_origins: Vec<WebOrigin>,
    /// Absent: plain HTTP.
    pub tls: Option<Tls>,
    /// Where inference goes.
    pub providers: Providers,
}

impl Default for Ai {
    fn default() -> Self {
        Self {
            listen: loopback(3100),
            public_url: None,
            metrics: Metrics::default(),
            unknown_workspace: UnknownWorkspace::default(),
            echo: true,
            body_bytes: NonZeroU64::MIN.saturating_add((32 << 20) - 1),
            cors_origins: Vec::new(),
            tls: None,
            providers: Providers::default(),
        }
    }
}

/// What happens to a workspace that the owner does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnknownWorkspace {
    /// It is made.
    #[default]
    Create,
    /// The request is refused.
    Reject,
}

/// The providers in file order, each with a name of its own.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<Provider>")]
pub struct Providers(Vec<Provider>);

impl Providers {
    /// The providers in file order.
    pub fn as_slice(&self) -> &[Provider] {
        &self.0
    }
}

impl TryFrom<Vec<Provider>> for Providers {
    type Error = String;

    fn try_from(providers: Vec<Provider>) -> Result<Self, String> {
        let mut names = HashSet::new();
        match providers
            .iter()
            .find(|provider| !names.insert(&provider.name))
        {
            Some(twice) => Err(format!("two providers are named `{}`", twice.name)),
            None => Ok(Self(providers)),
        }
    }
}

/// One upstream that speaks the OpenAI protocol.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "ProviderTable", into = "ProviderTable")]
pub struct Provider {
    /// What logs and call records name it.
    pub name: String,
    /// Its base URL, usually ending in `/v1`.
    pub base_url: HttpUrl,
    /// What it is sent as bearer.
    pub credential: Credential,
    /// Certificates it is trusted by, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// How often a failed attempt is retried before the next provider is used.
    pub retries: Retries,
    /// Whether streams are requested with their usage when the client did not ask for it.
    pub stream_usage: bool,
    /// What becomes of a call whose client has left.
    pub on_disconnect: OnDisconnect,
    /// Request fields that pass although they can change the model, the routing or the price.
    pub pass_fields: PassFields,
    /// Whether only standard request fields and those in `pass_fields` are let through.
    pub strict_fields: bool,
    /// What it offers, each `id` once.
    pub models: Vec<Model>,
}

/// How Estrade identifies itself to a provider.
#[derive(Debug, Clone)]
pub enum Credential {
    /// Not at all.
    None,
    /// `api_key`: the key itself.
    Key(Secret),
    /// `api_key_env`: the variable that holds it. Read when serving starts, so that
    /// the other commands work without it.
    Variable(String),
}

/// How long to wait for a provider; absent: the gateway's own choice.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Timeouts {
    /// Until it accepts the connection.
    pub connect_ms: Option<NonZeroU64>,
    /// Until the response begins.
    pub first_byte_ms: Option<NonZeroU64>,
    /// Between two parts of the response.
    pub idle_ms: Option<NonZeroU64>,
}

/// A model of a provider.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// The name that clients use.
    pub id: String,
    /// What the provider is sent; absent: the same as `id`.
    pub upstream: Option<String>,
    /// How many tokens fit.
    pub context_length: Option<NonZeroU32>,
    /// The share of calls among the providers of this model; absent: file order.
    pub weight: Option<NonZeroU32>,
    /// What it costs; absent: nothing.
    #[serde(default)]
    pub price: Price,
}

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Price {
    /// Of what is sent.
    pub prompt: Amount,
    /// Of what comes back.
    pub completion: Amount,
}

/// A provider as the file writes it, where the two kinds of key are two fields.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ProviderTable {
    name: String,
    base_url: HttpUrl,
    api_key: Option<Secret>,
    api_key_env: Option<String>,
    ca_file: Option<PathBuf>,
    #[serde(default)]
    timeouts: Timeouts,
    #[serde(default)]
    retries: Retries,
    #[serde(default = "yes")]
    stream_usage: bool,
    #[serde(default)]
    on_disconnect: OnDisconnect,
    #[serde(default)]
    pass_fields: PassFields,
    #[serde(default)]
    strict_fields: bool,
    #[serde(default)]
    models: Vec<Model>,
}

fn yes() -> bool {
    true
}

impl TryFrom<ProviderTable> for Provider {
    type Error = String;

    fn try_from(table: ProviderTable) -> Result<Self, String> {
        let name = table.name;
        if name.trim().is_empty() {
            return Err("a provider needs a name".to_owned());
        }
        let mut ids = HashSet::new();
        if let Some(twice) = table.models.iter().find(|model| !ids.insert(&model.id)) {
            return Err(format!("provider `{name}` offers `{}` twice", twice.id));
        }
        let credential = match (table.api_key, table.api_key_env) {
            (None, None) => Credential::None,
            (Some(key), None) => Credential::Key(key),
            (None, Some(variable)) => Credential::Variable(variable),
            (Some(_), Some(_)) => {
                return Err(format!(
                    "provider `{name}` has both `api_key` and `api_key_env`; keep one"
                ));
            }
        };
        Ok(Self {
            name,
            base_url: table.base_url,
            credential,
            ca_file: table.ca_file,
            timeouts: table.timeouts,
            retries: table.retries,
            stream_usage: table.stream_usage,
            on_disconnect: table.on_disconnect,
            pass_fields: table.pass_fields,
            strict_fields: table.strict_fields,
            models: table.models,
        })
    }
}

impl From<Provider> for ProviderTable {
    fn from(provider: Provider) -> Self {
        let (api_key, api_key_env) = match provider.credential {
            Credential::None => (None, None),
            Credential::Key(key) => (Some(key), None),
            Credential::Variable(variable) => (None, Some(variable)),
        };
        Self {
            name: provider.name,
            base_url: provider.base_url,
            api_key,
            api_key_env,
            ca_file: provider.ca_file,
            timeouts: provider.timeouts,
            retries: provider.retries,
            stream_usage: provider.stream_usage,
            on_disconnect: provider.on_disconnect,
            pass_fields: provider.pass_fields,
            strict_fields: provider.strict_fields,
            models: provider.models,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ai(text: &str) -> Result<Ai, String> {
        toml::from_str(text).map_err(|error: toml::de::Error| error.message().to_owned())
    }

    const PROVIDER: &str = "[[providers]]\nname = 'a'\nbase_url = 'http://h/v1'\n";

    #[test]
    fn a_provider_has_one_key_at_most() {
        let error = ai(&format!("{PROVIDER}api_key = 'k'\napi_key_env = 'K'")).unwrap_err();
        assert!(error.contains("`api_key` and `api_key_env`"), "{error}");
        let keyed = ai(&format!("{PROVIDER}api_key = 'sk-1'")).unwrap();
        assert!(!format!("{keyed:?}").contains("sk-1"));
    }

    #[test]
    fn names_and_models_are_not_given_twice() {
        let error = ai(&format!("{PROVIDER}{PROVIDER}")).unwrap_err();
        assert!(error.contains("two providers are named `a`"), "{error}");
        let models = "[[providers.models]]\nid = 'm'\n".repeat(2);
        let error = ai(&format!("{PROVIDER}{models}")).unwrap_err();
        assert!(error.contains("offers `m` twice"), "{error}");
    }

    #[test]
    fn a_price_is_a_string() {
        let model = |price: &str| {
            ai(&format!(
                "{PROVIDER}[[providers.models]]\nid = 'm'\nprice = {{ prompt = {price} }}"
            ))
        };
        let loaded = model("'0.15'").unwrap();
        let prices = loaded
            .providers
            .as_slice()
            .iter()
            .flat_map(|provider| &provider.models);
        assert_eq!(
            prices.map(|model| model.price.prompt.nanos()).sum::<i64>(),
            150_000_000
        );
        assert!(model("0.15").is_err());
        assert!(model("'-1'").is_err());
    }
}
