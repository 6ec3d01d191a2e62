//! Paths of files inside a release.

use crate::Invalid;
use serde::Serialize;
use std::collections::BTreeSet;
use std::fmt;
use std::ops::Bound::{Excluded, Unbounded};

/// A relative path with `/` between segments: no `..`, no `.`, no empty segment, no NUL, no backslash.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, utoipa::ToSchema)]
#[serde(into = "String")]
#[schema(value_type = String, min_length = 1, max_length = 1024, example = "index.html")]
pub struct FilePath(String);

/// Longest segment, in bytes, as on common file systems.
const MAX_SEGMENT_BYTES: usize = 255;

impl FilePath {
    /// Longest path, in bytes; longer ones could not be unpacked everywhere.
    pub const MAX_BYTES: usize = 1024;

    /// The path as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for FilePath {
    type Error = Invalid;

    fn try_from(text: String) -> Result<Self, Invalid> {
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return Err(format!("a path must be 1 to {} bytes long", Self::MAX_BYTES).into());
        }
        if text.starts_with('/') {
            return Err("a path must not be absolute".into());
        }
        // A backslash is a separator on some systems and part of a name on others: too ambiguous to keep.
        if text.chars().any(|c| c.is_control() || c == '\\') {
            return Err("a path must not contain control characters or backslashes".into());
        }
        for segment in text.split('/') {
            match segment {
                "" => return Err("a path must not have an empty segment".into()),
                "." | ".." => return Err("a path must not have a `.` or `..` segment".into()),
                long if long.len() > MAX_SEGMENT_BYTES => {
                    return Err(format!(
                        "a path segment must be at most {MAX_SEGMENT_BYTES} bytes long"
                    )
                    .into());
                }
                _ => {}
            }
        }
        Ok(Self(text))
    }
}
impl From<FilePath> for String {
    fn from(path: FilePath) -> Self {
        path.0
    }
}
impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The tree that the paths of one release make: no duplicate, and no file that is also a directory.
///
/// Only the files are kept, in tree order, so that its size is that of the paths given: a set of
/// all directories would let deep paths grow it a hundredfold. What clashes with a path is its
/// neighbour in that order.
#[derive(Default)]
pub struct FileTree(BTreeSet<String>);

/// Stands for `/` inside the tree: no path contains it, and it sorts before all that one may
/// contain, so that what is inside a directory comes right after the directory's own name.
const SLASH: char = '\0';

impl FileTree {
    /// Adds a file, or says why it does not fit beside the others.
    pub fn insert(&mut self, path: &FilePath) -> Result<(), Invalid> {
        let key = tree_key(path);
        let (before, after) = (..=&key, (Excluded(&key), Unbounded));
        if let Some(before) = self.0.range::<String, _>(before).next_back() {
            require_apart(before, &key)?;
        }
        if let Some(after) = self.0.range::<String, _>(after).next() {
            require_apart(&key, after)?;
        }
        self.0.insert(key);
        Ok(())
    }

    /// Says why some paths do not fit beside each other: for who has them all, that is several times
    /// as fast.
    pub fn check<'p>(paths: impl Iterator<Item = &'p FilePath>) -> Result<(), Invalid> {
        let mut keys: Vec<_> = paths.map(tree_key).collect();
        keys.sort_unstable();
        let mut neighbours = keys.windows(2);
        neighbours.try_for_each(|pair| require_apart(&pair[0], &pair[1]))
    }
}

fn tree_key(path: &FilePath) -> String {
    path.as_str().replace('/', "\0")
}

/// Refuses two neighbours in tree order that cannot both be there.
fn require_apart(before: &str, after: &str) -> Result<(), Invalid> {
    let what = match () {
        () if before == after => "given twice",
        () if is_inside(after, before) => "both a file and a directory",
        () => return Ok(()),
    };
    Err(format!("`{}` is {what}", before.replace(SLASH, "/")).into())
}

fn is_inside(file: &str, directory: &str) -> bool {
    file.strip_prefix(directory)
        .is_some_and(|rest| rest.starts_with(SLASH))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<FilePath, Invalid> {
        FilePath::try_from(text.to_owned())
    }

    #[test]
    fn bad_paths_are_refused() {
        let long = format!("{}/x", "a".repeat(256));
        for bad in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a/..",
            "../a",
            ".",
            "./a",
            "a//b",
            "a/",
            "a\0b",
            "a\\b",
            "a\nb",
            &long,
        ] {
            assert!(path(bad).is_err(), "{bad:?}");
        }
        for good in [
            "index.html",
            "a/b/c",
            "..a",
            "a..",
            "...",
            ".well-known/x",
            "é/ü.txt",
            "a b",
        ] {
            assert!(path(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn a_file_is_never_a_directory_too() {
        let insert = |paths: &[&str]| {
            let mut tree = FileTree::default();
            let paths: Vec<_> = paths.iter().map(|text| path(text).unwrap()).collect();
            let one_by_one = paths.iter().try_for_each(|path| tree.insert(path));
            assert_eq!(FileTree::check(paths.iter()), one_by_one);
            one_by_one
        };
        assert!(insert(&["a", "b", "c/d", "c/e"]).is_ok());
        assert!(insert(&["a", "a"]).is_err());
        assert!(insert(&["a", "a/b"]).is_err());
        assert!(insert(&["a/b", "a"]).is_err());
        assert!(insert(&["a/b/c", "a/b"]).is_err());
        assert!(insert(&["a", "a-b", "a b", "ab"]).is_ok());
        assert!(insert(&["a-b", "a", "a!", "a/b"]).is_err());
        assert!(insert(&["a/b", "a-b", "a!", "a"]).is_err());
    }
}
