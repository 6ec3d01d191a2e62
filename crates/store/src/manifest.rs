//! The list of files that an artifact is made of, and how it is written in the database.
//!
//! One row per artifact and not one per file: a release of 10,000 files is one insert and one read.
//! Layout: a format byte, then for each file, sorted by path, the length of the path (2 bytes), the
//! path, the digest (32 bytes) and the size (8 bytes); numbers are big-endian.

use estrade_blobs::Digest;
use estrade_model::paths::FilePath;

const FORMAT: u8 = 1;

/// One file of an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestFile {
    /// Where it lies in the tree.
    pub path: FilePath,
    pub digest: Digest,
    /// How long its content is, in bytes.
    pub size: u64,
}

/// The files of an artifact, sorted by path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Manifest(Vec<ManifestFile>);

/// Bytes that are not a manifest that this version can read.
#[derive(Debug, thiserror::Error)]
#[error("the manifest of an artifact is damaged or of a newer version")]
pub struct BadManifest;

impl Manifest {
    /// From files in any order; their paths must be distinct.
    pub fn new(mut files: Vec<ManifestFile>) -> Self {
        files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        Self(files)
    }

    /// The files, sorted by path.
    pub fn files(&self) -> &[ManifestFile] {
        &self.0
    }

    /// The files that an older manifest has not, or not with this content.
    pub fn changed_since<'m>(&'m self, older: &'m Self) -> impl Iterator<Item = &'m ManifestFile> {
        let mut rest = older.0.as_slice();
        self.0.iter().filter(move |file| {
            // Both are sorted.
            while let Some((first, after)) = rest.split_first()
                && first.path < file.path
            {
                rest = after;
            }
            rest.first() != Some(file)
        })
    }

    /// How many bytes the files have together.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|file| file.size).sum()
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        for file in &self.0 {
            let path = file.path.as_str().as_bytes();
            // A path is at most 1,024 bytes long.
            let length = u16::try_from(path.len()).unwrap_or(u16::MAX);
            out.extend(length.to_be_bytes());
            out.extend(path);
            out.extend(file.digest.as_bytes());
            out.extend(file.size.to_be_bytes());
        }
        out
    }

    /// Reads what [`encode`](Self::encode) wrote.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadManifest> {
        let Some((&FORMAT, mut rest)) = bytes.split_first() else {
            return Err(BadManifest);
        };
        let mut files = Vec::new();
        while !rest.is_empty() {
            files.push(take_file(&mut rest).ok_or(BadManifest)?);
        }
        Ok(Self(files))
    }
}

/// Which contents an encoded manifest names, and how long they are: without the cost of its paths.
pub fn contents(bytes: &[u8]) -> Result<Vec<(Digest, u64)>, BadManifest> {
    let Some((&FORMAT, mut rest)) = bytes.split_first() else {
        return Err(BadManifest);
    };
    let mut contents = Vec::new();
    while !rest.is_empty() {
        contents.push(take_content(&mut rest).ok_or(BadManifest)?);
    }
    Ok(contents)
}

fn take_content(rest: &mut &[u8]) -> Option<(Digest, u64)> {
    let length = u16::from_be_bytes(take(rest)?);
    rest.split_off(..usize::from(length))?;
    Some((take::<32>(rest)?.into(), u64::from_be_bytes(take(rest)?)))
}

fn take_file(rest: &mut &[u8]) -> Option<ManifestFile> {
    let length = u16::from_be_bytes(take(rest)?);
    let path = rest.split_off(..usize::from(length))?.to_vec();
    Some(ManifestFile {
        path: FilePath::try_from(String::from_utf8(path).ok()?).ok()?,
        digest: take::<32>(rest)?.into(),
        size: u64::from_be_bytes(take(rest)?),
    })
}

/// The next bytes of what is left, if there are so many.
pub(crate) fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    rest.split_off(..N)?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &[u8]) -> ManifestFile {
        ManifestFile {
            path: FilePath::try_from(path.to_owned()).unwrap(),
            digest: Digest::of(content),
            size: content.len() as u64,
        }
    }

    #[test]
    fn a_manifest_reads_back_sorted() {
        let manifest = Manifest::new(vec![file("b/c", b"1"), file("é", b""), file("a", b"22")]);
        let read = Manifest::decode(&manifest.encode()).unwrap();
        assert_eq!(read, manifest);
        let paths: Vec<_> = read.files().iter().map(|file| file.path.as_str()).collect();
        assert_eq!(paths, ["a", "b/c", "é"]);
        assert_eq!(read.bytes(), 3);
        let contents = contents(&manifest.encode()).unwrap();
        let expected: Vec<_> = read.files().iter().map(|it| (it.digest, it.size)).collect();
        assert_eq!(contents, expected);
        assert_eq!(Manifest::decode(&[FORMAT]).unwrap(), Manifest::default());
    }

    #[test]
    fn what_changed_is_found() {
        let manifest = |files: &[(&str, &[u8])]| {
            Manifest::new(
                files
                    .iter()
                    .map(|(path, content)| file(path, content))
                    .collect(),
            )
        };
        let old = manifest(&[("a", b"1"), ("c", b"3"), ("d", b"4"), ("z", b"9")]);
        let new = manifest(&[
            ("a", b"1"),
            ("b", b"2"),
            ("c", b"!"),
            ("d", b"4"),
            ("e", b"3"),
        ]);
        let changed = |new: &Manifest, old: &Manifest| -> Vec<String> {
            new.changed_since(old)
                .map(|file| file.path.to_string())
                .collect()
        };
        assert_eq!(changed(&new, &old), ["b", "c", "e"]);
        assert_eq!(changed(&new, &Manifest::default()).len(), 5);
        assert!(changed(&new, &new).is_empty());
        assert!(changed(&Manifest::default(), &new).is_empty());
    }

    #[test]
    fn anything_else_is_refused() {
        let good = Manifest::new(vec![file("a", b"1")]).encode();
        for cut in 0..good.len() {
            // Cut right after the format byte, it is a manifest without files.
            assert_eq!(Manifest::decode(&good[..cut]).is_ok(), cut == 1, "{cut}");
            assert_eq!(contents(&good[..cut]).is_ok(), cut == 1, "{cut}");
        }
        assert!(Manifest::decode(&[2]).is_err());
        let mut bad = good.clone();
        bad[3] = b'/';
        assert!(Manifest::decode(&bad).is_err());
    }
}
