//! Which of the files that came are served, and under which paths.
//!
//! The same for files and archives: project files are read and never served, and a `root` makes one
//! folder the whole site.

use estrade_model::paths::FilePath;
use estrade_model::site_settings::PROJECT_FILES;
use estrade_store::manifest::ManifestFile;

/// Whether this is a project file of a site's root.
pub(super) fn is_project_file(path: &str) -> bool {
    PROJECT_FILES.contains(&path)
}

/// The name of the one folder that everything is in, if there is such a folder.
pub(super) fn single_folder(files: &[ManifestFile]) -> Option<String> {
    let folder = |file: &ManifestFile| {
        let (folder, _) = file.path.as_str().split_once('/')?;
        Some(folder.to_owned())
    };
    let first = folder(files.first()?)?;
    let same = |file: &ManifestFile| {
        let (folder, _) = file.path.as_str().split_once('/').unwrap_or_default();
        folder == first
    };
    files.iter().all(same).then_some(first)
}

/// The files inside a folder, as seen from there.
pub(super) fn inside(files: Vec<ManifestFile>, folder: &str) -> Vec<ManifestFile> {
    let seen_from = |file: ManifestFile| {
        let path = file.path.as_str().strip_prefix(folder)?.strip_prefix('/')?;
        // The end of a good path is a good path.
        let path = FilePath::try_from(path.to_owned()).ok()?;
        Some(ManifestFile { path, ..file })
    };
    files.into_iter().filter_map(seen_from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_store::blobs::Digest;

    fn files(paths: &[&str]) -> Vec<ManifestFile> {
        let file = |path: &&str| ManifestFile {
            path: FilePath::try_from((*path).to_owned()).unwrap(),
            digest: Digest::of(path.as_bytes()),
            size: 1,
        };
        paths.iter().map(file).collect()
    }

    fn paths(files: &[ManifestFile]) -> Vec<&str> {
        files.iter().map(|file| file.path.as_str()).collect()
    }

    #[test]
    fn a_single_folder_holds_everything() {
        let single = |paths: &[&str]| single_folder(&files(paths));
        assert_eq!(single(&["a/b", "a/c/d"]).as_deref(), Some("a"));
        assert_eq!(single(&["a/b"]).as_deref(), Some("a"));
        for many in [
            &["a/b", "c"][..],
            &["a/b", "ab/c"],
            &["a"],
            &["a", "a/b"],
            &[],
        ] {
            assert_eq!(single(many), None, "{many:?}");
        }
    }

    #[test]
    fn a_root_shows_what_is_inside() {
        let all = files(&["dist/a", "dist/b/c", "distant/d", "dist", "e"]);
        assert_eq!(paths(&inside(all.clone(), "dist")), ["a", "b/c"]);
        assert_eq!(paths(&inside(all.clone(), "dist/b")), ["c"]);
        assert!(inside(all, "none").is_empty());
    }
}
