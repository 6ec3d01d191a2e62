//! The files of an archive as they come out of it: checked, counted and stored, one after the other.
//!
//! Nothing here has a path on disk: contents go to a sink, and paths are only words.

use crate::error::{UnpackError, refuse};
use crate::file::UnpackedFile;
use crate::links::{self, Link};
use estrade_model::paths::{FilePath, FileTree};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How much of a bad name a message shows.
const MAX_SHOWN_CHARS: usize = 100;

/// Whether the work shall stop: the release was canceled, or is somebody else's now.
#[derive(Debug, Clone, Default)]
pub struct CancelFlag(Arc<AtomicBool>);

impl CancelFlag {
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    pub fn check(&self) -> Result<(), UnpackError> {
        if self.0.load(Ordering::Relaxed) {
            return Err(UnpackError::Canceled);
        }
        Ok(())
    }
}

/// Where the contents of an archive go.
pub trait ContentSink {
    /// Stands for a content that was stored; files that are links share it.
    type Content: Clone;

    /// Stores the content of the file at `path`. Its errors of reading are to be returned as they are: limits and
    /// cancellation come that way, too.
    fn store(
        &mut self,
        path: &FilePath,
        content: &mut dyn Read,
    ) -> Result<Self::Content, UnpackError>;
}

/// How much may come out of an archive.
pub trait Limits: Send + Sync {
    fn max_files(&self) -> usize;

    /// Most bytes of all files together.
    fn max_bytes(&self) -> u64;

    /// Says why so many bytes are too many, in words for a person; it refuses all above [`Self::max_bytes`].
    fn check_bytes(&self, bytes: u64) -> Result<(), String>;
}

/// What is at a path of an archive.
pub(crate) enum Member<'m> {
    File(&'m mut dyn Read),
    /// A symbolic link, seen from the folder that it is in.
    SymbolicLink(String),
    /// A hard link, seen from the top of the archive.
    HardLink(String),
}

/// Files that are being unpacked. Dropping it drops the sink with what it holds.
pub struct Tree<S: ContentSink> {
    sink: S,
    limits: Arc<dyn Limits>,
    canceled: CancelFlag,
    paths: FileTree,
    files: Vec<UnpackedFile<S::Content>>,
    links: Vec<Link>,
    bytes: u64,
}

/// All files of an archive, and the sink that has their contents.
pub struct UnpackedTree<S: ContentSink> {
    pub files: Vec<UnpackedFile<S::Content>>,
    pub sink: S,
}

impl<S: ContentSink> Tree<S> {
    pub fn new(sink: S, limits: impl Limits + 'static, canceled: CancelFlag) -> Self {
        Self {
            sink,
            limits: Arc::new(limits),
            canceled,
            paths: FileTree::default(),
            files: Vec::new(),
            links: Vec::new(),
            bytes: 0,
        }
    }

    /// Most entries of an archive, folders and all.
    pub(crate) fn max_entries(&self) -> u64 {
        (self.limits.max_files() as u64).saturating_mul(2) + 1000
    }

    /// Most bytes of all files together.
    pub(crate) fn max_bytes(&self) -> u64 {
        self.limits.max_bytes()
    }

    pub(crate) fn canceled(&self) -> &CancelFlag {
        &self.canceled
    }

    /// Adds what is at `name`; folders and what operating systems leave behind are left out.
    pub(crate) fn add(&mut self, name: &[u8], member: Member<'_>) -> Result<(), UnpackError> {
        self.canceled.check()?;
        let Some(path) = parse_name(name)? else {
            return Ok(());
        };
        let files = self.limits.max_files();
        if self.files.len() + self.links.len() >= files {
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
        let before = self.bytes;
        let mut content = CountedReader {
            inner: content,
            bytes: &mut self.bytes,
            limits: &*self.limits,
            canceled: &self.canceled,
        };
        let content = self.sink.store(&path, &mut content)?;
        self.files.push(UnpackedFile {
            path,
            content,
            size: self.bytes - before,
        });
        Ok(())
    }

    /// Follows the links.
    pub fn finish(mut self) -> Result<UnpackedTree<S>, UnpackError> {
        let linked = links::resolve(&self.files, &self.links)?;
        for file in &linked {
            self.bytes = self.bytes.saturating_add(file.size);
            check_bytes(&*self.limits, self.bytes)?;
        }
        self.files.extend(linked);
        if self.files.is_empty() {
            return refuse("archive_empty", "the archive has no files");
        }
        self.canceled.check()?;
        Ok(UnpackedTree {
            files: self.files,
            sink: self.sink,
        })
    }
}

/// A content on its way to the sink: counted together with all before it, and ended when nobody wants it any more.
struct CountedReader<'t> {
    inner: &'t mut dyn Read,
    bytes: &'t mut u64,
    limits: &'t dyn Limits,
    canceled: &'t CancelFlag,
}

impl Read for CountedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.canceled.check().map_err(io::Error::other)?;
        let count = self.inner.read(buffer)?;
        *self.bytes += count as u64;
        check_bytes(self.limits, *self.bytes).map_err(io::Error::other)?;
        Ok(count)
    }
}

fn check_bytes(limits: &dyn Limits, bytes: u64) -> Result<(), UnpackError> {
    match limits.check_bytes(bytes) {
        Ok(()) => Ok(()),
        Err(message) => refuse("archive_too_large", message),
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
