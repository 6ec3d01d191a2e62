//! Brotli. The encoder is generic, so it is compiled where it is called: here, optimised in every
//! profile and once, and not in a crate that is built a hundred times a day.

use brotli::enc::BrotliEncoderParams;
use std::io::{self, Read, Write};

/// The best Brotli takes 50 ms for 20 KiB and 3 s for 1 MiB; then a third of a second for 1 MiB, and
/// for what is larger still a tenth.
const QUALITY: [(u64, i32); 3] = [(256 << 10, 11), (4 << 20, 9), (u64::MAX, 5)];

/// Compresses a content of this size.
pub fn compress(content: &mut dyn Read, out: &mut dyn Write, size: u64) -> io::Result<()> {
    let (mut content, mut out) = (content, out);
    brotli::BrotliCompress(&mut content, &mut out, &params(size)).map(drop)
}

fn params(size: u64) -> BrotliEncoderParams {
    let quality = QUALITY.iter().find(|(most, _)| size <= *most);
    // The window need not be larger than the content; a smaller one needs less memory.
    let bits = size.max(1).next_power_of_two().trailing_zeros();
    BrotliEncoderParams {
        quality: quality.map_or(5, |(_, quality)| *quality),
        lgwin: i32::try_from(bits.clamp(18, 22)).unwrap_or(22),
        size_hint: usize::try_from(size).unwrap_or(0),
        ..BrotliEncoderParams::default()
    }
}
