//! The edge on its way to its listeners: its certificates, its ports, its tasks.

use crate::listen_error::listen_error;
use estrade_edge::{AccessLog, Edge, EdgeOptions, HostCertificates, ProxyOptions};
use estrade_listener::{
    FileCertificates, ListenerOptions, Port, TlsFiles, TlsSource, worker_count,
};
use estrade_model::error::error_chain;
use estrade_service::Core;
use estrade_service::platform::certificates::{Acme, AcmeSettings};
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

/// The edge's listener.
pub struct EdgeBind {
    /// Where it listens; with TLS when there is a certificate and no address for that.
    pub address: SocketAddr,
    /// Where it listens with TLS.
    pub tls_address: Option<SocketAddr>,
    /// How it treats its connections. Its certificates are those below.
    pub options: ListenerOptions,
    /// The certificate for hosts that have none of their own.
    pub certificate: Option<TlsFiles>,
    /// The ACME server that certificates are ordered from.
    pub acme: Option<AcmeSettings>,
    /// Whether plain HTTP requests are redirected to HTTPS where there is a certificate.
    pub redirect: bool,
    /// How it serves. Its certificates are those above.
    pub edge: EdgeOptions,
    /// The file of the access log; none: there is no log.
    pub access_log: Option<PathBuf>,
}

/// The edge, with its ports bound.
pub(crate) struct OpenEdge {
    pub(crate) edge: Arc<Edge>,
    pub(crate) address: SocketAddr,
    pub(crate) tls_address: Option<SocketAddr>,
    ports: Vec<Port>,
    acme: Option<Arc<Acme>>,
    access_log: Arc<AccessLog>,
}

impl OpenEdge {
    /// Reads what there is to serve, and binds.
    pub(crate) async fn open(core: Arc<Core>, bind: EdgeBind) -> io::Result<Self> {
        let workers = worker_count();
        let acme = match bind.acme {
            Some(settings) => Some(Acme::open(Arc::clone(&core), settings).await),
            None => None,
        };
        let acme = acme.transpose().map_err(|error| failed(&error))?;
        let certificates = certificates(bind.certificate, acme.clone()).await?;
        let secure = |certificates: &Arc<HostCertificates>| ListenerOptions {
            tls: Some(TlsSource::Certificates(Arc::clone(certificates) as _)),
            ..bind.options.clone()
        };
        let proxy = limit_tunnels(bind.edge.proxy, bind.options.max_connections);
        let (options, secured) = match (bind.tls_address, &certificates) {
            (Some(_), None) => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidInput,
                    "edge.tls_listen needs certificates: set edge.tls or enable edge.acme",
                ));
            }
            (Some(address), Some(certificates)) => {
                (bind.options.clone(), Some((address, secure(certificates))))
            }
            (None, Some(certificates)) => (secure(certificates), None),
            (None, None) => (bind.options, None),
        };
        let port = Port::bind(bind.address, options, workers).await;
        let port = port.map_err(listen_error("edge", bind.address))?;
        let mut opened = (port.local_addr(), None, vec![port]);
        if let Some((address, options)) = secured {
            let port = Port::bind(address, options, workers).await;
            let port = port.map_err(listen_error("edge with TLS", address))?;
            opened.1 = Some(port.local_addr());
            opened.2.push(port);
        }
        let (address, tls_address, ports) = opened;
        let access_log = Arc::new(AccessLog::new(bind.access_log, workers));
        let options = EdgeOptions {
            certificates,
            redirect_to: tls_address.filter(|_| bind.redirect).map(|it| it.port()),
            proxy,
            ..bind.edge
        };
        let edge = Edge::open(core, options, Arc::clone(&access_log)).await;
        Ok(Self {
            edge: edge.map_err(|error| failed(&error))?,
            address,
            tls_address,
            ports,
            acme,
            access_log,
        })
    }

    /// Starts to serve.
    pub(crate) fn start(
        self,
        listeners: &mut JoinSet<()>,
        shutdown: &CancellationToken,
        workers: &mut JoinSet<()>,
        stop_workers: &CancellationToken,
    ) {
        for port in self.ports {
            let edge = Arc::clone(&self.edge);
            listeners.spawn(estrade_edge::serve(port, edge, shutdown.clone()));
        }
        workers.spawn(Arc::clone(&self.edge).run(stop_workers.clone()));
        workers.spawn(self.access_log.run(stop_workers.clone()));
        if let Some(acme) = self.acme {
            workers.spawn(acme.run(stop_workers.clone()));
        }
        self.edge.set_ready();
    }
}

/// Leaves a quarter of the connections to requests. When three quarters of the tunnels are taken, a project with a quarter
/// gets no more.
///
/// A tunnel counts as a connection and is never closed to make room. If tunnels could be all of them, two addresses, each
/// with its half, would keep everybody else out for as long as they like; and the visitors of one project could take the
/// tunnels of all others.
fn limit_tunnels(proxy: ProxyOptions, max_connections: usize) -> ProxyOptions {
    let for_requests = max_connections / 4;
    let max_tunnels = proxy.max_tunnels.min(max_connections - for_requests);
    ProxyOptions {
        max_tunnels,
        max_project_tunnels: proxy.max_project_tunnels.min(max_tunnels / 4).max(1),
        ..proxy
    }
}

/// Where certificates come from, if there are any.
async fn certificates(
    files: Option<TlsFiles>,
    acme: Option<Arc<Acme>>,
) -> io::Result<Option<Arc<HostCertificates>>> {
    let files = match files {
        Some(files) => Some(FileCertificates::load(vec![files]).await?),
        None => None,
    };
    let any = files.is_some() || acme.is_some();
    Ok(any.then(|| Arc::new(HostCertificates::new(files, acme))))
}

fn failed(error: &estrade_service::Error) -> io::Error {
    io::Error::other(error_chain(error))
}

#[cfg(test)]
mod tests {
    use estrade_edge::ProxyOptions;

    #[test]
    fn tunnels_leave_connections_for_requests_and_other_projects() {
        let limited = |max_tunnels, max_connections| {
            let proxy = ProxyOptions {
                max_tunnels,
                ..ProxyOptions::default()
            };
            let limited = super::limit_tunnels(proxy, max_connections);
            (limited.max_tunnels, limited.max_project_tunnels)
        };
        assert_eq!(limited(10_000, 10_000), (7_500, 1_875));
        assert_eq!(limited(100, 10_000), (100, 25));
        assert_eq!(limited(1, 10_000), (1, 1));
    }
}
