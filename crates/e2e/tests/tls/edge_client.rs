//! Somebody with a browser: plain and TLS, by host name.

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// A response: status, header lines and body as they came.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
    /// The certificate that was shown.
    pub(crate) certificate: Vec<u8>,
}

impl Page {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

/// Visits without TLS.
pub(crate) async fn plain(address: SocketAddr, host: &str, path: &str) -> Page {
    let stream = TcpStream::connect(address).await.unwrap();
    get(stream, host, path).await.unwrap()
}

/// Visits with TLS and insists on a certificate for the host from this root.
pub(crate) async fn secure(
    address: SocketAddr,
    host: &str,
    path: &str,
    root: &str,
) -> io::Result<Page> {
    let mut roots = rustls::RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(root.as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let stream = TcpStream::connect(address).await?;
    let stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await?;
    let shown = stream.get_ref().1.peer_certificates().unwrap()[0].to_vec();
    let page = get(stream, host, path).await?;
    Ok(Page {
        certificate: shown,
        ..page
    })
}

async fn get<S>(mut stream: S, host: &str, path: &str) -> io::Result<Page>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut response = Vec::new();
    let patience = Duration::from_secs(30);
    tokio::time::timeout(patience, stream.read_to_end(&mut response)).await??;
    let response = String::from_utf8(response).unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    Ok(Page {
        status: head.split(' ').nth(1).unwrap().parse().unwrap(),
        head: head.to_owned(),
        body: body.to_owned(),
        certificate: Vec::new(),
    })
}
