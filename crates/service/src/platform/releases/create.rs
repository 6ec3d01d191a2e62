//! Making a release.

use super::build_log::note_warnings;
use super::incoming::{cleaned_up, keep_content, settle};
use super::known::SimilarArtifact;
use super::queue::queue_release;
use super::sealed_settings::settings_purpose;
use super::transition::MAX_QUEUED;
use super::upload::Upload;
use crate::audit::PendingEntry;
use crate::identity::access::{Permission, ProjectOperation};
use crate::{Core, Error, Result, Scope, platform::disks, platform::envs, platform::projects};
use estrade_blobs::{Digest, DigestSet, PublishedBlobs, PublishedGuard, StoredBlob};
use estrade_model::audit::Action;
use estrade_model::platform::Platform;
use estrade_model::release::{ArtifactId, NewRelease, ReleaseType};
use estrade_model::site::SiteConfig;
use estrade_model::site_settings::SiteSettings;
use estrade_model::team::Role;
use estrade_model::{Invalid, ReleaseId};
use estrade_runtime::{ImageRef, VolumeName};
use estrade_store::manifest::Manifest;
use estrade_store::projects::ProjectRow;
use estrade_store::releases::{self, ReleaseDraft, ReleaseSpec};
use estrade_store::{Tx, artifacts, blob_rows, projects as project_rows, sources};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::sync::Arc;

/// Longest message, in characters.
const MAX_MESSAGE_CHARS: usize = 1000;
/// Longest name of a client that is kept, in characters.
const MAX_CLIENT_CHARS: usize = 200;
/// Most bytes of `gitInfo` as JSON: a list shows it for hundreds of releases at once.
pub const MAX_GIT_INFO_BYTES: usize = 16 * 1024;
/// Most bytes of the settings for the runtime as JSON.
pub const MAX_SETTINGS_BYTES: usize = 256 * 1024;

/// The setting with the requested port.
const PORT: &str = "port";

/// What a release is made from.
pub enum Source {
    /// Files that were received.
    Files(Box<Upload>),
    /// An archive that was uploaded before, by its id.
    Archive(String),
    /// A container image, by name.
    Image(String),
}

/// Makes a release and puts it into its project's queue; returns its id.
///
/// Contents are durable before the transaction begins; a refusal leaves nothing behind.
pub fn create_release<'a>(
    core: &'a Core,
    scope: &'a Scope,
    project: &'a str,
    new: NewRelease,
    source: Source,
) -> BoxFuture<'a, Result<ReleaseId>> {
    Box::pin(async move {
        let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
        let row = projects::find_project(core, scope, project).await?;
        let platform = new.platform.unwrap_or(row.platform);
        let settings = read_site_settings(platform, &new.settings)?;
        let disks = disks::mounts(&new.settings)?;
        envs::check_own_variables(&new.settings)?;
        let mut checked = CheckedRelease {
            draft: draft_release(core, &row, new)?,
            disks: disks.into_iter().map(|(name, _)| name).collect(),
            warnings: Vec::new(),
            note: PendingEntry::of_project(core, scope, Action::CreateRelease)?
                .on(row.id, &row.name),
        };
        let draft = &mut checked.draft;
        let id = draft.id;
        match source {
            Source::Image(image) => {
                draft.spec.image = Some(check_image(draft.spec.platform, image)?);
                commit(core, permission, checked, None).await?;
            }
            Source::Archive(source) => {
                let source = source.parse().map_err(|_| unknown_source())?;
                draft.spec.source = Some(source);
                commit(core, permission, checked, None).await?;
            }
            Source::Files(mut upload) => {
                upload.require_tree()?;
                if upload.project() != row.id {
                    return Err(Error::NotFound("the project"));
                }
                let similar = upload.require_named(core).await?;
                if draft.spec.platform == Platform::Static {
                    let settings_of_file =
                        upload.read_project_files(core, Platform::Static).await?;
                    let settings = settings.or(settings_of_file);
                    upload.choose_root(&settings)?;
                    checked.warnings = upload.site_warnings();
                    draft.spec.site = site_json(settings)?;
                }
                draft.spec.artifact = Some(core.new_id()?);
                store_files(core, permission, checked, *upload, similar).await?;
            }
        }
        Ok(id)
    })
}

