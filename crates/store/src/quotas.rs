//! How much an owner has: counters beside the owner, so that a quota costs one indexed update.

use crate::{Db, Statement, StoreError, Tx};
use estrade_model::OwnerId;

/// What is counted per owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    Projects,
    Keys,
    Workspaces,
}

/// Counts one more unless the limit is reached; 0 is without limit.
pub async fn count_up(
    tx: &mut Tx,
    owner: OwnerId,
    what: Counted,
    limit: u64,
) -> Result<bool, StoreError> {
    let counted = tx
        .execute_together(&[counting_up(owner, what, limit)])
        .await?;
    Ok(counted.iter().sum::<u64>() > 0)
}

/// The statement of [`count_up`], which changes no row when the limit is reached.
pub fn counting_up(owner: OwnerId, what: Counted, limit: u64) -> Statement {
    let sql = match what {
        Counted::Projects => {
            "UPDATE owners SET projects = projects + 1 WHERE id = $1 AND (CAST($2 AS BIGINT) = 0 OR projects < $2)"
        }
        Counted::Keys => {
            "UPDATE owners SET keys = keys + 1 WHERE id = $1 AND (CAST($2 AS BIGINT) = 0 OR keys < $2)"
        }
        Counted::Workspaces => {
            "UPDATE owners SET workspaces = workspaces + 1 WHERE id = $1 AND (CAST($2 AS BIGINT) = 0 OR workspaces < $2)"
        }
    };
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    Statement {
        sql,
        rows: vec![vec![owner.into(), limit.into()]],
    }
}

/// Counts one less.
pub async fn count_down(tx: &mut Tx, owner: OwnerId, what: Counted) -> Result<(), StoreError> {
    let sql = match what {
        Counted::Projects => "UPDATE owners SET projects = projects - 1 WHERE id = $1",
        Counted::Keys => "UPDATE owners SET keys = keys - 1 WHERE id = $1",
        Counted::Workspaces => "UPDATE owners SET workspaces = workspaces - 1 WHERE id = $1",
    };
    tx.query(sql).bind(owner).execute().await.map(drop)
}

/// How many an owner has.
pub async fn read_count(db: &Db, owner: OwnerId, what: Counted) -> Result<u64, StoreError> {
    let sql = match what {
        Counted::Projects => "SELECT projects FROM owners WHERE id = $1",
        Counted::Keys => "SELECT keys FROM owners WHERE id = $1",
        Counted::Workspaces => "SELECT workspaces FROM owners WHERE id = $1",
    };
    let count: Option<u64> = db.read(sql).bind(owner).fetch_optional().await?;
    Ok(count.unwrap_or(0))
}
