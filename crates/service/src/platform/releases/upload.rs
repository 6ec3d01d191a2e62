//! The files of a new release on their way in.

use super::compress::{EagerCompressor, ForegroundGuard, PriorityGate, UploadScope};
use super::incoming::cleaned_up;
use super::known::{self, SimilarArtifact};
use super::layout::{inside, is_project_file, warn_of_sources};
use super::limits::{ReleaseLimits, storing};
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::projects};
use bytes::Bytes;
use estrade_blobs::{BlobError, Digest, HashedContent, PublishedBlobs, Staging};
use estrade_model::paths::{FilePath, FileTree};
use estrade_model::platform::Platform;
use estrade_model::site_settings::{MAX_PROJECT_FILE_BYTES, PROJECT_FILES, SiteSettings};
use estrade_model::team::Role;
use estrade_model::{Invalid, ProjectId};
use estrade_store::blob_rows;
use estrade_store::manifest::{Manifest, ManifestFile};
use std::collections::BTreeMap;
use tokio::runtime::Handle;

/// How much of a bad path an error message shows.
const MAX_SHOWN_CHARS: usize = 100;

/// Files that are being received. Dropping it leaves nothing behind.
///
/// Contents go to disk as they arrive; what is stored already is not written again. It blocks on the disk and
/// the database: use it inside `spawn_blocking`, never on a thread of the runtime.
pub struct Upload {
    project: ProjectId,
    staging: Staging<'static>,
    /// What is compressed ahead of time.
    compression: UploadScope,
    /// Files whose contents came along.
    sent: Vec<ManifestFile>,
    /// Files whose contents were only named, by their digests.
    named: Vec<ManifestFile>,
    /// How many contents came before their paths.
    ahead: usize,
    /// Project files that came along.
    project_files: BTreeMap<String, Vec<u8>>,
    bytes: u64,
    limits: ReleaseLimits,
    priority_gate: PriorityGate,
    /// From the first file on: until then the client is the slow one.
    foreground: Option<ForegroundGuard>,
}

/// Begins to receive the files of a new release.
pub async fn begin_upload(
    core: &Core,
    eager: &EagerCompressor,
    scope: &Scope,
    project: &str,
) -> Result<Upload> {
    // What writes is the release that it becomes a part of.
    scope.read_projects_as(ProjectOperation::Write, Role::Developer)?;
    let row = projects::find_project(core, scope, project).await?;
    let limits = ReleaseLimits::of(core, &row.plan);
    let mut staging = limits.stage(core);
    let (upload_scope, runtime) = (eager.begin_upload(), Handle::current());
    let mut scope = upload_scope.clone();
    staging.watch_new(move |digest, content| scope.add(&runtime, digest, content));
    Ok(Upload {
        project: row.id,
        staging,
        compression: upload_scope,
        sent: Vec::new(),
        named: Vec::new(),
        ahead: 0,
        project_files: BTreeMap::new(),
        bytes: 0,
        limits,
        priority_gate: eager.priority_gate().clone(),
        foreground: None,
    })
}

impl Upload {
    /// Adds one file; an error refuses the whole release.
    pub fn add_file(&mut self, path: String, content: &[u8]) -> Result<()> {
        self.add_hashed(path, HashedContent::new(Bytes::copy_from_slice(content)))
    }

    /// The same with a content that was hashed elsewhere.
    pub fn add_hashed(&mut self, path: String, content: HashedContent) -> Result<()> {
        self.add_arrived(path, &content)?;
        self.staging.add_hashed(content).map_err(storing)?;
        Ok(())
    }

    /// Takes the content of a file that will be [added](Self::add_arrived) later; false when it
    /// would be too much, so that nothing should be added any more before the paths are known.
    pub fn add_ahead(&mut self, content: &HashedContent) -> Result<bool> {
        self.foreground
            .get_or_insert_with(|| self.priority_gate.enter_foreground());
        if self.ahead >= self.limits.files {
            return Ok(false);
        }
        self.ahead += 1;
        match self.staging.add_hashed(content.clone()) {
            Ok(_) => Ok(true),
            Err(BlobError::TooLarge { .. }) => Ok(false),
            Err(error) => Err(storing(error)),
        }
    }

    /// Forgets that contents came ahead: all of them are about to be added again.
    pub fn forget_ahead(&mut self) {
        self.ahead = 0;
        self.staging.count_anew();
    }

    /// Most files that it takes.
    pub fn max_files(&self) -> usize {
        self.limits.files
    }

    /// Adds one file whose content was added already.
    pub fn add_arrived(&mut self, path: String, content: &HashedContent) -> Result<()> {
        let (digest, size) = (content.digest(), content.bytes().len() as u64);
        let path = self.add_path(path, size)?;
        if is_project_file(path.as_str()) {
            let most = content.bytes().len().min(MAX_PROJECT_FILE_BYTES + 1);
            let kept = content.bytes()[..most].to_vec();
            self.project_files.insert(path.to_string(), kept);
        }
        self.sent.push(ManifestFile { path, digest, size });
        Ok(())
    }

    /// Adds one file whose content the project should have; that is checked for all of them together, when the
    /// release is created.
    pub fn add_named(&mut self, path: String, digest: Digest, size: u64) -> Result<()> {
        let path = self.add_path(path, size)?;
        self.staging.want(digest);
        self.named.push(ManifestFile { path, digest, size });
        Ok(())
    }

