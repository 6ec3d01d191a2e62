//! The files of an archive as they come out of it: checked, counted and staged, one after the other.
//!
//! Nothing here has a path on disk: contents go to the blob store, and paths are only words.

use super::links::{self, Link};
use super::{UnpackError, refuse};
use crate::platform::releases::layout::is_project_file;
use crate::platform::releases::limits::{ReleaseLimits, storing};
use estrade_blobs::{BlobError, PublishedBlobs, Staging};
use estrade_model::paths::{FilePath, FileTree};
use estrade_model::site_settings::MAX_PROJECT_FILE_BYTES;
use estrade_store::manifest::ManifestFile;
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much is unpacked between two looks at the limits and at whether somebody still wants it.
const BUFFER_SIZE: usize = 64 * 1024;
/// How much of a bad name a message shows.
const MAX_SHOWN_CHARS: usize = 100;

/// Whether the work shall stop: the release was canceled, or is somebody else's now.
#[derive(Debug, Clone, Default)]
pub(super) struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub(super) fn check(&self) -> Result<(), UnpackError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(UnpackError::Canceled);
        }
        Ok(())
    }
}

/// What is at a path of an archive.
pub(super) enum Member<'m> {
    File(&'m mut dyn Read),
    /// A symbolic link, seen from the folder that it is in.
    SymbolicLink(String),
    /// A hard link, seen from the top of the archive.
    HardLink(String),
}

/// Files that are being unpacked. Dropping it leaves nothing behind.
pub(super) struct Tree {
    staging: Staging<'static>,
    limits: ReleaseLimits,
    canceled: CancelFlag,
    paths: FileTree,
    files: Vec<ManifestFile>,
    links: Vec<Link>,
    bytes: u64,
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

impl Tree {
    pub(super) fn new(
        staging: Staging<'static>,
        limits: ReleaseLimits,
        canceled: CancelFlag,
    ) -> Self {
        Self {
            staging,
            limits,
            canceled,
            paths: FileTree::default(),
            files: Vec::new(),
            links: Vec::new(),
            bytes: 0,
            project_files: BTreeMap::new(),
            piece: vec![0; BUFFER_SIZE],
        }
    }

    /// Most entries of an archive, folders and all.
    pub(super) fn max_entries(&self) -> u64 {
        (self.limits.files as u64).saturating_mul(2) + 1000
    }

    /// Most bytes of all files together.
    pub(super) fn max_bytes(&self) -> u64 {
        self.limits.bytes()
    }

    pub(super) fn canceled(&self) -> &CancelFlag {
        &self.canceled
    }

    /// Adds what is at `name`; folders and what operating systems leave behind are left out.
    pub(super) fn add(&mut self, name: &[u8], member: Member<'_>) -> Result<(), UnpackError> {
        self.canceled.check()?;
        let Some(path) = parse_name(name)? else {
            return Ok(());
        };
        if self.files.len() + self.links.len() >= self.limits.files {
            let files = self.limits.files;
            return refuse(
                "archive_too_large",
                format!("the archive has more than {files} files"),
            );
        }
        if let Err(invalid) = self.paths.insert(&path) {
            return refuse(
                "archive_invalid",
                format!("the archive is damaged: {invalid}"),
            );
        }
        match member {
            Member::File(content) => self.add_file(path, content),
            Member::SymbolicLink(target) => {
                self.links.push(Link::symbolic(path, &target)?);
                Ok(())
            }
            Member::HardLink(target) => {
                self.links.push(Link::hard(path, &target)?);
                Ok(())
            }
        }
    }

    fn add_file(&mut self, path: FilePath, content: &mut dyn Read) -> Result<(), UnpackError> {
        let mut kept = self.may_be_project_file(&path).then(Vec::new);
        let mut writer = self.staging.writer();
        loop {
            self.canceled.check()?;
            let count = content.read(&mut self.piece)?;
            if count == 0 {
                break;
            }
            let piece = &self.piece[..count];
            self.bytes += count as u64;
            check_bytes(&self.limits, self.bytes)?;
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
        let (digest, size) = writer.finish().map_err(stored)?;
        if let Some(kept) = kept {
            self.project_files.insert(path.to_string(), kept);
        }
        self.files.push(ManifestFile { path, digest, size });
        Ok(())
    }

    /// In the root, or in the folder that may turn out to be the only one: that of the first file.
    fn may_be_project_file(&self, path: &FilePath) -> bool {
        let Some((folder, name)) = path.as_str().split_once('/') else {
            return is_project_file(path.as_str());
        };
        let first = self.files.first().map(|file| file.path.as_str());
        let is_first_folder = first.is_none_or(|first| {
            let (first, _) = first.split_once('/').unwrap_or_default();
            first == folder
        });
        is_first_folder && is_project_file(name)
    }

    /// Follows the links.
    pub(super) fn finish(mut self) -> Result<Unpacked, UnpackError> {
        let linked = links::resolve(&self.files, &self.links)?;
        for file in &linked {
            self.bytes = self.bytes.saturating_add(file.size);
            check_bytes(&self.limits, self.bytes)?;
        }
        self.files.extend(linked);
        if self.files.is_empty() {
            return refuse("archive_empty", "the archive has no files");
        }
        self.canceled.check()?;
        Ok(Unpacked {
            files: self.files,
            project_files: self.project_files,
            staging: self.staging,
        })
    }
}

/// Makes the contents durable, once it is certain that they will be served.
pub(super) fn publish(staging: Staging<'static>) -> Result<PublishedBlobs, UnpackError> {
    staging.publish().map_err(stored)
}

fn check_bytes(limits: &ReleaseLimits, bytes: u64) -> Result<(), UnpackError> {
    match limits.check(bytes, || "unpacked, the files are".into()) {
        Ok(()) => Ok(()),
        Err(error) => refuse("archive_too_large", error.to_string()),
    }
}

fn stored(error: BlobError) -> UnpackError {
    match storing(error) {
        error @ crate::Error::TooLarge(_) => {
            UnpackError::Refused("archive_too_large", error.to_string())
        }
        error => UnpackError::Broken(error),
    }
}

/// The path of a file; none for folders, and for what operating systems leave behind.
fn parse_name(name: &[u8]) -> Result<Option<FilePath>, UnpackError> {
    let Ok(name) = std::str::from_utf8(name) else {
        let shown = String::from_utf8_lossy(&name[..name.len().min(MAX_SHOWN_CHARS)]);
        return refuse(
            "archive_invalid",
            format!(
                "`{}`: the names of an archive must be UTF-8",
                shown.escape_debug()
            ),
        );
    };
    let mut path = name;
    // Most tools write `./index.html` when they are told to pack `.`.
    while let Some(rest) = path.strip_prefix("./") {
        path = rest;
    }
    if path.is_empty() || path == "." {
        return Ok(None);
    }
    let is_folder = path.ends_with('/');
    let path = path.strip_suffix('/').unwrap_or(path);
    match FilePath::try_from(path.to_owned()) {
        Ok(path) => Ok(Some(path).filter(|path| !is_folder && !is_litter(path.as_str()))),
        Err(invalid) => {
            let shown: String = name.chars().take(MAX_SHOWN_CHARS).collect();
            refuse(
                "archive_unsafe",
                format!("`{}`: {invalid}", shown.escape_debug()),
            )
        }
    }
}

/// What macOS puts beside the files that people mean.
fn is_litter(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    path.split('/').next() == Some("__MACOSX") || name == ".DS_Store" || name.starts_with("._")
}
