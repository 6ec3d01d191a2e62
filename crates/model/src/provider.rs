//! Providers: who answers inference requests, and at what price.

use crate::call::Price;
use crate::id::{Id, kind};
use crate::secret::Secret;
use crate::serde_rules::{Patch, present};
use crate::{Invalid, Timestamp};
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// Identifies a provider that is kept in the database.
pub type ProviderId = Id<kind::Provider>;

/// Most models of one provider.
pub const MAX_MODELS: usize = 1000;

/// The name of the built-in test model and of what answers it.
pub const ECHO_MODEL: &str = "estrade/echo";

/// One upstream that speaks the `OpenAI` protocol.
#[derive(Debug, Clone)]
pub struct Provider {
    /// What logs and call records name it.
    pub name: String,
    /// Its base URL, usually ending in `/v1`, without a slash at its end.
    pub base_url: String,
    /// What it is sent as bearer.
    pub api_key: Option<Secret>,
    /// Certificates it is trusted by, besides those of the system.
    pub ca_file: Option<PathBuf>,
    /// How long to wait for it.
    pub timeouts: Timeouts,
    /// How often a failed attempt is repeated before the next provider is asked.
    pub retries: u32,
    /// Whether streams are asked for their usage when the caller did not.
    pub stream_usage: bool,
    /// What becomes of a call whose client has left.
    pub on_disconnect: OnDisconnect,
    /// Which request fields it may be sent.
    pub fields: FieldRules,
    /// What it offers.
    pub models: Vec<OfferedModel>,
}

/// What becomes of a call whose client has left before the response ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// The response is read on for its usage, for a bounded time; then what was reserved is charged.
    #[default]
    Finish,
    /// The upstream connection is closed at once, and what was reserved is charged.
    CancelAndChargeReserved,
}

/// Which request fields a provider may be sent.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FieldRules {
    /// Fields that pass although they can change the model, the routing or the price.
    pub pass: Vec<String>,
    /// Whether only standard fields and those in `pass` are let through.
    pub strict: bool,
}

/// How long to wait for a provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// Until it accepts the connection.
    pub connect: Duration,
    /// Until the answer begins.
    pub first_byte: Duration,
    /// Between two parts of the answer.
    pub idle: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            // Large models think for minutes before the first byte of an answer that is no stream.
            first_byte: Duration::from_mins(10),
            idle: Duration::from_mins(5),
        }
    }
}

/// A model of a provider.
#[derive(Debug, Clone)]
pub struct OfferedModel {
    /// What callers write.
    pub id: String,
    /// What the provider is sent; absent: the same.
    pub upstream: Option<String>,
    /// What it costs.
    pub price: Price,
    /// How many tokens fit.
    pub context_length: Option<NonZeroU32>,
    /// The share of calls among the providers of this model; absent: in order.
    pub weight: Option<NonZeroU32>,
}

/// Which provider of a model a workspace prefers.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Default,
    serde::Serialize,
    serde::Deserialize,
    utoipa::ToSchema,
)]
#[serde(rename_all = "lowercase")]
pub enum Preference {
    /// As configured: weights, else order.
    #[default]
    Order,
    /// The cheapest first.
    Price,
    /// The one whose first byte comes soonest first, as measured.
    Latency,
    /// The one that sends most tokens per second first, as measured.
    Throughput,
}

impl Preference {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Order => "order",
            Self::Price => "price",
            Self::Latency => "latency",
            Self::Throughput => "throughput",
        }
    }
}
impl std::str::FromStr for Preference {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        [Self::Order, Self::Price, Self::Latency, Self::Throughput]
            .into_iter()
            .find(|preference| preference.as_str() == text)
            .ok_or_else(|| Invalid::from("must be order, price, latency or throughput"))
    }
}

/// Checks a text on its way in, for newtypes below.
macro_rules! checked_text {
    ($name:ident) => {
        impl $name {
            /// The text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl TryFrom<String> for $name {
            type Error = Invalid;

            fn try_from(text: String) -> Result<Self, Invalid> {
                Self::check(&text).map(Self)
            }
        }
        impl From<$name> for String {
            fn from(text: $name) -> Self {
                text.0
            }
        }
    };
}

/// What logs and call records name a provider: 1 to 50 of `A-Z a-z 0-9 . _ -`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 50, pattern = "^[A-Za-z0-9._-]+$", example = "local")]
pub struct ProviderName(String);
checked_text!(ProviderName);

