//! Which contents are needed: a compact set of all of them.

use crate::{Core, Result};
use estrade_blobs::Digest;
use estrade_store::cleanup;

/// Rows that are read at once.
pub(super) const PAGE: u32 = 1000;
/// New members that wait to be sorted in, at least.
const WAITING: usize = 64 * 1024;

/// A set of digests that only remembers how they begin. Two that begin alike would keep each other,
/// which does no harm and never happens: there are 2^64 beginnings.
#[derive(Debug, Default)]
pub(super) struct Needed {
    sorted: Vec<u64>,
    waiting: Vec<u64>,
}

impl Needed {
    fn insert(&mut self, digest: &Digest) {
        self.waiting.push(beginning(digest));
        if self.waiting.len() >= WAITING.max(self.sorted.len() / 2) {
            self.sort();
        }
    }

    fn extend<'d>(&mut self, digests: impl IntoIterator<Item = &'d Digest>) {
        for digest in digests {
            self.insert(digest);
        }
    }

    fn sort(&mut self) {
        self.sorted.append(&mut self.waiting);
        self.sorted.sort_unstable();
        self.sorted.dedup();
    }

    /// Whether a digest is in it; only after [`sort`](Self::sort).
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.sorted.binary_search(&beginning(digest)).is_ok()
    }

    /// Reads everything that needs contents.
    pub(super) async fn read(core: &Core) -> Result<Self> {
        let (db, mut needed) = (&core.db, Self::default());
        let mut after = None;
        loop {
            let artifacts = cleanup::needed_by_artifacts(db, after).await?;
            for artifact in &artifacts {
                let digests = artifact.contents.iter().map(|(digest, _)| digest);
                needed.extend(digests);
            }
            match artifacts.last() {
                Some(last) => after = Some(last.id),
                None => break,
            }
        }
        let mut after = String::new();
        loop {
            let (digests, last) = cleanup::needed_by_sources(db, &after, PAGE).await?;
            needed.extend(&digests);
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        let mut after = Vec::new();
        loop {
            let digests = cleanup::needed_by_uploads(db, &after, PAGE).await?;
            needed.extend(&digests);
            match digests.last() {
                Some(last) => after = last.as_bytes().to_vec(),
                None => break,
            }
        }
        needed.sort();
        needed.add_variants(core).await?;
        Ok(needed)
    }

    /// Adds the variants of what is needed. A variant has none of its own.
    async fn add_variants(&mut self, core: &Core) -> Result<()> {
        let (mut variants, mut after) = (Self::default(), None);
        loop {
            let links = cleanup::list_variants(&core.db, after.as_ref(), PAGE).await?;
            for link in &links {
                if let (Some(variant), true) = (&link.variant, self.contains(&link.of)) {
                    variants.insert(variant);
                }
            }
            match links.into_iter().last() {
                Some(last) => after = Some(last),
                None => break,
            }
        }
        self.sorted.append(&mut variants.sorted);
        self.waiting = variants.waiting;
        self.sort();
        Ok(())
    }
}

fn beginning(digest: &Digest) -> u64 {
    let mut beginning = [0; 8];
    beginning.copy_from_slice(&digest.as_bytes()[..8]);
    u64::from_be_bytes(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_was_put_in_and_nothing_else() {
        let digest = |number: u32| Digest::of(&number.to_be_bytes());
        let mut needed = Needed::default();
        for number in 0..200_000 {
            needed.insert(&digest(number % 150_000));
        }
        needed.sort();
        assert_eq!(needed.sorted.len(), 150_000);
        assert!((0..150_000).all(|number| needed.contains(&digest(number))));
        assert!((150_000..200_000).all(|number| !needed.contains(&digest(number))));
    }
}
