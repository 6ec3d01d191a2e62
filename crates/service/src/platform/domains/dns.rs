//! Verifies the ownership of a custom domain in DNS.

use estrade_model::domain::{DnsRecord, HostName};
use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::{RData, RecordType};
use std::net::SocketAddr;
use std::time::Duration;

/// How long one DNS server may take to respond.
const TIMEOUT: Duration = Duration::from_secs(2);
/// How long all questions about one domain may take.
const TOTAL_TIMEOUT: Duration = Duration::from_secs(8);
/// How many CNAMEs are followed.
const MAX_CHAIN: usize = 8;

/// The name and the value of the TXT record that proves a domain.
pub(super) fn txt_record(name: &HostName, token: &str) -> DnsRecord {
    DnsRecord {
        kind: "TXT",
        name: format!("_estrade.{name}"),
        value: token.to_owned(),
    }
}

/// The result of a look-up.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// One of the records is there.
    Proven,
    /// None is; what was found instead, for a person.
    Missing(String),
}

/// Looks for the proof: the token in the TXT record, or a CNAME that leads to one of `targets`.
///
/// Queries the given server, or those of the system. They are read each time, because they change and
/// checks are rare; nothing is cached, because the caller wants the present state.
pub(super) async fn look_up(
    server: Option<SocketAddr>,
    name: &HostName,
    token: &str,
    targets: &[String],
) -> Finding {
    let resolver = match resolver(server) {
        Ok(resolver) => resolver,
        Err(error) => return Finding::Missing(format!("DNS cannot be asked: {error}")),
    };
    let txt = txt_record(name, token);
    let asked = tokio::time::timeout(TOTAL_TIMEOUT, async {
        tokio::join!(
            check_txt(&resolver, &txt),
            check_cname(&resolver, name, targets)
        )
    });
    match asked.await {
        Ok((Ok(()), _) | (_, Ok(()))) => Finding::Proven,
        Ok((Err(txt), Err(cname))) => Finding::Missing(format!("{txt}; {cname}")),
        Err(_) => Finding::Missing("DNS did not answer in time".into()),
    }
}

fn resolver(server: Option<SocketAddr>) -> Result<TokioResolver, NetError> {
    let provider = TokioRuntimeProvider::default();
    let mut builder = match server {
        None => TokioResolver::builder(provider)?,
        Some(address) => {
            let on_port = |mut connection: ConnectionConfig| {
                connection.port = address.port();
                connection
            };
            let connections = vec![
                on_port(ConnectionConfig::udp()),
                on_port(ConnectionConfig::tcp()),
            ];
            let server = NameServerConfig::new(address.ip(), true, connections);
            let config = ResolverConfig::from_name_servers(vec![server]);
            TokioResolver::builder_with_config(config, provider)
        }
    };
    let options: &mut ResolverOpts = builder.options_mut();
    options.timeout = TIMEOUT;
    options.attempts = 1;
    options.cache_size = 0;
    options.use_hosts_file = ResolveHosts::Never;
    builder.build()
}

async fn check_txt(resolver: &TokioResolver, record: &DnsRecord) -> Result<(), String> {
    let records = query(resolver, &record.name, RecordType::TXT).await?;
    let texts = records.iter().filter_map(|data| match data {
        RData::TXT(txt) => Some(txt.txt_data.concat()),
        _ => None,
    });
    let mut found = 0;
    for text in texts {
        if text == record.value.as_bytes() {
            return Ok(());
        }
        found += 1;
    }
    Err(match found {
        0 => format!("there is no TXT record at {}", record.name),
        _ => format!("the TXT record at {} holds another value", record.name),
    })
}

async fn check_cname(
    resolver: &TokioResolver,
    name: &HostName,
    targets: &[String],
) -> Result<(), String> {
    let mut at = name.as_str().to_owned();
    for _ in 0..MAX_CHAIN {
        let records = query(resolver, &at, RecordType::CNAME).await?;
        let next = records.iter().find_map(|data| match data {
            RData::CNAME(cname) => Some(cname.0.to_ascii()),
            _ => None,
        });
        let Some(next) = next else { break };
        let next = next.trim_end_matches('.').to_ascii_lowercase();
        if targets.contains(&next) {
            return Ok(());
        }
        at = next;
    }
    Err(if at == name.as_str() {
        format!("there is no CNAME record at {name}")
    } else {
        format!("the CNAME record at {name} leads elsewhere")
    })
}

/// The records at exactly this name; none is no error.
async fn query(
    resolver: &TokioResolver,
    name: &str,
    kind: RecordType,
) -> Result<Vec<RData>, String> {
    // The dot at the end keeps the system's search domains out of it.
    match resolver.lookup(format!("{name}."), kind).await {
        Ok(lookup) => Ok(lookup.answers().iter().map(|it| it.data.clone()).collect()),
        Err(error) if error.is_no_records_found() => Ok(Vec::new()),
        Err(error) => {
            tracing::debug!(%error, "dns lookup failed");
            Err(format!("DNS did not answer for {name}"))
        }
    }
}
