//! Environment variables: names in the clear, values sealed by the service.

use crate::{Db, Record, Row, StoreError, Tx, Value};
use estrade_model::ProjectId;
use estrade_model::names::EnvKey;
use estrade_model::project::EnvId;

/// An environment variable as stored.
#[derive(Debug, Clone)]
pub struct EnvRow {
    pub id: EnvId,
    pub key: EnvKey,
    /// Its value, sealed.
    pub sealed: Vec<u8>,
}

impl Record for EnvRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            key: row.parse()?,
            sealed: row.take()?,
        })
    }
}

const ENVS: &str = "SELECT id, name, sealed FROM env_vars WHERE project_id = $1 ORDER BY position";

/// A project's variables, in the order in which they were set.
pub async fn list_envs(db: &Db, project: ProjectId) -> Result<Vec<EnvRow>, StoreError> {
    db.read(ENVS).bind(project).fetch_all().await
}

/// The same inside a transaction.
pub async fn find_envs(tx: &mut Tx, project: ProjectId) -> Result<Vec<EnvRow>, StoreError> {
    tx.query(ENVS).bind(project).fetch_all().await
}

/// The ids of a project's variables, in their order. Every replacement gives new ones.
pub async fn find_env_ids(tx: &mut Tx, project: ProjectId) -> Result<Vec<EnvId>, StoreError> {
    tx.query("SELECT id FROM env_vars WHERE project_id = $1 ORDER BY position")
        .bind(project)
        .fetch_all()
        .await
}

/// Replaces all variables of a project.
pub async fn replace_envs(
    tx: &mut Tx,
    project: ProjectId,
    envs: &[EnvRow],
) -> Result<(), StoreError> {
    tx.query("DELETE FROM env_vars WHERE project_id = $1")
        .bind(project)
        .execute()
        .await?;
    let rows = (0_i64..).zip(envs).map(|(position, env)| {
        vec![
            Value::from(env.id),
            Value::from(project),
            Value::from(env.key.as_str()),
            Value::from(env.sealed.as_slice()),
            Value::from(position),
        ]
    });
    tx.execute_many(
        "INSERT INTO env_vars (id, project_id, name, sealed, position) VALUES ($1, $2, $3, $4, $5)",
        rows.collect(),
    )
    .await
}
