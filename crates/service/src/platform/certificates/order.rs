//! One order: from the account to a certificate in the database.

use super::material::{self, Material};
use super::{Acme, Challenge, renewal};
use crate::{Error, Result};
use estrade_model::domain::HostName;
use estrade_store::acme::{self, NewChallenge};
use estrade_store::certificates::{self, CertificateRow};
use estrade_store::{ChangeKind, StoreError};
use instant_acme::{
    Account, AccountCredentials, AuthorizationHandle, AuthorizationStatus, ChallengeType,
    Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long the response to a challenge is kept.
const CHALLENGE_RETENTION: Duration = Duration::from_mins(10);
/// How often the server is polled for the state of an order.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_mins(1));

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub(super) enum OrderError {
    /// The server or the way to it.
    #[error(transparent)]
    Acme(#[from] instant_acme::Error),
    /// The server refused, with this reason.
    #[error("{0}")]
    Refused(String),
    /// The database or our own keys.
    #[error(transparent)]
    Ours(#[from] Error),
}

impl From<StoreError> for OrderError {
    fn from(error: StoreError) -> Self {
        Self::Ours(error.into())
    }
}

impl From<rcgen::Error> for OrderError {
    fn from(error: rcgen::Error) -> Self {
        Self::Ours(Error::internal(error))
    }
}

impl Acme {
    /// Orders a certificate and stores it. `failures` selects which challenge is tried.
    pub(super) async fn order(
        &self,
        host: &HostName,
        failures: u32,
    ) -> std::result::Result<(), OrderError> {
        let account = self
            .account
            .get_or_try_init(|| async { self.open_account().await })
            .await?;
        let names = [Identifier::Dns(host.to_string())];
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => {}
                _ => self.prove(host, authorization, failures).await?,
            }
        }
        if order.poll_ready(&POLL_POLICY).await? != OrderStatus::Ready {
            return Err(OrderError::Refused(why(&mut order).await));
        }
        let (key, request) = material::request(host)?;
        order.finalize_csr(&request).await?;
        let chain = order.poll_certificate(&POLL_POLICY).await?;
        let key = Zeroizing::new(key.serialize_der());
        Ok(self.keep(host, chain, &key).await?)
    }

    /// Publishes the response to a challenge and requests its validation.
    async fn prove(
        &self,
        host: &HostName,
        mut authorization: AuthorizationHandle<'_>,
        failures: u32,
    ) -> std::result::Result<(), OrderError> {
        let ways = &self.settings.challenges;
        let turn = failures as usize % ways.len().max(1);
        let offered = |way: &&Challenge| {
            let kind = kind(**way);
            authorization.challenges.iter().any(|it| it.r#type == kind)
        };
        // One that fails is followed by the other one next time.
        let way = ways
            .iter()
            .cycle()
            .skip(turn)
            .take(ways.len())
            .find(offered);
        let way = way.copied().ok_or_else(|| {
            OrderError::Refused(
                "the server offers none of the challenges in edge.acme.challenges".into(),
            )
        })?;
        let mut challenge = authorization
            .challenge(kind(way))
            .ok_or_else(|| OrderError::Refused("the server took its challenge back".into()))?;
        let new = NewChallenge {
            token: challenge.token.clone(),
            host: host.clone(),
            answer: challenge.key_authorization().as_str().to_owned(),
            expires_at: self.core.now().after(CHALLENGE_RETENTION),
        };
        self.core
            .db
            .transact(move |tx| {
                let new = new.clone();
                Box::pin(async move { acme::insert_challenge(tx, &new).await })
            })
            .await
            .map_err(|error: StoreError| error)?;
        Ok(challenge.set_ready().await?)
    }

    async fn keep(&self, host: &HostName, chain: String, key: &[u8]) -> Result<()> {
        let made = Material::new(&chain, key).map_err(Error::internal)?;
        let renew_at = renewal(made.not_before, made.not_after);
        let row = CertificateRow {
            host: host.clone(),
            chain,
            sealed: self.core.master.seal(&material::purpose(host), key)?,
            not_after: made.not_after,
        };
        let now = self.core.now();
        let kept = self.core.db.transact(move |tx| {
            let row = row.clone();
            Box::pin(async move {
                certificates::set_certificate(tx, &row, renew_at).await?;
                acme::delete_challenges(tx, &row.host).await?;
                tx.changed(ChangeKind::Certificate, &row.host, now).await
            })
        });
        Ok(kept.await.map_err(|error: StoreError| error)?)
    }

    /// Our account at the server; the first node that needs one makes it.
    async fn open_account(&self) -> std::result::Result<Account, OrderError> {
        if let Some(account) = self.read_account().await? {
            return Ok(account);
        }
        let contact = self
            .settings
            .email
            .as_ref()
            .map(|it| format!("mailto:{it}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.settings.directory.clone();
        let (account, credentials) = self.client()?.create(&new, directory, None).await?;
        let text = serde_json::to_vec(&credentials).map_err(Error::internal)?;
        let text = Zeroizing::new(text);
        let sealed = self.core.master.seal(&self.account_purpose(), &text)?;
        let (directory, now) = (self.settings.directory.clone(), self.core.now());
        self.core
            .db
            .transact(move |tx| {
                let (directory, sealed) = (directory.clone(), sealed.clone());
                Box::pin(async move { acme::insert_account(tx, &directory, &sealed, now).await })
            })
            .await
            .map_err(|error: StoreError| error)?;
        // Another node may have been faster: then its account is ours too.
        Ok(self.read_account().await?.unwrap_or(account))
    }

    async fn read_account(&self) -> std::result::Result<Option<Account>, OrderError> {
        let directory = &self.settings.directory;
        let Some(sealed) = acme::read_account(&self.core.db, directory).await? else {
            return Ok(None);
        };
        let text = self.core.master.open(&self.account_purpose(), &sealed)?;
        let credentials: AccountCredentials =
            serde_json::from_slice(&text).map_err(Error::internal)?;
        Ok(Some(self.client()?.from_credentials(credentials).await?))
    }

    fn client(&self) -> std::result::Result<instant_acme::AccountBuilder, instant_acme::Error> {
        match &self.settings.ca_file {
            Some(root) => Account::builder_with_root(root),
            None => Account::builder(),
        }
    }

    fn account_purpose(&self) -> String {
        format!("acme account {}", self.settings.directory)
    }
}

fn kind(way: Challenge) -> ChallengeType {
    match way {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// Why an order did not become ready, in the server's words.
async fn why(order: &mut Order) -> String {
    let mut authorizations = order.authorizations();
    while let Some(Ok(mut authorization)) = authorizations.next().await {
        // What is known of it is from before the check.
        if authorization.refresh().await.is_err() {
            continue;
        }
        let mut errors = authorization
            .challenges
            .iter()
            .filter_map(|it| it.error.as_ref());
        if let Some(detail) = errors.find_map(|error| error.detail.clone()) {
            return detail;
        }
    }
    "the server refused the order".into()
}
