//! The files of an artifact, as build plans look at them.

use crate::platform::releases::step_error::{StepError, source_gone};
use crate::{Core, Error};
use estrade_blobs::{BlobStore, DigestMap, StoredBlob};
use estrade_buildpacks::Sources;
use estrade_store::blob_rows;
use estrade_store::manifest::{Manifest, ManifestFile};
use std::borrow::Cow;
use std::io::Read;

/// Files that lie in the blob store.
pub(super) struct StoredSources {
    blobs: BlobStore,
    places: DigestMap<StoredBlob>,
    manifest: Manifest,
}

impl StoredSources {
    /// Finds where the files lie.
    pub(super) async fn open(core: &Core, manifest: Manifest) -> Result<Self, StepError> {
        let digests: Vec<_> = manifest.files().iter().map(|file| file.digest).collect();
        let places = blob_rows::read_blobs(&core.db, &digests).await;
        let places = places.map_err(Error::from)?;
        if digests.iter().any(|digest| !places.contains_key(digest)) {
            return Err(StepError::Failed(source_gone()));
        }
        Ok(Self {
            blobs: core.blobs.clone(),
            places,
            manifest,
        })
    }

    pub(super) fn into_files(self) -> Vec<ManifestFile> {
        self.manifest.files().to_vec()
    }
}

impl Sources for StoredSources {
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.manifest.files().iter().map(|file| file.path.as_str()))
    }

    fn read(
        &self,
        path: &str,
        most: usize,
    ) -> Result<Cow<'_, [u8]>, Box<dyn std::error::Error + Send + Sync>> {
        let files = self.manifest.files();
        let at = files.binary_search_by(|file| file.path.as_str().cmp(path));
        let file = at.ok().and_then(|at| files.get(at));
        let blob = file.and_then(|file| self.places.get(&file.digest));
        let blob = blob.ok_or("there is no such file")?;
        let mut bytes = Vec::new();
        let content = self.blobs.open_reader(blob)?;
        content.take(most as u64).read_to_end(&mut bytes)?;
        Ok(Cow::Owned(bytes))
    }

    fn digest(&self, path: &str) -> Result<[u8; 32], Box<dyn std::error::Error + Send + Sync>> {
        let files = self.manifest.files();
        let at = files.binary_search_by(|file| file.path.as_str().cmp(path));
        let file = at.ok().and_then(|at| files.get(at));
        let file = file.ok_or("there is no such file")?;
        Ok(*file.digest.as_bytes())
    }
}
