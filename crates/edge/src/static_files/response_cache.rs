//! Response cache: an 8-way set-associative hash table whose entries are one cache line (64 bytes) each,
//! read and written without a lock (a seqlock per entry).
//!
//! Invariant: an entry is valid for exactly one generation of its route. A reader compares the generation
//! in the entry with that of the route, so a new release invalidates all entries of a project without
//! touching them. An entry that is evicted or lost costs a full lookup and nothing else.
//!
//! Failure prevented: with thousands of sites in use, a full lookup is about two dozen cache misses.
//! Measured when it was added, old and new build over the same data: 84,000-87,000 to 109,000-121,000
//! requests per CPU-second spread over 10,000 projects, 160,000-190,000 to 170,000-199,000 for one
//! (`./bench edge --only many` of each build).

use crate::static_files::request::{Method, StaticRequest};
use crate::static_files::site::ContentLocation;
use estrade_blobs::Digest;
use estrade_model::coding::Coding;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
use zerocopy::FromZeros;

/// Entries per set; a power of two.
const WAYS: usize = 8;
/// The tag of a free entry.
const FREE: u16 = 0;
/// Bits of an offset. The other 24 of its word are the file id; ids are below 2^20 (see `IdTable`).
const OFFSET_BITS: u32 = 40;

/// A cached response: where the body lies and what the head says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedFile {
    /// Id of the route…
    pub(crate) route: u32,
    /// …and the generation that the entry is valid for.
    pub(crate) generation: u32,
    pub(crate) digest: Digest,
    /// Id of the pack or file that holds the bytes.
    pub(crate) file: u32,
    pub(crate) offset: u64,
    pub(crate) size: u16,
    pub(crate) coding: Coding,
    pub(crate) flags: FileFlags,
}

/// What else the response head depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileFlags {
    /// Compressed variants exist: the response needs `Vary`.
    pub(crate) varies: bool,
    /// The file is not the one named in the path: an index, or a page without its extension.
    pub(crate) is_page: bool,
    /// The name holds a content hash: the response is immutable.
    pub(crate) is_hashed: bool,
}

/// A keyed 128-bit hash of host, path and `Accept-Encoding`: which set, the tag, and the check word.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheKey {
    set: usize,
    tag: u16,
    check: u64,
}

/// One entry, see [`CachedFile::pack`]. The low half of the first word is the sequence number of the seqlock:
/// odd while a writer is at work, two higher after each write.
#[derive(FromZeros)]
#[repr(C, align(64))]
struct CacheSlot([AtomicU64; 8]);

/// The cache. Its memory is zeroed by the system on first touch, so unused entries cost no resident memory.
pub(crate) struct ResponseCache {
    tags: Box<[AtomicU16]>,
    slots: Box<[CacheSlot]>,
    /// Random per process. With a known key, a client could construct a collision and make the cache serve
    /// one project's file for another's URL.
    secret: (u64, u64),
}

impl ResponseCache {
    /// `capacity` is rounded up to a power of two.
    pub(crate) fn new(capacity: usize) -> Self {
        let count = capacity.next_power_of_two().max(WAYS);
        let random = || RandomState::new().build_hasher().finish();
        Self {
            // If the allocation fails, nothing is cached.
            tags: <[AtomicU16]>::new_box_zeroed_with_elems(count).unwrap_or_default(),
            slots: <[CacheSlot]>::new_box_zeroed_with_elems(count).unwrap_or_default(),
            secret: (random(), random()),
        }
    }

    /// The key of an unconditional GET or HEAD of a whole file; none for any other request.
    pub(crate) fn key(&self, request: &StaticRequest<'_>) -> Option<CacheKey> {
        let headers = &request.headers;
        let conditions = [
            &headers.range,
            &headers.if_match,
            &headers.if_none_match,
            &headers.if_modified_since,
            &headers.if_unmodified_since,
            &headers.if_range,
        ];
        let plain = request.method != Method::Other && conditions.iter().all(|it| it.is_none());
        if !plain || self.slots.is_empty() {
            return None;
        }
        let mut hasher = SipHasher13::new_with_keys(self.secret.0, self.secret.1);
        let codings = headers.accept_encoding.as_deref();
        // Length-prefixed: otherwise host "a" + path "bc" would hash like host "ab" + path "c".
        for text in [request.host, codings.unwrap_or_default(), request.path] {
            hasher.write_usize(text.len());
            hasher.write(text.as_bytes());
        }
        hasher.write_u8(codings.is_some().into());
        let hash = hasher.finish128();
        let sets = self.slots.len() / WAYS;
        Some(CacheKey {
            set: usize::try_from(hash.h1).unwrap_or_default() & (sets - 1),
            tag: u16::try_from(hash.h1 >> 48).unwrap_or_default().max(1),
            check: hash.h2,
        })
    }

    pub(crate) fn get(&self, key: &CacheKey) -> Option<CachedFile> {
        self.ways(key)
            .filter(|(tag, _)| tag.load(Ordering::Relaxed) == key.tag)
            .find_map(|(_, slot)| slot.read(key.check))
    }

