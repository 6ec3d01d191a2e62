//! Which contents a project has, so that a release can name them instead of sending them.
//!
//! A digest alone must not give access to a content of another owner, nor reveal that it exists. So a
//! content counts only if this project has it: in one of its own artifacts, or uploaded ahead.

use crate::error::MissingFile;
use crate::{Core, Error, Result};
use estrade_blobs::{Digest, DigestMap, DigestSet};
use estrade_model::ProjectId;
use estrade_model::release::ArtifactId;
use estrade_store::artifacts::{self, ArtifactContents};
use estrade_store::blob_uploads;
use estrade_store::manifest::ManifestFile;

/// How many artifacts are searched, from the newest: bounds the cost of one request. Contents that
/// only older ones hold are uploaded again, which does no harm.
const MAX_ARTIFACTS: usize = 100;

/// An artifact, and which of the contents that were looked for it has.
pub(super) struct SimilarArtifact {
    pub(super) artifact: ArtifactId,
    pub(super) contents: DigestSet,
}

/// Refuses files whose contents the project does not have, all of them at once, and sizes that are
/// wrong. `sent` are contents that came with the same request. Tells which of them the project's
/// newest artifact has: mostly nearly all.
pub(super) async fn require_known(
    core: &Core,
    project: ProjectId,
    named: &[ManifestFile],
    sent: impl Iterator<Item = (Digest, u64)>,
) -> Result<Option<SimilarArtifact>> {
    let mut search = Search::new(named.iter().map(|file| file.digest));
    search.found(sent);
    let mut similar = None;
    let mut before = None;
    for number in 0..MAX_ARTIFACTS {
        if search.is_over() {
            break;
        }
        let artifact = artifacts::read_newest_contents(&core.db, project, before).await?;
        before = artifact.as_ref().map(|artifact| artifact.id);
        if let Some(ArtifactContents { id, contents }) = artifact {
            let found = search.found(contents);
            similar.get_or_insert(SimilarArtifact {
                artifact: id,
                contents: found,
            });
        }
        // What the newest one does not have was mostly sent ahead; older ones are the exception.
        if number == 0 && !search.is_over() {
            let rest = search.rest();
            search.found(blob_uploads::find_uploads(&core.db, project, &rest).await?);
        }
        if before.is_none() {
            break;
        }
    }
    search.judge(named).map(|()| similar)
}

/// A search for contents: what is wanted, and how long it is once it was found.
struct Search {
    sizes: DigestMap<Option<u64>>,
    left: usize,
}

impl Search {
    fn new(wanted: impl Iterator<Item = Digest>) -> Self {
        let sizes: DigestMap<_> = wanted.map(|digest| (digest, None)).collect();
        let left = sizes.len();
        Self { sizes, left }
    }

    /// Notes contents that are there; returns those that were looked for.
    fn found(&mut self, contents: impl IntoIterator<Item = (Digest, u64)>) -> DigestSet {
        let mut found = DigestSet::default();
        for (digest, size) in contents {
            if let Some(known @ None) = self.sizes.get_mut(&digest) {
                *known = Some(size);
                self.left -= 1;
                found.insert(digest);
            }
        }
        found
    }

    fn is_over(&self) -> bool {
        self.left == 0
    }

    fn rest(&self) -> Vec<Digest> {
        let missing = |(digest, size): (&Digest, &Option<u64>)| size.is_none().then_some(*digest);
        self.sizes.iter().filter_map(missing).collect()
    }

    /// What is missing is named once per content, with the first of its paths.
    fn judge(mut self, named: &[ManifestFile]) -> Result<()> {
        let mut missing = Vec::new();
        for file in named {
            match self.sizes.get(&file.digest) {
                Some(None) => {
                    self.sizes.remove(&file.digest);
                    missing.push(MissingFile {
                        path: file.path.to_string(),
                        digest: file.digest.to_string(),
                    });
                }
                Some(Some(size)) if *size != file.size => {
                    return Err(Error::invalid(format!(
                        "files: `{}`: size: the content with this digest is {size} bytes long, not {}",
                        file.path, file.size
                    )));
                }
                _ => {}
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(Error::MissingFiles(missing))
    }
}
