//! TLS for a listener: which certificate a client is shown, and the handshake.
//!
//! The certificate is chosen after the client's first message and may be fetched from somewhere,
//! which a resolver of rustls cannot do: it must not wait.

use crate::certificates::{Certificates, FileCertificates, TlsFiles};
use rustls::ServerConfig;
use rustls::crypto::aws_lc_rs;
use rustls::server::{Acceptor, ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use std::io;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

/// The protocol in which an ACME server asks for the response to its challenge (RFC 8737).
const ACME_TLS: &[u8] = b"acme-tls/1";

/// Where a listener's certificates come from.
#[derive(Debug, Clone)]
pub enum TlsSource {
    /// From two files, for every host.
    Files(TlsFiles),
    Certificates(Arc<dyn Certificates>),
}

impl From<TlsFiles> for TlsSource {
    fn from(files: TlsFiles) -> Self {
        Self::Files(files)
    }
}

impl TlsSource {
    /// Reads files, so that mistakes show at start, and prepares the handshake.
    pub async fn handshake(&self) -> io::Result<Handshake> {
        Handshake::new(match self {
            Self::Files(files) => Arc::new(FileCertificates::load(vec![files.clone()]).await?),
            Self::Certificates(certificates) => Arc::clone(certificates),
        })
    }
}

/// Makes TLS of plain connections. Clones share their session tickets.
#[derive(Clone)]
pub struct Handshake {
    certificates: Arc<dyn Certificates>,
    /// The configuration but for the certificate.
    config: ServerConfig,
}

impl Handshake {
    fn new(certificates: Arc<dyn Certificates>) -> io::Result<Self> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(FixedCertificate(None)));
        // Sessions are resumed with tickets, which need no memory of ours. One is good only for the
        // host that it was given out for.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = aws_lc_rs::Ticketer::new().map_err(io::Error::other)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Self {
            certificates,
            config,
        })
    }

    /// Shakes hands. None: it was an ACME server, and has what it came for.
    pub async fn accept<I>(&self, io: I) -> io::Result<Option<TlsStream<I>>>
    where
        I: AsyncRead + AsyncWrite + Unpin,
    {
        let start = LazyConfigAcceptor::new(Acceptor::default(), io).await?;
        let hello = start.client_hello();
        let host = hello.server_name().map(str::to_ascii_lowercase);
        let challenge = is_challenge(&hello);
        let mut config = self.config.clone();
        let certificate = match &host {
            Some(host) if challenge => self.certificates.find_challenge(host).await,
            host => self.certificates.find(host.as_deref()).await,
        };
        if challenge {
            config.alpn_protocols = vec![ACME_TLS.to_vec()];
        }
        // Without a certificate rustls says so to the client.
        config.cert_resolver = Arc::new(FixedCertificate(certificate));
        let mut stream = start.into_stream(Arc::new(config)).await?;
        if challenge {
            stream.shutdown().await?;
            return Ok(None);
        }
        Ok(Some(stream))
    }
}

/// Whether the client speaks nothing but the protocol of ACME challenges.
fn is_challenge(hello: &ClientHello<'_>) -> bool {
    hello.alpn().is_some_and(|mut protocols| {
        protocols.next() == Some(ACME_TLS) && protocols.next().is_none()
    })
}

/// The one certificate that was chosen for a handshake.
#[derive(Debug)]
struct FixedCertificate(Option<Arc<CertifiedKey>>);

impl ResolvesServerCert for FixedCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }
}
