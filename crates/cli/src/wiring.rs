//! From the configuration to what the services and the server take.

mod blobs;
mod inference;

use crate::args::MigrateArgs;
use crate::config::{Challenge, Config, DatabaseUrl, HttpUrl, Tls, UnknownWorkspace};
use estrade_buildpacks::BaseImages;
use estrade_edge::EdgeOptions;
use estrade_listener::{AllowedHosts, ListenerOptions, TlsFiles};
use estrade_model::plan::{Plan, Plans};
use estrade_model::secret::Secret;
use estrade_runtime::{EngineHost, Registries};
use estrade_server::app::MetricsAccess;
use estrade_server::run::{Bind, EdgeBind, ServeOptions};
use estrade_service::bootstrap::{BlobsAt, InstallationPaths, OpenError};
use estrade_service::platform::certificates::{self, AcmeSettings};
use estrade_service::platform::containers::ContainerSettings;
use estrade_service::platform::domains::DomainSettings;
use estrade_service::{Core, Quotas, Settings};
use estrade_store::Location;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Where the installation keeps its things.
pub fn paths(config: &Config) -> Result<InstallationPaths, OpenError> {
    let blobs = blobs::blobs(config, |name| std::env::var(name).ok())?;
    Ok(paths_with(config, blobs))
}

/// The same, with the files of releases in this place.
pub fn paths_with(config: &Config, blobs: BlobsAt) -> InstallationPaths {
    InstallationPaths {
        blobs,
        data_dir: config.data_dir.clone(),
        database: match config.database() {
            DatabaseUrl::Sqlite(file) => Location::Sqlite(file),
            DatabaseUrl::Postgres(url) => Location::Postgres(Secret(url.expose().to_owned())),
        },
        master_key: config.master_key_path(),
        master_key_is_given: config.master_key_file.is_some(),
        new_installation: false,
    }
}

/// From where to where files move.
pub fn migration(config: &Config, args: &MigrateArgs) -> Result<(BlobsAt, BlobsAt), OpenError> {
    blobs::migration(config, args, |name| std::env::var(name).ok())
}

/// What the configuration says to the services.
pub fn settings(config: &Config) -> Result<Settings, OpenError> {
    let cap = |cap: crate::config::Cap| cap.get().map_or(0, std::num::NonZeroU32::get);
    let limits = &config.limits;
    let mut plans = Plans::default();
    for (name, plan) in &config.plans {
        let plan = Plan {
            memory_mb: plan.memory_mb.get(),
            cpus: plan.cpus.get(),
            disk_gb: plan.disk_gb.get(),
            hourly_price: plan.hourly_price,
        };
        plans.set(name.as_str().to_owned(), plan);
    }
    let (edge_address, edge_tls) = config.edge.entrance();
    let edge_domain = config
        .edge
        .domains
        .first()
        .map_or("localhost", |domain| domain.as_str());
    Ok(Settings {
        plans,
        quotas: Quotas {
            projects: cap(limits.projects).into(),
            keys: cap(limits.keys).into(),
            workspaces: cap(limits.workspaces).into(),
            tokens: cap(limits.tokens).into(),
            teams: cap(limits.teams).into(),
            networks: cap(limits.networks).into(),
            domains: cap(limits.domains).into(),
        },
        max_instances: limits.scale.get(),
        max_files: limits.release_files.get() as usize,
        max_release_bytes: limits.release_bytes.get(),
        unknown_workspace: match config.ai.unknown_workspace {
            UnknownWorkspace::Create => estrade_service::UnknownWorkspace::Create,
            UnknownWorkspace::Reject => estrade_service::UnknownWorkspace::Reject,
        },
        login_failures_per_account: cap(limits.login_failures_per_account),
        login_failures_per_address: cap(limits.login_failures_per_address),
        invitations_create_accounts: config.accounts.invitations_create_accounts,
        release_history: limits.release_history.get(),
        skew: Duration::from_secs(config.edge.skew_seconds),
        public_url: match &config.platform.public_url {
            Some(url) => url.to_string().trim_end_matches('/').to_owned(),
            None => base_url(config.platform.listen, config.platform.tls.is_some()),
        },
        platform_public_url: config
            .platform
            .public_url
            .as_ref()
            .map(|url| url.to_string().trim_end_matches('/').to_owned()),
        ai_url: match &config.ai.public_url {
            Some(url) => url.to_string().trim_end_matches('/').to_owned(),
            None => base_url(config.ai.listen, config.ai.tls.is_some()),
        },
        ai_public_url: config
            .ai
            .public_url
            .as_ref()
            .map(|url| url.to_string().trim_end_matches('/').to_owned()),
        edge_scheme: if edge_tls { "https" } else { "http" }.into(),
        edge_authority: match (edge_tls, edge_address.port()) {
            (false, 80) | (true, 443) => edge_domain.to_owned(),
            (_, port) => format!("{edge_domain}:{port}"),
        },
        domains: domains(config),
        usage: inference::usage(config),
        containers: containers(config)?,
        ..Settings::default()
    })
}

