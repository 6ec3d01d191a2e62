//! Archives as people make them, and as attackers do.

mod tar_files;
mod zip_files;

use super::*;
use estrade_blobs::{BlobStore, Digest, DigestSet, StoredBlob};
use std::io::Read;
use std::path::Path;

/// A place to unpack, with limits.
struct Bench {
    directory: tempfile::TempDir,
    blobs: BlobStore,
    limits: ReleaseLimits,
}

/// What came out: paths and contents.
type Files = BTreeMap<String, Vec<u8>>;

impl Bench {
    fn new(files: usize, bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            blobs: BlobStore::open(directory.path(), "test").unwrap(),
            limits: ReleaseLimits::new(files, bytes),
            directory,
        }
    }

    fn usual() -> Self {
        Self::new(100, 1 << 20)
    }

    /// Unpacks an archive; what is refused must leave nothing but the archive itself.
    fn unpack(&self, archive: &[u8]) -> Result<Files, (&'static str, String)> {
        let archive = self.store(archive);
        let before = self.files();
        match self.unpack_stored(&archive, CancelFlag::default()) {
            Ok(unpacked) => Ok(self.read(unpacked)),
            Err(UnpackError::Refused(reason, message)) => {
                assert_eq!(self.files(), before, "{reason}: {message}");
                Err((reason, message))
            }
            Err(other) => panic!("{other:?}"),
        }
    }

    fn try_unpack(&self, archive: &[u8], canceled: CancelFlag) -> Result<Unpacked, UnpackError> {
        self.unpack_stored(&self.store(archive), canceled)
    }

    fn store(&self, archive: &[u8]) -> StoredBlob {
        let mut staging = self.blobs.stage(u64::MAX, |_| Ok(DigestSet::default()));
        staging.add(archive).unwrap();
        let published = staging.publish().unwrap();
        let blob = published.blobs()[0];
        published.keep();
        blob
    }

    /// How many files there are, and how long they are together.
    fn files(&self) -> (usize, u64) {
        assert_eq!(count_files(&self.directory.path().join("tmp")), 0);
        let places = self.blobs.objects().unwrap();
        let sizes: Vec<_> = places.map(|entry| entry.unwrap().size).collect();
        (sizes.len(), sizes.iter().sum())
    }

    fn unpack_stored(
        &self,
        blob: &StoredBlob,
        canceled: CancelFlag,
    ) -> Result<Unpacked, UnpackError> {
        let archive = self.blobs.open_random(blob).unwrap();
        let staging = self
            .blobs
            .stage(self.limits.bytes(), |_| Ok(DigestSet::default()));
        let mut tree = Tree::new(staging, self.limits.clone(), canceled);
        let mut head = [0; 4];
        let _ = archive.part(0, 4).read(&mut head).unwrap();
        match ArchiveFormat::of(&head) {
            Some(ArchiveFormat::TarGz) => tar::read(&mut tree, archive.part(0, archive.size()))?,
            _ => zip::read(&mut tree, &archive)?,
        }
        tree.finish()
    }

    fn read(&self, unpacked: Unpacked) -> Files {
        let published = publish(unpacked.staging).unwrap();
        let blobs: BTreeMap<Digest, _> = published
            .blobs()
            .iter()
            .map(|blob| (blob.digest, *blob))
            .collect();
        published.keep();
        let content = |file: &ManifestFile| {
            let mut content = Vec::new();
            let blob = &blobs[&file.digest];
            let mut reader = self.blobs.open_reader(blob).unwrap();
            reader.read_to_end(&mut content).unwrap();
            (file.path.to_string(), content)
        };
        unpacked.files.iter().map(content).collect()
    }

    #[track_caller]
    fn refuses(&self, archive: &[u8], reason: &str, named: &str) {
        let refused = self.unpack(archive).unwrap_err();
        assert_eq!(refused.0, reason, "{refused:?}");
        assert!(refused.1.contains(named), "{refused:?}");
    }
}

fn count_files(directory: &Path) -> usize {
    std::fs::read_dir(directory).unwrap().count()
}

/// The most memory that this process has had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let number = line.unwrap().split_whitespace().nth(1).unwrap();
    number.parse::<u64>().unwrap() * 1024
}

/// Changes every byte of an archive: whatever that makes of it, nothing may break.
fn survive_changes(bench: &Bench, good: &[u8]) {
    for at in 0..good.len() {
        let mut bad = good.to_vec();
        bad[at] ^= [0x01, 0x80, 0xff][at % 3];
        let _ = bench.unpack(&bad);
    }
}

fn unpacked(bench: &Bench, archive: &[u8]) -> Unpacked {
    bench.try_unpack(archive, CancelFlag::default()).unwrap()
}

fn site(
    archive: &[u8],
    sent: &serde_json::Value,
) -> Result<(Vec<String>, SiteSettings), UnpackError> {
    let unpacked = unpacked(&Bench::usual(), archive);
    let sent = SiteSettings::from_json(sent).unwrap();
    let files = (unpacked.files, unpacked.project_files);
    let (manifest, settings) = choose_files(files.0, &files.1, sent, Platform::Static)?;
    let paths = manifest.files().iter().map(|file| file.path.to_string());
    Ok((paths.collect(), settings))
}

#[test]
fn the_root_of_a_site_is_found() {
    use serde_json::json;
    use tar_files::tar_gz;
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
    use tar_files::tar_gz;
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
    let bench = Bench::usual();
    let mut tar = ::tar::Builder::new(Vec::new());
    let mut header = ::tar::Header::new_gnu();
    header.set_size(1);
    tar.append_data(&mut header, "site/index.html", &b"x"[..])
        .unwrap();
    // Without the blocks that end it: all that the engine had sent when it broke off.
    let sent = tar.get_ref().clone();
    let read = |whole: bool| {
        let limits = bench.limits.bytes();
        let staging = bench.blobs.stage(limits, |_| Ok(DigestSet::default()));
        let mut tree = Tree::new(staging, bench.limits.clone(), CancelFlag::default());
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
