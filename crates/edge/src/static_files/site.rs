//! The files of one release, as compact as they can be looked up quickly.
//!
//! A node may serve a million files. So a site is one run of bytes with an index, not a map of
//! structs: about 80 bytes a file, everything included. And because few of them are in the processor's
//! cache, a look at a file goes to as few places as can be: one of the index, one of the entries.

use crate::static_files::header_rules::{self, HeaderRules};
use crate::static_files::redirects::{self, Redirects};
use estrade_blobs::{Digest, DigestMap, ObjectId, StoredBlob};
use estrade_model::coding::Coding;
use estrade_model::site::SiteConfig;
use estrade_store::manifest::{Manifest, ManifestFile};
use estrade_store::variants::VariantRow;
use foldhash::fast::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::LazyLock;

/// A release that can be served.
#[derive(Debug)]
pub struct Site {
    /// How it wants to be served.
    pub config: SiteConfig,
    pub redirects: Redirects,
    /// Its `_headers`, and those of its configuration.
    pub headers: HeaderRules,
    /// Packs and files that contents lie in.
    places: Box<[ObjectId]>,
    /// One entry per file, back to back.
    entries: Box<[u8]>,
    /// Where entries begin, by the hashes of their paths; each is as near behind its place as there was
    /// room. A power of two of them.
    index: Box<[u32]>,
}

/// A place of the index that is free.
const FREE: u32 = u32::MAX;

/// Randomly keyed, so that paths cannot be chosen to collide.
static HASHES: LazyLock<RandomState> = LazyLock::new(RandomState::default);

/// Where the bytes of a content lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ContentLocation {
    /// The pack or file.
    pub place: ObjectId,
    /// Where it begins there.
    pub offset: u64,
    /// How long it is.
    pub size: u64,
}

/// One file of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileEntry {
    /// Hash of its content.
    pub digest: Digest,
    /// The content as it is.
    pub plain: ContentLocation,
    /// Compressed variants, in the order of [`Coding::COMPRESSED`].
    variants: [Option<ContentLocation>; 3],
}

impl FileEntry {
    fn new(plain: &StoredBlob, variants: Option<&[Option<StoredBlob>; 3]>) -> Self {
        let stored = |blob: &StoredBlob| ContentLocation {
            place: blob.location.object(),
            offset: blob.location.offset(),
            size: blob.size,
        };
        let variant = |it: &Option<StoredBlob>| it.as_ref().map(stored);
        Self {
            digest: plain.digest,
            plain: stored(plain),
            variants: variants.map_or([None; 3], |them| them.each_ref().map(variant)),
        }
    }

    /// Where the bytes of a coding lie, if it exists.
    pub fn stored(&self, coding: Coding) -> Option<ContentLocation> {
        if coding == Coding::Identity {
            return Some(self.plain);
        }
        let position = Coding::COMPRESSED.iter().position(|it| *it == coding)?;
        self.variants[position]
    }

    /// Whether there is any compressed variant, so that responses differ by `Accept-Encoding`.
    pub fn has_variants(&self) -> bool {
        self.variants.iter().any(Option::is_some)
    }
}

/// What a site is made from.
pub struct Parts {
    pub manifest: Manifest,
    /// What is known of contents already; the database was not asked for these.
    pub known: DigestMap<FileEntry>,
    /// Where the other contents lie.
    pub blobs: DigestMap<StoredBlob>,
    /// Their compressed variants.
    pub variants: Vec<VariantRow>,
    /// How it wants to be served.
    pub config: SiteConfig,
    /// The text of `_redirects`.
    pub redirects: String,
    /// The text of `_headers`.
    pub headers: String,
}

impl Site {
    /// Builds the table. Files whose content is not stored are left out; the second value counts them.
    pub fn build(parts: Parts) -> (Self, usize) {
        let mut variants: DigestMap<[Option<StoredBlob>; 3]> = DigestMap::default();
        for VariantRow { of, coding, blob } in parts.variants {
            if let Some(position) = Coding::COMPRESSED.iter().position(|it| *it == coding) {
                variants.entry(of).or_default()[position] = Some(blob);
            }
        }
        let mut table = TableBuilder::default();
        let mut missing = 0;
        for file in parts.manifest.files() {
            let found = parts.known.get(&file.digest).copied().or_else(|| {
                let blob = parts.blobs.get(&file.digest)?;
                Some(FileEntry::new(blob, variants.get(&file.digest)))
            });
            match found {
                Some(entry) => table.add(file.path.as_str(), &entry),
                None => missing += 1,
            }
        }
        let mut headers = HeaderRules::parse(&parts.headers);
        headers.extend(&parts.config.headers);
        let site = Self {
            redirects: Redirects::parse(&parts.redirects),
            headers,
            config: parts.config,
            index: table.index(),
            places: table.places.into(),
            entries: table.entries.into(),
        };
        (site, missing)
    }

