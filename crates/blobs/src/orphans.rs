//! Since when packs and files are without rows: in memory, and in a record of the storage, one line of text for each.
//!
//! The record need not be durable. What is not in it is taken for a new orphan, so that to lose it only means to wait
//! longer.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::io;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ObjectId;
use super::storage::{ObjectStorage, Record};

/// Orphans, each with the time at which it was found to be one.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    since: HashMap<ObjectId, SystemTime>,
    /// What the record says.
    written: Option<HashMap<ObjectId, SystemTime>>,
}

impl Orphans {
    /// Reads what was written last, by this process or by one on another node that collected meanwhile: what it has
    /// met a row of is no orphan any more, whatever this process remembers.
    pub(super) fn load(&mut self, storage: &dyn ObjectStorage) -> io::Result<()> {
        let found = read(storage)?;
        if self.written.as_ref() != Some(&found) {
            self.since.clone_from(&found);
            self.written = Some(found);
        }
        Ok(())
    }

    /// Notes that an object has no row; returns since when. A time that has not come yet is one of a wrong clock.
    pub(super) fn note(&mut self, id: ObjectId, now: SystemTime) -> SystemTime {
        let since = self.since.entry(id).or_insert(now);
        *since = now.min(*since);
        *since
    }

    /// Forgets all but these.
    pub(super) fn retain(&mut self, orphans: &HashSet<ObjectId>) {
        self.since.retain(|id, _| orphans.contains(id));
    }

    /// Writes down what changed. On a full disk memory is enough, until this process ends.
    pub(super) fn save(&mut self, storage: &dyn ObjectStorage) {
        // Without having read the record, nothing is known that could replace it.
        if self.written.is_none() || self.written.as_ref() == Some(&self.since) {
            return;
        }
        match write(storage, &self.since) {
            Ok(()) => self.written = Some(self.since.clone()),
            Err(error) => {
                tracing::warn!(%error, "cannot note since when stored files are without use");
            }
        }
    }
}

fn read(storage: &dyn ObjectStorage) -> io::Result<HashMap<ObjectId, SystemTime>> {
    let record = storage.read_record(Record::Orphans)?.unwrap_or_default();
    let text = String::from_utf8_lossy(&record);
    Ok(text.lines().filter_map(parse_line).collect())
}

fn write(storage: &dyn ObjectStorage, since: &HashMap<ObjectId, SystemTime>) -> io::Result<()> {
    let mut text = String::new();
    for (id, since) in since {
        let millis = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(text, "{id} {}", millis.as_millis()).map_err(io::Error::other)?;
    }
    storage.replace_record(Record::Orphans, text.as_bytes())
}

fn parse_line(line: &str) -> Option<(ObjectId, SystemTime)> {
    let (id, millis) = line.split_once(' ')?;
    let since = UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))?;
    Some((id.parse().ok()?, since))
}
