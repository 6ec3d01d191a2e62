//! Liveness, readiness and metrics: the routes for monitoring.

use crate::api_error::ApiError;
use crate::app::{AppState, MetricsAccess};
use crate::auth::authenticate;
use crate::error::ErrorShape;
use crate::metrics::Metrics;
use axum::Json;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use estrade_blobs::BlobStore;
use estrade_listener::peer::{PeerAddr, SocketPeer};
use estrade_service::integrity::IntegrityCheck;
use estrade_service::nodes::Membership;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use serde::Serialize;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;

/// A database that does not respond within this time is reported as down.
const PING_TIMEOUT: Duration = Duration::from_millis(500);

/// The answer of `/healthz` and `/readyz`.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct Health {
    /// `ok`, `starting` or `unavailable`.
    status: &'static str,
    /// `up`, `down` (it does not answer, or does not take writes) or `damaged` (it works, but its file does not pass
    /// a check: restore a backup); absent where it was not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    database: Option<&'static str>,
    /// `down` while the bucket with the files of releases does not answer: sites that this node has cached are served,
    /// deploys get 503 `storage_unavailable`. Else `up`; absent where files lie in a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    storage: Option<&'static str>,
    /// `failing` while nothing can be written: the disk is full or read-only, or somebody has locked the database.
    #[serde(skip_serializing_if = "Option::is_none")]
    writes: Option<&'static str>,
}

/// Is the process alive?
#[utoipa::path(get, path = "/healthz", tag = "health", responses((status = 200, body = Health)), security(()))]
pub async fn healthz() -> Json<Health> {
    Json(Health {
        status: "ok",
        database: None,
        storage: None,
        writes: None,
    })
}

/// Can the platform API do its work? Needs every listener, and a database that takes writes.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Health)), security(()))]
pub async fn platform_readyz(State(app): State<AppState>) -> Response {
    readiness(&app, StatusCode::SERVICE_UNAVAILABLE).await
}

/// Can the AI API do its work? Keys that were used here keep working without the database.
#[utoipa::path(get, path = "/readyz", tag = "health", responses((status = 200, body = Health), (status = 503, body = Health)), security(()))]
pub async fn ai_readyz(State(app): State<AppState>) -> Response {
    readiness(&app, StatusCode::OK).await
}

async fn readiness(app: &AppState, without_database: StatusCode) -> Response {
    let (pinged, writable, bucket) = tokio::join!(
        timeout(PING_TIMEOUT, app.core.db.ping()),
        app.services.write_probe.is_writable(),
        app.services.storage_probe.status()
    );
    let responds = pinged.is_ok_and(|ping| ping.is_ok());
    let (code, status, database) = match (app.is_ready(), responds && writable) {
        (true, true) if app.services.integrity.is_damaged() => (StatusCode::OK, "ok", "damaged"),
        (true, true) => (StatusCode::OK, "ok", "up"),
        (false, true) => (StatusCode::SERVICE_UNAVAILABLE, "starting", "up"),
        (true, false) if without_database.is_success() => (without_database, "ok", "down"),
        (_, false) => (StatusCode::SERVICE_UNAVAILABLE, "unavailable", "down"),
    };
    (
        code,
        Json(Health {
            status,
            database: Some(database),
            storage: bucket.map(|bucket| if bucket.is_up { "up" } else { "down" }),
            writes: (responds && !writable).then_some("failing"),
        }),
    )
        .into_response()
}

/// What is known of the database, for Prometheus.
pub(crate) struct DatabaseMetrics(pub(crate) Arc<IntegrityCheck>);

impl fmt::Debug for DatabaseMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseMetrics")
    }
}

impl Collector for DatabaseMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "estrade_database_damaged";
        let help = "1 when the database's file did not pass a check; restore a backup";
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&i64::from(self.0.is_damaged()))
    }
}

/// How many nodes share the database, for Prometheus.
pub(crate) struct NodeMetrics(pub(crate) Arc<Membership>);

impl fmt::Debug for NodeMetrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NodeMetrics")
    }
}

impl Collector for NodeMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let name = "estrade_nodes_alive";
        let help =
            "Nodes that share the database and are alive, as this one sees them; this one counts";
        encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?
            .encode_gauge(&i64::try_from(self.0.alive()).unwrap_or(i64::MAX))
    }
}

