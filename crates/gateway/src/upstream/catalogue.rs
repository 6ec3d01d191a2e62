//! Which models there are and who serves them. Built anew when providers change, then only read.

use crate::metrics::{Registry, Series};
use crate::upstream::health::{Health, Notice};
use crate::upstream::model_id;
use crate::upstream::{Trust, Upstream};
use bytes::Bytes;
use estrade_model::Invalid;
use estrade_model::call::{Price, Tokens};
use estrade_model::provider::{ECHO_MODEL, Provider};
use http::HeaderValue;
use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// What comes within so long after the first byte came at once.
const INSTANT: Duration = Duration::from_millis(10);

/// The provider of the built-in model.
pub(crate) const ECHO_PROVIDER: &str = "estrade";

#[derive(Default)]
pub(crate) struct Catalogue {
    models: HashMap<Arc<str>, Arc<Model>>,
    /// In the order of the configuration.
    pub(crate) listed: Vec<Arc<Model>>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
    /// Whether a provider takes standard fields only.
    pub(crate) strict_fields: bool,
}

/// A model that callers can name.
pub(crate) struct Model {
    pub(crate) id: Arc<str>,
    /// The provider that serves it; the built-in model has none.
    pub(crate) targets: Vec<Arc<Target>>,
    /// What it costs at most.
    pub(crate) max_price: Price,
    pub(crate) context_length: Option<u32>,
    /// What no prompt is longer than; unknown if one of the targets does not tell.
    pub(crate) context_bound: Option<u32>,
    /// How often providers are asked for one call at most.
    pub(crate) attempts: u64,
    pub(crate) echo: bool,
    pub(crate) weighted: bool,
    /// Where calls are counted that reach no target.
    pub(crate) series: Arc<Series>,
}

/// A model of a provider.
pub(crate) struct Target {
    pub(crate) upstream: Arc<Upstream>,
    /// Its name there, as JSON, if it is another one.
    pub(crate) name: Option<Box<[u8]>>,
    /// The same for callers, if a header can have it.
    pub(crate) name_header: Option<HeaderValue>,
    /// The id that callers know it by, as JSON.
    pub(crate) quoted_id: Bytes,
    pub(crate) price: Price,
    pub(crate) context_length: Option<u32>,
    pub(crate) weight: Option<u32>,
    pub(crate) health: Arc<Health>,
    pub(crate) series: Arc<Series>,
    /// What must be the same for its health to mean the same.
    identity: [u8; 32],
}

impl Catalogue {
    /// Builds it. What has not changed since `previous` keeps its health and its connections.
    pub(crate) fn build(
        providers: &[Provider],
        echo: bool,
        previous: &Self,
        metrics: &Registry,
    ) -> Result<Self, Invalid> {
        let healths: HashMap<_, _> = previous
            .listed
            .iter()
            .flat_map(|model| &model.targets)
            .map(|target| (target.identity, Arc::clone(&target.health)))
            .collect();
        let mut trust = Trust::default();
        let mut order: Vec<Arc<str>> = Vec::new();
        let mut targets: HashMap<Arc<str>, Vec<Arc<Target>>> = HashMap::new();
        let mut upstreams = Vec::new();
        for provider in providers {
            let upstream = Upstream::build(provider, &previous.upstreams, &mut trust)?;
            for offered in &provider.models {
                let sent = offered.upstream.as_deref().unwrap_or(&offered.id);
                let identity = blake3::Hasher::new()
                    .update(&upstream.fingerprint)
                    .update(sent.as_bytes())
                    .update(&[0])
                    .update(offered.id.as_bytes())
                    .finalize();
                let target = Target {
                    upstream: Arc::clone(&upstream),
                    name: (sent != offered.id).then(|| {
                        serde_json::Value::from(sent)
                            .to_string()
                            .into_bytes()
                            .into()
                    }),
                    name_header: model_id::header(sent.as_bytes()),
                    quoted_id: model_id::quoted(&offered.id),
                    price: offered.price,
                    context_length: offered.context_length.map(Into::into),
                    weight: offered.weight.map(Into::into),
                    health: healths
                        .get(identity.as_bytes())
                        .map_or_else(|| Arc::new(Health::new()), Arc::clone),
                    series: metrics.series(&offered.id, &provider.name),
                    identity: identity.into(),
                };
                let id: Arc<str> = Arc::from(&*offered.id);
                let of_model = targets.entry(Arc::clone(&id)).or_insert_with(|| {
                    order.push(id);
                    Vec::new()
                });
                of_model.push(Arc::new(target));
            }
            upstreams.push(upstream);
        }
        let mut listed: Vec<Arc<Model>> = Vec::new();
        if echo && !targets.contains_key(ECHO_MODEL) {
            listed.push(Arc::new(Model::echo(metrics)));
        }
        for id in order {
            let targets = targets.remove(&id).unwrap_or_default();
            listed.push(Arc::new(Model::new(id, targets, metrics)));
        }
        let models = listed
            .iter()
            .map(|model| (Arc::clone(&model.id), Arc::clone(model)))
            .collect();
        Ok(Self {
            models,
            listed,
            strict_fields: upstreams
                .iter()
                .any(|upstream| upstream.field_policy.strict),
            upstreams,
        })
    }

    pub(crate) fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(id)
    }
}

