//! BUILDING a release from an archive: what is in it becomes the files of an artifact.
//!
//! The crate `archive` reads it within its limits, and contents go to the blob store under names of its own.
//! The work blocks, so it has a thread; when the future that waits for it is dropped (canceled, lease lost), the
//! thread stops at the next piece.

mod staged;
#[cfg(test)]
mod tests;

use super::build_log::BuildLog;
use super::claim::{Built, Claim};
use super::create::{read_site_settings, site_json};
use super::incoming::settle;
use super::layout::{inside, is_project_file, single_folder, warn_of_sources};
use super::limits::ReleaseLimits;
use super::sealed_settings::open_settings;
use super::step_error::{StepError, source_gone};
use crate::{Core, Error};
use estrade_archive::{CancelFlag, Tree, UnpackError, refuse, tar, zip};
use estrade_blobs::PublishedBlobs;
use estrade_model::platform::Platform;
use estrade_model::release::{ArchiveFormat, SourceId};
use estrade_model::site::SiteConfig;
use estrade_model::site_settings::{MAX_PROJECT_FILE_BYTES, PROJECT_FILES, SiteSettings};
use estrade_store::manifest::{Manifest, ManifestFile};
use estrade_store::sources::{self, SourceRow};
use staged::{StagedContents, StoredArchive, Unpacked, finish, new_tree, publish};
use std::collections::BTreeMap;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Stops the thread when the future that waits for it is dropped.
struct CancelOnDrop(CancelFlag);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Unpacks the source of a release and notes what came out of it as the release's artifact.
pub(super) async fn unpack_source(claim: &mut Claim, source: SourceId) -> Result<(), StepError> {
    let core = Arc::clone(claim.core());
    let row = sources::read_source(&core.db, claim.project(), source).await;
    let Some(row) = row.map_err(Error::from)? else {
        return Err(StepError::Failed(source_gone()));
    };
    let platform = claim.spec().platform;
    let sent = open_settings(&core, claim.project(), &claim.spec().settings)?;
    let sent = read_site_settings(platform, &sent)?;
    let canceled = CancelFlag::default();
    let _guard = CancelOnDrop(canceled.clone());
    let unpack = move || {
        let site = arrange(unpack(&core, &row, &canceled)?, sent, platform, "Unpacked")?;
        if let Err(stop) = canceled.check() {
            // The waiting future is gone and cannot do it.
            site.published.discard();
            return Err(stop);
        }
        Ok(site)
    };
    let site = tokio::task::spawn_blocking(unpack)
        .await
        .map_err(Error::internal)??;
    keep(claim, site).await
}

/// The tar that an engine sends, and whether it has sent all of it.
pub(super) struct SiteTar<R> {
    pub(super) bytes: R,
    /// Set before the bytes end.
    pub(super) whole: Arc<AtomicBool>,
}

/// Files of a release that turned out to be a site as they are.
pub(super) struct PlainSite {
    pub(super) files: Vec<ManifestFile>,
    /// The project files among them.
    pub(super) project_files: BTreeMap<String, Vec<u8>>,
    /// What the release says about the site.
    pub(super) sent: SiteSettings,
}

/// Makes such files the artifact that the release serves.
pub(super) async fn keep_plain_site(
    claim: &mut Claim,
    plan: &str,
    release: PlainSite,
) -> Result<(), StepError> {
    let core = Arc::clone(claim.core());
    let limits = ReleaseLimits::of(&core, plan);
    let arrange = move || {
        // Their contents are stored already, so nothing is staged.
        let unpacked = Unpacked {
            files: release.files,
            project_files: release.project_files,
            staging: limits.stage(&core),
        };
        arrange(unpacked, release.sent, Platform::Static, "Serving")
    };
    let site = tokio::task::spawn_blocking(arrange)
        .await
        .map_err(Error::internal)??;
    keep(claim, site).await
}

/// Takes the folder of a site out of such a tar, and notes it as the release's artifact.
pub(super) async fn unpack_site(
    claim: &mut Claim,
    plan: &str,
    tar: SiteTar<impl Read + Send + 'static>,
    config: SiteConfig,
) -> Result<(), StepError> {
    let core = Arc::clone(claim.core());
    let limits = ReleaseLimits::of(&core, plan);
    let canceled = CancelFlag::default();
    let _guard = CancelOnDrop(canceled.clone());
    let unpack = move || {
        let mut tree = new_tree(limits.stage(&core), limits, canceled);
        read_site(&mut tree, tar)?;
        let Unpacked { files, staging, .. } = finish(tree)?;
        // The engine puts everything into the folder's own name.
        let files = match single_folder(&files) {
            Some(folder) => inside(files, &folder),
            None => files,
        };
        if files.is_empty() {
            return refuse("site_empty", "the build left no files to serve");
        }
        let mut log = BuildLog::default();
        log.push(format!("The site has {} files", files.len()));
        Ok(Site {
            manifest: Manifest::new(files),
            config: Some(
                serde_json::to_string(&config)
                    .map_err(|error| UnpackError::Broken(error.into()))?,
            ),
            published: publish(staging)?,
            log,
            warnings: Vec::new(),
        })
    };
    let site = tokio::task::spawn_blocking(unpack)
        .await
        .map_err(Error::internal)??;
    keep(claim, site).await
}

