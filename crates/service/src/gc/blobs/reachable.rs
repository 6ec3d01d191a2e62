//! The contents that rows refer to: a compact set of all of them.

use crate::{Core, Result};
use estrade_blobs::Digest;
use estrade_store::blob_gc;

/// Rows that are read at once.
pub(super) const PAGE_ROWS: u32 = 1000;
/// Members that are collected before they are sorted in, at least.
const MIN_SORT_BATCH: usize = 64 * 1024;

/// A sorted array of 64-bit prefixes of digests. A false positive only keeps a content that could go.
#[derive(Debug, Default)]
pub(super) struct ReachableSet {
    sorted: Vec<u64>,
    unsorted: Vec<u64>,
}

impl ReachableSet {
    fn insert(&mut self, digest: &Digest) {
        self.unsorted.push(prefix(digest));
        if self.unsorted.len() >= MIN_SORT_BATCH.max(self.sorted.len() / 2) {
            self.sort();
        }
    }

    fn extend<'d>(&mut self, digests: impl IntoIterator<Item = &'d Digest>) {
        for digest in digests {
            self.insert(digest);
        }
    }

    fn sort(&mut self) {
        self.sorted.append(&mut self.unsorted);
        self.sorted.sort_unstable();
        self.sorted.dedup();
    }

    /// Whether a digest is in it; only after [`sort`](Self::sort).
    pub(super) fn contains(&self, digest: &Digest) -> bool {
        self.sorted.binary_search(&prefix(digest)).is_ok()
    }

    /// Reads all references to contents.
    pub(super) async fn read(core: &Core) -> Result<Self> {
        let (db, mut reachable) = (&core.db, Self::default());
        let mut after = None;
        loop {
            let artifacts = blob_gc::needed_by_artifacts(db, after).await?;
            for artifact in &artifacts {
                let digests = artifact.contents.iter().map(|(digest, _)| digest);
                reachable.extend(digests);
            }
            match artifacts.last() {
                Some(last) => after = Some(last.id),
                None => break,
            }
        }
        let mut after = String::new();
        loop {
            let (digests, last) = blob_gc::needed_by_sources(db, &after, PAGE_ROWS).await?;
            reachable.extend(&digests);
            match last {
                Some(last) => after = last,
                None => break,
            }
        }
        let mut after = Vec::new();
        loop {
            let digests = blob_gc::needed_by_uploads(db, &after, PAGE_ROWS).await?;
            reachable.extend(&digests);
            match digests.last() {
                Some(last) => after = last.as_bytes().to_vec(),
                None => break,
            }
        }
        reachable.sort();
        reachable.add_variants(core).await?;
        Ok(reachable)
    }

    /// Adds the variants of reachable contents. A variant has none of its own.
    async fn add_variants(&mut self, core: &Core) -> Result<()> {
        let (mut variants, mut after) = (Self::default(), None);
        loop {
            let links = blob_gc::list_variants(&core.db, after.as_ref(), PAGE_ROWS).await?;
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
        self.unsorted = variants.unsorted;
        self.sort();
        Ok(())
    }
}

fn prefix(digest: &Digest) -> u64 {
    let mut prefix = [0; 8];
    prefix.copy_from_slice(&digest.as_bytes()[..8]);
    u64::from_be_bytes(prefix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_exactly_what_was_inserted() {
        let digest = |number: u32| Digest::of(&number.to_be_bytes());
        let mut reachable = ReachableSet::default();
        for number in 0..200_000 {
            reachable.insert(&digest(number % 150_000));
        }
        reachable.sort();
        assert_eq!(reachable.sorted.len(), 150_000);
        assert!((0..150_000).all(|number| reachable.contains(&digest(number))));
        assert!((150_000..200_000).all(|number| !reachable.contains(&digest(number))));
    }
}
