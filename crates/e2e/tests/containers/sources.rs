//! The applications of `apps`, and the one server that does what a test asks for.

use estrade_testkit::Docker;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

const SERVER: &str = include_str!("server.py");

/// The files of an application, and its version, which it says to its visitors.
pub(crate) fn files(app: &str, version: &str) -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/containers/apps");
    let (root, mut files) = (root.join(app), Vec::new());
    let mut folders: Vec<PathBuf> = vec![root.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(&root).unwrap().to_str().unwrap();
            files.push((name.to_owned(), std::fs::read_to_string(&path).unwrap()));
        }
    }
    files.push(("version.txt".to_owned(), version.to_owned()));
    files
}

/// Files as a request carries them.
pub(crate) fn as_json(files: &[(String, String)]) -> Value {
    let file = |(path, data): &(String, String)| json!({"path": path, "data": data});
    json!({"files": files.iter().map(file).collect::<Vec<_>>()})
}

/// Files as a `.tar.gz`.
pub(crate) fn as_archive(files: &[(String, String)]) -> Vec<u8> {
    let level = flate2::Compression::fast();
    let gzip = flate2::write::GzEncoder::new(Vec::new(), level);
    let mut builder = tar::Builder::new(gzip);
    for (path, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

/// A release of the base image, in which the one server runs.
pub(crate) fn server(version: &str) -> Value {
    odd_server(version, &[])
}

/// The same, with a habit.
pub(crate) fn odd_server(version: &str, habit: &[&str]) -> Value {
    let mut args = vec!["python3", "-u", "-c", SERVER, version];
    args.extend(habit);
    json!({"type": "docker", "image": Docker::BASE, "port": 8000, "args": args})
}
