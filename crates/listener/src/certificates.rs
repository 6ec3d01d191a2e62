//! The trait that chooses a certificate, and certificates from files, which are read again when the files change.

use arc_swap::ArcSwap;
use estrade_model::sync::MutexExt;
use rustls::client::verify_server_name;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use std::fmt::Debug;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// How often the files are checked for changes, at most.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// Where a listener's certificate and key are, both in PEM.
#[derive(Debug, Clone)]
pub struct TlsFiles {
    /// The certificate, followed by the rest of its chain.
    pub cert: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// A certificate on its way.
pub type CertificateFuture<'c> =
    Pin<Box<dyn Future<Output = Option<Arc<CertifiedKey>>> + Send + 'c>>;

/// Chooses certificates by the name that a client asks for.
pub trait Certificates: Debug + Send + Sync {
    /// The certificate for this host, or for who names none.
    fn find<'c>(&'c self, host: Option<&'c str>) -> CertificateFuture<'c>;

    /// The certificate that responds to an ACME server's challenge for this host.
    fn find_challenge<'c>(&'c self, _host: &'c str) -> CertificateFuture<'c> {
        Box::pin(std::future::ready(None))
    }
}

/// Certificates from pairs of files. The first one is for hosts that no other one is for.
#[derive(Debug)]
pub struct FileCertificates {
    pairs: ArcSwap<Vec<Pair>>,
    last_check: Mutex<Instant>,
}

/// A pair of files, what was read from it, and how old they were.
#[derive(Debug, Clone)]
struct Pair {
    files: TlsFiles,
    changed: [Option<SystemTime>; 2],
    certificate: Arc<CertifiedKey>,
}

impl FileCertificates {
    /// Reads the files; an error names the file.
    pub async fn load(pairs: Vec<TlsFiles>) -> io::Result<Self> {
        let mut loaded = Vec::new();
        for files in pairs {
            loaded.push(Pair::load(files).await?);
        }
        Ok(Self {
            pairs: ArcSwap::from_pointee(loaded),
            last_check: Mutex::new(Instant::now()),
        })
    }

    /// The certificate that is made out for this host.
    pub async fn matching(&self, host: &str) -> Option<Arc<CertifiedKey>> {
        self.reload_changed().await;
        let name = ServerName::try_from(host).ok()?;
        let pairs = self.pairs.load();
        let pair = pairs.iter().find(|pair| is_for(&pair.certificate, &name));
        pair.map(|pair| Arc::clone(&pair.certificate))
    }

    /// Whether one of them is made out for this host, as they were last read.
    pub fn covers(&self, host: &str) -> bool {
        let Ok(name) = ServerName::try_from(host) else {
            return false;
        };
        let pairs = self.pairs.load();
        pairs.iter().any(|pair| is_for(&pair.certificate, &name))
    }

    /// The certificate for everybody else.
    pub async fn first(&self) -> Option<Arc<CertifiedKey>> {
        self.reload_changed().await;
        let pairs = self.pairs.load();
        pairs.first().map(|pair| Arc::clone(&pair.certificate))
    }

    /// Reads the files again that changed. One that cannot be read is left as it was: the
    /// certificate that is there is better than none.
    async fn reload_changed(&self) {
        let now = Instant::now();
        {
            let mut last_check = self.last_check.lock_ignoring_poison();
            if now.duration_since(*last_check) < CHECK_INTERVAL {
                return;
            }
            *last_check = now;
        }
        let mut pairs = Vec::clone(&self.pairs.load());
        for pair in &mut pairs {
            if changed(&pair.files).await == pair.changed {
                continue;
            }
            match Pair::load(pair.files.clone()).await {
                Ok(new) => {
                    let file = pair.files.cert.display().to_string();
                    tracing::info!(file, "read a changed certificate");
                    *pair = new;
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot read a changed certificate, keeping the old one");
                }
            }
        }
        self.pairs.store(Arc::new(pairs));
    }
}

impl Certificates for FileCertificates {
    fn find<'c>(&'c self, host: Option<&'c str>) -> CertificateFuture<'c> {
        Box::pin(async move {
            let matching = match host {
                Some(host) => self.matching(host).await,
                None => None,
            };
            match matching {
                Some(certificate) => Some(certificate),
                None => self.first().await,
            }
        })
    }
}

impl Pair {
    async fn load(files: TlsFiles) -> io::Result<Self> {
        // Before they are read: a change in between is noticed next time.
        let changed = changed(&files).await;
        let chain = CertificateDer::pem_slice_iter(&read(&files.cert).await?)
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| refused(&files.cert, error))?;
        let key = PrivateKeyDer::from_pem_slice(&read(&files.key).await?)
            .map_err(|error| refused(&files.key, error))?;
        let certificate = CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
            .map_err(|error| refused(&files.cert, error))?;
        Ok(Self {
            files,
            changed,
            certificate: Arc::new(certificate),
        })
    }
}

async fn changed(files: &TlsFiles) -> [Option<SystemTime>; 2] {
    let when = async |path: &Path| tokio::fs::metadata(path).await.ok()?.modified().ok();
    [when(&files.cert).await, when(&files.key).await]
}

fn is_for(certificate: &CertifiedKey, name: &ServerName<'_>) -> bool {
    let parsed = certificate
        .end_entity_cert()
        .and_then(ParsedCertificate::try_from);
    parsed.is_ok_and(|parsed| verify_server_name(&parsed, name).is_ok())
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
