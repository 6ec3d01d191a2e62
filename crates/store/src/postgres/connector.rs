//! Connections to PostgreSQL: one server or several, and what a network or a node that stops in the middle may hold up.
//!
//! With several hosts in the URL the one that takes writes is used: a failover is a promotion of another of them, and
//! nothing here is configured anew. Each host has [`HOST_TIMEOUT`] for the whole handshake, so that one whose machine
//! is gone without a word does not use up the time of those after it.

use crate::StoreError;
use deadpool_postgres::{Connect, Hook, HookError};
use futures_util::future::BoxFuture;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};
use tokio_postgres_rustls::MakeRustlsConnect;

/// How long the last host that is tried, or the only one, has.
pub(super) const CONNECTION_TIMEOUT: Duration = Duration::from_secs(5);
/// How long each host before it has.
const HOST_TIMEOUT: Duration = Duration::from_secs(2);
/// A server whose kernel has acknowledged nothing for so long is gone. Without it the kernel repeats what it sent for
/// about fifteen minutes, and waits for a response to what arrived for two hours.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE_DELAY: Duration = Duration::from_secs(5);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(2);

/// Bounds how long the server holds locks for a node that went away without a word.
///
/// A node that is stopped between two statements (a paused machine, `SIGSTOP`, a cut network) leaves a transaction open.
/// Its row locks would hold up all other nodes for as long; its advisory locks, garbage collection and migrations.
/// A transaction here waits for nothing but the database, so three seconds are long, and they are less than the
/// ledger and the callers of the others wait.
const SESSION: &str = "SET idle_in_transaction_session_timeout = '3s';
    SET tcp_keepalives_idle = 5; SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = '10s'";

type Connected = (
    Client,
    Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>,
);

/// Connects to the server that takes writes; cheap to clone.
#[derive(Clone)]
pub(super) struct Connector {
    /// One of each host of the URL; never empty.
    hosts: Arc<[Config]>,
    /// The host that was connected to last: it goes first, because one that is gone costs its whole timeout.
    preferred: Arc<AtomicUsize>,
    tls: MakeRustlsConnect,
}

impl Connector {
    pub(super) fn new(url: &str, tls: MakeRustlsConnect) -> Result<Self, StoreError> {
        Ok(Self {
            hosts: parse_url(url)?.into(),
            preferred: Arc::default(),
            tls,
        })
    }

    /// The most that [`Self::open`] may take; it does not end by itself when the last host does not answer.
    pub(super) fn timeout(&self) -> Duration {
        let others = u32::try_from(self.hosts.len().saturating_sub(1)).unwrap_or(u32::MAX);
        CONNECTION_TIMEOUT.saturating_add(HOST_TIMEOUT.saturating_mul(others))
    }

    /// Tries the hosts one after the other, beginning with the preferred one.
    pub(super) async fn open(&self) -> Result<Connected, Error> {
        let first = self.preferred.load(Ordering::Relaxed);
        let count = self.hosts.len();
        for number in (first..).take(count.saturating_sub(1)) {
            let attempt = self.hosts[number % count].connect(self.tls.clone());
            // Whatever it is: another may do. The last one's reason is reported.
            if let Ok(Ok(connected)) = timeout(HOST_TIMEOUT, attempt).await {
                self.prefer(number % count);
                return Ok(connected);
            }
        }
        let last = (first + count - 1) % count;
        let connected = self.hosts[last].connect(self.tls.clone()).await?;
        self.prefer(last);
        Ok(connected)
    }

    fn prefer(&self, host: usize) {
        if self.preferred.swap(host, Ordering::Relaxed) != host {
            tracing::info!("connected to another PostgreSQL host of database_url");
        }
    }

    /// What every new connection of the pool begins with.
    pub(super) fn session() -> Hook {
        Hook::async_fn(|client, _| {
            Box::pin(async move {
                let set = client.batch_execute(SESSION).await;
                set.map_err(HookError::Backend)
            })
        })
    }
}

impl Connect for Connector {
    fn connect(&self, _: &Config) -> BoxFuture<'_, Result<(Client, JoinHandle<()>), Error>> {
        Box::pin(async move {
            let (client, connection) = self.open().await?;
            #[expect(
                clippy::disallowed_methods,
                reason = "ends with its client, which the pool owns"
            )]
            let task = tokio::spawn(async move {
                if let Err(error) = connection.await {
                    tracing::debug!(%error, "a connection to PostgreSQL ended");
                }
            });
            Ok((client, task))
        })
    }
}

/// `verify-full` and `verify-ca` are what we always do under `require`, and a `primary` is a server that takes writes;
/// the driver does not know the words.
fn parse_url(url: &str) -> Result<Vec<Config>, StoreError> {
    let invalid = || StoreError::Unusable("database_url is not a valid PostgreSQL URL".to_owned());
    let strict = url
        .replace("sslmode=verify-full", "sslmode=require")
        .replace("sslmode=verify-ca", "sslmode=require");
    let known = strict.replace(
        "target_session_attrs=primary",
        "target_session_attrs=read-write",
    );
    let mut config: Config = known.parse().map_err(|_| invalid())?;
    if strict == url && !url.contains("sslmode=") {
        config.ssl_mode(SslMode::Prefer);
    }
    config
        .application_name("estrade")
        .connect_timeout(CONNECTION_TIMEOUT);
    if config.get_tcp_user_timeout().is_none() {
        config.tcp_user_timeout(SILENCE_TIMEOUT);
    }
    if !url.contains("keepalives_idle=") {
        config.keepalives_idle(KEEPALIVE_DELAY);
    }
    if config.get_keepalives_interval().is_none() {
        config.keepalives_interval(KEEPALIVE_INTERVAL);
    }
    let names = host_names(&config);
    let hosts = names.len().max(config.get_hostaddrs().len());
    if hosts < 2 {
        return Ok(vec![config]);
    }
    // Nobody who names a standby wants it to be written to.
    config.target_session_attrs(TargetSessionAttrs::ReadWrite);
    let fits = |count| count == 0 || count == hosts;
    let ports = config.get_ports().len();
    if !fits(names.len()) || !fits(config.get_hostaddrs().len()) || !(fits(ports) || ports == 1) {
        return Err(invalid());
    }
    let one = |number| with_host(&config, names.get(number), number);
    Ok((0..hosts).map(one).collect())
}

