//! One order: from the account to a certificate.

use crate::material::{self, Material};
use estrade_model::domain::HostName;
use instant_acme::{
    Account, AccountBuilder, AccountCredentials, AuthorizationHandle, AuthorizationStatus,
    ChallengeType, Identifier, NewAccount, NewOrder, Order, OrderStatus, RetryPolicy,
};
use std::error::Error;
use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

/// How often the server is polled for the state of an order.
const POLL_POLICY: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(500))
    .backoff(1.5)
    .timeout(Duration::from_mins(1));

/// How a host is proved to an ACME server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Challenge {
    /// By a page on port 80.
    Http01,
    /// By a certificate on port 443.
    TlsAlpn01,
}

/// An ACME server, and who we are there.
#[derive(Debug, Clone)]
pub struct AcmeServer {
    /// The address of the server's directory.
    pub directory: String,
    /// The contact address for the ACME server.
    pub email: Option<String>,
    /// The root certificate of a private server; none: those of the system.
    pub ca_file: Option<PathBuf>,
    /// How hosts are proved, in the order in which it is tried.
    pub challenges: Vec<Challenge>,
}

/// Why there is no certificate.
#[derive(Debug, thiserror::Error)]
pub enum OrderError {
    /// The server or the way to it.
    #[error(transparent)]
    Acme(#[from] instant_acme::Error),
    /// The server refused, with this reason.
    #[error("{0}")]
    Refused(String),
    /// What the [`AcmeStore`] says.
    #[error(transparent)]
    Store(Box<dyn Error + Send + Sync>),
    /// The certificate, the key or the account is not what it should be.
    #[error(transparent)]
    Material(Box<dyn Error + Send + Sync>),
}

/// What has to be there for every node and after a restart.
pub trait AcmeStore: Sync {
    type Error: Into<Box<dyn Error + Send + Sync>>;

    /// The credentials of our account.
    fn read_account(
        &self,
    ) -> impl Future<Output = Result<Option<Zeroizing<Vec<u8>>>, Self::Error>> + Send;

    /// Keeps the credentials of an account, unless there are some.
    fn insert_account(
        &self,
        credentials: &[u8],
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Publishes the response to a challenge; when this returns, every node gives it.
    fn insert_challenge(
        &self,
        host: &HostName,
        token: &str,
        response: &str,
    ) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

/// A certificate that was issued.
pub struct Issued {
    /// The chain, in PEM.
    pub chain: String,
    /// The key, in DER.
    pub key: Zeroizing<Vec<u8>>,
    /// Both, ready to be shown.
    pub material: Material,
}

/// A client of one ACME server.
pub struct AcmeClient {
    server: AcmeServer,
    account: OnceCell<Account>,
}

impl AcmeClient {
    /// A client that opens its account when it is needed.
    pub fn new(server: AcmeServer) -> Self {
        Self {
            server,
            account: OnceCell::new(),
        }
    }

    /// The address of the server's directory.
    pub fn directory(&self) -> &str {
        &self.server.directory
    }

    /// Orders a certificate. `failures` selects which challenge is tried.
    pub async fn order(
        &self,
        store: &impl AcmeStore,
        host: &HostName,
        failures: u32,
    ) -> Result<Issued, OrderError> {
        let account = self
            .account
            .get_or_try_init(|| self.open_account(store))
            .await?;
        let names = [Identifier::Dns(host.to_string())];
        let mut order = account.new_order(&NewOrder::new(&names)).await?;
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let authorization = authorization?;
            match authorization.status {
                AuthorizationStatus::Valid => {}
                _ => self.prove(store, host, authorization, failures).await?,
            }
        }
        if order.poll_ready(&POLL_POLICY).await? != OrderStatus::Ready {
            return Err(OrderError::Refused(refusal(&mut order).await));
        }
        let (key, request) = material::request(host).map_err(invalid)?;
        order.finalize_csr(&request).await?;
        let chain = order.poll_certificate(&POLL_POLICY).await?;
        let key = Zeroizing::new(key.serialize_der());
        let material = Material::new(&chain, &key).map_err(invalid)?;
        Ok(Issued {
            chain,
            key,
            material,
        })
    }

    /// Publishes the response to a challenge and requests its validation.
    async fn prove(
        &self,
        store: &impl AcmeStore,
        host: &HostName,
        mut authorization: AuthorizationHandle<'_>,
        failures: u32,
    ) -> Result<(), OrderError> {
        let challenges = &self.server.challenges;
        let turn = failures as usize % challenges.len().max(1);
        let is_offered = |challenge: &&Challenge| {
            let kind = challenge_type(**challenge);
            authorization.challenges.iter().any(|it| it.r#type == kind)
        };
        // One that fails is followed by the other one next time.
        let chosen = challenges
            .iter()
            .cycle()
            .skip(turn)
            .take(challenges.len())
            .find(is_offered);
        let chosen = chosen.copied().ok_or_else(|| {
            OrderError::Refused(
                "the server offers none of the challenges in edge.acme.challenges".into(),
            )
        })?;
        let mut challenge = authorization
            .challenge(challenge_type(chosen))
            .ok_or_else(|| OrderError::Refused("the server took its challenge back".into()))?;
        let response = challenge.key_authorization();
        let published = store.insert_challenge(host, &challenge.token, response.as_str());
        published.await.map_err(stored)?;
        Ok(challenge.set_ready().await?)
    }

    /// Our account at the server; the first node that needs one makes it.
    async fn open_account(&self, store: &impl AcmeStore) -> Result<Account, OrderError> {
        if let Some(account) = self.read_account(store).await? {
            return Ok(account);
        }
        let contact = self.server.email.as_ref().map(|it| format!("mailto:{it}"));
        let contact: Vec<&str> = contact.as_deref().into_iter().collect();
        let new = NewAccount {
            contact: &contact,
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.server.directory.clone();
        let (account, credentials) = self.builder()?.create(&new, directory, None).await?;
        let credentials = Zeroizing::new(serde_json::to_vec(&credentials).map_err(invalid)?);
        store.insert_account(&credentials).await.map_err(stored)?;
        // Another node may have been faster: then its account is ours too.
        Ok(self.read_account(store).await?.unwrap_or(account))
    }

    async fn read_account(&self, store: &impl AcmeStore) -> Result<Option<Account>, OrderError> {
        let Some(credentials) = store.read_account().await.map_err(stored)? else {
            return Ok(None);
        };
        let credentials: AccountCredentials =
            serde_json::from_slice(&credentials).map_err(invalid)?;
        Ok(Some(self.builder()?.from_credentials(credentials).await?))
    }

    fn builder(&self) -> Result<AccountBuilder, instant_acme::Error> {
        match &self.server.ca_file {
            Some(root) => Account::builder_with_root(root),
            None => Account::builder(),
        }
    }
}

fn stored(error: impl Into<Box<dyn Error + Send + Sync>>) -> OrderError {
    OrderError::Store(error.into())
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> OrderError {
    OrderError::Material(error.into())
}

fn challenge_type(challenge: Challenge) -> ChallengeType {
    match challenge {
        Challenge::Http01 => ChallengeType::Http01,
        Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
    }
}

/// Why an order did not become ready, in the server's words.
async fn refusal(order: &mut Order) -> String {
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
