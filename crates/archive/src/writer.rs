//! Writes a tar archive, with or without gzip, in chunks and from one file at a time.
//!
//! Entries have no times and owners of their own, so the same files always make the same bytes. Nothing is written
//! before it is asked for: a slow reader holds one open file and one chunk.

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use std::io::{self, Cursor, Read, Write};

/// How much is read from a file at once.
const PIECE: usize = 64 * 1024;
/// Minimum size of a chunk of the archive.
const CHUNK: usize = 64 * 1024;
/// Tar files are made of blocks of this size.
const BLOCK: usize = 512;

/// A file to write.
pub struct SourceFile {
    pub path: String,
    /// The length of the content.
    pub size: u64,
    pub content: Box<dyn Read + Send>,
    /// Whether the file is marked as executable when its content is a script or a program.
    pub marks_program: bool,
}

/// An archive that is being written. It takes the next file from the iterator when the one before is written.
pub struct TarWriter<F> {
    files: F,
    open: Option<OpenFile>,
    /// None once the archive is complete.
    out: Option<Output>,
}

struct OpenFile {
    content: Box<dyn Read + Send>,
    size: u64,
}

enum Output {
    Gzip(Box<GzEncoder<Vec<u8>>>),
    Plain(Vec<u8>),
}

impl<F: Iterator<Item = io::Result<SourceFile>>> TarWriter<F> {
    /// An archive with gzip.
    pub fn gzip(files: F) -> Self {
        let gzip = GzBuilder::new().mtime(0);
        let gzip = gzip.write(Vec::new(), Compression::default());
        Self::new(files, Output::Gzip(Box::new(gzip)))
    }

    /// An archive that is not compressed.
    pub fn plain(files: F) -> Self {
        Self::new(files, Output::Plain(Vec::new()))
    }

    fn new(files: F, out: Output) -> Self {
        Self {
            files,
            open: None,
            out: Some(out),
        }
    }

    /// The next chunk of the archive; none at its end. Blocks while files are read.
    pub fn next_chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let Some(mut out) = self.out.take() else {
            return Ok(None);
        };
        let mut piece = vec![0; PIECE];
        while out.written().len() < CHUNK {
            if !self.write_some(&mut out, &mut piece)? {
                return Ok(Some(out.finish()?));
            }
        }
        let chunk = std::mem::take(out.written());
        self.out = Some(out);
        Ok(Some(chunk))
    }

    /// Writes a header or a piece of a content; false once the end of the archive is written.
    fn write_some(&mut self, out: &mut impl Write, piece: &mut [u8]) -> io::Result<bool> {
        if let Some(file) = &mut self.open {
            let count = file.content.read(piece)?;
            out.write_all(&piece[..count])?;
            if count == 0 {
                out.write_all(padding(file.size))?;
                self.open = None;
            }
            return Ok(true);
        }
        let Some(file) = self.files.next().transpose()? else {
            // Two empty blocks end an archive.
            out.write_all(&[0; 2 * BLOCK])?;
            return Ok(false);
        };
        let mut content = file.content;
        let begin = if file.marks_program {
            first_bytes(&mut content)?
        } else {
            Vec::new()
        };
        out.write_all(&header(&file.path, file.size, mode(&begin))?)?;
        self.open = Some(OpenFile {
            content: Box::new(Cursor::new(begin).chain(content)),
            size: file.size,
        });
        Ok(true)
    }
}

impl Output {
    fn written(&mut self) -> &mut Vec<u8> {
        match self {
            Self::Gzip(gzip) => gzip.get_mut(),
            Self::Plain(bytes) => bytes,
        }
    }

    fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            Self::Gzip(gzip) => gzip.finish(),
            Self::Plain(bytes) => Ok(bytes),
        }
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Gzip(gzip) => gzip.write(bytes),
            Self::Plain(out) => out.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn first_bytes(content: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut begin = Vec::with_capacity(4);
    content.take(4).read_to_end(&mut begin)?;
    Ok(begin)
}

/// Scripts and programs can be started, the rest is only read.
fn mode(begin: &[u8]) -> u32 {
    if begin.starts_with(b"#!") || begin.starts_with(b"\x7fELF") {
        0o755
    } else {
        0o644
    }
}

/// The blocks that stand before a content; a long path has some of its own.
fn header(path: &str, size: u64, mode: u32) -> io::Result<Vec<u8>> {
    let mut header = ::tar::Header::new_gnu();
    header.set_entry_type(::tar::EntryType::Regular);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    let mut builder = ::tar::Builder::new(Vec::new());
    builder.append_data(&mut header, path, io::empty())?;
    Ok(builder.get_ref().clone())
}

/// What fills a content up to whole blocks.
fn padding(size: u64) -> &'static [u8] {
    const ZEROS: [u8; BLOCK] = [0; BLOCK];
    let over = usize::try_from(size % BLOCK as u64).unwrap_or(0);
    if over == 0 { &[] } else { &ZEROS[over..] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str, content: &[u8], marks_program: bool) -> SourceFile {
        SourceFile {
            path: path.to_owned(),
            size: content.len() as u64,
            content: Box::new(Cursor::new(content.to_vec())),
            marks_program,
        }
    }

    #[test]
    fn an_archive_has_the_files_and_marks_programs() {
        let long = "a/".repeat(100) + "b";
        let large = vec![7; 3 * CHUNK + 1];
        let files = || {
            [
                file("run", b"#!/bin/sh\n", true),
                file("text", b"#!/bin/sh\n", false),
                file(&long, &large, true),
                file("empty", b"", true),
            ]
            .into_iter()
            .map(Ok)
        };
        let mut plain = Vec::new();
        let mut writer = TarWriter::plain(files());
        while let Some(chunk) = writer.next_chunk().unwrap() {
            plain.extend(chunk);
        }
        let mut zipped = Vec::new();
        let mut writer = TarWriter::gzip(files());
        while let Some(chunk) = writer.next_chunk().unwrap() {
            zipped.extend(chunk);
        }
        let mut unzipped = Vec::new();
        let mut reader = flate2::read::GzDecoder::new(&*zipped);
        reader.read_to_end(&mut unzipped).unwrap();
        assert_eq!(unzipped, plain);
        let mut archive = ::tar::Archive::new(&*plain);
        let found = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().to_str().unwrap().to_owned();
            (path, entry.size(), entry.header().mode().unwrap())
        });
        let expected = [
            ("run".to_owned(), 10, 0o755),
            ("text".to_owned(), 10, 0o644),
            (long.clone(), large.len() as u64, 0o644),
            ("empty".to_owned(), 0, 0o644),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }
}