    /// The file at this path, which has no leading slash.
    pub fn find(&self, path: &str) -> Option<FileEntry> {
        if path == redirects::FILE || path == header_rules::FILE {
            return None;
        }
        let wanted = path.as_bytes();
        places(wanted, self.index.len())
            .map_while(|place| self.index.get(place).filter(|at| **at != FREE))
            .find(|at| self.path_at(**at) == wanted)
            .and_then(|at| self.entry_at(*at))
    }

    /// What this site knows of the contents of another: those of files at the same path.
    pub fn known_entries(&self, manifest: &Manifest) -> DigestMap<FileEntry> {
        let same = |file: &ManifestFile| {
            let entry = self.find(file.path.as_str())?;
            (entry.digest == file.digest).then_some((file.digest, entry))
        };
        manifest.files().iter().filter_map(same).collect()
    }

    /// How much memory it takes, roughly.
    pub fn bytes(&self) -> u64 {
        let table =
            self.entries.len() + self.index.len() * 4 + self.places.len() * size_of::<ObjectId>();
        (table + self.redirects.bytes() + self.headers.bytes() + 512) as u64
    }

    fn path_at(&self, at: u32) -> &[u8] {
        let mut rest = Reader(self.entries.get(at as usize..).unwrap_or_default());
        rest.path().unwrap_or_default()
    }

    fn entry_at(&self, at: u32) -> Option<FileEntry> {
        let mut rest = Reader(self.entries.get(at as usize..)?);
        rest.path()?;
        let digest = Digest::from(rest.take::<32>()?);
        let plain = rest.stored(&self.places)?;
        let [present] = rest.take::<1>()?;
        let mut variants = [None; 3];
        for (position, variant) in variants.iter_mut().enumerate() {
            if present & (1 << position) != 0 {
                *variant = Some(rest.stored(&self.places)?);
            }
        }
        Some(FileEntry {
            digest,
            plain,
            variants,
        })
    }
}

/// Where in an index of that length a path is looked for.
fn places(path: &[u8], length: usize) -> impl Iterator<Item = usize> {
    let mask = length.wrapping_sub(1);
    // The lowest bits are as good as any.
    let hash = usize::try_from(HASHES.hash_one(path) & 0xffff_ffff).unwrap_or_default();
    (0..length).map(move |step| hash.wrapping_add(step) & mask)
}

/// The table while it is being written.
#[derive(Default)]
struct TableBuilder {
    places: Vec<ObjectId>,
    numbers: HashMap<ObjectId, u64>,
    entries: Vec<u8>,
    /// Where each entry begins.
    starts: Vec<u32>,
}

impl TableBuilder {
    /// The index, of which at least a quarter is free: without a free place, a path that is not there
    /// would be looked for everywhere.
    fn index(&self) -> Box<[u32]> {
        let length = (self.starts.len() * 4 / 3 + 1).next_power_of_two();
        let mut index = vec![FREE; length].into_boxed_slice();
        for start in &self.starts {
            let mut rest = Reader(self.entries.get(*start as usize..).unwrap_or_default());
            let path = rest.path().unwrap_or_default();
            let free = places(path, length).find(|place| index.get(*place) == Some(&FREE));
            if let Some(place) = free.and_then(|place| index.get_mut(place)) {
                *place = *start;
            }
        }
        index
    }

    fn add(&mut self, path: &str, entry: &FileEntry) {
        // 10,000 files of 1,100 bytes each do not come near the end of 32 bits.
        self.starts
            .push(u32::try_from(self.entries.len()).unwrap_or(FREE));
        self.number(path.len() as u64);
        self.entries.extend(path.as_bytes());
        self.entries.extend(entry.digest.as_bytes());
        self.stored(&entry.plain);
        let bits = entry
            .variants
            .iter()
            .enumerate()
            .map(|(position, it)| u8::from(it.is_some()) << position);
        self.entries.push(bits.sum());
        entry
            .variants
            .iter()
            .flatten()
            .for_each(|variant| self.stored(variant));
    }

