//! Folders that are deployed.

use crate::random::Random;
use std::fs;
use std::path::{Path, PathBuf};

/// A folder with files of one size, and which they are.
pub(super) struct Folder {
    pub(super) path: PathBuf,
    pub(super) files: Vec<PathBuf>,
}

impl Folder {
    /// Makes one, spread over sub-folders as sites are; another seed makes other contents.
    pub(super) fn create(
        path: &Path,
        files: usize,
        size: usize,
        seed: u64,
    ) -> anyhow::Result<Self> {
        let mut random = Random::new(seed);
        let mut paths = Vec::with_capacity(files);
        for number in 0..files {
            let below = path.join(format!("section-{}", number / 50));
            fs::create_dir_all(&below)?;
            let file = below.join(format!("page-{number}.html"));
            fs::write(&file, random.text(size))?;
            paths.push(file);
        }
        Ok(Self {
            path: path.to_owned(),
            files: paths,
        })
    }
}
