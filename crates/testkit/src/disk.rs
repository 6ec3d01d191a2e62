//! What an installation has on disk.

use crate::secrets::Needles;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The files of a directory, with their contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk(BTreeMap<PathBuf, Vec<u8>>);

impl Disk {
    /// Reads everything below a directory; nothing when there is none. The images of disks are left out: they hold
    /// what their owners write, and are sparse files of gigabytes that take minutes to read.
    pub fn read(directory: &Path) -> Self {
        let mut files = BTreeMap::new();
        let mut open = vec![directory.to_owned()];
        while let Some(directory) = open.pop() {
            let Ok(entries) = std::fs::read_dir(&directory) else {
                continue;
            };
            for entry in entries {
                let path = entry.expect("a directory entry").path();
                let is_disk_image = path.extension().is_some_and(|it| it == "img");
                if is_disk_image {
                    continue;
                }
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

    /// The files that hold a text.
    pub fn holding(&self, text: &[u8]) -> Vec<&Path> {
        let needles = Needles::new(vec![text.to_vec()]);
        self.search(&needles)
            .into_iter()
            .map(|(path, _)| path)
            .collect()
    }

    /// The files that hold one of some texts, with that text.
    pub(crate) fn search(&self, needles: &Needles) -> Vec<(&Path, String)> {
        let mut found = Vec::new();
        for (path, content) in &self.0 {
            found.extend(needles.found_in(content).map(|text| (path.as_path(), text)));
        }
        found
    }
}