/// This node's cache of the bucket, for Prometheus; nothing where files lie in a directory.
#[derive(Debug)]
pub(crate) struct BlobCacheMetrics(pub(crate) BlobStore);

impl Collector for BlobCacheMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Some(stats) = self.0.cache_stats() else {
            return Ok(());
        };
        for (name, help, count) in [
            (
                "estrade_blob_cache_hits",
                "Reads of files of releases that this node's cache answered",
                stats.hits,
            ),
            (
                "estrade_blob_cache_misses",
                "Reads of files of releases that had to ask the bucket",
                stats.misses,
            ),
            (
                "estrade_blob_cache_evictions",
                "Objects that made room for others in this node's cache",
                stats.evictions,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Counter)?
                .encode_counter::<NoLabelSet, _, u64>(&count, None)?;
        }
        for (name, help, bytes) in [
            (
                "estrade_blob_cache_bytes",
                "Bytes of objects in this node's cache",
                stats.bytes,
            ),
            (
                "estrade_blob_cache_capacity_bytes",
                "Bytes that this node's cache may have",
                stats.capacity,
            ),
        ] {
            encoder
                .encode_descriptor(name, help, None, MetricType::Gauge)?
                .encode_gauge(&i64::try_from(bytes).unwrap_or(i64::MAX))?;
        }
        Ok(())
    }
}

/// The numbers, for Prometheus.
pub async fn metrics<E: ErrorShape>(
    app: AppState,
    numbers: Arc<Metrics>,
    access: MetricsAccess,
    request: Request,
) -> Result<Response, E> {
    let mut parts = request.into_parts().0;
    match access {
        MetricsAccess::Public => {}
        MetricsAccess::Off => return Err(ApiError::NoRoute.into()),
        MetricsAccess::Local if is_local(&parts) => {}
        MetricsAccess::Local | MetricsAccess::Admin => {
            let caller = authenticate(&app, &mut parts).await?;
            caller.require_admin_to_read()?;
        }
    }
    Ok(numbers.response(parts.headers.get(header::ACCEPT)))
}

/// Headers that proxies add: a request with one of them is forwarded, whether the proxy is trusted or not.
const FORWARDED: [&str; 10] = [
    "cf-connecting-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-client-ip",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "x-forwarded-server",
    "x-real-ip",
];

/// Whether a request was made on this machine.
fn is_local(parts: &Parts) -> bool {
    let addresses = [
        parts.extensions.get().map(|SocketPeer(address)| *address),
        parts.extensions.get().map(|PeerAddr(address)| *address),
    ];
    let is_loopback = |address: Option<IpAddr>| {
        address.is_some_and(|address| address.to_canonical().is_loopback())
    };
    addresses.into_iter().all(is_loopback)
        && !FORWARDED
            .iter()
            .any(|name| parts.headers.contains_key(*name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(socket: &str, client: &str, header: Option<&str>) -> Parts {
        let mut request = Request::new(());
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        request.extensions_mut().insert(SocketPeer(address(socket)));
        request.extensions_mut().insert(PeerAddr(address(client)));
        if let Some(name) = header {
            let name: header::HeaderName = name.parse().unwrap();
            let value = header::HeaderValue::from_static("127.0.0.1");
            request.headers_mut().insert(name, value);
        }
        request.into_parts().0
    }

    #[test]
    fn no_header_makes_a_remote_caller_local() {
        for local in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"] {
            assert!(is_local(&parts(local, local, None)), "{local}");
        }
        let headers = FORWARDED.into_iter().chain(["host", "origin", "x-local"]);
        for header in headers.map(Some).chain([None]) {
            for (socket, client) in [
                ("192.0.2.1", "192.0.2.1"),
                ("192.0.2.1", "127.0.0.1"),
                ("127.0.0.1", "192.0.2.1"),
            ] {
                let parts = parts(socket, client, header);
                assert!(!is_local(&parts), "{socket} {client} {header:?}");
            }
        }
        // A proxy on this machine, trusted or not.
        for header in FORWARDED {
            let parts = parts("127.0.0.1", "127.0.0.1", Some(header));
            assert!(!is_local(&parts), "{header}");
        }
        assert!(!is_local(&Request::new(()).into_parts().0));
    }
}
