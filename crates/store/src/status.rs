//! Counts for the status page of administrators.

use crate::{Db, Record, Row, StoreError};
use estrade_model::Timestamp;

/// Certificates that were ordered.
#[derive(Debug, Clone, Copy)]
pub struct CertificateCounts {
    pub issued: u64,
    /// Those whose last order failed.
    pub failing: u64,
    /// The first end among those that were issued.
    pub first_end: Option<Timestamp>,
}

impl Record for CertificateCounts {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            issued: row.take()?,
            failing: row.take()?,
            first_end: row.take()?,
        })
    }
}

pub async fn read_certificates(db: &Db) -> Result<CertificateCounts, StoreError> {
    db.read(
        "SELECT COUNT(chain), COUNT(CASE WHEN failures > 0 THEN 1 END), MIN(not_after) FROM certificates",
    )
    .fetch_one()
    .await
}

/// How many releases wait, and how many a worker has.
pub async fn count_unfinished(db: &Db) -> Result<(u64, u64), StoreError> {
    let waiting = db
        .read("SELECT COUNT(*) FROM releases WHERE finished_at IS NULL AND state = 'PENDING'")
        .fetch_one()
        .await?;
    let running =
        db.read("SELECT COUNT(*) FROM releases WHERE finished_at IS NULL AND state <> 'PENDING'");
    Ok((waiting, running.fetch_one().await?))
}

/// How many projects there are, of all owners. Counted beside the owners.
pub async fn count_projects(db: &Db) -> Result<u64, StoreError> {
    db.read("SELECT CAST(COALESCE(SUM(projects), 0) AS BIGINT) FROM owners")
        .fetch_one()
        .await
}
