//! The files of a folder that is deployed: which ones, and their hashes.

use crate::error::{ClientError, Result};
use crate::ignore_rules::{
    DOCKER_IGNORE, DockerRules, OWN_IGNORE, OuterRules, RULE_FILES, check_rules, unreadable_rules,
};
use ignore::WalkBuilder;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

/// Folders that are never meant, whatever the ignore files say.
const SKIPPED_FOLDERS: [&str; 6] = [
    ".hg",
    ".svn",
    "node_modules",
    "__pycache__",
    ".venv",
    SERVER_DATA,
];
/// What `estrade serve` makes where it is started.
const SERVER_DATA: &str = "estrade-data";
/// The history: a folder, and in a worktree or submodule a file.
const GIT: &str = ".git";
const SKIPPED_FILES: [&str; 2] = [".DS_Store", "Thumbs.db"];
/// What a build needs although `.dockerignore` usually names it.
const KEPT_FILES: [&str; 4] = ["Dockerfile", DOCKER_IGNORE, "estrade.json", "liara.json"];
/// Secrets of a server, wherever its data directory is: with them others rule it and read everything.
const SERVER_SECRETS: [&str; 2] = ["admin.token", "master.key"];
const READ_BYTES: usize = 256 << 10;

/// A file that is deployed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderFile {
    /// Relative, with `/` between segments.
    pub path: String,
    /// Where it is on this machine.
    pub source: PathBuf,
    pub size: u64,
    /// When it was last written, where the system says so.
    pub modified: Option<SystemTime>,
}

/// What is deployed of a folder.
#[derive(Debug, Default)]
pub struct Folder {
    /// In the order of their paths.
    pub files: Vec<FolderFile>,
    /// What is left out although no rule says so, with the reason.
    pub skipped: Vec<String>,
}

impl Folder {
    /// How long all files are together.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.size).sum()
    }

    fn take(&mut self, relative: &Path, found: Result<FolderFile, String>) {
        match found {
            Ok(file) => self.files.push(file),
            Err(reason) => self
                .skipped
                .push(format!("{}: {reason}", relative.display())),
        }
    }
}

/// Finds the files of a folder, by the rules of `.gitignore`, `.dockerignore` and `.estradeignore` in it, and of
/// `.gitignore` in the folders around it up to the root of its repository.
///
/// Rules that cannot be understood are an error: what they name would be sent. A link is followed only to a file that
/// is sent anyway, so that no link of an unpacked archive sends `~/.ssh` or `.git/config` along.
pub fn scan(root: &Path) -> Result<Folder> {
    let root = root.canonicalize().map_err(ClientError::file(root))?;
    if root.file_name() == Some(OsStr::new(SERVER_DATA)) {
        return Err(ClientError::Usage(format!(
            "{} is the data directory of a server; it is never deployed",
            root.display()
        )));
    }
    let docker = DockerRules::read(&root)?;
    let outer = OuterRules::read(&root)?;
    let mut walk = WalkBuilder::new(&root);
    walk.hidden(false)
        .parents(false)
        .ignore(false)
        .git_global(false)
        .git_exclude(false)
        .require_git(false)
        .add_custom_ignore_filename(OWN_IGNORE)
        .filter_entry(move |entry| entry.depth() == 0 || is_wanted(entry, &outer));
    let mut folder = Folder::default();
    let mut links = Vec::new();
    for entry in walk.build() {
        let entry = entry
            .map_err(|error| ClientError::Failed(format!("cannot read the folder: {error}")))?;
        if let Some(error) = entry.error() {
            return Err(unreadable_rules(error));
        }
        let Some(kind) = entry.file_type() else {
            continue;
        };
        let Ok(relative) = entry.path().strip_prefix(&root) else {
            continue;
        };
        if kind.is_dir() || is_left_out(&docker, relative) {
            continue;
        }
        // The walk follows links to rules, wherever they lead.
        if RULE_FILES.iter().any(|name| entry.file_name() == *name) {
            check_rules(entry.path())?;
        }
        if kind.is_symlink() {
            links.push(relative.to_owned());
            continue;
        }
        folder.take(relative, to_file(entry.path(), relative));
    }
    let sent: HashSet<PathBuf> = folder.files.iter().map(|it| it.source.clone()).collect();
    for link in links {
        let target = follow_link(&root, &root.join(&link), &sent);
        folder.take(&link, target.and_then(|target| to_file(&target, &link)));
    }
    folder.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(folder)
}

