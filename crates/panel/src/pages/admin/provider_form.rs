//! The form of a provider: texts that become the types of the API.

use estrade_model::Invalid;
use estrade_model::amount::Amount;
use estrade_model::call::Price;
use estrade_model::provider::{
    BaseUrl, CreateProvider, ModelName, ModelOffer, ModelOffers, OnDisconnect, PassFields,
    ProviderInfo, ProviderKey, ProviderName, Retries, TimeoutSeconds, UpdateProvider,
};
use estrade_model::secret::Secret;
use estrade_model::serde_rules::Patch;
use estrade_service::{Error, Result};
use serde::Deserialize;
use std::num::NonZeroU32;

/// Rows for models that are not filled in yet.
const EMPTY_ROWS: usize = 3;

/// What was typed. The fields of models are repeated, one of each per row.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ProviderForm {
    pub(super) name: String,
    pub(super) base_url: String,
    /// Empty keeps the key that there is.
    api_key: Option<Secret>,
    /// A box that is not ticked is not sent.
    remove_key: String,
    model: Vec<String>,
    upstream: Vec<String>,
    prompt: Vec<String>,
    completion: Vec<String>,
    context: Vec<String>,
}

/// A row of models.
#[derive(Default)]
pub(super) struct ModelRow {
    pub(super) model: String,
    pub(super) upstream: String,
    pub(super) prompt: String,
    pub(super) completion: String,
    pub(super) context: String,
}

fn named<T>(field: &str, parsed: std::result::Result<T, Invalid>) -> Result<T> {
    parsed.map_err(|Invalid(reason)| Error::invalid(format!("{field}: {reason}")))
}

impl ProviderForm {
    pub(super) fn of(provider: &ProviderInfo) -> Self {
        let mut form = Self {
            name: provider.name.as_str().to_owned(),
            base_url: provider.settings.base_url.as_str().to_owned(),
            ..Self::default()
        };
        for offer in &provider.settings.models.0 {
            let upstream = offer.upstream.as_ref().map(ModelName::as_str);
            form.model.push(offer.id.as_str().to_owned());
            form.upstream.push(upstream.unwrap_or_default().to_owned());
            form.prompt.push(offer.price.prompt.to_string());
            form.completion.push(offer.price.completion.to_string());
            let context = offer.context_length.map(|tokens| tokens.to_string());
            form.context.push(context.unwrap_or_default());
        }
        form
    }

    /// The rows of models, and some empty ones.
    pub(super) fn rows(&self) -> Vec<ModelRow> {
        let at = |texts: &[String], index: usize| texts.get(index).cloned().unwrap_or_default();
        let mut rows: Vec<_> = (0..self.model.len())
            .map(|index| ModelRow {
                model: at(&self.model, index),
                upstream: at(&self.upstream, index),
                prompt: at(&self.prompt, index),
                completion: at(&self.completion, index),
                context: at(&self.context, index),
            })
            .filter(|row| !row.model.is_empty())
            .collect();
        rows.extend((0..EMPTY_ROWS).map(|_| ModelRow::default()));
        rows
    }

    /// What is offered. `kept` has what the form does not show.
    fn offers(&self, kept: &[ModelOffer]) -> Result<ModelOffers> {
        let rows = self.rows();
        let filled = rows.iter().filter(|row| !row.model.trim().is_empty());
        let offers: Result<Vec<_>> = filled.map(|row| offer(row, kept)).collect();
        named("models", offers?.try_into())
    }

    fn key(&self) -> Result<Option<ProviderKey>> {
        let sent = self.api_key.as_ref().map(|key| key.expose().trim());
        let Some(key) = sent.filter(|key| !key.is_empty()) else {
            return Ok(None);
        };
        named("key", Secret(key.to_owned()).try_into()).map(Some)
    }

    fn parse_name(&self) -> Result<ProviderName> {
        named("name", self.name.trim().to_owned().try_into())
    }

    fn parse_base_url(&self) -> Result<BaseUrl> {
        named("base URL", self.base_url.trim().to_owned().try_into())
    }

    pub(super) fn creation(&self) -> Result<CreateProvider> {
        Ok(CreateProvider {
            name: self.parse_name()?,
            base_url: self.parse_base_url()?,
            api_key: self.key()?,
            timeouts: TimeoutSeconds::default(),
            retries: Retries::default(),
            stream_usage: true,
            on_disconnect: OnDisconnect::default(),
            pass_fields: PassFields::default(),
            strict_fields: false,
            models: self.offers(&[])?,
        })
    }

    /// What the form changes; the rest stays as it is.
    pub(super) fn update(&self, provider: &ProviderInfo) -> Result<UpdateProvider> {
        let api_key = match self.key()? {
            Some(key) => Patch::Set(key),
            None if !self.remove_key.is_empty() => Patch::Clear,
            None => Patch::Keep,
        };
        Ok(UpdateProvider {
            name: Some(self.parse_name()?),
            base_url: Some(self.parse_base_url()?),
            api_key,
            timeouts: None,
            retries: None,
            stream_usage: None,
            on_disconnect: None,
            pass_fields: None,
            strict_fields: None,
            models: Some(self.offers(&provider.settings.models.0)?),
        })
    }
}

fn offer(row: &ModelRow, kept: &[ModelOffer]) -> Result<ModelOffer> {
    let id: ModelName = named("model", row.model.trim().to_owned().try_into())?;
    let upstream = match row.upstream.trim() {
        "" => None,
        name => Some(named("name at the provider", name.to_owned().try_into())?),
    };
    let context_length =
        match row.context.trim() {
            "" => None,
            text => Some(text.parse::<NonZeroU32>().map_err(|_| {
                Error::invalid("context: must be a number of tokens, such as 128000")
            })?),
        };
    let before = kept.iter().find(|offer| offer.id == id);
    Ok(ModelOffer {
        upstream,
        price: Price {
            prompt: price(&row.prompt)?,
            completion: price(&row.completion)?,
        },
        context_length,
        weight: before.and_then(|offer| offer.weight),
        id,
    })
}

fn price(text: &str) -> Result<Amount> {
    match text.trim() {
        "" => Ok(Amount::ZERO),
        text => named("price", text.parse()),
    }
}