fn unknown_source() -> Error {
    Error::Invalid {
        code: "source_unknown",
        message: "sourceID: this project has no such source (any more); upload it with POST /v2/projects/{project}/sources".into(),
    }
}

/// The settings of a static site in `platformConfig`.
pub(super) fn read_site_settings(
    platform: Platform,
    settings: &Map<String, Value>,
) -> Result<SiteSettings> {
    // Other platforms have fields of their own there.
    let sent = settings.get("platformConfig");
    let Some(sent) = sent.filter(|_| platform == Platform::Static) else {
        return Ok(SiteSettings::default());
    };
    SiteSettings::from_json(sent)
        .map_err(|Invalid(reason)| Error::invalid(format!("platformConfig: {reason}")))
}

/// The port in the settings of a release.
pub(super) fn requested_port(settings: &Map<String, Value>) -> Option<u16> {
    u16::try_from(settings.get(PORT)?.as_u64()?).ok()
}

/// How a site is served, as it is stored; none when everything is as usual.
pub(super) fn site_json(settings: SiteSettings) -> Result<Option<String>> {
    let config = settings.into_config();
    if config == SiteConfig::default() {
        return Ok(None);
    }
    serde_json::to_string(&config)
        .map(Some)
        .map_err(Error::internal)
}

/// A validated request for a release.
struct CheckedRelease {
    draft: ReleaseDraft,
    /// The disks that it mounts.
    disks: Vec<VolumeName>,
    /// What its maker should know.
    warnings: Vec<String>,
    note: PendingEntry,
}

async fn store_files(
    core: &Core,
    permission: Permission,
    checked: CheckedRelease,
    upload: Upload,
    similar: Option<SimilarArtifact>,
) -> Result<()> {
    let (manifest, published, upload_scope) = tokio::task::spawn_blocking(|| upload.publish())
        .await
        .map_err(Error::internal)??;
    let contents = Contents::new(manifest, &published, similar);
    let stored = commit(core, permission, checked, Some(contents)).await;
    settle(published, &stored);
    if stored.is_ok() {
        upload_scope.commit();
    }
    stored
}

/// The files of a release, and which of their contents are new.
struct Contents {
    manifest: Manifest,
    new: Vec<StoredBlob>,
    /// What an earlier artifact has as well.
    similar: Option<(ArtifactId, Vec<Digest>)>,
    known: Vec<Digest>,
    /// Held until the transaction is over, even if its future is dropped.
    _held: PublishedGuard,
}

impl Contents {
    fn new(
        manifest: Manifest,
        published: &PublishedBlobs,
        similar: Option<SimilarArtifact>,
    ) -> Self {
        let new = published.blobs().to_vec();
        let mut known = known_contents(&manifest, &new);
        let similar = similar.map(|similar| {
            let shared = known.extract_if(.., |digest| similar.contents.contains(digest));
            (similar.artifact, shared.collect())
        });
        Self {
            manifest,
            new,
            similar,
            known,
            _held: published.hold(),
        }
    }
}

/// The contents of a manifest that are not among the new ones.
pub(super) fn known_contents(manifest: &Manifest, new: &[StoredBlob]) -> Vec<Digest> {
    let fresh: DigestSet = new.iter().map(|blob| blob.digest).collect();
    let digests = manifest.files().iter().map(|file| file.digest);
    let known: DigestSet = digests.filter(|digest| !fresh.contains(digest)).collect();
    let mut known: Vec<_> = known.into_iter().collect();
    // In the checked in which the database has them: neighbours are found together.
    known.sort_unstable();
    known
}

