//! What comes out of an archive.

use estrade_model::paths::FilePath;

/// A file that was unpacked, and what its sink calls the content.
#[derive(Debug, Clone)]
pub struct UnpackedFile<C> {
    pub path: FilePath,
    pub content: C,
    pub size: u64,
}
