//! Certificates and keys in the forms that they are made, kept and shown in.

use aws_lc_rs::digest::{SHA256, digest};
use estrade_model::Timestamp;
use estrade_model::domain::HostName;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, KeyPair};
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::crypto::aws_lc_rs::sign::any_supported_type;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use x509_cert::der::Decode;

/// A certificate that is ready to be shown.
pub struct Material {
    pub certified: Arc<CertifiedKey>,
    pub not_before: Timestamp,
    pub not_after: Timestamp,
}

impl Material {
    /// From a chain in PEM and a key in DER; an error when they do not belong together.
    pub fn new(chain: &str, key: &[u8]) -> Result<Self, String> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| format!("the chain is not valid PEM: {error}"))?;
        let first = chain.first().ok_or("the chain is empty")?;
        let parsed = x509_cert::Certificate::from_der(first)
            .map_err(|error| format!("the certificate is not valid: {error}"))?;
        let validity = parsed.tbs_certificate.validity;
        let at = |time: x509_cert::time::Time| {
            let millis = time.to_unix_duration().as_millis();
            Timestamp::from_millis(i64::try_from(millis).unwrap_or(i64::MAX))
        };
        let (not_before, not_after) = (at(validity.not_before), at(validity.not_after));
        Ok(Self {
            certified: Arc::new(certified(chain, key)?),
            not_before,
            not_after,
        })
    }
}

/// A new key, and the request for a certificate for it.
pub(crate) fn request(host: &HostName) -> Result<(KeyPair, Vec<u8>), rcgen::Error> {
    let key = KeyPair::generate()?;
    let request = params(host)?.serialize_request(&key)?;
    Ok((key, request.der().to_vec()))
}

/// The certificate of a TLS-ALPN-01 challenge (RFC 8737).
pub fn challenge_certificate(host: &HostName, response: &str) -> Result<CertifiedKey, String> {
    let make = || {
        let key = KeyPair::generate()?;
        let mut params = params(host)?;
        let hash = digest(&SHA256, response.as_bytes());
        params.custom_extensions = vec![CustomExtension::new_acme_identifier(hash.as_ref())];
        let cert = params.self_signed(&key)?;
        Ok((cert.der().clone(), key.serialize_der()))
    };
    let (cert, key) = make().map_err(|error: rcgen::Error| error.to_string())?;
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key));
    let key = any_supported_type(&key).map_err(|error| error.to_string())?;
    // Not checked against each other: rustls does not read a certificate with such an extension.
    Ok(CertifiedKey::new(vec![cert], key))
}

fn params(host: &HostName) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new([host.to_string()])?;
    params.distinguished_name = DistinguishedName::new();
    Ok(params)
}

fn certified(chain: Vec<CertificateDer<'static>>, key: &[u8]) -> Result<CertifiedKey, String> {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.to_vec()));
    CertifiedKey::from_der(chain, key, &default_provider())
        .map_err(|error| format!("the certificate and its key do not fit: {error}"))
}
