//! Archives as people make them, and as attackers do.

mod tar_files;
mod zip_files;

use crate::{
    CancelFlag, ContentSink, Limits, RandomAccess, Tree, UnpackError, UnpackedFile, UnpackedTree,
    tar, zip,
};
use estrade_blobs::{BlobStore, Digest, DigestSet, RandomReader, Staging, StoredBlob};
use estrade_model::paths::FilePath;
use estrade_model::release::ArchiveFormat;
use std::collections::BTreeMap;
use std::io::{self, Read};
use std::path::Path;

#[derive(Clone)]
struct TestLimits {
    files: usize,
    bytes: u64,
}

impl Limits for TestLimits {
    fn max_files(&self) -> usize {
        self.files
    }

    fn max_bytes(&self) -> u64 {
        self.bytes
    }

    fn check_bytes(&self, bytes: u64) -> Result<(), String> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(format!("the files are larger than {} bytes", self.bytes))
    }
}

/// Contents go to a blob store, as in the service.
struct Contents(Staging<'static>);

impl ContentSink for Contents {
    type Content = Digest;

    fn store(&mut self, _: &FilePath, content: &mut dyn Read) -> Result<Digest, UnpackError> {
        let mut writer = self.0.writer();
        io::copy(content, &mut writer)?;
        Ok(writer.finish().unwrap().0)
    }
}

struct StoredArchive(RandomReader);

impl RandomAccess for StoredArchive {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn part(&self, start: u64, length: u64) -> impl Read {
        self.0.part(start, length)
    }
}

/// The files of an archive, and where their contents are.
struct Unpacked {
    files: Vec<UnpackedFile<Digest>>,
    staging: Staging<'static>,
}

/// A place to unpack, with limits.
struct Bench {
    directory: tempfile::TempDir,
    blobs: BlobStore,
    limits: TestLimits,
}

/// What came out: paths and contents.
type Files = BTreeMap<String, Vec<u8>>;

impl Bench {
    fn new(files: usize, bytes: u64) -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            blobs: BlobStore::open(directory.path(), "test").unwrap(),
            limits: TestLimits { files, bytes },
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
            .stage(self.limits.bytes, |_| Ok(DigestSet::default()));
        let mut tree = Tree::new(Contents(staging), self.limits.clone(), canceled);
        let mut head = [0; 4];
        let _ = archive.part(0, 4).read(&mut head).unwrap();
        match ArchiveFormat::of(&head) {
            Some(ArchiveFormat::TarGz) => tar::read(&mut tree, archive.part(0, archive.size()))?,
            _ => zip::read(&mut tree, &StoredArchive(archive))?,
        }
        let UnpackedTree { files, sink } = tree.finish()?;
        Ok(Unpacked {
            files,
            staging: sink.0,
        })
    }

    fn read(&self, unpacked: Unpacked) -> Files {
        let published = unpacked.staging.publish().unwrap();
        let blobs: BTreeMap<Digest, _> = published
            .blobs()
            .iter()
            .map(|blob| (blob.digest, *blob))
            .collect();
        published.keep();
        let content = |file: &UnpackedFile<Digest>| {
            let mut content = Vec::new();
            let blob = &blobs[&file.content];
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
