//! Custom domains.

use crate::projects::ProjectFilter;
use crate::{Db, Record, Row, StoreError, Tx};
use estrade_model::domain::{DomainId, HostName};
use estrade_model::{OwnerId, ProjectId, Timestamp};

/// A domain as stored, with the name of its project.
#[derive(Debug, Clone)]
pub struct DomainRow {
    pub id: DomainId,
    pub owner: OwnerId,
    /// The project that it serves.
    pub project: ProjectId,
    pub project_name: String,
    pub name: HostName,
    /// What the TXT record must hold.
    pub token: String,
    /// Whether it serves.
    pub active: bool,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it became active.
    pub verified_at: Option<Timestamp>,
    /// The last DNS look-up.
    pub checked_at: Option<Timestamp>,
    /// DNS look-ups so far.
    pub checks: u32,
    /// What DNS lacked.
    pub problem: Option<String>,
    /// Rises with every change.
    pub version: i64,
}

/// A host name that serves a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActiveDomain {
    pub name: HostName,
    pub project: ProjectId,
}

impl Record for DomainRow {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.take()?,
            owner: row.take()?,
            project: row.take()?,
            project_name: row.take()?,
            name: row.parse()?,
            token: row.take()?,
            active: row.take()?,
            created_at: row.take()?,
            verified_at: row.take()?,
            checked_at: row.take()?,
            checks: row.take()?,
            problem: row.take()?,
            version: row.take()?,
        })
    }
}

impl Record for ActiveDomain {
    fn from_row(row: &mut Row<'_>) -> Result<Self, StoreError> {
        Ok(Self {
            name: row.parse()?,
            project: row.take()?,
        })
    }
}

/// The row as queries read it; `tail` picks which.
macro_rules! select_domains {
    ($tail:literal) => {
        concat!(
            "SELECT d.id, d.owner_id, d.project_id, p.name, d.name, d.token, d.active, d.created_at,
                    d.verified_at, d.checked_at, d.checks, d.problem, d.version
             FROM domains d JOIN projects p ON p.id = d.project_id ",
            $tail
        )
    };
}

/// Adds a domain; [`StoreError::Duplicate`] when the owner has it, or when it is to be active and
/// another one of that name is. `next_check` is when a pending one is looked up.
pub async fn insert_domain(
    tx: &mut Tx,
    new: &DomainRow,
    next_check: Option<Timestamp>,
) -> Result<(), StoreError> {
    // Versions start at the present time, so that a name that is added again never repeats one.
    tx.query(
        "INSERT INTO domains (id, owner_id, project_id, name, token, active, created_at,
             verified_at, checks, next_check, version)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 0, $9, $7)",
    )
    .bind(new.id)
    .bind(new.owner)
    .bind(new.project)
    .bind(new.name.as_str())
    .bind(&new.token)
    .bind(new.active)
    .bind(new.created_at)
    .bind(new.verified_at)
    .bind(next_check)
    .execute()
    .await
    .map(drop)
}

/// A page of the domains of visible projects, newest first.
pub async fn list_domains(
    db: &Db,
    visible: ProjectFilter,
    before: Option<DomainId>,
    count: u32,
    skip: u64,
) -> Result<Vec<DomainRow>, StoreError> {
    let sql = match visible.only() {
        None => select_domains!(
            "WHERE d.owner_id = $1 AND d.id < $2 ORDER BY d.id DESC LIMIT $3 OFFSET $4"
        ),
        Some(_) => select_domains!(
            "WHERE d.owner_id = $1 AND d.id < $2 AND d.project_id = $5 ORDER BY d.id DESC LIMIT $3 OFFSET $4"
        ),
    };
    let query = db
        .read(sql)
        .bind(visible.owner())
        .bind_page(before, count, skip);
    match visible.only() {
        None => query.fetch_all().await,
        Some(only) => query.bind(only).fetch_all().await,
    }
}

/// How many domains visible projects have.
pub async fn count_domains(db: &Db, visible: ProjectFilter) -> Result<u64, StoreError> {
    let query = match visible.only() {
        None => db.read("SELECT COUNT(*) FROM domains WHERE owner_id = $1"),
        Some(_) => db.read("SELECT COUNT(*) FROM domains WHERE owner_id = $1 AND project_id = $2"),
    };
    let query = query.bind(visible.owner());
    match visible.only() {
        None => query.fetch_one().await,
        Some(only) => query.bind(only).fetch_one().await,
    }
}

/// How many domains a project has, as the transaction sees it.
pub async fn count_of_project(tx: &mut Tx, project: ProjectId) -> Result<u64, StoreError> {
    tx.query("SELECT COUNT(*) FROM domains WHERE project_id = $1")
        .bind(project)
        .fetch_one()
        .await
}

/// How many domains an owner has, as the transaction sees it.
pub async fn count_of_owner(tx: &mut Tx, owner: OwnerId) -> Result<u64, StoreError> {
    tx.query("SELECT COUNT(*) FROM domains WHERE owner_id = $1")
        .bind(owner)
        .fetch_one()
        .await
}

