//! TLS for a listener: certificate and key from files.

use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;

/// Where a listener's certificate and key are, both in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by the rest of its chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl TlsFiles {
    /// Reads both files and prepares the handshake.
    pub(super) async fn acceptor(&self) -> io::Result<TlsAcceptor> {
        let chain = CertificateDer::pem_slice_iter(&read(&self.cert).await?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(&self.cert, error))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&self.key).await?)
            .map_err(|error| refused(&self.key, error))?;
        let mut config =
            ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .map_err(io::Error::other)?
                .with_no_client_auth()
                .with_single_cert(chain, key)
                .map_err(|error| refused(&self.cert, error))?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

async fn read(path: &Path) -> io::Result<Vec<u8>> {
    tokio::fs::read(path)
        .await
        .map_err(|error| refused(path, error))
}

/// Names the file, which the error below does not.
fn refused(path: &Path, error: impl std::fmt::Display) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{}: {error}", path.display()),
    )
}
