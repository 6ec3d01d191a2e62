//! TLS connectors to providers: the system's trust store, and a provider's own `ca_file`.

use estrade_tls::client_config;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Creates connectors. Providers with the same certificates share one, and with it the session cache.
#[derive(Default)]
pub(crate) struct Trust {
    connectors: HashMap<Vec<u8>, TlsConnector>,
}

impl Trust {
    /// A connector that trusts the system's certificates and these (PEM).
    pub(crate) fn connector(&mut self, certificates: Vec<u8>) -> Result<TlsConnector, String> {
        if let Some(known) = self.connectors.get(&certificates) {
            return Ok(known.clone());
        }
        let connector = connector(&certificates)?;
        self.connectors.insert(certificates, connector.clone());
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
    let mut config =
        client_config(extra).map_err(|error| format!("cannot prepare TLS: {error}"))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