/// Adds all files of a site. Without its last files a tar is still a good one.
fn read_site<R: Read>(tree: &mut Tree<StagedContents>, tar: SiteTar<R>) -> Result<(), UnpackError> {
    tar::read_plain(tree, tar.bytes)?;
    if !tar.whole.load(Ordering::Acquire) {
        return refuse("archive_invalid", "the engine broke off");
    }
    Ok(())
}

async fn keep(claim: &mut Claim, site: Site) -> Result<(), StepError> {
    let built = Built {
        manifest: site.manifest,
        new: site.published.blobs().to_vec(),
        _held: site.published.hold(),
        site: site.config,
        log: site.log,
        warnings: site.warnings,
    };
    let kept = claim.keep_build(built).await;
    if matches!(kept, Ok(false)) {
        site.published.discard();
        return Err(StepError::Lost);
    }
    settle(site.published, &kept);
    kept.map(drop).map_err(StepError::from)
}

fn unpack(core: &Core, row: &SourceRow, canceled: &CancelFlag) -> Result<Unpacked, UnpackError> {
    let limits = ReleaseLimits::of(core, &row.plan);
    let mut tree = new_tree(limits.stage(core), limits, canceled.clone());
    let archive = core.blobs.open_random(&row.blob);
    let archive = archive.map_err(|error| UnpackError::Broken(Error::from(error).into()))?;
    match row.format {
        ArchiveFormat::TarGz => tar::read(&mut tree, archive.part(0, archive.size()))?,
        ArchiveFormat::Zip => zip::read(&mut tree, &StoredArchive(archive))?,
    }
    finish(tree)
}

/// A site as it will be served.
struct Site {
    manifest: Manifest,
    /// JSON; none when everything is as usual.
    config: Option<String>,
    published: PublishedBlobs,
    log: BuildLog,
    warnings: Vec<String>,
}

/// Finds the root of the site, and its settings in the project file.
fn arrange(
    unpacked: Unpacked,
    sent: SiteSettings,
    platform: Platform,
    verb: &str,
) -> Result<Site, UnpackError> {
    let Unpacked {
        files,
        project_files,
        staging,
    } = unpacked;
    let (manifest, settings) = choose_files(files, &project_files, sent, platform)?;
    let mut log = BuildLog::default();
    log.push(format!(
        "{verb} {} files, {}",
        manifest.files().len(),
        readable(manifest.bytes())
    ));
    let mut warnings = Vec::new();
    if platform == Platform::Static {
        let paths = manifest.files().iter().map(|file| file.path.as_str());
        warnings.extend(warn_of_sources(paths.clone()));
        if !paths.clone().any(|path| path == "index.html") {
            warnings.push("there is no index.html in the root of the site".to_owned());
        }
    }
    let config = site_json(settings).map_err(|error| UnpackError::Broken(error.into()))?;
    Ok(Site {
        manifest,
        config,
        published: publish(staging)?,
        log,
        warnings,
    })
}

fn choose_files(
    all: Vec<ManifestFile>,
    project_files: &BTreeMap<String, Vec<u8>>,
    sent: SiteSettings,
    platform: Platform,
) -> Result<(Manifest, SiteSettings), UnpackError> {
    let folder = single_folder(&all);
    if platform != Platform::Static {
        // Sources stay complete: the build decides what to leave out.
        let files = match &folder {
            Some(folder) => inside(all, folder),
            None => all,
        };
        return Ok((Manifest::new(files), sent));
    }
    let prefix = folder
        .as_ref()
        .map_or(String::new(), |folder| format!("{folder}/"));
    let mut settings = sent;
    for name in PROJECT_FILES {
        let Some(bytes) = project_files.get(&format!("{prefix}{name}")) else {
            continue;
        };
        let read = if bytes.len() > MAX_PROJECT_FILE_BYTES {
            Err(format!("is larger than {MAX_PROJECT_FILE_BYTES} bytes").into())
        } else {
            SiteSettings::from_project_file(bytes, platform)
        };
        match read {
            Ok(read) => settings = settings.or(read),
            Err(invalid) => return refuse("config_invalid", format!("{name}: {invalid}")),
        }
    }
    let stripped = match &folder {
        Some(folder) => inside(all.clone(), folder),
        None => all.clone(),
    };
    let mut files = match settings.root() {
        None => stripped,
        Some(root) => {
            let found = inside(stripped, root.as_str());
            // The one folder may be the root itself, when nothing else was packed.
            let found = if found.is_empty() {
                inside(all, root.as_str())
            } else {
                found
            };
            if found.is_empty() {
                return refuse(
                    "root_not_found",
                    format!("the archive has no folder `{root}`, which is set as the root"),
                );
            }
            found
        }
    };
    files.retain(|file| !is_project_file(file.path.as_str()));
    if files.is_empty() {
        return refuse("archive_empty", "the archive has no files to serve");
    }
    Ok((Manifest::new(files), settings))
}

/// A number of bytes as people read it.
fn readable(bytes: u64) -> String {
    if bytes < 1000 {
        return format!("{bytes} bytes");
    }
    let mut tenths = bytes.saturating_add(50) / 100;
    let mut unit = "kB";
    for larger in ["MB", "GB", "TB"] {
        if tenths < 10_000 {
            break;
        }
        tenths = (tenths + 500) / 1000;
        unit = larger;
    }
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}
