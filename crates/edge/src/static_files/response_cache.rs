//! Files that were given lately, each in one line of the processor's cache.
//!
//! Among thousands of sites, to find a file means to look at a dozen places in memory that nobody has looked at
//! for a while. What was found is noted here, by host, path and codings as they came, and holds for as long as
//! the project is served as it was then: its generation tells. A note that is lost costs only time.

use crate::static_files::request::{Method, StaticRequest};
use crate::static_files::site::ContentLocation;
use estrade_blobs::Digest;
use estrade_model::coding::Coding;
use siphasher::sip128::{Hasher128, SipHasher13};
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};
use zerocopy::FromZeros;

/// Notes that share a place; a power of two.
const WAYS: usize = 8;
/// The tag of a place that is free.
const FREE: u16 = 0;
/// Bits of an offset. The other 24 of its word are the number of the file, of which there are fewer.
const OFFSET_BITS: u32 = 40;

/// What was given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CachedFile {
    /// The project, by number…
    pub(crate) route: u32,
    /// …and how often that had changed.
    pub(crate) generation: u32,
    /// The hash of the content.
    pub(crate) digest: Digest,
    /// The pack or file that its bytes lie in, by number.
    pub(crate) file: u32,
    /// Where they begin there.
    pub(crate) offset: u64,
    /// How many there are.
    pub(crate) size: u16,
    /// How they are written.
    pub(crate) coding: Coding,
    /// What else has to be said of it.
    pub(crate) flags: FileFlags,
}

/// What the head of an answer says of a file besides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FileFlags {
    /// Whether it exists in several codings.
    pub(crate) varies: bool,
    /// Whether it is a page that is not named in the path: an index, or one without its ending.
    pub(crate) is_page: bool,
    /// Whether its name changes with its content.
    pub(crate) is_hashed: bool,
}

/// A question, as short as it can be told from others.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CacheKey {
    set: usize,
    tag: u16,
    check: u64,
}

/// One note: see [`CachedFile::pack`]. The low half of the first word counts how often it was written, twice each
/// time: it is odd while that goes on.
#[derive(FromZeros)]
#[repr(C, align(64))]
struct CacheSlot([AtomicU64; 8]);

/// The notes. Their memory is taken from the system untouched, and costs something only where it is used.
pub(crate) struct ResponseCache {
    tags: Box<[AtomicU16]>,
    slots: Box<[CacheSlot]>,
    /// Known to nobody outside: whoever could make two questions look alike could answer for somebody else.
    secret: (u64, u64),
}

impl ResponseCache {
    /// Room for about so many.
    pub(crate) fn new(capacity: usize) -> Self {
        let count = capacity.next_power_of_two().max(WAYS);
        let random = || RandomState::new().build_hasher().finish();
        Self {
            // Without memory there are no notes.
            tags: <[AtomicU16]>::new_box_zeroed_with_elems(count).unwrap_or_default(),
            slots: <[CacheSlot]>::new_box_zeroed_with_elems(count).unwrap_or_default(),
            secret: (random(), random()),
        }
    }

    /// What to look for, if it is asked for a file as it is now and as a whole.
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
        // With their lengths, so that nothing can be moved from one to the other.
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

    /// What was given to this question.
    pub(crate) fn get(&self, key: &CacheKey) -> Option<CachedFile> {
        self.ways(key)
            .filter(|(tag, _)| tag.load(Ordering::Relaxed) == key.tag)
            .find_map(|(_, slot)| slot.read(key.check))
    }

    /// Notes what was given.
    pub(crate) fn put(&self, key: &CacheKey, file: &CachedFile) {
        let same = |(tag, slot): &(&AtomicU16, &CacheSlot)| {
            tag.load(Ordering::Relaxed) == key.tag && slot.read(key.check).is_some()
        };
        let free = |(tag, _): &(&AtomicU16, &CacheSlot)| tag.load(Ordering::Relaxed) == FREE;
        // Whose turn it is to make room is as good as random.
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
    /// What is noted here, if it is for this question and nobody is writing it.
    fn read(&self, check: u64) -> Option<CachedFile> {
        let [first, words @ ..] = &self.0;
        let before = first.load(Ordering::Acquire);
        if before & 1 != 0 || words[0].load(Ordering::Relaxed) != check {
            return None;
        }
        let words = words.each_ref().map(|word| word.load(Ordering::Relaxed));
        // What was read is one note only if it was not written meanwhile.
        fence(Ordering::Acquire);
        let same = first.load(Ordering::Relaxed) == before && words[0] == check;
        let [_, packed @ ..] = words;
        same.then(|| CachedFile::unpack(u32::try_from(before >> 32).unwrap_or_default(), packed))
    }

    /// Writes a note; false when somebody else does.
    fn write(&self, check: u64, file: &CachedFile) -> bool {
        let [first, words @ ..] = &self.0;
        let before = first.load(Ordering::Relaxed);
        let odd = before | 1;
        let taken = before & 1 == 0
            && first
                .compare_exchange(before, odd, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if taken {
            // Nobody who sees any of these words takes the first one for unchanged.
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
    /// The size of a content as a note has it, if there is room for it and for where it begins.
    pub(crate) fn size_of(stored: &ContentLocation) -> Option<u16> {
        let size = u16::try_from(stored.size).ok()?;
        (stored.offset < 1 << OFFSET_BITS).then_some(size)
    }

    /// All but the generation: the hash in four words, where the bytes are, and the rest.
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
    use estrade_blobs::Place;

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
        let place = Place::from_columns("pack:0123456789abcdef01234567", 0);
        let place = place.unwrap().id();
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
        // Twice as many questions as there is room for, and two answers to each.
        let cache = ResponseCache::new(WAYS);
        let paths: Vec<String> = (0..2 * WAYS).map(|number| format!("/{number}")).collect();
        let keys: Vec<CacheKey> = paths
            .iter()
            .map(|path| cache.key(&request("a.localhost", path, None)).unwrap())
            .collect();
        let answers = |number: u32| [file(number), file(number + 1000)];
        std::thread::scope(|scope| {
            for which in 0..2 {
                let (cache, keys) = (&cache, &keys);
                scope.spawn(move || {
                    for _ in 0..20_000 {
                        for (number, key) in (0..).zip(keys) {
                            cache.put(key, &answers(number)[which]);
                        }
                    }
                });
            }
            let mut found = 0;
            for _ in 0..20_000 {
                for (number, key) in (0..).zip(&keys) {
                    if let Some(it) = cache.get(key) {
                        assert!(answers(number).contains(&it), "{number}: {it:?}");
                        found += 1;
                    }
                }
            }
            assert!(found > 0);
        });
    }
}
