//! The contents of an archive on their way to the blob store, and the project files among them.

use crate::platform::releases::layout::is_project_file;
use crate::platform::releases::limits::{ReleaseLimits, storing};
use estrade_archive::{
    CancelFlag, ContentSink, Limits, RandomAccess, Tree, UnpackError, UnpackedFile, UnpackedTree,
};
use estrade_blobs::{BlobError, Digest, PublishedBlobs, RandomReader, Staging};
use estrade_model::paths::FilePath;
use estrade_model::site_settings::MAX_PROJECT_FILE_BYTES;
use estrade_store::manifest::ManifestFile;
use std::collections::BTreeMap;
use std::io::{Read, Write};

/// How much is unpacked between two checks of the limits and of cancellation.
const BUFFER_SIZE: usize = 64 * 1024;

/// Contents that are staged. Dropping it leaves nothing behind.
pub(super) struct StagedContents {
    staging: Staging<'static>,
    /// The file that came first.
    first: Option<FilePath>,
    /// Project files that may turn out to be in the root.
    project_files: BTreeMap<String, Vec<u8>>,
    piece: Vec<u8>,
}

/// All files of an archive. Dropping it leaves nothing behind.
pub(super) struct Unpacked {
    pub(super) files: Vec<ManifestFile>,
    pub(super) project_files: BTreeMap<String, Vec<u8>>,
    pub(super) staging: Staging<'static>,
}

/// An empty tree whose contents are staged.
pub(super) fn new_tree(
    staging: Staging<'static>,
    limits: ReleaseLimits,
    canceled: CancelFlag,
) -> Tree<StagedContents> {
    let contents = StagedContents {
        staging,
        first: None,
        project_files: BTreeMap::new(),
        piece: vec![0; BUFFER_SIZE],
    };
    Tree::new(contents, limits, canceled)
}

/// Follows the links of an archive that was read.
pub(super) fn finish(tree: Tree<StagedContents>) -> Result<Unpacked, UnpackError> {
    let UnpackedTree { files, sink } = tree.finish()?;
    let file = |file: UnpackedFile<Digest>| ManifestFile {
        path: file.path,
        digest: file.content,
        size: file.size,
    };
    Ok(Unpacked {
        files: files.into_iter().map(file).collect(),
        project_files: sink.project_files,
        staging: sink.staging,
    })
}

/// Makes the contents durable, once it is certain that they will be served.
pub(super) fn publish(staging: Staging<'static>) -> Result<PublishedBlobs, UnpackError> {
    staging.publish().map_err(stored)
}

impl ContentSink for StagedContents {
    type Content = Digest;

    fn store(&mut self, path: &FilePath, content: &mut dyn Read) -> Result<Digest, UnpackError> {
        let mut kept = self.may_be_project_file(path).then(Vec::new);
        let mut writer = self.staging.writer();
        loop {
            let count = content.read(&mut self.piece)?;
            if count == 0 {
                break;
            }
            let piece = &self.piece[..count];
            if let Some(kept) = &mut kept
                && kept.len() <= MAX_PROJECT_FILE_BYTES
            {
                kept.extend_from_slice(piece);
            }
            writer
                .write_all(piece)
                .map_err(BlobError::from)
                .map_err(stored)?;
        }
        let (digest, _) = writer.finish().map_err(stored)?;
        if let Some(kept) = kept {
            self.project_files.insert(path.to_string(), kept);
        }
        self.first.get_or_insert_with(|| path.clone());
        Ok(digest)
    }
}

impl StagedContents {
    /// In the root, or in the folder that may turn out to be the only one: that of the first file.
    fn may_be_project_file(&self, path: &FilePath) -> bool {
        let Some((folder, name)) = path.as_str().split_once('/') else {
            return is_project_file(path.as_str());
        };
        let is_first_folder = self.first.as_ref().is_none_or(|first| {
            let (first, _) = first.as_str().split_once('/').unwrap_or_default();
            first == folder
        });
        is_first_folder && is_project_file(name)
    }
}

impl Limits for ReleaseLimits {
    fn max_files(&self) -> usize {
        self.files
    }

    fn max_bytes(&self) -> u64 {
        self.bytes()
    }

    fn check_bytes(&self, bytes: u64) -> Result<(), String> {
        self.check(bytes, || "unpacked, the files are".into())
            .map_err(|error| error.to_string())
    }
}

/// An archive that lies in the blob store.
pub(super) struct StoredArchive(pub(super) RandomReader);

impl RandomAccess for StoredArchive {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn part(&self, start: u64, length: u64) -> impl Read {
        self.0.part(start, length)
    }
}

fn stored(error: BlobError) -> UnpackError {
    match storing(error) {
        error @ crate::Error::TooLarge(_) => {
            UnpackError::Refused("archive_too_large", error.to_string())
        }
        error => UnpackError::Broken(error.into()),
    }
}