impl Model {
    fn new(id: Arc<str>, targets: Vec<Arc<Target>>, metrics: &Registry) -> Self {
        let max_price = targets.iter().fold(Price::FREE, |most, target| Price {
            prompt: most.prompt.max(target.price.prompt),
            completion: most.completion.max(target.price.completion),
        });
        let contexts = targets.iter().map(|target| target.context_length);
        let bounds = contexts.clone().collect::<Option<Vec<_>>>();
        Self {
            max_price,
            context_length: contexts.flatten().max(),
            context_bound: bounds.and_then(|contexts| contexts.into_iter().max()),
            attempts: targets
                .iter()
                .map(|target| u64::from(target.upstream.retries) + 1)
                .sum(),
            echo: false,
            weighted: targets.iter().any(|target| target.weight.is_some()),
            series: metrics.series(&id, ""),
            id,
            targets,
        }
    }

    fn echo(metrics: &Registry) -> Self {
        let mut model = Self::new(Arc::from(ECHO_MODEL), Vec::new(), metrics);
        model.echo = true;
        model.series = metrics.series(ECHO_MODEL, ECHO_PROVIDER);
        model
    }
}

impl Target {
    /// Notes what a call took that went well.
    pub(crate) fn measured(
        &self,
        first_byte: Duration,
        since: Duration,
        tokens: Tokens,
        estimated: bool,
    ) {
        // A response that came at once says nothing of how fast it was made: its time is the wait.
        let made_in = if since < INSTANT {
            first_byte + since
        } else {
            since
        };
        #[expect(clippy::cast_precision_loss, reason = "a rate need not be exact")]
        let rate = (!estimated && tokens.completion > 0)
            .then(|| tokens.completion as f64 / made_in.as_secs_f64().max(1e-6));
        self.health.measure(first_byte, rate);
    }

    /// Tells the operator of a failure.
    pub(crate) fn report(&self, notice: Notice, why: &dyn fmt::Debug) {
        let provider = &*self.upstream.name;
        match notice {
            Notice::Opened => {
                tracing::warn!(provider, ?why, "a provider keeps failing: it gets a pause");
            }
            Notice::Failed => {
                let message = "a provider failed; more of that is not reported for a minute";
                tracing::warn!(provider, ?why, "{message}");
            }
            Notice::Nothing => tracing::debug!(provider, ?why, "a provider failed"),
        }
    }

    /// The name of the provider, as responses say it.
    pub(crate) fn provider(&self) -> (&Arc<str>, &HeaderValue) {
        (&self.upstream.name, &self.upstream.name_header)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use estrade_model::amount::Amount;
    use estrade_model::provider::Preference;
    use estrade_model::provider::{FieldRules, OfferedModel, OnDisconnect, Timeouts};
    use std::num::NonZeroU32;
    use tokio::time::Instant;

    pub(crate) fn provider(name: &str, price: i64, weight: u32) -> Provider {
        Provider {
            name: name.to_owned(),
            base_url: format!("http://127.0.0.1:9/{name}"),
            api_key: None,
            ca_file: None,
            timeouts: Timeouts::default(),
            retries: 0,
            stream_usage: true,
            on_disconnect: OnDisconnect::default(),
            fields: FieldRules::default(),
            models: vec![OfferedModel {
                id: "m".to_owned(),
                upstream: None,
                price: Price {
                    prompt: Amount::from_nanos(price),
                    completion: Amount::from_nanos(price),
                },
                context_length: None,
                weight: NonZeroU32::new(weight),
            }],
        }
    }

    pub(crate) fn build(providers: &[Provider], previous: &Catalogue) -> Catalogue {
        Catalogue::build(providers, true, previous, &Registry::default()).unwrap()
    }

    pub(crate) fn names(model: &Model, preference: Preference, now: Instant) -> Vec<String> {
        let order = model.order(preference, now, |_| true);
        order
            .iter()
            .map(|(target, _)| target.upstream.name.to_string())
            .collect()
    }

    pub(crate) fn break_it(target: &Target, at: Instant) {
        for _ in 0..5 {
            target.health.acquire(at, true).unwrap().failed(at);
        }
    }

    #[test]
    fn health_stays_with_what_has_not_changed() {
        let now = Instant::now();
        let before = build(
            &[provider("a", 1, 0), provider("b", 1, 0)],
            &Catalogue::default(),
        );
        break_it(&before.model("m").unwrap().targets[0], now);
        let mut moved = provider("a", 7, 0);
        let after = build(&[moved.clone(), provider("b", 1, 0)], &before);
        assert_eq!(
            names(after.model("m").unwrap(), Preference::Order, now),
            ["b"]
        );
        moved.base_url = "http://127.0.0.1:9/elsewhere".to_owned();
        let after = build(&[moved, provider("b", 1, 0)], &after);
        assert_eq!(
            names(after.model("m").unwrap(), Preference::Order, now),
            ["a", "b"]
        );
    }

    #[test]
    fn a_bad_base_url_is_explained_in_a_sentence() {
        for bad in [
            "",
            "ftp://x/v1",
            "http://",
            "no url",
            "http://a:b@c/v1",
            "http://x/v1?a=b",
            "/v1",
        ] {
            let mut provider = provider("a", 1, 0);
            provider.base_url = bad.to_owned();
            let built = Catalogue::build(
                &[provider],
                true,
                &Catalogue::default(),
                &Registry::default(),
            );
            let message = built.err().map(|error| error.to_string()).unwrap();
            assert!(message.contains("provider a"), "{bad}: {message}");
        }
    }
}