    /// Inserts an entry: over the same key, else into a free way, else over a pseudo-random one.
    pub(crate) fn put(&self, key: &CacheKey, file: &CachedFile) {
        let same = |(tag, slot): &(&AtomicU16, &CacheSlot)| {
            tag.load(Ordering::Relaxed) == key.tag && slot.read(key.check).is_some()
        };
        let free = |(tag, _): &(&AtomicU16, &CacheSlot)| tag.load(Ordering::Relaxed) == FREE;
        // Bits of the hash serve as the random choice of a victim.
        let any = usize::try_from(key.check).unwrap_or_default() % WAYS;
        let way = self.ways(key).find(same);
        let way = way.or_else(|| self.ways(key).find(free));
        if let Some((tag, slot)) = way.or_else(|| self.ways(key).nth(any))
            && slot.write(key.check, file)
        {
            tag.store(key.tag, Ordering::Relaxed);
        }
    }

    fn ways(&self, key: &CacheKey) -> impl Iterator<Item = (&AtomicU16, &CacheSlot)> {
        let ways = key.set * WAYS..(key.set + 1) * WAYS;
        let tags = self.tags.get(ways.clone()).unwrap_or_default();
        tags.iter().zip(self.slots.get(ways).unwrap_or_default())
    }
}

impl CacheSlot {
    /// Seqlock, reader side: none when the entry is for another key or is being written.
    fn read(&self, check: u64) -> Option<CachedFile> {
        let [first, words @ ..] = &self.0;
        let before = first.load(Ordering::Acquire);
        if before & 1 != 0 || words[0].load(Ordering::Relaxed) != check {
            return None;
        }
        let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // The words belong together only if the sequence number has not changed since before they were read.
        fence(Ordering::Acquire);
        let same = first.load(Ordering::Relaxed) == before && words[0] == check;
        let [_, packed @ ..] = words;
        same.then(|| CachedFile::unpack(u32::try_from(before >> 32).unwrap_or_default(), packed))
    }

    /// Seqlock, writer side; false when another writer holds the entry, which is then left to it.
    fn write(&self, check: u64, file: &CachedFile) -> bool {
        let [first, words @ ..] = &self.0;
        let before = first.load(Ordering::Relaxed);
        let odd = before | 1;
        let taken = before & 1 == 0
            && first
                .compare_exchange(before, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if taken {
            // A reader that sees any word of the new entry also sees the odd sequence number, and gives up.
            fence(Ordering::Release);
            let values = [check].into_iter().chain(file.pack());
            for (word, value) in words.iter().zip(values) {
                word.store(value, Ordering::Relaxed);
            }
            let count = (before & u64::from(u32::MAX)).wrapping_add(2) & u64::from(u32::MAX);
            first.store(u64::from(file.generation) << 32 | count, Ordering::Release);
        }
        taken
    }
}

impl CachedFile {
    /// The size as an entry holds it; none when size or offset do not fit into their bits.
    pub(crate) fn size_of(stored: &ContentLocation) -> Option<u16> {
        let size = u16::try_from(stored.size).ok()?;
        (stored.offset < 1 << OFFSET_BITS).then_some(size)
    }

    /// All but the generation: the digest in four words, the location in one, route, size and flags in one.
    fn pack(&self) -> [u64; 6] {
        let mut digest = self.digest.as_bytes().chunks_exact(8).map(|chunk| {
            let bytes = chunk.try_into().unwrap_or_default();
            u64::from_le_bytes(bytes)
        });
        let mut next = || digest.next().unwrap_or_default();
        let FileFlags {
            varies,
            is_page,
            is_hashed,
        } = self.flags;
        let coding = match self.coding {
            Coding::Identity => 0,
            Coding::Gzip => 1,
            Coding::Zstd => 2,
            Coding::Brotli => 3,
        };
        let flags =
            coding | u64::from(varies) << 2 | u64::from(is_page) << 3 | u64::from(is_hashed) << 4;
        [
            next(),
            next(),
            next(),
            next(),
            u64::from(self.file) << OFFSET_BITS | self.offset,
            u64::from(self.route) << 32 | u64::from(self.size) << 8 | flags,
        ]
    }