/// The host name that has served a project the longest, if one does.
pub async fn first_active(db: &Db, project: ProjectId) -> Result<Option<String>, StoreError> {
    db.read("SELECT name FROM domains WHERE project_id = $1 AND active ORDER BY id LIMIT 1")
        .bind(project)
        .fetch_optional()
        .await
}

/// A domain of a project that is visible.
pub async fn read_domain(
    db: &Db,
    visible: ProjectFilter,
    id: DomainId,
) -> Result<Option<DomainRow>, StoreError> {
    let row: Option<DomainRow> = db
        .read(select_domains!("WHERE d.id = $1"))
        .bind(id)
        .fetch_optional()
        .await?;
    Ok(row.filter(|row| visible.includes(row.owner, row.project)))
}

/// The same, as the transaction sees it.
pub async fn find_domain(
    tx: &mut Tx,
    visible: ProjectFilter,
    id: DomainId,
) -> Result<Option<DomainRow>, StoreError> {
    let row: Option<DomainRow> = tx
        .query(select_domains!("WHERE d.id = $1"))
        .bind(id)
        .fetch_optional()
        .await?;
    Ok(row.filter(|row| visible.includes(row.owner, row.project)))
}

/// Whether a name is active for any project.
pub async fn is_active(tx: &mut Tx, name: &HostName) -> Result<bool, StoreError> {
    tx.query("SELECT EXISTS (SELECT 1 FROM domains WHERE name = $1 AND active)")
        .bind(name.as_str())
        .fetch_one()
        .await
}

/// The project that a name serves.
pub async fn project_of(db: &Db, name: &HostName) -> Result<Option<ProjectId>, StoreError> {
    db.read("SELECT project_id FROM domains WHERE name = $1 AND active")
        .bind(name.as_str())
        .fetch_optional()
        .await
}

/// Removes a domain.
pub async fn delete_domain(tx: &mut Tx, id: DomainId) -> Result<(), StoreError> {
    tx.query("DELETE FROM domains WHERE id = $1")
        .bind(id)
        .execute()
        .await
        .map(drop)
}

/// Pending domains that are to be looked up, the longest overdue first.
pub async fn list_due_domains(
    db: &Db,
    now: Timestamp,
    count: u32,
) -> Result<Vec<DomainRow>, StoreError> {
    db.read(select_domains!(
        "WHERE d.next_check <= $1 AND NOT d.active ORDER BY d.next_check, d.id LIMIT $2"
    ))
    .bind(now)
    .bind(count)
    .fetch_all()
    .await
}

/// Claims the look-up of a pending domain; false when it was claimed since `since`.
pub async fn claim_check(
    tx: &mut Tx,
    id: DomainId,
    since: Timestamp,
    now: Timestamp,
    next_check: Option<Timestamp>,
) -> Result<bool, StoreError> {
    let claimed = tx
        .query(
            "UPDATE domains SET checked_at = $2, checks = checks + 1, next_check = $3
             WHERE id = $1 AND NOT active AND (checked_at IS NULL OR checked_at <= $4)",
        )
        .bind(id)
        .bind(now)
        .bind(next_check)
        .bind(since)
        .execute()
        .await?;
    Ok(claimed > 0)
}

/// Notes what DNS lacked.
pub async fn set_problem(tx: &mut Tx, id: DomainId, problem: &str) -> Result<(), StoreError> {
    tx.query(
        "UPDATE domains SET problem = $2, version = version + 1
         WHERE id = $1 AND NOT active AND problem IS DISTINCT FROM $2",
    )
    .bind(id)
    .bind(problem)
    .execute()
    .await
    .map(drop)
}

/// Makes a pending domain serve its project; false when it is gone or serves already.
pub async fn activate_domain(
    tx: &mut Tx,
    id: DomainId,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let activated = tx
        .query(
            "UPDATE domains SET active = TRUE, verified_at = $2, next_check = NULL, problem = NULL,
                 version = version + 1
             WHERE id = $1 AND NOT active",
        )
        .bind(id)
        .bind(now)
        .execute()
        .await?;
    Ok(activated > 0)
}

/// A page of all names that serve, in their order, after `after`.
pub async fn list_active_domains(
    db: &Db,
    after: Option<&HostName>,
    count: u32,
) -> Result<Vec<ActiveDomain>, StoreError> {
    db.read(
        "SELECT name, project_id FROM domains WHERE active AND name > $1 ORDER BY name LIMIT $2",
    )
    .bind(after.map_or("", HostName::as_str))
    .bind(count)
    .fetch_all()
    .await
}

/// The names that serve a project.
pub async fn read_active_domains(db: &Db, project: ProjectId) -> Result<Vec<HostName>, StoreError> {
    let rows: Vec<ActiveDomain> = db
        .read("SELECT name, project_id FROM domains WHERE project_id = $1 AND active ORDER BY name")
        .bind(project)
        .fetch_all()
        .await?;
    Ok(rows.into_iter().map(|row| row.name).collect())
}
