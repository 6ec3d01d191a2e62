//! Links of an archive: each becomes a file with the content of what it points at.
//!
//! A link never leaves the tree, since it is only followed among the names of the archive. Those
//! that would (absolute ones, too many `..`) are refused all the same: whoever wrote them means harm
//! or is in for a surprise. So are links to folders, to nothing, and in circles.

use crate::error::{UnpackError, refuse};
use crate::file::UnpackedFile;
use estrade_model::paths::FilePath;
use std::collections::HashMap;

/// How many links may follow each other.
const MAX_HOPS: usize = 16;

/// A link, and what it points at as seen from the top of the archive.
pub(crate) struct Link {
    path: FilePath,
    target: String,
}

impl Link {
    pub(crate) fn symbolic(path: FilePath, target: &str) -> Result<Self, UnpackError> {
        let folder = path
            .as_str()
            .rsplit_once('/')
            .map_or("", |(folder, _)| folder);
        let target = normalize_target(&path, folder, target)?;
        Ok(Self { path, target })
    }

    pub(crate) fn hard(path: FilePath, target: &str) -> Result<Self, UnpackError> {
        let target = normalize_target(&path, "", target)?;
        Ok(Self { path, target })
    }
}

/// Where `target` leads from `folder`.
fn normalize_target(path: &FilePath, folder: &str, target: &str) -> Result<String, UnpackError> {
    let mut at: Vec<_> = folder.split('/').filter(|name| !name.is_empty()).collect();
    let mut leaves = target.starts_with('/') || target.contains(['\\', '\0']);
    for step in target.split('/') {
        match step {
            "" | "." => {}
            ".." => leaves |= at.pop().is_none(),
            name => at.push(name),
        }
    }
    if leaves {
        return refuse(
            "archive_unsafe",
            format!("`{path}` is a link that leaves the archive; put a copy in its place"),
        );
    }
    let target = at.join("/");
    // Thousands of links may follow, each with a target that is far longer than a path.
    if target.len() > FilePath::MAX_BYTES {
        return refuse("archive_invalid", lost(path, &target));
    }
    Ok(target)
}

/// The files that the links stand for.
pub(crate) fn resolve<C: Clone>(
    files: &[UnpackedFile<C>],
    links: &[Link],
) -> Result<Vec<UnpackedFile<C>>, UnpackError> {
    if links.is_empty() {
        return Ok(Vec::new());
    }
    let files: HashMap<_, _> = files.iter().map(|it| (it.path.as_str(), it)).collect();
    let others: HashMap<_, _> = links.iter().map(|it| (it.path.as_str(), it)).collect();
    let follow = |link: &Link| {
        let mut target = link.target.as_str();
        for _ in 0..MAX_HOPS {
            if let Some(file) = files.get(target) {
                return Ok(UnpackedFile {
                    path: link.path.clone(),
                    ..(*file).clone()
                });
            }
            match others.get(target) {
                Some(next) => target = &next.target,
                None => return refuse("archive_invalid", lost(&link.path, &link.target)),
            }
        }
        refuse(
            "archive_invalid",
            format!(
                "`{}` is a link that leads in a circle, or too far",
                link.path
            ),
        )
    };
    links.iter().map(follow).collect()
}

fn lost(path: &FilePath, target: &str) -> String {
    let shown: String = target.chars().take(100).collect();
    format!(
        "`{path}` is a link to `{}`, which is no file of the archive; put a copy in its place",
        shown.escape_debug()
    )
}
