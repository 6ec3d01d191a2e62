//! The sources of a release, as a plan sees them: names, and the beginnings of a few files.

use crate::error::{PlanError, Result, refused};
use estrade_model::paths::FilePath;
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::ops::Bound;

/// The file in which users say what the build does not get to see.
pub(crate) const IGNORE_FILE: &str = ".dockerignore";
/// Largest manifest that is read, in bytes: lock files of large projects are this long.
pub(crate) const MAX_FILE_BYTES: usize = 1024 * 1024;

/// A folder of sources. Paths are relative, with `/` between segments.
pub trait Sources {
    /// The paths of all files.
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_>;

    /// The first `most` bytes of a file that `paths` names.
    fn read(&self, path: &str, most: usize) -> Result<Cow<'_, [u8]>, Box<dyn Error + Send + Sync>>;

    /// The BLAKE3 hash of a file that `paths` names.
    fn digest(&self, path: &str) -> Result<[u8; 32], Box<dyn Error + Send + Sync>> {
        Ok(*blake3::hash(&self.read(path, usize::MAX)?).as_bytes())
    }
}

/// Files in memory.
impl Sources for BTreeMap<String, Vec<u8>> {
    fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
        Box::new(self.keys().map(String::as_str))
    }

    fn read(&self, path: &str, most: usize) -> Result<Cow<'_, [u8]>, Box<dyn Error + Send + Sync>> {
        let bytes = self.get(path).ok_or("there is no such file")?;
        Ok(Cow::Borrowed(bytes.get(..most).unwrap_or(bytes)))
    }
}

/// Sources with an index of their names.
pub(crate) struct Tree<'s> {
    sources: &'s dyn Sources,
    paths: BTreeSet<&'s str>,
    /// Files that can be read here, but are left out of the build.
    hidden: BTreeSet<&'s str>,
}

impl<'s> Tree<'s> {
    pub(crate) fn new(sources: &'s dyn Sources) -> Self {
        // Releases have good paths only; whoever implements `Sources` need not be trusted with it.
        let good = |path: &&str| FilePath::try_from((*path).to_owned()).is_ok();
        let paths = sources.paths().filter(good).collect();
        Self {
            sources,
            paths,
            hidden: BTreeSet::new(),
        }
    }

    /// Hides what the build will not see, so that nothing is copied that is not there. Such a file
    /// can still say something, as `.nvmrc` does.
    pub(crate) fn hide(&mut self, is_excluded: impl Fn(&str) -> bool) {
        let excluded = |path: &&str| is_excluded(path);
        self.hidden = self.paths.iter().copied().filter(excluded).collect();
        self.paths.retain(|path| !self.hidden.contains(path));
    }

    /// Whether there is such a file.
    pub(crate) fn has(&self, path: &str) -> bool {
        self.paths.contains(path)
    }

    /// Whether any file is inside of this folder.
    pub(crate) fn has_folder(&self, folder: &str) -> bool {
        let inside = format!("{folder}/");
        let next = self.paths.range::<&str, _>(inside.as_str()..).next();
        next.is_some_and(|path| path.starts_with(&inside))
    }

