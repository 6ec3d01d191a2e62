//! TLS: a self-signed certificate, both versions of HTTP.

use crate::support::Server;
use estrade_listener::{Listener, ListenerOptions, TlsFiles};
use http_body_util::{BodyExt, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Makes a certificate for `localhost`; openssl is in every base system that builds this.
fn make_certificate(directory: &Path) -> TlsFiles {
    let files = TlsFiles {
        cert: directory.join("cert.pem"),
        key: directory.join("key.pem"),
    };
    let made = std::process::Command::new("openssl")
        .args("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost".split(' '))
        .args(["-addext", "subjectAltName=DNS:localhost"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-out")
        .arg(&files.cert)
        .arg("-keyout")
        .arg(&files.key)
        .output()
        .unwrap();
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
    files
}

fn connector(files: &TlsFiles, protocol: &str) -> TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(&files.cert).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![protocol.as_bytes().to_vec()];
    TlsConnector::from(Arc::new(config))
}

#[tokio::test]
async fn both_versions_of_http_are_served_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = make_certificate(directory.path());
    let options = ListenerOptions {
        tls: Some(files.clone().into()),
        ..ListenerOptions::default()
    };
    let server = Server::start_with(options).await;
    let name = || ServerName::try_from("localhost").unwrap();
    let request = |uri: &str| {
        http::Request::builder()
            .uri(uri)
            .header("host", "localhost")
            .body(Empty::<bytes::Bytes>::new())
            .unwrap()
    };

    let tcp = TcpStream::connect(server.address).await.unwrap();
    let tls = connector(&files, "h2").connect(name(), tcp).await.unwrap();
    let (mut client, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(tls))
            .await
            .unwrap();
    tokio::spawn(connection);
    let response = client
        .send_request(request("https://localhost/things/1"))
        .await
        .unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "thing"
    );

    let tcp = TcpStream::connect(server.address).await.unwrap();
    let tls = connector(&files, "http/1.1")
        .connect(name(), tcp)
        .await
        .unwrap();
    let (mut client, connection) = hyper::client::conn::http1::handshake(TokioIo::new(tls))
        .await
        .unwrap();
    tokio::spawn(connection);
    let response = client.send_request(request("/things/1")).await.unwrap();
    assert_eq!(
        response.into_body().collect().await.unwrap().to_bytes(),
        "thing"
    );
}

#[tokio::test]
async fn a_bad_certificate_is_refused_at_the_start_and_named() {
    let directory = tempfile::tempdir().unwrap();
    let mut files = make_certificate(directory.path());
    files.cert = directory.path().join("missing.pem");
    let options = ListenerOptions {
        tls: Some(files.into()),
        ..ListenerOptions::default()
    };
    let error = Listener::bind(([127, 0, 0, 1], 0).into(), options)
        .await
        .err()
        .unwrap();
    assert!(error.to_string().contains("missing.pem"), "{error}");
}
