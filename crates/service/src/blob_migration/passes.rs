//! Passes over everything that rows name.

use super::error::{MAX_DAMAGED, MigrateError};
use super::report::{DamagedContent, MigrationEvent, MigrationOptions, MigrationReport};
use estrade_blobs::{CopyOutcome, Digest, Migration, ObjectId, StoredBlob};
use estrade_store::{Db, blob_gc, blob_rows, blob_storage};
use futures_util::{StreamExt, stream};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// Packs and files that are read from the database at once.
const PAGE_ROWS: u32 = 500;

/// What earlier passes found out.
pub(super) struct Passes<'m> {
    db: &'m Db,
    migration: &'m Arc<Migration>,
    options: MigrationOptions,
    events: &'m (dyn Fn(MigrationEvent) + Send + Sync),
    report: MigrationReport,
    /// Objects whose copies have what these rows need: about 50 bytes for each.
    complete: HashMap<ObjectId, RowsFingerprint>,
    damaged: BTreeMap<ObjectId, Vec<Digest>>,
    damaged_contents: usize,
}

/// What an object is needed for: it changes when a row comes or goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct RowsFingerprint(u64);

impl RowsFingerprint {
    fn of(rows: &[StoredBlob]) -> Self {
        let mut hasher = blake3::Hasher::new();
        for row in rows {
            hasher.update(row.digest.as_bytes());
            hasher.update(&row.location.offset().to_le_bytes());
        }
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
        Self(u64::from_le_bytes(bytes))
    }
}

/// One object in one pass.
struct Checked {
    object: ObjectId,
    fingerprint: RowsFingerprint,
    bytes: u64,
    /// None: an earlier pass has found it complete, or no row names it any more.
    outcome: Option<CopyOutcome>,
}

impl<'m> Passes<'m> {
    pub(super) fn new(
        db: &'m Db,
        migration: &'m Arc<Migration>,
        options: MigrationOptions,
        events: &'m (dyn Fn(MigrationEvent) + Send + Sync),
    ) -> Self {
        Self {
            db,
            migration,
            options,
            events,
            report: MigrationReport::default(),
            complete: HashMap::new(),
            damaged: BTreeMap::new(),
            damaged_contents: 0,
        }
    }

    /// How many passes there were.
    pub(super) fn number(&self) -> u32 {
        self.report.passes
    }

    /// Whether something is damaged, and that is no reason to go on.
    pub(super) fn refuses_damage(&self) -> bool {
        !self.damaged.is_empty() && !self.options.accept_damaged
    }

    /// Copies what is not there yet; returns whether there was something.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> Result<bool, MigrateError> {
        let outcome = stop.run_until_cancelled(self.run_to_its_end()).await;
        outcome.unwrap_or(Err(MigrateError::Stopped))
    }

    async fn run_to_its_end(&mut self) -> Result<bool, MigrateError> {
        self.report.passes += 1;
        self.report.total = blob_storage::read_total(self.db).await?;
        (self.events)(MigrationEvent::PassBegan {
            number: self.report.passes,
            total: self.report.total,
        });
        let (before, mut after) = (self.report.copied_objects, None);
        loop {
            let page = blob_storage::list_places(self.db, after, PAGE_ROWS).await?;
            let Some(last) = page.last() else {
                return Ok(self.report.copied_objects > before);
            };
            after = Some(*last);
            self.copy_page(page).await?;
        }
    }

    async fn copy_page(&mut self, page: Vec<ObjectId>) -> Result<(), MigrateError> {
        let copies = page.into_iter().map(|object| {
            let known = self.complete.get(&object).copied();
            check(self.db, self.migration, self.options, object, known)
        });
        let copies: Vec<_> = copies.collect();
        let mut copies = stream::iter(copies).buffer_unordered(self.options.parallel);
        while let Some(checked) = copies.next().await {
            self.note(checked?)?;
        }
        Ok(())
    }

    fn note(&mut self, checked: Checked) -> Result<(), MigrateError> {
        let Checked {
            object,
            fingerprint,
            bytes,
            outcome,
        } = checked;
        (self.events)(MigrationEvent::Checked { bytes });
        let copied = match outcome {
            None => return Ok(()),
            Some(CopyOutcome::Present) => {
                self.complete.insert(object, fingerprint);
                return Ok(());
            }
            Some(CopyOutcome::Copied(copied)) => {
                self.complete.insert(object, fingerprint);
                self.forget_damage(object);
                copied
            }
            Some(CopyOutcome::Damaged { contents, copied }) => {
                self.forget_damage(object);
                self.damaged_contents += contents.len();
                self.damaged.insert(object, contents);
                copied
            }
        };
        if copied > 0 {
            self.report.copied_objects += 1;
            self.report.copied_bytes += copied;
        }
        if self.damaged_contents > MAX_DAMAGED {
            return Err(MigrateError::WrongPlace {
                place: self.migration.source_name().to_owned(),
            });
        }
        Ok(())
    }

    fn forget_damage(&mut self, object: ObjectId) {
        if let Some(contents) = self.damaged.remove(&object) {
            self.damaged_contents -= contents.len();
        }
    }

    /// What was done. Of what was damaged, only what is still needed.
    pub(super) async fn end(mut self, is_finished: bool) -> Result<MigrationReport, MigrateError> {
        for (object, contents) in self.damaged {
            let rows = blob_rows::read_blobs(self.db, &contents).await?;
            let is_needed = |digest: &Digest| {
                rows.get(digest)
                    .is_some_and(|row| row.location.object() == object)
            };
            let needed = contents.into_iter().filter(is_needed);
            let damaged = needed.map(|digest| DamagedContent { digest, object });
            self.report.damaged.extend(damaged);
        }
        self.report.is_finished = is_finished;
        Ok(self.report)
    }
}

/// Makes sure that the target has what the rows of an object need.
async fn check(
    db: &Db,
    migration: &Arc<Migration>,
    options: MigrationOptions,
    object: ObjectId,
    known: Option<RowsFingerprint>,
) -> Result<Checked, MigrateError> {
    // Before the object is read: bytes are durable before their rows are committed.
    let rows = blob_gc::blobs_in(db, object).await?;
    let fingerprint = RowsFingerprint::of(&rows);
    let bytes = rows.iter().map(|row| row.size).sum();
    let mut checked = Checked {
        object,
        fingerprint,
        bytes,
        outcome: None,
    };
    if rows.is_empty() || known == Some(fingerprint) {
        return Ok(checked);
    }
    let migration = Arc::clone(migration);
    let copy = move || migration.copy_object(object, &rows, options.accept_damaged);
    let outcome = tokio::task::spawn_blocking(copy).await?;
    checked.outcome = Some(outcome.map_err(|error| MigrateError::Copy { object, error })?);
    Ok(checked)
}
