//! Which models there are and who answers them. Built anew when providers change, then only read.

use crate::health::{Health, State};
use crate::metrics::{Registry, Series};
use crate::upstream::{Trust, Upstream};
use estrade_model::Invalid;
use estrade_model::call::{Price, Tokens};
use estrade_model::provider::{ECHO_MODEL, Preference, Provider};
use http::HeaderValue;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How often a target of which nothing was measured comes first: once in so many calls.
const TRY_UNMEASURED: u32 = 10;

/// What comes within so long after the first byte came at once.
const INSTANT: Duration = Duration::from_millis(10);

/// All models.
#[derive(Default)]
pub(crate) struct Catalogue {
    models: HashMap<Arc<str>, Arc<Model>>,
    /// In the order of the configuration.
    pub(crate) listed: Vec<Arc<Model>>,
    pub(crate) upstreams: Vec<Arc<Upstream>>,
}

/// A model that callers can name.
pub(crate) struct Model {
    pub(crate) id: Arc<str>,
    /// Who answers it; the built-in model has none.
    pub(crate) targets: Vec<Arc<Target>>,
    /// What it costs at most.
    pub(crate) dearest: Price,
    pub(crate) context_length: Option<u32>,
    pub(crate) echo: bool,
    weighted: bool,
    /// Where calls are counted that reach no target.
    pub(crate) series: Arc<Series>,
}

/// A model of a provider.
pub(crate) struct Target {
    pub(crate) upstream: Arc<Upstream>,
    /// Its name there, as JSON, if it is another one.
    pub(crate) name: Option<Box<[u8]>>,
    pub(crate) price: Price,
    pub(crate) context_length: Option<u32>,
    weight: Option<u32>,
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
            upstreams,
        })
    }

    pub(crate) fn model(&self, id: &str) -> Option<&Arc<Model>> {
        self.models.get(id)
    }
}

impl Model {
    fn new(id: Arc<str>, targets: Vec<Arc<Target>>, metrics: &Registry) -> Self {
        let dearest = targets.iter().fold(Price::FREE, |most, target| Price {
            prompt: most.prompt.max(target.price.prompt),
            completion: most.completion.max(target.price.completion),
        });
        Self {
            dearest,
            context_length: targets
                .iter()
                .filter_map(|target| target.context_length)
                .max(),
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
        model.series = metrics.series(ECHO_MODEL, crate::echo::PROVIDER);
        model
    }

    /// The targets in the order in which a call shall try them; `true`: even if its breaker is open.
    pub(crate) fn order(&self, preference: Preference, now: Instant) -> Vec<(&Arc<Target>, bool)> {
        if let [only] = &*self.targets {
            return vec![(only, true)];
        }
        let mut order: Vec<&Arc<Target>> = if self.weighted {
            self.by_weight()
        } else {
            self.targets.iter().collect()
        };
        prefer(&mut order, preference);
        self.without_broken(order, now)
    }

    /// Random by weight; those without come after, as configured.
    fn by_weight(&self) -> Vec<&Arc<Target>> {
        let (mut weighted, others): (Vec<&Arc<Target>>, Vec<&Arc<Target>>) = self
            .targets
            .iter()
            .partition(|target| target.weight.is_some());
        let weight = |target: &Target| u64::from(target.weight.unwrap_or(0));
        let mut order = Vec::with_capacity(self.targets.len());
        while !weighted.is_empty() {
            let total: u64 = weighted.iter().map(|target| weight(target)).sum();
            let mut drawn = fastrand::u64(..total.max(1));
            let chosen = weighted.iter().position(|target| {
                let here = drawn < weight(target);
                drawn = drawn.saturating_sub(weight(target));
                here
            });
            order.push(weighted.remove(chosen.unwrap_or(0)));
        }
        order.extend(others);
        order
    }

    /// Targets with an open breaker are left out, but for the one that was last to go: it is tried
    /// last when no other is well.
    fn without_broken<'m>(
        &self,
        order: Vec<&'m Arc<Target>>,
        now: Instant,
    ) -> Vec<(&'m Arc<Target>, bool)> {
        let mut last: Option<(Instant, &Arc<Target>)> = None;
        let mut any_closed = false;
        let mut kept: Vec<(&Arc<Target>, bool)> = Vec::with_capacity(self.targets.len());
        for target in order {
            match target.health.state(now) {
                State::Closed => {
                    any_closed = true;
                    kept.push((target, false));
                }
                State::Due => kept.push((target, false)),
                State::Open(since) if last.is_none_or(|(other, _)| since > other) => {
                    last = Some((since, target));
                }
                State::Open(_) => {}
            }
        }
        if !any_closed && let Some((_, target)) = last {
            kept.push((target, true));
        }
        // All that is left are probes, and another call may take them first.
        if !any_closed && let Some(end) = kept.last_mut() {
            end.1 = true;
        }
        kept
    }
}

