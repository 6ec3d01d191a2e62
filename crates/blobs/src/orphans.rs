//! Since when packs and files are without rows: in memory, and in a text file of the store, one line for each.
//!
//! The file is not synced. Whoever is not in it is taken for a new orphan, so that to lose it only means to wait
//! longer.

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind, Write};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::ObjectId;
use super::disk::{Disk, naming};

/// Orphans, each with the time at which it was found to be one.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    since: HashMap<ObjectId, SystemTime>,
    /// What the file says.
    written: Option<HashMap<ObjectId, SystemTime>>,
}

impl Orphans {
    /// Reads what an earlier process wrote, unless that was done.
    pub(super) fn load(&mut self, disk: &Disk) -> io::Result<()> {
        if self.written.is_none() {
            let found = read(disk)?;
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
    pub(super) fn save(&mut self, disk: &Disk) {
        if self.written.as_ref() == Some(&self.since) {
            return;
        }
        match write(disk, &self.since) {
            Ok(()) => self.written = Some(self.since.clone()),
            Err(error) => {
                tracing::warn!(%error, "cannot note since when stored files are without use");
            }
        }
    }
}

fn read(disk: &Disk) -> io::Result<HashMap<ObjectId, SystemTime>> {
    let path = disk.orphans_path();
    match fs::read(&path) {
        Ok(bytes) => Ok(String::from_utf8_lossy(&bytes)
            .lines()
            .filter_map(parse_line)
            .collect()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(HashMap::new()),
        Err(error) => Err(naming(&path)(error)),
    }
}

fn write(disk: &Disk, since: &HashMap<ObjectId, SystemTime>) -> io::Result<()> {
    let mut text = String::new();
    for (id, since) in since {
        let millis = since.duration_since(UNIX_EPOCH).unwrap_or_default();
        writeln!(text, "{id} {}", millis.as_millis()).map_err(io::Error::other)?;
    }
    let mut file = disk.new_temporary()?;
    file.write_all(text.as_bytes())?;
    let path = disk.orphans_path();
    let renamed = file.persist(&path);
    renamed
        .map(drop)
        .map_err(|failed| naming(&path)(failed.error))
}

fn parse_line(line: &str) -> Option<(ObjectId, SystemTime)> {
    let (id, millis) = line.split_once(' ')?;
    let since = UNIX_EPOCH.checked_add(Duration::from_millis(millis.parse().ok()?))?;
    Some((id.parse().ok()?, since))
}