fn is_wanted(entry: &ignore::DirEntry, outer: &OuterRules) -> bool {
    let name = entry.file_name().to_string_lossy();
    let is_folder = entry.file_type().is_some_and(|kind| kind.is_dir());
    let skipped: &[&str] = if is_folder {
        &SKIPPED_FOLDERS
    } else {
        &SKIPPED_FILES
    };
    name != GIT && !skipped.contains(&name.as_ref()) && !outer.leave_out(entry.path(), is_folder)
}

/// Where a link leads, if that is a file that is sent.
fn follow_link(root: &Path, link: &Path, sent: &HashSet<PathBuf>) -> Result<PathBuf, String> {
    let target = link.canonicalize().map_err(|_| "a link to nothing")?;
    if !target.starts_with(root) {
        return Err("a link that leads out of the folder".to_owned());
    }
    if target.is_dir() {
        return Err("a link to a folder".to_owned());
    }
    if !sent.contains(&target) {
        return Err("a link to what is left out".to_owned());
    }
    Ok(target)
}

fn to_file(source: &Path, relative: &Path) -> Result<FolderFile, String> {
    let segments: Option<Vec<&str>> = relative.iter().map(OsStr::to_str).collect();
    let segments = segments.ok_or("its name is not UTF-8")?;
    if segments
        .last()
        .is_some_and(|name| SERVER_SECRETS.contains(name))
    {
        return Err("the name of a secret of a server".to_owned());
    }
    let metadata = std::fs::metadata(source).map_err(|error| error.to_string())?;
    if !metadata.is_file() {
        return Err("not a file".to_owned());
    }
    Ok(FolderFile {
        path: segments.join("/"),
        source: source.to_owned(),
        size: metadata.len(),
        modified: metadata.modified().ok(),
    })
}

fn is_left_out(docker: &DockerRules, relative: &Path) -> bool {
    let is_kept = KEPT_FILES.iter().any(|kept| relative == Path::new(kept));
    !is_kept && docker.leave_out(relative)
}

/// The BLAKE3 hash of each file, in the same order, with a thread per core. `read` is told how many bytes were read.
pub fn hash(files: &[FolderFile], read: &(dyn Fn(u64) + Sync)) -> Result<Vec<String>> {
    let next = AtomicUsize::new(0);
    let hashes = Mutex::new(vec![String::new(); files.len()]);
    let work = || -> Result<()> {
        let mut buffer = vec![0; READ_BYTES];
        while let Some((at, file)) = take(files, &next) {
            let hash = hash_file(&file.source, &mut buffer, read)?;
            let mut hashes = hashes.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(place) = hashes.get_mut(at) {
                *place = hash;
            }
        }
        Ok(())
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads.min(files.len()))
            .map(|_| scope.spawn(work))
            .collect();
        let ended = threads.into_iter().map(|thread| match thread.join() {
            Ok(outcome) => outcome,
            Err(_) => Err(ClientError::Failed(
                "a thread that hashes files panicked".to_owned(),
            )),
        });
        // Every thread is waited for, also after an error.
        ended
            .collect::<Vec<_>>()
            .into_iter()
            .collect::<Result<()>>()
    })?;
    Ok(hashes.into_inner().unwrap_or_else(PoisonError::into_inner))
}

fn take<'f>(files: &'f [FolderFile], next: &AtomicUsize) -> Option<(usize, &'f FolderFile)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    files.get(at).map(|file| (at, file))
}