impl ProviderName {
    fn check(text: &str) -> Result<String, Invalid> {
        let fine = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
        if !(1..=50).contains(&text.len()) || !text.bytes().all(fine) {
            return Err("must be 1 to 50 letters, digits and . _ -".into());
        }
        Ok(text.to_owned())
    }
}

/// Where a provider is: `http` or `https`, without a user, a query or a slash at its end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, max_length = 500, example = "https://api.example.com/v1")]
pub struct BaseUrl(String);
checked_text!(BaseUrl);

impl BaseUrl {
    fn check(text: &str) -> Result<String, Invalid> {
        let refused = || Invalid::from("must be an http or https URL without a user or a query");
        let (scheme, rest) = text.split_once("://").ok_or_else(refused)?;
        let plain = |b: u8| b.is_ascii_graphic() && !b"@?#\\\"<>^`{|}".contains(&b);
        let (authority, _) = rest.split_once('/').unwrap_or((rest, ""));
        let fine =
            matches!(scheme, "http" | "https") && text.len() <= 500 && rest.bytes().all(plain);
        if !fine || !is_authority(authority) {
            return Err(refused());
        }
        Ok(text.trim_end_matches('/').to_owned())
    }
}

/// A host, perhaps in brackets, and perhaps a port.
fn is_authority(text: &str) -> bool {
    let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((host, port)) if host.parse::<std::net::Ipv6Addr>().is_ok() => (host, port),
        Some(_) => return false,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    let of_host = |b: u8| b.is_ascii_alphanumeric() || b".-_:".contains(&b);
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok();
    !host.is_empty()
        && host.bytes().all(of_host)
        && (port.is_empty() || port.strip_prefix(':').is_some_and(is_port))
}

/// What a provider is sent as bearer: 1 to 2000 visible characters.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Secret")]
#[schema(value_type = String, min_length = 1, max_length = 2000)]
pub struct ProviderKey(pub Secret);

impl TryFrom<Secret> for ProviderKey {
    type Error = Invalid;

    fn try_from(secret: Secret) -> Result<Self, Invalid> {
        let text = secret.expose();
        if !(1..=2000).contains(&text.len()) || !text.bytes().all(|b| b.is_ascii_graphic()) {
            return Err("must be 1 to 2000 visible ASCII characters".into());
        }
        Ok(Self(secret))
    }
}

/// What callers write to name a model, or what a provider calls it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "String", into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 200, example = "openai/gpt-4o-mini")]
pub struct ModelName(String);
checked_text!(ModelName);

impl ModelName {
    fn check(text: &str) -> Result<String, Invalid> {
        if !(1..=200).contains(&text.len()) || text.chars().any(char::is_control) {
            return Err("must be 1 to 200 printable characters".into());
        }
        Ok(text.to_owned())
    }
}

/// How long to wait for a provider, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TimeoutSeconds {
    /// Until it accepts the connection.
    #[schema(value_type = u32, minimum = 1)]
    pub connect: NonZeroU32,
    /// Until the answer begins.
    #[schema(value_type = u32, minimum = 1)]
    pub first_byte: NonZeroU32,
    /// Between two parts of the answer.
    #[schema(value_type = u32, minimum = 1)]
    pub idle: NonZeroU32,
}

impl Default for TimeoutSeconds {
    fn default() -> Self {
        let seconds = |span: Duration| {
            let seconds = u32::try_from(span.as_secs()).unwrap_or(u32::MAX);
            NonZeroU32::new(seconds).unwrap_or(NonZeroU32::MIN)
        };
        let Timeouts {
            connect,
            first_byte,
            idle,
        } = Timeouts::default();
        Self {
            connect: seconds(connect),
            first_byte: seconds(first_byte),
            idle: seconds(idle),
        }
    }
}

impl From<TimeoutSeconds> for Timeouts {
    fn from(seconds: TimeoutSeconds) -> Self {
        let span = |seconds: NonZeroU32| Duration::from_secs(seconds.get().into());
        Self {
            connect: span(seconds.connect),
            first_byte: span(seconds.first_byte),
            idle: span(seconds.idle),
        }
    }
}