/// How projects run.
fn containers(config: &Config) -> Result<ContainerSettings, OpenError> {
    let docker = &config.docker;
    Ok(ContainerSettings {
        host: engine_host(config)?,
        images: base_images(config)?,
        registries: Registries::new(docker.registries.iter().map(|it| it.0.clone()).collect()),
        subnets: docker.subnets.0,
        firewall: docker.firewall,
        egress: docker.egress.0,
        inference_port: Some(config.ai.listen.port()),
        build_memory: docker.build_memory_mb.get().saturating_mul(1 << 20),
        build_cpus: docker.build_cpus.get(),
        build_limit: Duration::from_mins(docker.build_minutes.get().into()),
        build_cache: docker.build_cache_mb.saturating_mul(1 << 20),
        free_disk: docker.free_disk_gb.saturating_mul(1 << 30),
        ..ContainerSettings::default()
    })
}

/// The images that builds are based on.
pub fn base_images(config: &Config) -> Result<BaseImages, OpenError> {
    let mut images = BaseImages::default();
    for (part, image) in &config.docker.images {
        images
            .set(part.as_str(), image)
            .map_err(|reason| OpenError::Refused(format!("docker.images: {reason}")))?;
    }
    if let Some(mirror) = &config.docker.mirror {
        images.set_mirror(mirror.0.clone());
    }
    Ok(images)
}

/// Where the container engine listens.
pub fn engine_host(config: &Config) -> Result<EngineHost, OpenError> {
    match &config.docker.host {
        Some(host) => Ok(host.0.clone()),
        None => EngineHost::find(None, std::env::var("DOCKER_HOST").ok().as_deref())
            .map_err(|reason| OpenError::Refused(format!("DOCKER_HOST: {reason}"))),
    }
}

/// Which host names are ours, and how others prove that theirs are theirs.
fn domains(config: &Config) -> DomainSettings {
    let public = [&config.platform.public_url, &config.ai.public_url];
    DomainSettings {
        edge: config
            .edge
            .domains
            .iter()
            .map(ToString::to_string)
            .collect(),
        own_hosts: public
            .into_iter()
            .flatten()
            .map(|url| url.host().to_ascii_lowercase())
            .collect(),
        verify: config.edge.verify_domains,
        dns_server: config.edge.dns_server,
    }
}

/// Opens the installation that the configuration names.
pub async fn open(config: &Config) -> Result<Arc<Core>, OpenError> {
    open_at(&paths(config)?, config).await
}

/// Opens it at these paths.
pub async fn open_at(paths: &InstallationPaths, config: &Config) -> Result<Arc<Core>, OpenError> {
    estrade_service::bootstrap::open(paths, settings(config)?).await
}

