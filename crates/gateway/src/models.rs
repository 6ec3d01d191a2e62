//! The list of models, as OpenAI and as its imitators write it.

use crate::auth::AuthorizedKey;
use crate::echo;
use crate::upstream::catalogue::{Catalogue, ECHO_PROVIDER, Model};
use bytes::Bytes;
use estrade_model::call::Price;
use serde::Serialize;
use std::sync::Arc;

#[derive(Serialize)]
struct List<'l> {
    object: &'static str,
    data: &'l [Entry<'l>],
    models: &'l [Entry<'l>],
}

#[derive(Serialize)]
struct Entry<'l> {
    id: &'l str,
    object: &'static str,
    created: i64,
    owned_by: &'l str,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_length: Option<u32>,
    /// Of a million tokens.
    pricing: Pricing,
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<&'static str>,
}

#[derive(Serialize)]
struct Pricing {
    prompt: String,
    completion: String,
}

/// A model as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    pub id: Arc<str>,
    pub context_length: Option<u32>,
    /// The providers that serve it and their prices, in the order in which they are tried.
    pub offers: Vec<(Arc<str>, Price)>,
    /// What it is, when that is not plain from its name.
    pub description: Option<&'static str>,
}

/// The models that a key with this list may use; without a list: all.
pub(crate) fn listed(catalogue: &Catalogue, allowed: Option<&[String]>) -> Vec<ListedModel> {
    let is_allowed = |model: &&Arc<Model>| {
        allowed.is_none_or(|allowed| allowed.iter().any(|id| **id == *model.id))
    };
    let offers = |model: &Model| match &model.targets[..] {
        [] => vec![(Arc::from(ECHO_PROVIDER), Price::FREE)],
        targets => targets
            .iter()
            .map(|target| (Arc::clone(&target.upstream.name), target.price))
            .collect(),
    };
    let models = catalogue.listed.iter().filter(is_allowed);
    models
        .map(|model| ListedModel {
            id: Arc::clone(&model.id),
            context_length: model.context_length,
            offers: offers(model),
            description: model.echo.then_some(echo::DESCRIPTION),
        })
        .collect()
}

/// Whether a key may use a model.
pub(crate) fn may_use(key: &AuthorizedKey, model: &str) -> bool {
    key.models
        .as_ref()
        .is_none_or(|models| models.iter().any(|allowed| allowed == model))
}

/// The models that a key may use; without a key: all.
pub(crate) fn list(catalogue: &Catalogue, key: Option<&AuthorizedKey>, created: i64) -> Bytes {
    let entries: Vec<Entry<'_>> = catalogue
        .listed
        .iter()
        .filter(|model| key.is_none_or(|key| may_use(key, &model.id)))
        .map(|model| entry(model, created))
        .collect();
    let list = List {
        object: "list",
        data: &entries,
        models: &entries,
    };
    Bytes::from(serde_json::to_vec(&list).unwrap_or_default())
}

/// One model, if there is one of this id that the key may use.
pub(crate) fn one(
    catalogue: &Catalogue,
    id: &str,
    key: Option<&AuthorizedKey>,
    created: i64,
) -> Option<Bytes> {
    let model = catalogue
        .model(id)
        .filter(|model| key.is_none_or(|key| may_use(key, &model.id)))?;
    let body = serde_json::to_vec(&entry(model, created)).unwrap_or_default();
    Some(Bytes::from(body))
}

fn entry(model: &Model, created: i64) -> Entry<'_> {
    let first = model.targets.first();
    let Price { prompt, completion } = first.map_or(Price::FREE, |target| target.price);
    Entry {
        id: &model.id,
        object: "model",
        created,
        owned_by: first.map_or(ECHO_PROVIDER, |target| &target.upstream.name),
        context_length: model.context_length,
        pricing: Pricing {
            prompt: prompt.to_string(),
            completion: completion.to_string(),
        },
        description: model.echo.then_some(echo::DESCRIPTION),
    }
}
