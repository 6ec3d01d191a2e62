//! What becomes of the files of an archive. The crate `archive` tests how they come out of it.

use super::*;
use estrade_blobs::{BlobStore, DigestSet};
use flate2::write::GzEncoder;

const MAX_BYTES: u64 = 1 << 20;

fn blobs() -> (tempfile::TempDir, BlobStore) {
    let directory = tempfile::tempdir().unwrap();
    let blobs = BlobStore::open(directory.path(), "test").unwrap();
    (directory, blobs)
}

fn empty_tree(blobs: &BlobStore) -> Tree<StagedContents> {
    let staging = blobs.stage(MAX_BYTES, |_| Ok(DigestSet::default()));
    new_tree(
        staging,
        ReleaseLimits::new(100, MAX_BYTES),
        CancelFlag::default(),
    )
}

fn tar_gz(files: &[(&str, &str)]) -> Vec<u8> {
    let mut builder = ::tar::Builder::new(GzEncoder::new(Vec::new(), flate2::Compression::fast()));
    for (path, content) in files {
        let mut header = ::tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        builder
            .append_data(&mut header, path, content.as_bytes())
            .unwrap();
    }
    builder.into_inner().unwrap().finish().unwrap()
}

fn unpack_tar(archive: &[u8]) -> Unpacked {
    let (_directory, blobs) = blobs();
    let mut tree = empty_tree(&blobs);
    tar::read(&mut tree, archive).unwrap();
    finish(tree).unwrap()
}

fn site(
    archive: &[u8],
    sent: &serde_json::Value,
) -> Result<(Vec<String>, SiteSettings), UnpackError> {
    let unpacked = unpack_tar(archive);
    let sent = SiteSettings::from_json(sent).unwrap();
    let files = (unpacked.files, unpacked.project_files);
    let (manifest, settings) = choose_files(files.0, &files.1, sent, Platform::Static)?;
    let paths = manifest.files().iter().map(|file| file.path.to_string());
    Ok((paths.collect(), settings))
}

#[test]
fn the_root_of_a_site_is_found() {
    use serde_json::json;
    let none = json!({});
    let paths = |entries: &[(&str, &str)], sent: &serde_json::Value| {
        site(&tar_gz(entries), sent).unwrap().0
    };
    let folder = [("shop/index.html", "1"), ("shop/css/a.css", "2")];
    assert_eq!(paths(&folder, &none), ["css/a.css", "index.html"]);
    let root = json!({"root": "dist"});
    let built = [
        ("src/a.js", "1"),
        ("dist/index.html", "2"),
        ("dist/b/c", "3"),
    ];
    assert_eq!(paths(&built, &root), ["b/c", "index.html"]);
    // Inside the one folder, and as the one folder.
    let inner = [("shop/package.json", "1"), ("shop/dist/index.html", "2")];
    assert_eq!(paths(&inner, &root), ["index.html"]);
    assert_eq!(paths(&[("dist/index.html", "1")], &root), ["index.html"]);
    let Err(UnpackError::Refused(reason, message)) = site(&tar_gz(&[("a", "")]), &root) else {
        panic!("a root that is not there");
    };
    assert_eq!(reason, "root_not_found");
    assert!(message.contains("dist"));
}

#[test]
fn a_project_file_is_read_and_not_served() {
    use serde_json::json;
    let file = r#"{"static": {"root": "out", "spa": true}}"#;
    for folder in ["", "shop/"] {
        let (config, page) = (
            format!("{folder}liara.json"),
            format!("{folder}out/index.html"),
        );
        let archive = tar_gz(&[(&config, file), (&page, "1")]);
        let (paths, settings) = site(&archive, &json!({})).unwrap();
        assert_eq!(paths, ["index.html"]);
        assert!(settings.into_config().spa);
        // What the client sends counts more.
        let (paths, settings) = site(&archive, &json!({"root": "/", "spa": false})).unwrap();
        assert_eq!(paths, ["out/index.html"]);
        assert!(!settings.into_config().spa);
    }
    // Ours counts more than others', and one that is not in the root is a file like any other.
    let archive = tar_gz(&[
        ("a/liara.json", "{"),
        ("estrade.json", r#"{"spa": true}"#),
        ("liara.json", r#"{"spa": false, "cleanUrls": false}"#),
    ]);
    let (paths, settings) = site(&archive, &json!({})).unwrap();
    assert_eq!(paths, ["a/liara.json"]);
    let config = settings.into_config();
    assert!(config.spa && !config.clean_urls);
    let large = " ".repeat(MAX_PROJECT_FILE_BYTES + 1);
    for bad in ["{", large.as_str(), r#"{"spa": 1}"#] {
        let archive = tar_gz(&[("estrade.json", bad), ("a", "")]);
        let Err(UnpackError::Refused(reason, message)) = site(&archive, &json!({})) else {
            panic!("{bad}");
        };
        assert_eq!(reason, "config_invalid");
        assert!(message.starts_with("estrade.json: "), "{message}");
    }
    let only = tar_gz(&[("estrade.json", "{}")]);
    assert!(matches!(
        site(&only, &json!({})),
        Err(UnpackError::Refused("archive_empty", _))
    ));
}

#[test]
fn sizes_are_readable() {
    for (bytes, text) in [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 kB"),
        (3_141_592, "3.1 MB"),
        (999_999, "1.0 MB"),
        (268_435_456, "268.4 MB"),
        (10_000_000_000, "10.0 GB"),
    ] {
        assert_eq!(readable(bytes), text);
    }
}

#[test]
fn a_site_that_was_sent_in_part_is_no_site() {
    let (_directory, blobs) = blobs();
    let mut tar = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_size(1);
    tar.append_data(&mut header, "site/index.html", &b"x"[..])
        .unwrap();
    // Without the blocks that end it: all that the engine had sent when it broke off.
    let sent = tar.get_ref().clone();
    let read = |whole: bool| {
        let mut tree = empty_tree(&blobs);
        let tar = SiteTar {
            bytes: sent.as_slice(),
            whole: Arc::new(AtomicBool::new(whole)),
        };
        read_site(&mut tree, tar)
    };
    read(true).unwrap();
    assert!(matches!(
        read(false),
        Err(UnpackError::Refused("archive_invalid", _))
    ));
}
