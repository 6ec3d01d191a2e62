//! What an order keeps in the database: our account, responses to challenges, and the certificate in the end.

use super::{Acme, renewal};
use crate::{Error, Result};
use estrade_acme::{AcmeStore, Issued, Material, OrderError};
use estrade_model::domain::HostName;
use estrade_store::acme::{self, NewChallenge};
use estrade_store::certificates::{self, CertificateRow};
use estrade_store::{ChangeKind, StoreError};
use std::time::Duration;
use zeroize::Zeroizing;

/// How long the response to a challenge is kept.
const CHALLENGE_RETENTION: Duration = Duration::from_mins(10);

impl AcmeStore for Acme {
    type Error = Error;

    async fn read_account(&self) -> Result<Option<Zeroizing<Vec<u8>>>> {
        let directory = self.client.directory();
        let Some(sealed) = acme::read_account(&self.core.db, directory).await? else {
            return Ok(None);
        };
        Ok(Some(
            self.core.master.open(&self.account_purpose(), &sealed)?,
        ))
    }

    async fn insert_account(&self, credentials: &[u8]) -> Result<()> {
        let sealed = self
            .core
            .master
            .seal(&self.account_purpose(), credentials)?;
        let (directory, now) = (self.client.directory().to_owned(), self.core.now());
        let inserted = self.core.db.transact(move |tx| {
            let (directory, sealed) = (directory.clone(), sealed.clone());
            Box::pin(async move { acme::insert_account(tx, &directory, &sealed, now).await })
        });
        Ok(inserted.await.map_err(|error: StoreError| error)?)
    }

    async fn insert_challenge(&self, host: &HostName, token: &str, response: &str) -> Result<()> {
        let new = NewChallenge {
            token: token.to_owned(),
            host: host.clone(),
            response: response.to_owned(),
            expires_at: self.core.now().after(CHALLENGE_RETENTION),
        };
        let inserted = self.core.db.transact(move |tx| {
            let new = new.clone();
            Box::pin(async move { acme::insert_challenge(tx, &new).await })
        });
        Ok(inserted.await.map_err(|error: StoreError| error)?)
    }
}

impl Acme {
    /// Orders a certificate and stores it. `failures` selects which challenge is tried.
    pub(super) async fn order(
        &self,
        host: &HostName,
        failures: u32,
    ) -> std::result::Result<(), OrderError> {
        let issued = self.client.order(self, host, failures).await;
        let issued = issued.map_err(|error| match error {
            // A fault of ours: the owner of the host is told no more than of any other.
            OrderError::Material(cause) => OrderError::Store(Error::internal(cause).into()),
            error => error,
        })?;
        let stored = self.store(host, issued).await;
        stored.map_err(|error| OrderError::Store(error.into()))
    }

    async fn store(&self, host: &HostName, issued: Issued) -> Result<()> {
        let made = issued.material;
        let renew_at = renewal(made.not_before, made.not_after);
        let row = CertificateRow {
            host: host.clone(),
            chain: issued.chain,
            sealed: self.core.master.seal(&purpose(host), &issued.key)?,
            not_after: made.not_after,
        };
        let now = self.core.now();
        let stored = self.core.db.transact(move |tx| {
            let row = row.clone();
            Box::pin(async move {
                certificates::set_certificate(tx, &row, renew_at).await?;
                acme::delete_challenges(tx, &row.host).await?;
                tx.changed(ChangeKind::Certificate, &row.host, now).await
            })
        });
        Ok(stored.await.map_err(|error: StoreError| error)?)
    }

    /// A certificate as it is in the database, ready to be shown.
    pub(super) fn open_material(&self, row: &CertificateRow) -> Result<Material> {
        let key = self.core.master.open(&purpose(&row.host), &row.sealed)?;
        Material::new(&row.chain, &key).map_err(Error::internal)
    }

    fn account_purpose(&self) -> String {
        format!("acme account {}", self.client.directory())
    }
}

/// What a host's key is sealed for.
fn purpose(host: &HostName) -> String {
    format!("certificate {host}")
}
