//! Loads the gateway's providers from the configuration and the database.

use estrade_gateway::Gateway;
use estrade_model::Invalid;
use estrade_model::error::error_chain;
use estrade_model::provider::Provider;
use estrade_service::change_subscription::ChangeSubscription;
use estrade_service::{Core, ai::providers};
use estrade_store::ChangeKind;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;

/// How often providers are reloaded without a notification of a change.
const POLL_INTERVAL: Duration = Duration::from_secs(30);

/// Keeps the gateway's providers in sync with the configuration and the database.
pub struct ProviderSync {
    core: Arc<Core>,
    gateway: Arc<Gateway>,
    /// Those of the configuration; those of the database come after them.
    configured: Vec<Provider>,
    /// Whether the built-in test model exists.
    echo: bool,
    /// Held from the read of the database until the gateway has it: an older state never replaces a newer one.
    update_lock: Mutex<()>,
}

impl ProviderSync {
    /// Whether the gateway can use a provider.
    pub fn check(provider: &Provider) -> Result<(), Invalid> {
        Gateway::check_provider(provider)
    }

    /// Asks a provider for its models: the status of its response, or why there is none.
    pub async fn probe(provider: &Provider) -> Result<u16, String> {
        Gateway::probe_provider(provider).await
    }

    pub(crate) fn new(
        core: &Arc<Core>,
        gateway: &Arc<Gateway>,
        configured: Vec<Provider>,
        echo: bool,
    ) -> Arc<Self> {
        Arc::new(Self {
            core: Arc::clone(core),
            gateway: Arc::clone(gateway),
            configured,
            echo,
            update_lock: Mutex::default(),
        })
    }

    /// Takes over what there is now.
    pub(crate) async fn set(&self) -> Result<(), String> {
        let _guard = self.update_lock.lock().await;
        let stored = providers::list(&self.core)
            .await
            .map_err(|error| error_chain(&error))?;
        let mut all = self.configured.clone();
        let configured = all.len();
        all.extend(stored);
        let set = |all: &[Provider]| self.gateway.set_providers(all, self.echo);
        if set(&all).is_ok() {
            return Ok(());
        }
        // An unusable provider of the database is skipped, so that the others still load. One of the
        // configuration is an error, for the operator to correct.
        let mut number = 0;
        all.retain(|provider| {
            number += 1;
            number <= configured || is_usable(provider)
        });
        set(&all).map_err(|reason| reason.0)
    }

    /// The same after a change: what fails now is done by [`Self::follow`].
    pub async fn refresh(&self) {
        if let Err(error) = self.set().await {
            tracing::warn!(error, "cannot take over the providers; the old ones stay");
        }
    }

    /// Follows changes of this server and others until `stop`.
    pub(crate) async fn follow(self: Arc<Self>, stop: CancellationToken) {
        let mut watch = ChangeSubscription::start(&self.core.db);
        loop {
            self.refresh().await;
            let received = watch.any_changed(&[ChangeKind::Provider]);
            let received = tokio::time::timeout(POLL_INTERVAL, received);
            if stop.run_until_cancelled(received).await.is_none() {
                return;
            }
        }
    }
}

fn is_usable(provider: &Provider) -> bool {
    let checked = Gateway::check_provider(provider);
    if let Err(reason) = &checked {
        let name = provider.name.as_str();
        tracing::error!(provider = name, reason = reason.0, "a provider is left out");
    }
    checked.is_ok()
}
