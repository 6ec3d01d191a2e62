//! Certificates from ACME, by host: what there is, and what is to be ordered when.

use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::domain::HostName;
use estrade_model::{ProjectId, Timestamp};

/// A certificate as stored.
#[derive(Clone)]
pub struct CertificateRow {
    /// The host that it is for.
    pub host: HostName,
    /// The certificate and the rest of its chain, in PEM.
    pub chain: String,
    /// The private key, sealed.
    pub sealed: Vec<u8>,
    pub not_after: Timestamp,
}

/// How it stands with the order for a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OrderRow {
    /// When the next order is due.
    pub order_at: Timestamp,
    /// The end of the lease of the node that orders it.
    pub lease_until: Timestamp,
}

/// How it stands with the certificate of a host that serves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateStatus {
    pub host: HostName,
    /// The end of the one that there is.
    pub not_after: Option<Timestamp>,
    /// When the next order is due.
    pub order_at: Timestamp,
    /// The end of the lease of the node that orders it.
    pub lease_until: Timestamp,
    /// Why the last order failed, unless a later one succeeded.
    pub problem: Option<String>,
}

impl Record for CertificateStatus {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            host: row.parse()?,
            not_after: row.take()?,
            order_at: row.take()?,
            lease_until: row.take()?,
            problem: row.take()?,
        })
    }
}

impl Record for CertificateRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            host: row.parse()?,
            chain: row.take()?,
            sealed: row.take()?,
            not_after: row.take()?,
        })
    }
}

impl Record for OrderRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            order_at: row.take()?,
            lease_until: row.take()?,
        })
    }
}

/// A host alone.
struct Host(HostName);

impl Record for Host {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        row.parse().map(Self)
    }
}

fn hosts(rows: Vec<Host>) -> Vec<HostName> {
    rows.into_iter().map(|Host(host)| host).collect()
}

/// The certificate of a host.
pub async fn read_certificate(
    db: &Db,
    host: &HostName,
) -> Result<Option<CertificateRow>, StoreError> {
    db.read(
        "SELECT host, chain, sealed, not_after FROM certificates
         WHERE host = $1 AND chain IS NOT NULL",
    )
    .bind(host.as_str())
    .fetch_optional()
    .await
}

/// How it stands with the certificates of the domains that serve a project.
pub async fn list_of_project(
    db: &Db,
    project: ProjectId,
    count: u32,
) -> Result<Vec<CertificateStatus>, StoreError> {
    db.read(
        "SELECT c.host, c.not_after, c.order_at, c.lease_until, c.problem
         FROM domains d JOIN certificates c ON c.host = d.name
         WHERE d.project_id = $1 AND d.active ORDER BY d.id DESC LIMIT $2",
    )
    .bind(project)
    .bind(count)
    .fetch_all()
    .await
}

/// How it stands with the order for a host.
pub async fn read_order(db: &Db, host: &HostName) -> Result<Option<OrderRow>, StoreError> {
    db.read("SELECT order_at, lease_until FROM certificates WHERE host = $1")
        .bind(host.as_str())
        .fetch_optional()
        .await
}

/// A page of the hosts that have a certificate, in their order, after `after`.
pub async fn list_certified(
    db: &Db,
    after: Option<&HostName>,
    count: u32,
) -> Result<Vec<HostName>, StoreError> {
    let sql = "SELECT host FROM certificates WHERE chain IS NOT NULL AND host > $1
               ORDER BY host LIMIT $2";
    let query = db.read(sql).bind(after.map_or("", HostName::as_str));
    Ok(hosts(query.bind(count).fetch_all().await?))
}

/// Hosts whose order is due and not leased, the longest overdue first.
pub async fn list_due(db: &Db, now: Timestamp, count: u32) -> Result<Vec<HostName>, StoreError> {
    let sql = "SELECT host FROM certificates WHERE order_at <= $1 AND lease_until <= $1
               ORDER BY order_at, host LIMIT $2";
    let query = db.read(sql).bind(now).bind(count);
    Ok(hosts(query.fetch_all().await?))
}

/// Custom domains that serve and for which no certificate was ordered yet.
pub async fn list_uncertified(db: &Db, count: u32) -> Result<Vec<HostName>, StoreError> {
    let sql = "SELECT name FROM domains WHERE active
                 AND NOT EXISTS (SELECT 1 FROM certificates WHERE host = domains.name)
               ORDER BY name LIMIT $1";
    Ok(hosts(db.read(sql).bind(count).fetch_all().await?))
}

/// How many orders were begun since then.
pub async fn count_orders(tx: &mut Tx, since: Timestamp) -> Result<u64, StoreError> {
    tx.query("SELECT COUNT(*) FROM certificates WHERE ordered_at > $1")
        .bind(since)
        .fetch_one()
        .await
}

/// Leases the order for a host; returns how many orders failed in a row. None: it is not due, or
/// another node has the lease.
pub async fn claim_order(
    tx: &mut Tx,
    host: &HostName,
    now: Timestamp,
    until: Timestamp,
) -> Result<Option<u32>, StoreError> {
    tx.query(
        "INSERT INTO certificates (host, order_at, ordered_at, failures, lease_until)
         VALUES ($1, $2, $2, 0, $3)
         ON CONFLICT (host) DO UPDATE SET ordered_at = $2, lease_until = $3
             WHERE certificates.lease_until <= $2 AND certificates.order_at <= $2
         RETURNING failures",
    )
    .bind(host.as_str())
    .bind(now)
    .bind(until)
    .fetch_optional()
    .await
}

/// Gives the right to order back without having used it up.
pub async fn release_order(tx: &mut Tx, host: &HostName) -> Result<(), StoreError> {
    tx.query("UPDATE certificates SET lease_until = 0 WHERE host = $1")
        .bind(host.as_str())
        .execute()
        .await
        .map(drop)
}

/// Gives back every right to order, for a server that is the only one and has just started.
pub async fn release_all_orders(tx: &mut Tx) -> Result<(), StoreError> {
    tx.query("UPDATE certificates SET lease_until = 0 WHERE lease_until > 0")
        .execute()
        .await
        .map(drop)
}

/// Keeps a new certificate, to be renewed at `renew_at`.
pub async fn set_certificate(
    tx: &mut Tx,
    new: &CertificateRow,
    renew_at: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "UPDATE certificates SET chain = $2, sealed = $3, not_after = $4, order_at = $5,
             failures = 0, problem = NULL, lease_until = 0
         WHERE host = $1",
    )
    .bind(new.host.as_str())
    .bind(&new.chain)
    .bind(&new.sealed[..])
    .bind(new.not_after)
    .bind(renew_at)
    .execute()
    .await
    .map(drop)
}

/// Notes that an order failed, and when to try again.
pub async fn set_failure(
    tx: &mut Tx,
    host: &HostName,
    problem: &str,
    order_at: Timestamp,
) -> Result<(), StoreError> {
    tx.query(
        "UPDATE certificates SET order_at = $2, failures = failures + 1, problem = $3,
             lease_until = 0
         WHERE host = $1",
    )
    .bind(host.as_str())
    .bind(order_at)
    .bind(problem)
    .execute()
    .await
    .map(drop)
}

/// Forgets a host that is not ours any more.
pub async fn delete_certificate(tx: &mut Tx, host: &HostName) -> Result<(), StoreError> {
    tx.query("DELETE FROM certificates WHERE host = $1")
        .bind(host.as_str())
        .execute()
        .await
        .map(drop)
}