    fn add_path(&mut self, path: String, size: u64) -> Result<FilePath> {
        self.foreground
            .get_or_insert_with(|| self.priority_gate.enter_foreground());
        let ReleaseLimits { files, .. } = self.limits;
        if self.sent.len() + self.named.len() >= files {
            return Err(too_many_files(files));
        }
        let path = parse_path(path)?;
        self.bytes = self.bytes.saturating_add(size);
        let what = || format!("files: with `{path}` they are together");
        self.limits.check(self.bytes, what)?;
        Ok(path)
    }

    /// The project that the files are for.
    pub(super) fn project(&self) -> ProjectId {
        self.project
    }

    /// Refuses an upload without files, or whose paths make no tree.
    pub(super) fn require_tree(&self) -> Result<()> {
        self.require_files()?;
        FileTree::check(self.sent.iter().chain(&self.named).map(|file| &file.path))
            .map_err(|invalid| Error::invalid(format!("files: {invalid}")))
    }

    fn require_files(&self) -> Result<()> {
        if self.sent.is_empty() && self.named.is_empty() {
            return Err(Error::invalid("files: must hold at least one file"));
        }
        Ok(())
    }

    /// Refuses contents that were only named and that the project does not have; which artifact has
    /// most of them.
    ///
    /// Not an `async fn`: the future must hold the lists and not the upload, which is not `Sync`.
    pub(super) fn require_named<'u>(
        &'u self,
        core: &'u Core,
    ) -> impl Future<Output = Result<Option<SimilarArtifact>>> + Send + 'u {
        let sent = self.sent.iter().map(|file| (file.digest, file.size));
        known::require_known(core, self.project, &self.named, sent)
    }

    /// The settings in the project files; those of a static site are not served.
    pub(super) async fn read_project_files(
        &mut self,
        core: &Core,
        platform: Platform,
    ) -> Result<SiteSettings> {
        let is_project = |file: &mut ManifestFile| is_project_file(file.path.as_str());
        self.sent.retain_mut(|file| !is_project(file));
        let named: Vec<_> = self.named.extract_if(.., is_project).collect();
        let mut files = std::mem::take(&mut self.project_files);
        for file in named {
            files.insert(file.path.to_string(), read_small(core, &file).await?);
        }
        let mut settings = SiteSettings::default();
        for name in PROJECT_FILES {
            let Some(bytes) = files.get(name) else {
                continue;
            };
            let read = if bytes.len() > MAX_PROJECT_FILE_BYTES {
                Err(format!("is larger than {MAX_PROJECT_FILE_BYTES} bytes").into())
            } else {
                SiteSettings::from_project_file(bytes, platform)
            };
            let settings_of_file = read
                .map_err(|Invalid(reason)| Error::invalid(format!("files: `{name}`: {reason}")))?;
            settings = settings.or(settings_of_file);
        }
        Ok(settings)
    }

    /// Keeps only what is inside the root that the settings name.
    pub(super) fn choose_root(&mut self, settings: &SiteSettings) -> Result<()> {
        let Some(root) = settings.root() else {
            return self.require_files();
        };
        self.sent = inside(std::mem::take(&mut self.sent), root.as_str());
        self.named = inside(std::mem::take(&mut self.named), root.as_str());
        if self.sent.is_empty() && self.named.is_empty() {
            return Err(Error::invalid(format!(
                "files: none is in the folder `{root}`, which is set as the root"
            )));
        }
        Ok(())
    }

    /// What the maker of a static site should know about its files.
    pub(super) fn site_warnings(&self) -> Vec<String> {
        let files = self.sent.iter().chain(&self.named);
        let warning = warn_of_sources(files.map(|file| file.path.as_str()));
        warning.into_iter().collect()
    }

    /// Makes the contents durable; blocks.
    pub(super) fn publish(mut self) -> Result<(Manifest, PublishedBlobs, UploadScope)> {
        let published = self.staging.publish().map_err(storing)?;
        self.sent.append(&mut self.named);
        Ok((Manifest::new(self.sent), published, self.compression))
    }
}

/// A release may not have more files than this.
fn too_many_files(most: usize) -> Error {
    Error::TooLarge(format!("files: a release has at most {most} files"))
}

/// Reads a content that was only named, unless it is larger than a project file may be.
async fn read_small(core: &Core, file: &ManifestFile) -> Result<Vec<u8>> {
    if file.size > MAX_PROJECT_FILE_BYTES as u64 {
        return Ok(vec![0; MAX_PROJECT_FILE_BYTES + 1]);
    }
    let places = blob_rows::read_blobs(&core.db, &[file.digest]).await?;
    let blob = *places.get(&file.digest).ok_or_else(cleaned_up)?;
    let blobs = core.blobs.clone();
    let read = tokio::task::spawn_blocking(move || blobs.read(&blob));
    let bytes = read.await.map_err(Error::internal)?;
    Ok(bytes?.to_vec())
}

fn parse_path(path: String) -> Result<FilePath> {
    let sent = path.clone();
    FilePath::try_from(path).map_err(|invalid| {
        let shown: String = sent.chars().take(MAX_SHOWN_CHARS).collect();
        Error::invalid(format!("files: `{}`: {invalid}", shown.escape_debug()))
    })
}
