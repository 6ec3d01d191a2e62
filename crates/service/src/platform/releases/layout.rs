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

/// Configurations of tools that build a page.
const BUILDERS: [&str; 9] = [
    "vite.config.",
    "vue.config.",
    "angular.json",
    "svelte.config.",
    "astro.config.",
    "nuxt.config.",
    "webpack.config.",
    "eleventy.config.",
    ".eleventy.js",
];
/// Where the code of a page begins before it is built.
const BEGINNINGS: [&str; 4] = ["src/main.", "src/index.", "src/App.", "src/app."];
/// Code that browsers do not run as it is.
const UNBUILT: [&str; 5] = [".jsx", ".tsx", ".ts", ".vue", ".svelte"];

/// A warning when the files of a static site look as if they had to be built first.
pub(super) fn warn_of_sources<'p>(paths: impl Iterator<Item = &'p str> + Clone) -> Option<String> {
    let begins = |path: &str, names: &[&str]| names.iter().any(|name| path.starts_with(name));
    let is_unbuilt = |path: &&str| {
        let is_code = UNBUILT.iter().any(|ending| path.ends_with(ending));
        begins(path, &BUILDERS) || (is_code && begins(path, &BEGINNINGS))
    };
    let sign = paths.clone().find(is_unbuilt)?;
    let mut paths = paths;
    paths.find(|path| *path == "package.json")?;
    Some(format!(
        "these look like the sources of a front end that has to be built first ({sign}); deploy them as react, vue or angular, or deploy the folder that the build writes"
    ))
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
    use estrade_blobs::Digest;

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
    fn sources_are_told_from_a_site() {
        for sources in [
            &[
                "package.json",
                "index.html",
                "vite.config.ts",
                "src/main.tsx",
            ][..],
            &["index.html", "src/main.jsx", "package.json"],
            &["package.json", "index.html", "src/App.vue"],
            &["package.json", "index.html", "angular.json"],
        ] {
            let warning = warn_of_sources(sources.iter().copied());
            let warning = warning.unwrap_or_default();
            assert!(warning.contains("react, vue or angular"), "{sources:?}");
        }
        for site in [
            &["index.html", "assets/index-1.js"][..],
            &["index.html", "package.json", "src/main.js"],
            &["index.html", "vite.config.js"],
        ] {
            assert_eq!(warn_of_sources(site.iter().copied()), None, "{site:?}");
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