/// How the server shall listen.
pub fn serve_options(config: &Config) -> Result<ServeOptions, OpenError> {
    let cap = |cap: crate::config::Cap| cap.get().map_or(0, std::num::NonZeroU32::get);
    let limits = &config.limits;
    let bind = |address: SocketAddr,
                public_url: Option<&HttpUrl>,
                tls: Option<&Tls>,
                metrics: crate::config::Metrics| Bind {
        address,
        options: ListenerOptions {
            allowed_hosts: allowed_hosts(config, address, public_url),
            ..listener_options(config, tls)
        },
        metrics: match metrics {
            crate::config::Metrics::Local => MetricsAccess::Local,
            crate::config::Metrics::Public => MetricsAccess::Public,
            crate::config::Metrics::Admin => MetricsAccess::Admin,
            crate::config::Metrics::Off => MetricsAccess::Off,
        },
    };
    Ok(ServeOptions {
        platform: bind(
            config.platform.listen,
            config.platform.public_url.as_ref(),
            config.platform.tls.as_ref(),
            config.platform.metrics,
        ),
        ai: bind(
            config.ai.listen,
            config.ai.public_url.as_ref(),
            config.ai.tls.as_ref(),
            config.ai.metrics,
        ),
        edge: edge_bind(config),
        requests_per_second: cap(limits.requests_per_second),
        burst: limits.burst.get(),
        account_requests_per_second: cap(limits.account_requests_per_second),
        account_burst: limits.account_burst.get(),
        body_bytes: config.limits.body_bytes.get(),
        inference: inference::inference(config)?,
        temporary: config.data_dir.join("tmp"),
        calls: config.data_dir.join("calls"),
        panel: Some(estrade_panel::routes),
    })
}

/// How the edge shall listen and serve.
fn edge_bind(config: &Config) -> EdgeBind {
    let edge = &config.edge;
    EdgeBind {
        address: edge.listen,
        tls_address: edge.tls_listen,
        options: listener_options(config, None),
        certificate: edge.tls.as_ref().map(tls_files),
        acme: edge.acme.enabled.then(|| acme(config)),
        redirect: edge.redirect_https,
        edge: EdgeOptions::default(),
        access_log: edge
            .access_log
            .then(|| config.data_dir.join("logs/access.log")),
    }
}

/// From whom certificates are ordered, and how.
fn acme(config: &Config) -> AcmeSettings {
    let acme = &config.edge.acme;
    AcmeSettings {
        directory: acme.directory.to_string(),
        email: acme.email.clone(),
        ca_file: acme.ca_file.clone(),
        challenges: acme
            .challenges
            .iter()
            .map(|challenge| match challenge {
                Challenge::Http01 => certificates::Challenge::Http01,
                Challenge::TlsAlpn01 => certificates::Challenge::TlsAlpn01,
            })
            .collect(),
        orders_per_hour: acme.orders_per_hour.get(),
    }
}

/// The host names that a management listener accepts; any when it is reachable from other machines.
fn allowed_hosts(
    config: &Config,
    address: SocketAddr,
    public_url: Option<&HttpUrl>,
) -> Option<AllowedHosts> {
    if !address.ip().to_canonical().is_loopback() {
        return None;
    }
    let listed = config.allowed_hosts.iter().map(ToString::to_string);
    let public = public_url.map(|url| url.host().to_owned());
    Some(listed.chain(public).collect())
}

fn listener_options(config: &Config, tls: Option<&Tls>) -> ListenerOptions {
    ListenerOptions {
        tls: tls.map(|tls| tls_files(tls).into()),
        trusted_proxies: config.trusted_proxies.iter().copied().collect(),
        max_connections: config.limits.connections.get() as usize,
        max_connections_per_address: config
            .limits
            .connections_per_address
            .map(|most| most.get() as usize),
        ..ListenerOptions::default()
    }
}

fn tls_files(tls: &Tls) -> TlsFiles {
    TlsFiles {
        cert: tls.cert.clone(),
        key: tls.key.clone(),
    }
}

/// The URL under which a listener is reached from this machine.
pub fn base_url(address: SocketAddr, tls: bool) -> String {
    let scheme = if tls { "https" } else { "http" };
    match address.ip() {
        ip if ip.is_unspecified() => format!("{scheme}://127.0.0.1:{}", address.port()),
        _ => format!("{scheme}://{address}"),
    }
}
