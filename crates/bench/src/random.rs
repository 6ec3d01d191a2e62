//! Numbers that look random and are the same in every run (SplitMix64).

use std::fmt::Write as _;

/// A sequence of numbers.
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of a seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// 32 bytes, such as a hash.
    pub(crate) fn hash(&mut self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for chunk in bytes.chunks_mut(8) {
            chunk.copy_from_slice(&self.next().to_le_bytes());
        }
        bytes
    }

    /// Markup of so many bytes that is worth compressing.
    pub(crate) fn text(&mut self, size: usize) -> String {
        let mut text = String::with_capacity(size + 32);
        while text.len() < size {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "<li class=\"item\">{}</li>", self.next() % 1_000_000);
        }
        text.truncate(size);
        text
    }
}
