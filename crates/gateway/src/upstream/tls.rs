//! Whom to trust: the system's certificates, and a provider's own.

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls_platform_verifier::Verifier;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Makes connectors; providers with the same certificates share one.
#[derive(Default)]
pub(crate) struct Trust {
    made: HashMap<Vec<u8>, TlsConnector>,
}

impl Trust {
    /// A connector that trusts the system and these certificates (PEM).
    pub(crate) fn connector(&mut self, certificates: Vec<u8>) -> Result<TlsConnector, String> {
        if let Some(made) = self.made.get(&certificates) {
            return Ok(made.clone());
        }
        let connector = connector(&certificates)?;
        self.made.insert(certificates, connector.clone());
        Ok(connector)
    }
}

fn connector(certificates: &[u8]) -> Result<TlsConnector, String> {
    let extra: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(certificates)
        .collect::<Result<_, _>>()
        .map_err(|error| format!("its ca_file is not PEM: {error}"))?;
    if extra.is_empty() && !certificates.is_empty() {
        return Err("its ca_file has no certificate in it".to_owned());
    }
    let provider = Arc::new(aws_lc_rs::default_provider());
    let cannot = |error: rustls::Error| format!("cannot prepare TLS: {error}");
    let verifier = if extra.is_empty() {
        Verifier::new(Arc::clone(&provider))
    } else {
        Verifier::new_with_extra_roots(extra, Arc::clone(&provider))
    };
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(cannot)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier.map_err(cannot)?))
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