    /// The first of these files that is there.
    pub(crate) fn first<'n>(&self, names: &[&'n str]) -> Option<&'n str> {
        names.iter().copied().find(|name| self.has(name))
    }

    /// All paths, in order.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &'s str> + '_ {
        self.paths.iter().copied()
    }

    /// A file as text; none when it is not there. One that is too large to be a manifest is refused.
    pub(crate) fn text(&self, path: &str) -> Result<Option<String>> {
        let Some(bytes) = self.start(path, MAX_FILE_BYTES + 1)? else {
            return Ok(None);
        };
        if bytes.len() > MAX_FILE_BYTES {
            return Err(refused(path, "is too large to be read; 1 MiB is the most"));
        }
        // Editors on Windows put a mark before the text.
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
        let text = std::str::from_utf8(bytes)
            .map_err(|_| refused(path, "is not UTF-8 text; save it in that encoding"))?;
        Ok(Some(text.to_owned()))
    }

    /// A file as text that the build needs too.
    pub(crate) fn manifest(&self, path: &str) -> Result<Option<String>> {
        if self.hidden.contains(path) {
            let advice =
                format!("leaves out {path}, which the build needs; except it with `!{path}`");
            return Err(refused(IGNORE_FILE, advice));
        }
        self.text(path)
    }

    /// The beginning of a file, as far as it is text: enough for lock files and source code.
    pub(crate) fn read_prefix(&self, path: &str, most: usize) -> Result<Option<String>> {
        let bytes = self.start(path, most)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// The hashes of a file, or of all files of a folder, with their paths.
    pub(crate) fn digests(&self, path: &str) -> Result<Vec<(&'s str, [u8; 32])>> {
        let inside = format!("{path}/");
        let from_here = (Bound::Included(path), Bound::Unbounded);
        let names = self.paths.range::<str, _>(from_here);
        let names = names.take_while(|name| name.starts_with(path));
        let names = names.filter(|name| **name == path || name.starts_with(&inside));
        let mut digests = Vec::new();
        for name in names {
            let digest = self.sources.digest(name);
            let digest = digest.map_err(|cause| PlanError::Unreadable {
                path: (*name).to_owned(),
                cause,
            })?;
            digests.push((*name, digest));
        }
        Ok(digests)
    }

    fn start(&self, path: &str, most: usize) -> Result<Option<Cow<'_, [u8]>>> {
        if !self.has(path) && !self.hidden.contains(path) {
            return Ok(None);
        }
        let read = self.sources.read(path, most);
        let mut bytes = read.map_err(|cause| PlanError::Unreadable {
            path: path.to_owned(),
            cause,
        })?;
        if bytes.len() > most {
            // Whoever implements `Sources` may be generous; what we parse stays bounded.
            bytes.to_mut().truncate(most);
        }
        Ok(Some(bytes))
    }
}

/// The folder of a path, `.` for the root.
pub(crate) fn folder_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(".", |(folder, _)| folder)
}

/// The last segment of a path.
pub(crate) fn name_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(_, name)| name)
}

/// What follows the last dot of a file's name. Names are case-sensitive, as for the tools.
pub(crate) fn extension_of(path: &str) -> Option<&str> {
    name_of(path)
        .rsplit_once('.')
        .map(|(_, extension)| extension)
}

/// How many folders are around a file.
pub(crate) fn depth(path: &str) -> usize {
    path.matches('/').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &[u8])]) -> BTreeMap<String, Vec<u8>> {
        let file = |(path, bytes): &(&str, &[u8])| ((*path).to_owned(), bytes.to_vec());
        list.iter().map(file).collect()
    }

    #[test]
    fn names_are_looked_up_and_text_is_text() {
        let sources = files(&[("a/b", b"\xef\xbb\xbfhi"), ("a-b", b"\xff"), ("c", b"")]);
        let tree = Tree::new(&sources);
        assert!(tree.has("a/b") && !tree.has("a") && !tree.has("b"));
        assert!(!Tree::new(&files(&[("../x", b"")])).has("../x"));
        assert!(tree.has_folder("a") && !tree.has_folder("c") && !tree.has_folder("a-"));
        assert_eq!(tree.first(&["x", "c", "a-b"]), Some("c"));
        assert_eq!(tree.text("a/b").unwrap().as_deref(), Some("hi"));
        assert_eq!(tree.text("nothing").unwrap(), None);
        let refusal = tree.text("a-b").unwrap_err().to_string();
        assert!(
            refusal.contains("a-b") && refusal.contains("UTF-8"),
            "{refusal}"
        );
        assert_eq!(
            tree.read_prefix("a-b", 9).unwrap().as_deref(),
            Some("\u{fffd}")
        );
    }

    #[test]
    fn large_files_are_refused_and_reads_stay_bounded() {
        let large = vec![b'x'; MAX_FILE_BYTES + 1];
        let sources = files(&[("large", &large), ("fits", &large[1..])]);
        let tree = Tree::new(&sources);
        assert!(tree.text("fits").unwrap().is_some());
        assert!(
            tree.text("large")
                .unwrap_err()
                .to_string()
                .contains("1 MiB")
        );
        assert_eq!(tree.read_prefix("large", 10).unwrap().unwrap().len(), 10);
    }

    #[test]
    fn who_cannot_read_is_told_apart_from_who_wrote_nonsense() {
        struct Broken;
        impl Sources for Broken {
            fn paths(&self) -> Box<dyn Iterator<Item = &str> + '_> {
                Box::new(["a"].into_iter())
            }
            fn read(
                &self,
                _: &str,
                _: usize,
            ) -> Result<Cow<'_, [u8]>, Box<dyn Error + Send + Sync>> {
                Err("the disk is gone".into())
            }
        }
        let error = Tree::new(&Broken).text("a").unwrap_err();
        assert!(matches!(error, PlanError::Unreadable { .. }), "{error}");
    }
}