/// A model of a provider, on the wire.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ModelOffer {
    /// What callers write.
    pub id: ModelName,
    /// What the provider is sent; absent: the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upstream: Option<ModelName>,
    /// What a million tokens cost.
    #[serde(default)]
    pub price: Price,
    /// How many tokens fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub context_length: Option<NonZeroU32>,
    /// The share of calls among the providers of this model; absent: in order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<u32>, minimum = 1)]
    pub weight: Option<NonZeroU32>,
}

/// The models of a provider, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Vec<ModelOffer>")]
#[schema(value_type = Vec<ModelOffer>, max_items = 1000)]
pub struct ModelOffers(pub Vec<ModelOffer>);

impl TryFrom<Vec<ModelOffer>> for ModelOffers {
    type Error = Invalid;

    fn try_from(offers: Vec<ModelOffer>) -> Result<Self, Invalid> {
        if offers.len() > MAX_MODELS {
            return Err(format!("at most {MAX_MODELS} models per provider").into());
        }
        let mut ids: Vec<_> = offers.iter().map(|offer| offer.id.as_str()).collect();
        ids.sort_unstable();
        match ids.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("the model {} is there twice", pair[0]).into()),
            None => Ok(Self(offers)),
        }
    }
}

/// Attempts that are repeated before the next provider is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "u32")]
#[schema(value_type = u32, maximum = 10)]
pub struct Retries(pub u32);

impl TryFrom<u32> for Retries {
    type Error = Invalid;

    fn try_from(retries: u32) -> Result<Self, Invalid> {
        match retries {
            0..=10 => Ok(Self(retries)),
            _ => Err("must be 0 to 10".into()),
        }
    }
}

impl Default for Retries {
    fn default() -> Self {
        Self(2)
    }
}

fn yes() -> bool {
    true
}

/// Most fields that a provider may be sent besides those that every provider may.
pub const MAX_PASS_FIELDS: usize = 100;

/// Request fields that pass to a provider although they can change the model, the routing or the price.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "Vec<String>")]
#[schema(value_type = Vec<String>, max_items = 100, example = json!(["service_tier"]))]
pub struct PassFields(pub Vec<String>);

impl TryFrom<Vec<String>> for PassFields {
    type Error = Invalid;

    fn try_from(fields: Vec<String>) -> Result<Self, Invalid> {
        if fields.len() > MAX_PASS_FIELDS {
            return Err(format!("at most {MAX_PASS_FIELDS} fields").into());
        }
        let is_name = |field: &String| {
            (1..=100).contains(&field.len()) && field.bytes().all(|byte| byte.is_ascii_graphic())
        };
        if fields.iter().all(is_name) {
            Ok(Self(fields))
        } else {
            Err("must be names of fields: 1 to 100 visible ASCII characters each".into())
        }
    }
}

/// Everything about a provider but its name and its key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProviderSettings {
    /// Its base URL, usually ending in `/v1`.
    #[serde(rename = "baseURL")]
    pub base_url: BaseUrl,
    /// How long to wait for it.
    #[serde(default)]
    pub timeouts: TimeoutSeconds,
    /// How often a failed attempt is repeated.
    #[serde(default)]
    pub retries: Retries,
    /// Whether streams are asked for their usage when the caller did not.
    #[serde(default = "yes")]
    pub stream_usage: bool,
    /// What becomes of a call whose client has left.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Request fields that pass although they can change the model, the routing or the price.
    #[serde(default)]
    pub pass_fields: PassFields,
    /// Whether only standard request fields and those in `passFields` are let through.
    #[serde(default)]
    pub strict_fields: bool,
    /// What it offers.
    #[serde(default)]
    pub models: ModelOffers,
}

/// A provider as listed and read: everything but its key.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = KeptProvider)]
pub struct ProviderInfo {
    /// Identifier.
    #[serde(rename = "_id")]
    pub id: ProviderId,
    /// Name, unique in the installation.
    pub name: ProviderName,
    /// Whether it is sent a key.
    pub has_key: bool,
    /// When it was added.
    pub created_at: Timestamp,
    /// The rest.
    #[serde(flatten)]
    pub settings: ProviderSettings,
}

/// `GET /v1/providers/{id}`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct ProviderBody {
    /// The provider.
    pub provider: ProviderInfo,
}

