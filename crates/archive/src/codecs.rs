//! Compressing one content: small ones in memory, large ones piece by piece.
//!
//! Levels were chosen by measuring sites of text: at these, 200 files of 20 KiB take about 50 ms of
//! one core for both quick codings together, and the next better ones take twice as long for 2 % less.
//! Better ones follow with Brotli, which has all the time it needs.

use estrade_model::coding::Coding;
use flate2::{Compression, GzBuilder};
use libdeflater::{CompressionLvl, Compressor as Deflate};
use std::io::{self, Read, Write};
use zstd::bulk::Compressor as Zstd;

const GZIP_LEVEL: i32 = 1;
const GZIP_STREAM_LEVEL: u32 = 4;
const ZSTD_LEVEL: i32 = 1;
const ZSTD_STREAM_LEVEL: i32 = 3;
/// How much is read and compressed at once.
const BUFFER_SIZE: usize = 64 * 1024;

/// How long a variant may be to be worth keeping: the bytes that it saves must be worth a second
/// copy on disk.
fn max_variant_bytes(size: u64) -> u64 {
    size - size.div_ceil(20)
}

/// Compressors for contents in memory, made once per thread: making them costs as much as a small
/// content.
pub struct Codecs {
    deflate: Deflate,
    zstd: Zstd<'static>,
}

impl Codecs {
    pub fn new() -> io::Result<Self> {
        let level = CompressionLvl::new(GZIP_LEVEL).unwrap_or_default();
        Ok(Self {
            deflate: Deflate::new(level),
            zstd: Zstd::new(ZSTD_LEVEL)?,
        })
    }

    /// The compressed bytes, if they are worth it.
    pub fn compress(&mut self, coding: Coding, content: &[u8]) -> io::Result<Option<Vec<u8>>> {
        let size = content.len() as u64;
        let most = usize::try_from(max_variant_bytes(size)).map_err(io::Error::other)?;
        let packed = match coding {
            Coding::Gzip => {
                let mut packed = vec![0; most];
                match self.deflate.gzip_compress(content, &mut packed) {
                    Ok(length) => packed.truncate(length),
                    Err(libdeflater::CompressionError::InsufficientSpace) => return Ok(None),
                }
                packed
            }
            Coding::Zstd => self.zstd.compress(content)?,
            Coding::Brotli => {
                let mut packed = Vec::new();
                estrade_brotli::compress(&mut &*content, &mut packed, size)?;
                packed
            }
            Coding::Identity => return Ok(None),
        };
        Ok((packed.len() <= most).then_some(packed))
    }
}

/// Compresses a content of any size in bounded memory. Gives `out` back with the whole variant in it; none when that is
/// not worth keeping, and `out` was dropped with a part of it.
pub fn compress_stream<W: Write>(
    coding: Coding,
    content: impl Read,
    size: u64,
    out: W,
    is_canceled: impl Fn() -> bool,
) -> io::Result<Option<W>> {
    let mut out = LimitedWriter {
        inner: out,
        left: max_variant_bytes(size),
        over: false,
    };
    let content = CancellableReader {
        inner: content,
        is_canceled,
    };
    match encode(coding, content, size, &mut out) {
        Ok(()) => Ok(Some(out.inner)),
        Err(_) if out.over => Ok(None),
        Err(error) => Err(error),
    }
}

fn encode(
    coding: Coding,
    mut content: impl Read,
    size: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    match coding {
        Coding::Gzip => {
            let builder = GzBuilder::new().mtime(0);
            let mut encoder = builder.write(out, Compression::new(GZIP_STREAM_LEVEL));
            copy(content, &mut encoder)?;
            encoder.finish().map(drop)
        }
        Coding::Zstd => {
            let mut encoder = zstd::stream::write::Encoder::new(out, ZSTD_STREAM_LEVEL)?;
            encoder.set_pledged_src_size(Some(size))?;
            copy(content, &mut encoder)?;
            encoder.finish().map(drop)
        }
        Coding::Brotli => estrade_brotli::compress(&mut content, out, size),
        Coding::Identity => Err(io::Error::other("nothing to compress")),
    }
}

fn copy(mut from: impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut piece = vec![0; BUFFER_SIZE];
    loop {
        match from.read(&mut piece)? {
            0 => return Ok(()),
            count => to.write_all(&piece[..count])?,
        }
    }
}

/// A content that ends with an error when nobody waits for it any more.
struct CancellableReader<R, F> {
    inner: R,
    is_canceled: F,
}

impl<R: Read, F: Fn() -> bool> Read for CancellableReader<R, F> {
    fn read(&mut self, piece: &mut [u8]) -> io::Result<usize> {
        if (self.is_canceled)() {
            return Err(io::Error::other("nobody waits for this any more"));
        }
        self.inner.read(piece)
    }
}

/// Refuses what is not worth keeping as soon as that is known.
struct LimitedWriter<W> {
    inner: W,
    left: u64,
    over: bool,
}

impl<W: Write> Write for LimitedWriter<W> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        let Some(left) = self.left.checked_sub(piece.len() as u64) else {
            self.over = true;
            return Err(io::Error::other("not worth compressing"));
        };
        let taken = self.inner.write(piece)?;
        self.left = left + (piece.len() - taken) as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