    fn unpack(generation: u32, words: [u64; 6]) -> Self {
        let [a, b, c, d, place, last] = words;
        let mut digest = [0; 32];
        for (chunk, word) in digest.chunks_exact_mut(8).zip([a, b, c, d]) {
            chunk.copy_from_slice(&word.to_le_bytes());
        }
        let [flags, size_low, size_high, ..] = last.to_le_bytes();
        Self {
            route: u32::try_from(last >> 32).unwrap_or_default(),
            generation,
            digest: Digest::from(digest),
            file: u32::try_from(place >> OFFSET_BITS).unwrap_or_default(),
            offset: place & ((1 << OFFSET_BITS) - 1),
            size: u16::from_le_bytes([size_low, size_high]),
            coding: match flags & 3 {
                0 => Coding::Identity,
                1 => Coding::Gzip,
                2 => Coding::Zstd,
                _ => Coding::Brotli,
            },
            flags: FileFlags {
                varies: flags & 1 << 2 != 0,
                is_page: flags & 1 << 3 != 0,
                is_hashed: flags & 1 << 4 != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::static_files::request::Headers;
    use estrade_blobs::BlobLocation;

    fn request<'r>(host: &'r str, path: &'r str, codings: Option<&'r str>) -> StaticRequest<'r> {
        let mut headers = Headers::default();
        if let Some(codings) = codings {
            headers.add("accept-encoding", codings);
        }
        StaticRequest {
            method: Method::Get,
            verb: "GET",
            secure: false,
            host,
            path,
            query: None,
            headers,
        }
    }

    /// One that is told from others in every part.
    fn file(number: u32) -> CachedFile {
        let large = number.wrapping_mul(0x9e37_79b9);
        let bit = |place: u32| large >> place & 1 != 0;
        CachedFile {
            route: large,
            generation: large.rotate_left(7),
            digest: Digest::of(&number.to_le_bytes()),
            file: large >> 8,
            offset: u64::from(large) << 8 | 0x5a,
            size: u16::try_from(large >> 16).unwrap(),
            coding: [Coding::Identity, Coding::Gzip, Coding::Zstd, Coding::Brotli]
                [(number % 4) as usize],
            flags: FileFlags {
                varies: bit(1),
                is_page: bit(2),
                is_hashed: bit(3),
            },
        }
    }

    #[test]
    fn what_was_given_is_found_again_with_all_that_belongs_to_it() {
        let cache = ResponseCache::new(4096);
        let paths: Vec<String> = (0..1000).map(|number| format!("/{number}")).collect();
        for (number, path) in (0..).zip(&paths) {
            let key = cache.key(&request("a.localhost", path, None)).unwrap();
            assert_eq!(cache.get(&key), None);
            cache.put(&key, &file(number));
        }
        let found = (0..).zip(&paths).filter(|(number, path)| {
            let key = cache.key(&request("a.localhost", path, None)).unwrap();
            let found = cache.get(&key);
            assert!(found.is_none_or(|found| found == file(*number)));
            found.is_some()
        });
        // A few had to make room for others.
        assert!(found.count() > 950);
        let key = cache.key(&request("a.localhost", "/7", None)).unwrap();
        cache.put(&key, &file(5));
        assert_eq!(cache.get(&key), Some(file(5)));
    }

    #[test]
    fn questions_that_differ_are_told_from_each_other() {
        let cache = ResponseCache::new(64);
        let requests = [
            request("a.localhost", "/b", None),
            request("a.localhost", "/b", Some("")),
            request("a.localhost", "/b", Some("gzip")),
            request("a.localhost", "/bgzip", Some("")),
            request("a.localhost/", "b", None),
            request("A.localhost", "/b", None),
        ];
        for (number, request) in (0..).zip(&requests) {
            let key = cache.key(request).unwrap();
            assert_eq!(cache.get(&key), None, "{request:?}");
            cache.put(&key, &file(number));
        }
    }

    #[test]
    fn who_sets_conditions_asks_something_else() {
        let cache = ResponseCache::new(64);
        for name in [
            "range",
            "if-match",
            "if-none-match",
            "if-modified-since",
            "if-unmodified-since",
            "if-range",
        ] {
            let mut request = request("a.localhost", "/b", None);
            request.headers.add(name, "x");
            assert!(cache.key(&request).is_none(), "{name}");
        }
        let mut post = request("a.localhost", "/b", None);
        post.method = Method::Other;
        assert!(cache.key(&post).is_none());
    }

    #[test]
    fn only_what_fits_is_noted() {
        let place = BlobLocation::from_columns("pack:0123456789abcdef01234567", 0);
        let place = place.unwrap().object();
        let stored = |offset, size| ContentLocation {
            place,
            offset,
            size,
        };
        assert_eq!(CachedFile::size_of(&stored(8, 9)), Some(9));
        assert_eq!(CachedFile::size_of(&stored(1 << 40, 9)), None);
        assert_eq!(CachedFile::size_of(&stored(8, 1 << 16)), None);
    }

    #[test]
    fn nobody_reads_half_of_two_notes() {
        // Twice as many keys as there is room for, and two responses to each.
        let cache = ResponseCache::new(WAYS);
        let paths: Vec<String> = (0..2 * WAYS).map(|number| format!("/{number}")).collect();
        let keys: Vec<CacheKey> = paths
            .iter()
            .map(|path| cache.key(&request("a.localhost", path, None)).unwrap())
            .collect();
        let responses = |number: u32| [file(number), file(number + 1000)];
        std::thread::scope(|scope| {
            for which in 0..2 {
                let (cache, keys) = (&cache, &keys);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        for (number, key) in (0..).zip(keys) {
                            cache.put(key, &responses(number)[which]);
                        }
                    }
                });
            }
            let mut found = 0;
            for _ in 0..20_000 {
                for (number, key) in (0..).zip(&keys) {
                    if let Some(it) = cache.get(key) {
                        assert!(responses(number).contains(&it), "{number}: {it:?}");
                        found += 1;
                    }
                }
            }
            assert!(found > 0);
        });
    }
}
