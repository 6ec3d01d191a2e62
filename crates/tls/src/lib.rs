//! TLS configuration of clients: of providers, collectors and PostgreSQL.

use rustls::ClientConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls_platform_verifier::Verifier;
use std::sync::Arc;

/// Trusts the certificates of the system and `extra_roots`. Without ALPN: it is up to the protocol that is spoken.
///
/// The crypto provider is named here, not taken from the process: nothing depends on which crate installs a default
/// first.
pub fn client_config(
    extra_roots: Vec<CertificateDer<'static>>,
) -> Result<ClientConfig, rustls::Error> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let verifier = if extra_roots.is_empty() {
        Verifier::new(Arc::clone(&provider))
    } else {
        Verifier::new_with_extra_roots(extra_roots, Arc::clone(&provider))
    };
    Ok(ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier?))
        .with_no_client_auth())
}
