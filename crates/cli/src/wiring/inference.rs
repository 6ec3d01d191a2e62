//! `[ai]` and `[usage]`, as the gateway and the ledger take them.

use crate::config::{
    Config, Credential, Durability, Model, Provider, Telemetry, Timeouts, WebOrigin,
};
use estrade_model::call;
use estrade_model::provider::{self, OfferedModel};
use estrade_model::secret::Secret;
use estrade_server::ai::cors::Cors;
use estrade_server::ai::inference::InferenceOptions;
use estrade_server::ai::traces::TraceOptions;
use estrade_service::ai::usage::UsageSettings;
use estrade_service::bootstrap::OpenError;
use std::num::NonZeroU64;
use std::time::Duration;

/// Where inference goes. Reads the variables that hold the providers' keys.
pub(super) fn inference(config: &Config) -> Result<InferenceOptions, OpenError> {
    let providers = config.ai.providers.as_slice().iter();
    Ok(InferenceOptions {
        providers: providers.map(provider).collect::<Result<_, _>>()?,
        echo: config.ai.echo,
        max_body: Some(config.ai.body_bytes.get()),
        traces: traces(&config.telemetry)?,
        cors: Cors::new(config.ai.cors_origins.iter().map(WebOrigin::as_str)),
    })
}

fn traces(telemetry: &Telemetry) -> Result<Option<TraceOptions>, OpenError> {
    let Some(base) = &telemetry.otlp_endpoint else {
        return Ok(None);
    };
    let endpoint = format!("{}/v1/traces", base.to_string().trim_end_matches('/'));
    let wrong = |_| OpenError::Refused(format!("telemetry.otlp_endpoint: `{base}` is no address"));
    Ok(Some(TraceOptions {
        endpoint: endpoint.parse().map_err(wrong)?,
        headers: telemetry.otlp_headers.to_map(),
        percent: telemetry.sample_percent.0,
    }))
}

/// How calls are accounted for.
pub(super) fn usage(config: &Config) -> UsageSettings {
    UsageSettings {
        strict: config.usage.durability == Durability::Strict,
        keep_days: config.usage.keep_days.get(),
        keep_calls: config.usage.keep_calls.get(),
        ..UsageSettings::default()
    }
}

fn provider(provider: &Provider) -> Result<provider::Provider, OpenError> {
    let usual = provider::Timeouts::default();
    let Timeouts {
        connect_ms,
        first_byte_ms,
        idle_ms,
    } = provider.timeouts;
    let or =
        |set: Option<NonZeroU64>, usual| set.map_or(usual, |it| Duration::from_millis(it.get()));
    Ok(provider::Provider {
        name: provider.name.clone(),
        base_url: provider
            .base_url
            .to_string()
            .trim_end_matches('/')
            .to_owned(),
        api_key: api_key(provider)?,
        ca_file: provider.ca_file.clone(),
        timeouts: provider::Timeouts {
            connect: or(connect_ms, usual.connect),
            first_byte: or(first_byte_ms, usual.first_byte),
            idle: or(idle_ms, usual.idle),
        },
        retries: provider.retries.0,
        stream_usage: provider.stream_usage,
        on_disconnect: provider.on_disconnect,
        fields: provider::FieldRules {
            pass: provider.pass_fields.0.clone(),
            strict: provider.strict_fields,
        },
        models: provider.models.iter().map(offered).collect(),
    })
}

fn api_key(provider: &Provider) -> Result<Option<Secret>, OpenError> {
    let text = match &provider.credential {
        Credential::None => return Ok(None),
        Credential::Key(key) => key.expose().to_owned(),
        Credential::Variable(name) => match std::env::var(name) {
            Ok(text) if !text.trim().is_empty() => text.trim().to_owned(),
            _ => {
                return Err(OpenError::Refused(format!(
                    "ai.providers: `{}` takes its key from the environment variable {name}, which is not set",
                    provider.name
                )));
            }
        },
    };
    Ok(Some(Secret(text)))
}

fn offered(model: &Model) -> OfferedModel {
    OfferedModel {
        id: model.id.clone(),
        upstream: model.upstream.clone(),
        price: call::Price {
            prompt: model.price.prompt,
            completion: model.price.completion,
        },
        context_length: model.context_length,
        weight: model.weight,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_has_the_timeouts_of_a_provider_that_sets_none() {
        let timeouts = |text: &str| {
            let config: Config = toml::from_str(text).unwrap();
            let mut configured = config.ai.providers.as_slice()[0].clone();
            configured.credential = Credential::None;
            provider(&configured).unwrap().timeouts
        };
        let minimal = "[[ai.providers]]\nname = 'a'\nbase_url = 'http://h/v1'";
        assert_eq!(timeouts(crate::config::REFERENCE), timeouts(minimal));
    }
}