async fn commit(
    core: &Core,
    permission: Permission,
    checked: CheckedRelease,
    contents: Option<Contents>,
) -> Result<()> {
    let (visible, author) = (permission.projects(), permission.account());
    let release = Arc::new((checked, contents));
    permission
        .transact(core, move |tx| {
            let release = Arc::clone(&release);
            Box::pin(async move {
                let (checked, contents) = release.as_ref();
                let CheckedRelease {
                    draft,
                    disks,
                    warnings,
                    note,
                } = checked;
                let key = estrade_model::project::ProjectKey::Id(draft.project);
                // It may have been deleted since the upload began.
                if project_rows::find_project(tx, visible, &key)
                    .await?
                    .is_none()
                {
                    return Err(Error::NotFound("the project"));
                }
                disks::require_disks(tx, draft.project, disks).await?;
                if let Some(source) = draft.spec.source {
                    let digest = sources::find_source(tx, draft.project, source).await?;
                    let digest = digest.ok_or_else(unknown_source)?;
                    keep_content(tx, &[], digest).await?;
                }
                if let (Some(contents), Some(artifact)) = (contents, draft.spec.artifact) {
                    insert_contents(tx, artifact, contents).await?;
                    let manifest = &contents.manifest;
                    artifacts::insert_artifact(tx, artifact, draft.project, manifest).await?;
                }
                let tag = queue_release(tx, draft).await?;
                releases::set_author(tx, draft.id, author).await?;
                note.clone().detail(tag).write(tx).await?;
                note_warnings(tx, draft.id, warnings, draft.created_at).await
            })
        })
        .await
}

async fn insert_contents(tx: &mut Tx, id: ArtifactId, contents: &Contents) -> Result<()> {
    // Garbage collection may have removed them since the look-up. It keeps what an existing artifact
    // needs, so that those need not be checked one by one.
    let mut known = contents.known.clone();
    if let Some((similar, shared)) = &contents.similar
        && !artifacts::keep_artifact_for(tx, *similar, id).await?
    {
        known.extend(shared);
    }
    if !blob_rows::keep_blobs(tx, &contents.new, &known).await? {
        return Err(cleaned_up());
    }
    Ok(())
}

fn draft_release(core: &Core, project: &ProjectRow, new: NewRelease) -> Result<ReleaseDraft> {
    let platform = new.platform.unwrap_or(project.platform);
    let port = new.port.unwrap_or(platform.default_port());
    if port == 0 {
        return Err(Error::invalid("port: must be 1 to 65535"));
    }
    if let Some(message) = &new.message
        && (message.chars().count() > MAX_MESSAGE_CHARS || message.contains('\0'))
    {
        return Err(Error::invalid(format!(
            "message: must be at most {MAX_MESSAGE_CHARS} characters long, without NUL"
        )));
    }
    let git_info = new.git_info.map(|info| info.to_string());
    let mut settings = new.settings;
    if let Some(port) = new.port {
        // A port in the request takes precedence over that of the sources or the image.
        settings.insert(PORT.to_owned(), port.into());
    }
    let settings = serde_json::to_vec(&settings).map_err(Error::internal)?;
    require_small(
        "gitInfo",
        git_info.as_ref().map_or(0, String::len),
        MAX_GIT_INFO_BYTES,
    )?;
    require_small("settings", settings.len(), MAX_SETTINGS_BYTES)?;
    let now = core.now();
    Ok(ReleaseDraft {
        id: core.new_id()?,
        project: project.id,
        kind: ReleaseType::Deploy,
        spec: ReleaseSpec {
            platform,
            port,
            // They may hold secrets, such as values of environment variables.
            settings: core.master.seal(&settings_purpose(project.id), &settings)?,
            image: None,
            artifact: None,
            source: None,
            site: None,
            built: None,
            origin: None,
            env: None,
        },
        message: new.message,
        git_info,
        client: new.client.map(|name| {
            let printable = name.chars().filter(|c| !c.is_control());
            printable.take(MAX_CLIENT_CHARS).collect()
        }),
        created_at: now,
        deadline: now.after(MAX_QUEUED),
    })
}

fn require_small(what: &str, bytes: usize, most: usize) -> Result<()> {
    if bytes > most {
        return Err(Error::TooLarge(format!(
            "{what}: must be at most {most} bytes long"
        )));
    }
    Ok(())
}

fn check_image(platform: Platform, image: String) -> Result<String> {
    if !matches!(platform, Platform::Docker | Platform::Auto) {
        return Err(Error::invalid(format!(
            "image: only a docker release runs an image, this one is {platform}; send `files`, or `type` docker"
        )));
    }
    let refused = || Error::invalid("image: must be the name of an image, such as nginx:1.27");
    let name: ImageRef = image.parse().map_err(|_| refused())?;
    // Images by id and those that were built here may belong to another owner.
    if name.as_str().starts_with("sha256:") || name.is_built() {
        return Err(refused());
    }
    Ok(image)
}