    fn stored(&mut self, stored: &ContentLocation) {
        let id = stored.place;
        let next = self.places.len() as u64;
        let number = *self.numbers.entry(id).or_insert(next);
        if number == next {
            self.places.push(id);
        }
        self.number(number);
        self.number(stored.offset);
        self.number(stored.size);
    }

    /// Seven bits a byte, the lowest first; the high bit says that more follow.
    fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.entries.push(number.to_le_bytes()[0] | 0x80);
            number >>= 7;
        }
        self.entries.push(number.to_le_bytes()[0]);
    }
}

/// Reads what [`TableBuilder`] wrote.
struct Reader<'t>(&'t [u8]);

impl<'t> Reader<'t> {
    fn path(&mut self) -> Option<&'t [u8]> {
        let length = usize::try_from(self.number()?).ok()?;
        self.0.split_off(..length)
    }

    fn stored(&mut self, places: &[ObjectId]) -> Option<ContentLocation> {
        let place = *places.get(usize::try_from(self.number()?).ok()?)?;
        let (offset, size) = (self.number()?, self.number()?);
        Some(ContentLocation {
            place,
            offset,
            size,
        })
    }

    fn number(&mut self) -> Option<u64> {
        let (mut number, mut shift) = (0_u64, 0);
        loop {
            let byte = *self.0.split_off_first()?;
            number |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(number);
            }
            shift += 7;
        }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.0.split_off(..N)?.try_into().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_blobs::BlobLocation;
    use estrade_model::paths::FilePath;

    fn blob(content: &[u8], place: &str, offset: i64) -> StoredBlob {
        StoredBlob {
            digest: Digest::of(content),
            size: content.len() as u64 * 1000,
            location: BlobLocation::from_columns(place, offset).unwrap(),
        }
    }

    #[test]
    fn every_file_is_found_with_all_that_belongs_to_it() {
        let (pack, file) = (
            "pack:0123456789abcdef01234567",
            "file:0123456789abcdef01234568",
        );
        let stored = [
            blob(b"a", pack, 0),
            blob(b"bb", pack, 70_000),
            blob(b"ccc", file, 0),
        ];
        let paths = ["z/last.js", "index.html", "a/b/c.txt"];
        let files = paths.iter().zip(&stored).map(|(path, blob)| ManifestFile {
            path: FilePath::try_from((*path).to_owned()).unwrap(),
            digest: blob.digest,
            size: blob.size,
        });
        let lost = ManifestFile {
            path: FilePath::try_from("lost".to_owned()).unwrap(),
            digest: Digest::of(b"lost"),
            size: 4,
        };
        let gzip = VariantRow {
            of: stored[1].digest,
            coding: Coding::Gzip,
            blob: blob(b"gz", pack, 90_000),
        };
        let (site, missing) = Site::build(Parts {
            manifest: Manifest::new(files.chain([lost]).collect()),
            known: DigestMap::default(),
            blobs: stored.iter().map(|blob| (blob.digest, *blob)).collect(),
            variants: vec![gzip],
            config: SiteConfig::default(),
            redirects: String::new(),
            headers: String::new(),
        });
        assert_eq!(missing, 1);
        for (path, blob) in paths.iter().zip(&stored) {
            let entry = site.find(path).unwrap();
            assert_eq!(entry.digest, blob.digest);
            let plain = ContentLocation {
                place: blob.location.object(),
                offset: blob.location.offset(),
                size: blob.size,
            };
            assert_eq!(entry.plain, plain);
            assert_eq!(entry.has_variants(), *path == "index.html");
        }
        let variant = site
            .find("index.html")
            .unwrap()
            .stored(Coding::Gzip)
            .unwrap();
        assert_eq!((variant.offset, variant.size), (90_000, 2000));
        assert_eq!(
            site.find("index.html").unwrap().stored(Coding::Brotli),
            None
        );
        for absent in ["", "index", "index.htm", "index.htmll", "lost", "a", "zz"] {
            assert_eq!(site.find(absent), None, "{absent}");
        }
    }
}