/// Sorts by what a workspace prefers; what is equal stays in order.
fn prefer(order: &mut [&Arc<Target>], preference: Preference) {
    let measured: fn(&Target) -> Option<f64> = match preference {
        Preference::Order => return,
        Preference::Price => {
            return order.sort_by_key(|target| {
                // A price has two parts; most of what is paid for are prompts, three to one or so.
                let (prompt, completion) = (target.price.prompt, target.price.completion);
                i128::from(prompt.nanos()) * 3 + i128::from(completion.nanos())
            });
        }
        Preference::Latency => |target| target.health.latency(),
        Preference::Throughput => |target| target.health.throughput().map(|rate| -rate),
    };
    order.sort_by(|one, other| {
        let (one, other) = (measured(one), measured(other));
        let unknown = one.is_none().cmp(&other.is_none());
        unknown.then(one.unwrap_or(0.0).total_cmp(&other.unwrap_or(0.0)))
    });
    let unmeasured = order.iter().position(|target| measured(target).is_none());
    if let Some(at) = unmeasured
        && at > 0
        && fastrand::u32(..TRY_UNMEASURED) == 0
    {
        order[..=at].rotate_right(1);
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
        // An answer that came at once says nothing of how fast it was made: its time is the wait.
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

    /// Who it is, as answers say it.
    pub(crate) fn provider(&self) -> (&Arc<str>, &HeaderValue) {
        (&self.upstream.name, &self.upstream.name_header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::amount::Amount;
    use estrade_model::provider::{OfferedModel, Timeouts};
    use std::num::NonZeroU32;

    fn provider(name: &str, price: i64, weight: u32) -> Provider {
        Provider {
            name: name.to_owned(),
            base_url: format!("http://127.0.0.1:9/{name}"),
            api_key: None,
            ca_file: None,
            timeouts: Timeouts::default(),
            retries: 0,
            stream_usage: true,
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

    fn build(providers: &[Provider], previous: &Catalogue) -> Catalogue {
        Catalogue::build(providers, true, previous, &Registry::default()).unwrap()
    }

    fn names(model: &Model, preference: Preference, now: Instant) -> Vec<String> {
        let order = model.order(preference, now);
        order
            .iter()
            .map(|(target, _)| target.upstream.name.to_string())
            .collect()
    }

    fn break_it(target: &Target, at: Instant) {
        for _ in 0..5 {
            target.health.begin(at, true).unwrap().failed(at);
        }
    }

    #[test]
    fn targets_come_in_order_by_price_or_as_measured() {
        let catalogue = build(
            &[
                provider("a", 3, 0),
                provider("b", 1, 0),
                provider("c", 2, 0),
            ],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        assert_eq!(names(model, Preference::Order, now), ["a", "b", "c"]);
        assert_eq!(names(model, Preference::Price, now), ["b", "c", "a"]);
        assert_eq!(names(model, Preference::Latency, now), ["a", "b", "c"]);
        assert_eq!(model.dearest.prompt.nanos(), 3);
        let measure = |at: usize, millis, rate| {
            let first_byte = Duration::from_millis(millis);
            model.targets[at].health.measure(first_byte, Some(rate));
        };
        measure(0, 300, 10.0);
        measure(1, 200, 30.0);
        measure(2, 100, 20.0);
        assert_eq!(names(model, Preference::Latency, now), ["c", "b", "a"]);
        assert_eq!(names(model, Preference::Throughput, now), ["b", "c", "a"]);
    }

    #[test]
    fn what_was_not_measured_is_tried_now_and_then() {
        let catalogue = build(
            &[provider("a", 1, 0), provider("b", 1, 0)],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        model.targets[0]
            .health
            .measure(Duration::from_secs(1), None);
        let first: Vec<_> = (0..1000)
            .map(|_| names(model, Preference::Latency, now)[0].clone())
            .collect();
        let tried = first.iter().filter(|name| *name == "b").count();
        assert!((20..300).contains(&tried), "{tried}");
    }

    #[test]
    fn weights_share_the_calls() {
        let catalogue = build(
            &[
                provider("a", 1, 0),
                provider("b", 1, 1),
                provider("c", 1, 3),
            ],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        let firsts: Vec<_> = (0..4000)
            .map(|_| names(model, Preference::Order, now))
            .collect();
        assert!(firsts.iter().all(|order| order[2] == "a"));
        let c = firsts.iter().filter(|order| order[0] == "c").count();
        assert!((2700..3300).contains(&c), "{c}");
    }

    #[test]
    fn a_broken_target_is_left_out_but_never_the_last() {
        let catalogue = build(
            &[provider("a", 1, 0), provider("b", 1, 0)],
            &Catalogue::default(),
        );
        let (model, now) = (catalogue.model("m").unwrap(), Instant::now());
        break_it(&model.targets[0], now);
        assert_eq!(names(model, Preference::Order, now), ["b"]);
        break_it(&model.targets[1], now + Duration::from_millis(1));
        let order = model.order(Preference::Order, now);
        assert_eq!(order.len(), 1);
        assert_eq!((&*order[0].0.upstream.name, order[0].1), ("b", true));
        let due = now + Duration::from_secs(5);
        assert_eq!(
            names(model, Preference::Order, due),
            ["a", "b"],
            "a is probed, b stays last"
        );
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
    fn a_bad_base_url_is_said_in_a_sentence() {
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
            let said = built.err().map(|error| error.to_string()).unwrap();
            assert!(said.contains("provider a"), "{bad}: {said}");
        }
    }
}