/// `POST /v1/providers`.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({"name": "local", "baseURL": "http://127.0.0.1:9000/v1", "models": [{"id": "my-model"}]}))]
pub struct CreateProvider {
    /// Name, unique in the installation.
    pub name: ProviderName,
    /// Its base URL, usually ending in `/v1`.
    #[serde(rename = "baseURL")]
    pub base_url: BaseUrl,
    /// What it is sent as bearer; never shown again.
    #[serde(default)]
    pub api_key: Option<ProviderKey>,
    /// How long to wait for it.
    #[serde(default)]
    pub timeouts: TimeoutSeconds,
    /// How often a failed attempt is repeated.
    #[serde(default)]
    #[schema(required = false)]
    pub retries: Retries,
    /// Whether streams are asked for their usage when the caller did not.
    #[serde(default = "yes")]
    #[schema(required = false)]
    pub stream_usage: bool,
    /// What becomes of a call whose client has left.
    #[serde(default)]
    #[schema(required = false)]
    pub on_disconnect: OnDisconnect,
    /// Request fields that pass although they can change the model, the routing or the price.
    #[serde(default)]
    #[schema(required = false)]
    pub pass_fields: PassFields,
    /// Whether only standard request fields and those in `passFields` are let through.
    #[serde(default)]
    #[schema(required = false)]
    pub strict_fields: bool,
    /// What it offers.
    #[serde(default)]
    #[schema(required = false)]
    pub models: ModelOffers,
}

/// `PUT /v1/providers/{id}`: what is absent stays as it is.
#[derive(Debug, Clone, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(example = json!({"retries": 1}))]
pub struct UpdateProvider {
    /// A new name.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = ProviderName, required = false)]
    pub name: Option<ProviderName>,
    /// Another base URL.
    #[serde(default, rename = "baseURL", deserialize_with = "present")]
    #[schema(value_type = BaseUrl, required = false)]
    pub base_url: Option<BaseUrl>,
    /// A new key; `null` removes it.
    #[serde(default)]
    #[schema(value_type = Option<ProviderKey>)]
    pub api_key: Patch<ProviderKey>,
    /// How long to wait for it.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = TimeoutSeconds, required = false)]
    pub timeouts: Option<TimeoutSeconds>,
    /// How often a failed attempt is repeated.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = Retries, required = false)]
    pub retries: Option<Retries>,
    /// Whether streams are asked for their usage when the caller did not.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = bool, required = false)]
    pub stream_usage: Option<bool>,
    /// What becomes of a call whose client has left.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = OnDisconnect, required = false)]
    pub on_disconnect: Option<OnDisconnect>,
    /// Request fields that pass although they can change the model, the routing or the price,
    /// replacing all.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = PassFields, required = false)]
    pub pass_fields: Option<PassFields>,
    /// Whether only standard request fields and those in `passFields` are let through.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = bool, required = false)]
    pub strict_fields: Option<bool>,
    /// What it offers, replacing all.
    #[serde(default, deserialize_with = "present")]
    #[schema(value_type = ModelOffers, required = false)]
    pub models: Option<ModelOffers>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_http_without_a_user() {
        for (good, kept) in [
            ("http://127.0.0.1:9000/v1", "http://127.0.0.1:9000/v1"),
            ("https://api.example.com/v1/", "https://api.example.com/v1"),
            ("http://[::1]:8000", "http://[::1]:8000"),
            ("http://localhost", "http://localhost"),
        ] {
            assert_eq!(BaseUrl::try_from(good.to_owned()).unwrap().as_str(), kept);
        }
        for bad in [
            "",
            "http://",
            "ftp://a/b",
            "http://u:p@host/v1",
            "http://host/?q",
            "http://host/#f",
            "http://host:port/",
            "http://host:99999",
            "http://ho st",
            "http://h\r\nx: y",
            "//host",
            "file:///etc",
            "http://[::1",
            "http://[zz]:1",
            "http://:80",
        ] {
            assert!(BaseUrl::try_from(bad.to_owned()).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_model_is_offered_once() {
        let offers = |text: &str| serde_json::from_str::<ModelOffers>(text);
        assert_eq!(
            offers(r#"[{"id":"a"},{"id":"b","price":{"prompt":"1"}}]"#)
                .unwrap()
                .0
                .len(),
            2
        );
        assert!(offers(r#"[{"id":"a"},{"id":"a"}]"#).is_err());
        assert!(offers(r#"[{"id":""}]"#).is_err());
    }
}
