//! What an installation has on disk.

use crate::secrets::contains;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a directory, with their contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk(BTreeMap<PathBuf, Vec<u8>>);

impl Disk {
    /// Reads everything below a directory; nothing when there is none.
    pub fn read(directory: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut open = vec![directory.to_owned()];
        while let Some(directory) = open.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries {
                let path = entry.expect("a directory entry").path();
                if path.is_dir() {
                    open.push(path);
                } else if let Ok(content) = std::fs::read(&path) {
                    // Else it was temporary.
                    files.insert(path, content);
                }
            }
        }
        Self(files)
    }

    /// The names of its files.
    pub fn names(&self) -> Vec<&Path> {
        self.0.keys().map(PathBuf::as_path).collect()
    }

    /// The files that hold a text, without those of that name.
    pub fn holding(&self, needle: &[u8], except: &str) -> Vec<&Path> {
        self.0
            .iter()
            .filter(|(path, _)| !path.ends_with(except))
            .filter(|(_, content)| contains(content, needle))
            .map(|(path, _)| path.as_path())
            .collect()
    }
}
