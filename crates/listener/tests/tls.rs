//! Which certificate a client is shown.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

use estrade_listener::{
    CertificateFuture, Certificates, FileCertificates, Handshake, TlsFiles, TlsSource,
};
use rcgen::{CertifiedKey as Made, generate_simple_self_signed};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, Error, SignatureScheme};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio_rustls::TlsConnector;

fn make(directory: &Path, file: &str, names: &[&str]) -> TlsFiles {
    let names: Vec<_> = names.iter().map(ToString::to_string).collect();
    let Made { cert, signing_key } = generate_simple_self_signed(names).unwrap();
    let files = TlsFiles {
        cert: directory.join(format!("{file}.pem")),
        key: directory.join(format!("{file}.key")),
    };
    std::fs::write(&files.cert, cert.pem()).unwrap();
    std::fs::write(&files.key, signing_key.serialize_pem()).unwrap();
    files
}

/// Takes every certificate: the test looks at it afterwards.
#[derive(Debug)]
struct Anything;

impl ServerCertVerifier for Anything {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }
    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// What a client has seen.
struct Seen {
    certificate: Vec<u8>,
    protocol: Option<Vec<u8>>,
    /// What the server sent: an echo, or nothing.
    text: Vec<u8>,
}

/// Connects to `host` and says hello; the error is the server's.
async fn connect(handshake: &Handshake, host: &str, protocols: &[&str]) -> Result<Seen, String> {
    let (ours, theirs) = tokio::io::duplex(16 * 1024);
    let serve = async {
        if let Some(mut stream) = handshake.accept(theirs).await.map_err(|e| e.to_string())? {
            let mut hello = [0; 5];
            stream.read_exact(&mut hello).await.unwrap();
            stream.write_all(&hello).await.unwrap();
            stream.shutdown().await.unwrap();
        }
        Ok(())
    };
    let (seen, served) = tokio::join!(client(ours, host, protocols), serve);
    served.and(seen)
}

async fn client(io: DuplexStream, host: &str, protocols: &[&str]) -> Result<Seen, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anything))
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let connected = TlsConnector::from(Arc::new(config)).connect(name, io).await;
    let mut stream = connected.map_err(|error| error.to_string())?;
    let (_, session) = stream.get_ref();
    let mut seen = Seen {
        certificate: session.peer_certificates().unwrap()[0].to_vec(),
        protocol: session.alpn_protocol().map(<[u8]>::to_vec),
        text: Vec::new(),
    };
    // A client that only came for the challenge may be gone already.
    drop(stream.write_all(b"hello").await);
    drop(stream.read_to_end(&mut seen.text).await);
    Ok(seen)
}

fn content(files: &TlsFiles) -> Vec<u8> {
    use rustls::pki_types::pem::PemObject;
    CertificateDer::from_pem_file(&files.cert).unwrap().to_vec()
}

async fn over(source: FileCertificates) -> Handshake {
    let source = TlsSource::Certificates(Arc::new(source));
    source.handshake().await.unwrap()
}

#[tokio::test]
async fn the_certificate_is_the_one_for_the_host() {
    let place = tempfile::tempdir().unwrap();
    let first = make(place.path(), "first", &["*.apps.example"]);
    let second = make(
        place.path(),
        "second",
        &["shop.example", "www.shop.example"],
    );
    let pairs = vec![first.clone(), second.clone()];
    let handshake = over(FileCertificates::load(pairs).await.unwrap()).await;
    for (host, files) in [
        ("a.apps.example", &first),
        ("shop.example", &second),
        ("WWW.Shop.Example", &second),
        ("nobody.example", &first),
        ("a.b.apps.example", &first),
        ("127.0.0.1", &first),
    ] {
        let seen = connect(&handshake, host, &["h2", "http/1.1"])
            .await
            .unwrap();
        assert_eq!(seen.certificate, content(files), "{host}");
        assert_eq!(seen.protocol.as_deref(), Some(&b"h2"[..]));
        assert_eq!(seen.text, b"hello");
    }
    let seen = connect(&handshake, "shop.example", &["http/1.1"])
        .await
        .unwrap();
    assert_eq!(seen.protocol.as_deref(), Some(&b"http/1.1"[..]));
}

#[tokio::test(start_paused = true)]
async fn changed_files_are_read_again_and_broken_ones_are_not() {
    let place = tempfile::tempdir().unwrap();
    let files = make(place.path(), "one", &["shop.example"]);
    let handshake = over(FileCertificates::load(vec![files.clone()]).await.unwrap()).await;
    let old = content(&files);
    let look = async || {
        connect(&handshake, "shop.example", &[])
            .await
            .unwrap()
            .certificate
    };
    assert_eq!(look().await, old);

    std::fs::write(&files.cert, "half a certific").unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(look().await, old, "what cannot be read is left alone");

    make(place.path(), "one", &["shop.example"]);
    let new = content(&files);
    assert_ne!(new, old);
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(look().await, new);

    std::fs::remove_file(&files.key).unwrap();
    tokio::time::advance(Duration::from_secs(11)).await;
    assert_eq!(look().await, new);
}

/// Has a challenge for one host and no certificate at all.
#[derive(Debug)]
struct OneChallenge(Arc<CertifiedKey>);

impl Certificates for OneChallenge {
    fn find<'c>(&'c self, _: Option<&'c str>) -> CertificateFuture<'c> {
        Box::pin(async { None })
    }
    fn find_challenge<'c>(&'c self, host: &'c str) -> CertificateFuture<'c> {
        Box::pin(async move { (host == "shop.example").then(|| Arc::clone(&self.0)) })
    }
}

#[tokio::test]
async fn an_acme_server_gets_its_certificate_and_nothing_else() {
    let Made { cert, signing_key } =
        generate_simple_self_signed(["shop.example".to_owned()]).unwrap();
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let key = signing_key.serialize_der().try_into().unwrap();
    let certified = CertifiedKey::from_der(vec![cert.der().clone()], key, &provider).unwrap();
    let source = TlsSource::Certificates(Arc::new(OneChallenge(Arc::new(certified))));
    let handshake = source.handshake().await.unwrap();

    let seen = connect(&handshake, "shop.example", &["acme-tls/1"])
        .await
        .unwrap();
    assert_eq!(seen.certificate, cert.der().to_vec());
    assert_eq!(seen.protocol.as_deref(), Some(&b"acme-tls/1"[..]));
    assert_eq!(seen.text, b"", "it is no way into the site");

    // Without a certificate the handshake fails; it does not hang, and nothing is served.
    for (host, protocols) in [
        ("other.example", &["acme-tls/1"][..]),
        ("shop.example", &["h2"]),
        ("shop.example", &["acme-tls/1", "h2"]),
        ("shop.example", &[]),
    ] {
        assert!(
            connect(&handshake, host, protocols).await.is_err(),
            "{host}"
        );
    }
}