/// The hosts of a URL. The driver takes `a,b` apart where the URL has its host, but not in `?host=a,b`.
fn host_names(config: &Config) -> Vec<Host> {
    let names = config.get_hosts().iter().flat_map(|host| match host {
        Host::Tcp(names) => names
            .split(',')
            .map(|name| Host::Tcp(name.to_owned()))
            .collect(),
        #[cfg(unix)]
        Host::Unix(_) => vec![host.clone()],
    });
    names.collect()
}

/// The same configuration with one of its hosts. The driver cannot remove a host from one.
fn with_host(all: &Config, host: Option<&Host>, number: usize) -> Config {
    let mut one = Config::new();
    match host {
        Some(Host::Tcp(name)) => drop(one.host(name)),
        #[cfg(unix)]
        Some(Host::Unix(path)) => drop(one.host_path(path)),
        None => {}
    }
    if let Some(address) = all.get_hostaddrs().get(number) {
        one.hostaddr(*address);
    }
    if let Some(port) = all.get_ports().get(number).or(all.get_ports().first()) {
        one.port(*port);
    }
    if let Some(user) = all.get_user() {
        one.user(user);
    }
    if let Some(password) = all.get_password() {
        one.password(password);
    }
    if let Some(name) = all.get_dbname() {
        one.dbname(name);
    }
    if let Some(options) = all.get_options() {
        one.options(options);
    }
    if let Some(name) = all.get_application_name() {
        one.application_name(name);
    }
    if let Some(limit) = all.get_connect_timeout() {
        one.connect_timeout(*limit);
    }
    if let Some(limit) = all.get_tcp_user_timeout() {
        one.tcp_user_timeout(*limit);
    }
    if let Some(interval) = all.get_keepalives_interval() {
        one.keepalives_interval(interval);
    }
    if let Some(retries) = all.get_keepalives_retries() {
        one.keepalives_retries(retries);
    }
    one.keepalives(all.get_keepalives())
        .keepalives_idle(all.get_keepalives_idle())
        .ssl_mode(all.get_ssl_mode())
        .ssl_negotiation(all.get_ssl_negotiation())
        .target_session_attrs(all.get_target_session_attrs())
        .channel_binding(all.get_channel_binding());
    one
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_host_is_taken_as_it_is() {
        let [config] = &parse_url("postgres://u:p@db/estrade").unwrap()[..] else {
            panic!("one host");
        };
        assert_eq!(config.get_hosts(), [Host::Tcp("db".into())]);
        assert_eq!(config.get_target_session_attrs(), TargetSessionAttrs::Any);
        assert_eq!(config.get_tcp_user_timeout(), Some(&SILENCE_TIMEOUT));
        assert_eq!(config.get_keepalives_idle(), KEEPALIVE_DELAY);
        let own = "postgres://u@db/x?tcp_user_timeout=60&keepalives_idle=99";
        let config = &parse_url(own).unwrap()[0];
        assert_eq!(config.get_tcp_user_timeout(), Some(&Duration::from_mins(1)));
        assert_eq!(config.get_keepalives_idle(), Duration::from_secs(99));
    }

    #[test]
    fn of_several_hosts_each_is_tried_and_must_take_writes() {
        for attributes in [
            "",
            "&target_session_attrs=read-write",
            "&target_session_attrs=primary",
        ] {
            for hosts in [
                format!("postgres://u:p%40@a:1,b:2/db?sslmode=verify-full{attributes}"),
                format!("postgres://u:p%40@/db?host=a,b&port=1,2&sslmode=require{attributes}"),
            ] {
                let [a, b] = &parse_url(&hosts).unwrap()[..] else {
                    panic!("two hosts");
                };
                for (config, name, port) in [(a, "a", 1), (b, "b", 2)] {
                    assert_eq!(config.get_hosts(), [Host::Tcp(name.into())]);
                    assert_eq!(config.get_ports(), [port]);
                    assert_eq!(config.get_user(), Some("u"));
                    assert_eq!(config.get_password(), Some(&b"p@"[..]));
                    assert_eq!(config.get_dbname(), Some("db"));
                    assert_eq!(config.get_ssl_mode(), SslMode::Require);
                    assert_eq!(config.get_tcp_user_timeout(), Some(&SILENCE_TIMEOUT));
                    let attributes = config.get_target_session_attrs();
                    assert_eq!(attributes, TargetSessionAttrs::ReadWrite);
                }
            }
        }
        assert!(parse_url("postgres://u@/db?host=a,b,c&port=1,2").is_err());
        assert!(parse_url("postgres://u@a/db?target_session_attrs=some").is_err());
    }
}