fn hash_file(path: &Path, buffer: &mut [u8], read: &(dyn Fn(u64) + Sync)) -> Result<String> {
    let mut file = std::fs::File::open(path).map_err(ClientError::file(path))?;
    let mut hasher = blake3::Hasher::new();
    loop {
        let length = file.read(buffer).map_err(ClientError::file(path))?;
        let Some(piece @ [_, ..]) = buffer.get(..length) else {
            return Ok(hasher.finalize().to_hex().to_string());
        };
        hasher.update(piece);
        read(length as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, write};
    use std::sync::atomic::AtomicU64;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        root
    }

    fn paths(root: &Path) -> Vec<String> {
        scan(root)
            .unwrap()
            .files
            .into_iter()
            .map(|file| file.path)
            .collect()
    }

    #[test]
    fn ignore_files_say_what_is_left_out() {
        let root = tree(&[
            (".gitignore", "*.log\n/build/\n!keep.log\n"),
            (".estradeignore", "secret.txt\n"),
            (
                ".dockerignore",
                "# c\nDockerfile\n.dockerignore\ndocs\n**/*.tmp\n!docs/kept.md\n*.md\n./x/\n",
            ),
            ("Dockerfile", "FROM scratch"),
            ("index.html", "<h1>"),
            (".well-known/a", ""),
            ("a.log", ""),
            ("keep.log", ""),
            ("sub/.gitignore", "b\n"),
            ("sub/b", ""),
            ("sub/c.md", ""),
            ("sub/d.tmp", ""),
            ("build/out", ""),
            ("docs/a.txt", ""),
            ("docs/kept.md", ""),
            ("README.md", ""),
            ("x/y", ""),
            ("secret.txt", ""),
            ("sub/secret.txt", ""),
            (".git/config", ""),
            ("node_modules/m/index.js", ""),
            ("sub/.DS_Store", ""),
        ]);
        let expected = [
            ".dockerignore",
            ".estradeignore",
            ".gitignore",
            ".well-known/a",
            "Dockerfile",
            "docs/kept.md",
            "index.html",
            "keep.log",
            "sub/.gitignore",
            "sub/c.md",
        ];
        assert_eq!(paths(root.path()), expected);
    }

    #[test]
    fn a_folder_that_its_parent_ignores_is_deployed_whole() {
        let root = tree(&[
            (".gitignore", "dist\n*.js\n"),
            ("dist/app.js", ""),
            ("dist/index.html", ""),
        ]);
        std::fs::create_dir(root.path().join(".git")).unwrap();
        assert_eq!(paths(&root.path().join("dist")), ["app.js", "index.html"]);
    }

    #[test]
    fn rules_around_the_folder_count_inside_of_a_repository() {
        let root = tree(&[
            (".gitignore", ".env\n*.pem\n/apps/web/drafts/\n"),
            ("apps/.gitignore", "*.tmp\n"),
            ("apps/web/.gitignore", "!public.pem\n"),
            ("apps/web/.env", ""),
            ("apps/web/a.tmp", ""),
            ("apps/web/drafts/a", ""),
            ("apps/web/index.html", ""),
            ("apps/web/public.pem", ""),
            ("apps/web/sub/server.pem", ""),
        ]);
        let web = root.path().join("apps/web");
        assert_eq!(paths(&web).len(), 7, "there is no repository");
        std::fs::create_dir(root.path().join(".git")).unwrap();
        assert_eq!(paths(&web), [".gitignore", "index.html", "public.pem"]);
        write(root.path().join(".gitignore"), b"# \xe9\n.env\n").unwrap();
        assert!(matches!(scan(&web), Err(ClientError::Usage(_))));
    }

    #[test]
    fn rules_that_cannot_be_read_stop_everything() {
        for rules in [&b"# \xe0 ignorer\n.env\n"[..], b"{a\n.env\n"] {
            for file in [".gitignore", "sub/.gitignore", ".estradeignore"] {
                let root = tree(&[(".env", "s"), ("sub/.env", "s")]);
                write(root.path().join(file), rules).unwrap();
                let refused = scan(root.path());
                assert!(matches!(refused, Err(ClientError::Usage(_))), "{file}");
            }
        }
    }

    #[cfg(unix)]
    #[test]
    fn rules_behind_a_link_that_cannot_be_read_stop_everything_too() {
        use std::os::unix::fs::symlink;
        for file in [".gitignore", "sub/.estradeignore"] {
            let root = tree(&[(".env", "s"), ("sub/.env", "s")]);
            let rules = tree(&[]);
            let elsewhere = rules.path().join("rules");
            symlink(&elsewhere, root.path().join(file)).unwrap();
            write(&elsewhere, ".env\n").unwrap();
            assert_eq!(
                scan(root.path()).unwrap().files.len(),
                usize::from(file != ".gitignore")
            );
            write(&elsewhere, b"# \xe9\n.env\n").unwrap();
            let refused = scan(root.path());
            assert!(matches!(refused, Err(ClientError::Usage(_))), "{file}");
        }
    }

    #[test]
    fn the_last_rule_of_docker_wins() {
        let root = tree(&[
            (".dockerignore", "\u{feff}.env\n**\n!**/*.json\nsecrets\n"),
            (".env", ""),
            ("a.json", ""),
            ("b.txt", ""),
            ("secrets/key.json", ""),
            ("sub/c.json", ""),
        ]);
        let expected = [".dockerignore", "a.json", "sub/c.json"];
        assert_eq!(paths(root.path()), expected);
        write(root.path().join(".dockerignore"), "\u{feff}.env\n").unwrap();
        assert!(!paths(root.path()).contains(&".env".to_owned()));
    }

    #[test]
    fn what_belongs_to_git_or_a_server_is_never_sent() {
        let root = tree(&[
            (".git", "gitdir: /elsewhere\n"),
            ("sub/.git", "gitdir: /elsewhere\n"),
            ("estrade-data/estrade.db", ""),
            ("data/admin.token", "t"),
            ("data/master.key", "k"),
            ("index.html", ""),
        ]);
        assert_eq!(paths(root.path()), ["index.html"]);
        assert_eq!(scan(root.path()).unwrap().skipped.len(), 2);
        let data = scan(&root.path().join("estrade-data"));
        assert!(matches!(data, Err(ClientError::Usage(_))));
    }

    #[cfg(unix)]
    #[test]
    fn links_do_not_lead_to_what_is_left_out() {
        use std::os::unix::fs::symlink;
        let root = tree(&[
            (".gitignore", ".env\n"),
            (".dockerignore", "private\n"),
            (".env", "s"),
            (".git/config", "s"),
            ("private/a", "s"),
            ("public/index.html", ""),
        ]);
        for (target, name) in [
            ("../.env", "env"),
            ("../.git/config", "config"),
            ("../private/a", "private"),
            ("index.html", "start.html"),
        ] {
            symlink(target, root.path().join("public").join(name)).unwrap();
        }
        let folder = scan(root.path()).unwrap();
        let sent: Vec<_> = folder.files.iter().map(|it| it.path.as_str()).collect();
        let expected = [
            ".dockerignore",
            ".gitignore",
            "public/index.html",
            "public/start.html",
        ];
        assert_eq!(sent, expected);
        assert_eq!(folder.skipped.len(), 3, "{:?}", folder.skipped);
    }

    #[cfg(unix)]
    #[test]
    fn links_lead_to_files_inside_only() {
        use std::os::unix::fs::symlink;
        let outside = tree(&[("secret", "s")]);
        let root = tree(&[("a.txt", "abc"), ("sub/b", "")]);
        let link = |to: &Path, name: &str| symlink(to, root.path().join(name)).unwrap();
        link(Path::new("a.txt"), "inside");
        link(&outside.path().join("secret"), "outside");
        link(outside.path(), "folder-outside");
        link(Path::new("sub"), "folder");
        link(Path::new("nothing"), "dangling");
        let folder = scan(root.path()).unwrap();
        let found: Vec<_> = folder
            .files
            .iter()
            .map(|file| (file.path.as_str(), file.size))
            .collect();
        assert_eq!(found, [("a.txt", 3), ("inside", 3), ("sub/b", 0)]);
        assert_eq!(folder.skipped.len(), 4, "{:?}", folder.skipped);
    }

    #[test]
    fn hashes_are_those_of_b3sum_in_the_order_of_the_files() {
        let long = "x".repeat(1_000_000);
        let root = tree(&[("a", "hello\n"), ("b", &long), ("c", "")]);
        let folder = scan(root.path()).unwrap();
        let read = AtomicU64::new(0);
        let hashes = hash(&folder.files, &|bytes| {
            read.fetch_add(bytes, Ordering::Relaxed);
        });
        let hashes = hashes.unwrap();
        assert_eq!(
            hashes[1],
            blake3::hash(long.as_bytes()).to_hex().to_string()
        );
        assert_eq!(hashes[0], blake3::hash(b"hello\n").to_hex().to_string());
        assert_eq!(
            hashes[2],
            "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
        );
        assert_eq!(read.into_inner(), folder.bytes());
        let gone = FolderFile {
            source: root.path().join("gone"),
            ..folder.files[0].clone()
        };
        assert!(hash(&[gone], &|_| ()).is_err());
        assert!(hash(&[], &|_| ()).unwrap().is_empty());
    }
}
