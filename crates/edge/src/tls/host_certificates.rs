//! Certificates of the hosts that the edge serves: from files, and from ACME.

use estrade_listener::{CertificateFuture, Certificates, FileCertificates};
use estrade_service::platform::certificates::Acme;
use std::sync::Arc;

/// Where the certificate of a host comes from: files that are made out for it, else ACME, else the
/// first of the files.
#[derive(Debug)]
pub struct HostCertificates {
    files: Option<FileCertificates>,
    acme: Option<Arc<Acme>>,
}

impl HostCertificates {
    /// From either, or both.
    pub fn new(files: Option<FileCertificates>, acme: Option<Arc<Acme>>) -> Self {
        Self { files, acme }
    }

    /// Whether this host, in lower case, has a certificate that is made out for it.
    pub(crate) fn covers(&self, host: &str) -> bool {
        self.acme
            .as_ref()
            .is_some_and(|it| it.has_certificate(host))
            || self.files.as_ref().is_some_and(|it| it.covers(host))
    }

    /// The response to an ACME server that asks for this token.
    pub(crate) async fn http_challenge(&self, token: &str) -> Option<String> {
        self.acme.as_ref()?.http_challenge(token).await
    }
}

impl Certificates for HostCertificates {
    fn find<'c>(&'c self, host: Option<&'c str>) -> CertificateFuture<'c> {
        Box::pin(async move {
            if let (Some(files), Some(host)) = (&self.files, host)
                && let Some(found) = files.matching(host).await
            {
                return Some(found);
            }
            if let (Some(acme), Some(host)) = (&self.acme, host)
                && let Some(found) = acme.find(host).await
            {
                return Some(found);
            }
            self.files.as_ref()?.first().await
        })
    }

    fn find_challenge<'c>(&'c self, host: &'c str) -> CertificateFuture<'c> {
        Box::pin(async move { self.acme.as_ref()?.tls_challenge(host).await })
    }
}
