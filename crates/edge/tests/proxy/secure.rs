//! Visitors over TLS.

use crate::backend::{App, whole};
use crate::stage::{HOST, Stage};
use crate::upgrades::echo_tunnel;
use estrade_listener::TlsFiles;
use http::Response;
use rustls::pki_types::{CertificateDer, ServerName};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An edge with a certificate for the project's host.
async fn start(directory: &TempDir) -> (Stage, CertificateDer<'static>) {
    let made = rcgen::generate_simple_self_signed([HOST.to_owned()]).unwrap();
    let (cert, key) = (directory.path().join("cert"), directory.path().join("key"));
    std::fs::write(&cert, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let stage = Stage::start_with(|setup| {
        setup.listener.tls = Some(TlsFiles { cert, key }.into());
    })
    .await;
    (stage, made.cert.der().clone())
}

async fn connect(stage: &Stage, root: CertificateDer<'static>) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let stream = TcpStream::connect(stage.address).await.unwrap();
    let name = ServerName::try_from(HOST).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    connector.connect(name, stream).await.unwrap()
}

/// Reads until this has come.
async fn until(stream: &mut TlsStream<TcpStream>, text: &str) -> String {
    let mut read = Vec::new();
    while memchr::memmem::find(&read, text.as_bytes()).is_none() {
        assert!(stream.read_buf(&mut read).await.unwrap() > 0, "{read:?}");
    }
    String::from_utf8(read).unwrap()
}

#[tokio::test]
async fn instances_are_told_that_it_was_secure() {
    let directory = TempDir::new().unwrap();
    let (stage, root) = start(&directory).await;
    let app = App::start(|request| async move {
        let told = |name: &str| request.headers()[name].to_str().unwrap().to_owned();
        let told = [told("x-forwarded-proto"), told("forwarded")];
        Response::new(whole(told.join(" ")))
    })
    .await;
    stage.serve(&[app.address]).await;
    let mut stream = connect(&stage, root).await;
    let spoofed = "GET / HTTP/1.1\r\nHost: app.localhost\r\nX-Forwarded-Proto: http\r\n\r\n";
    stream.write_all(spoofed.as_bytes()).await.unwrap();
    let told = "https for=127.0.0.1;host=\"app.localhost\";proto=https";
    until(&mut stream, told).await;
    drop(stream);
    stage.finish().await;
}

#[tokio::test]
async fn sockets_are_passed_through() {
    let directory = TempDir::new().unwrap();
    let (stage, root) = start(&directory).await;
    let app = echo_tunnel().await;
    stage.serve(&[app.address]).await;
    let mut stream = connect(&stage, root).await;
    let ask = "GET / HTTP/1.1\r\nHost: app.localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: x\r\n\r\n";
    stream.write_all(ask.as_bytes()).await.unwrap();
    let response = until(&mut stream, "hello ").await;
    assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
    stream.write_all(b"and back").await.unwrap();
    assert_eq!(until(&mut stream, "back").await, "and back");
    drop(stream);
    stage.finish().await;
}
