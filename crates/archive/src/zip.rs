//! Reading `.zip`.
//!
//! A zip file says everything twice, at the end (the directory) and before each file, and readers
//! that believe one or the other can be made to see different files. This one demands that both
//! agree, that no two files share bytes, and that sizes and checksums are true. It holds the
//! directory in memory only up to the cap on entries, whatever the archive claims.

use crate::error::{TooLarge, UnpackError, refuse};
use crate::tree::{ContentSink, Member, Tree};
use estrade_model::paths::FilePath;
use flate2::Crc;
use flate2::bufread::DeflateDecoder;
use std::io::{self, BufReader, Read};

const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;
const DIRECTORY_ENTRY: u32 = 0x0201_4b50;
const LOCAL_HEADER: u32 = 0x0403_4b50;
/// Length of the record at the end, without its comment of up to 64 KiB.
const END_LENGTH: usize = 22;
/// Flags: encrypted, encrypted strongly, directory encrypted.
const ENCRYPTED: u16 = 1 | 1 << 6 | 1 << 13;
/// Stands for "see the record of 64 bits".
const IN_64: u32 = u32::MAX;
/// Longest name that is looked at; longer ones are no paths. All of them are in memory at once.
const MAX_NAME_BYTES: usize = FilePath::MAX_BYTES + 64;
/// Longest target of a link.
const MAX_TARGET_BYTES: u64 = 4096;
/// File types of Unix, in the upper half of the attributes.
const TYPE_MASK: u32 = 0o17_0000;
const TYPE_FILE: u32 = 0o10_0000;
const TYPE_FOLDER: u32 = 0o04_0000;
const TYPE_LINK: u32 = 0o12_0000;

/// A content that is read anywhere: a zip file has its directory at its end.
pub trait RandomAccess {
    /// How long the content is.
    fn size(&self) -> u64;

    /// The part of the content from `start`, of `length` bytes or to its end if that is nearer.
    fn part(&self, start: u64, length: u64) -> impl Read;
}

/// Adds all files of an archive.
pub fn read(
    tree: &mut Tree<impl ContentSink>,
    archive: &impl RandomAccess,
) -> Result<(), UnpackError> {
    let directory = find_directory(archive)?;
    let max_entries = tree.max_entries();
    if directory.entries > max_entries {
        return refuse(
            "archive_too_large",
            format!("the archive has more than {max_entries} entries"),
        );
    }
    let mut entries = read_directory(tree, archive, &directory)?;
    // What is announced to be too much need not be unpacked to find out.
    let bytes = entries
        .iter()
        .fold(0, |sum: u64, entry| sum.saturating_add(entry.size));
    if bytes > tree.max_bytes() {
        return Err(io::Error::other(TooLarge(tree.max_bytes())).into());
    }
    entries.sort_by_key(|entry| entry.offset);
    let ends = entries.iter().skip(1).map(|next| next.offset);
    let ends: Vec<_> = ends.chain([directory.offset]).collect();
    for (entry, end) in entries.iter().zip(ends) {
        add_entry(tree, archive, entry, end)?;
    }
    Ok(())
}

fn damaged<T>(what: &str) -> Result<T, UnpackError> {
    refuse("archive_invalid", format!("the archive is damaged: {what}"))
}

/// Takes numbers from the front of a record.
struct Fields<'r>(&'r [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], UnpackError> {
        match self.0.split_off(..N).and_then(|part| part.try_into().ok()) {
            Some(bytes) => Ok(bytes),
            None => damaged("a record is too short"),
        }
    }

    fn u16(&mut self) -> Result<u16, UnpackError> {
        self.take().map(u16::from_le_bytes)
    }

    fn u32(&mut self) -> Result<u32, UnpackError> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Result<u64, UnpackError> {
        self.take().map(u64::from_le_bytes)
    }
}

/// Where the directory lies.
struct Directory {
    offset: u64,
    size: u64,
    entries: u64,
}

fn find_directory(archive: &impl RandomAccess) -> Result<Directory, UnpackError> {
    let tail = archive
        .size()
        .min((END_LENGTH + usize::from(u16::MAX)) as u64);
    let start = archive.size() - tail;
    let mut bytes = Vec::new();
    archive.part(start, tail).read_to_end(&mut bytes)?;
    // The record ends the file: its comment reaches exactly to the end, whatever the comment holds.
    let is_end = |at: &usize| {
        let record = &bytes[*at..];
        record.starts_with(&END.to_le_bytes())
            && record[END_LENGTH - 2..END_LENGTH]
                == u16::try_from(record.len() - END_LENGTH)
                    .unwrap_or(0)
                    .to_le_bytes()
    };
    let last = bytes.len().checked_sub(END_LENGTH);
    let Some(at) = last.and_then(|last| (0..=last).rev().find(is_end)) else {
        return damaged("it has no directory at its end, as if it was cut off");
    };
    let end = start + at as u64;
    let mut fields = Fields(&bytes[at + 4..]);
    let disks = (fields.u16()?, fields.u16()?);
    let (here, entries) = (fields.u16()?, fields.u16()?);
    let (size, offset) = (fields.u32()?, fields.u32()?);
    let narrow = Directory {
        offset: offset.into(),
        size: size.into(),
        entries: entries.into(),
    };
    let wide = here == u16::MAX || entries == u16::MAX || size == IN_64 || offset == IN_64;
    let (directory, limit) = match find_directory_64(archive, end)? {
        Some(found) => found,
        None if wide => return damaged("its directory is not where it should be"),
        None if disks != (0, 0) || here != entries => {
            return refuse("archive_unsupported", "the archive is one part of several");
        }
        None => (narrow, end),
    };
    if directory.offset.checked_add(directory.size) != Some(limit) {
        return damaged("its directory is not where it should be");
    }
    Ok(directory)
}

/// The directory of an archive of the 64-bit kind, and where the record that says so begins.
fn find_directory_64(
    archive: &impl RandomAccess,
    end: u64,
) -> Result<Option<(Directory, u64)>, UnpackError> {
    let Some(at) = end.checked_sub(20) else {
        return Ok(None);
    };
    let locator = read_exactly::<20>(archive, at)?;
    let mut fields = Fields(&locator);
    if fields.u32()? != LOCATOR_64 {
        return Ok(None);
    }
    let disk = fields.u32()?;
    let record_at = fields.u64()?;
    let disks = fields.u32()?;
    let record = read_exactly::<56>(archive, record_at)?;
    let mut fields = Fields(&record);
    let signature = fields.u32()?;
    let ends = fields.u64()?.checked_add(12);
    let ends = ends.and_then(|length| record_at.checked_add(length));
    if signature != END_64 || ends != Some(at) {
        return damaged("its directory is not where it should be");
    }
    let _versions = fields.u32()?;
    let numbers = (fields.u32()?, fields.u32()?);
    let (here, entries) = (fields.u64()?, fields.u64()?);
    if (disk, numbers) != (0, (0, 0)) || disks > 1 || here != entries {
        return refuse("archive_unsupported", "the archive is one part of several");
    }
    let (size, offset) = (fields.u64()?, fields.u64()?);
    let directory = Directory {
        offset,
        size,
        entries,
    };
    Ok(Some((directory, record_at)))
}

fn read_exactly<const N: usize>(
    archive: &impl RandomAccess,
    at: u64,
) -> Result<[u8; N], UnpackError> {
    let mut bytes = [0; N];
    archive.part(at, N as u64).read_exact(&mut bytes)?;
    Ok(bytes)
}

/// A file as the directory describes it.
struct Entry {
    name: Vec<u8>,
    method: u16,
    crc: u32,
    packed: u64,
    size: u64,
    offset: u64,
    /// The type that Unix gave it, or 0.
    kind: u32,
}

fn read_directory(
    tree: &Tree<impl ContentSink>,
    archive: &impl RandomAccess,
    directory: &Directory,
) -> Result<Vec<Entry>, UnpackError> {
    let part = archive.part(directory.offset, directory.size);
    let mut reader = BufReader::with_capacity(64 * 1024, part);
    let mut entries = Vec::new();
    for _ in 0..directory.entries {
        tree.canceled().check()?;
        entries.push(read_entry(&mut reader)?);
    }
    if reader.read(&mut [0])? > 0 {
        return damaged("its directory has more entries than it says");
    }
    Ok(entries)
}

fn read_entry(reader: &mut impl Read) -> Result<Entry, UnpackError> {
    let mut header = [0; 46];
    reader.read_exact(&mut header)?;
    let mut fields = Fields(&header);
    if fields.u32()? != DIRECTORY_ENTRY {
        return damaged("its directory is broken");
    }
    let made_by = fields.u16()?;
    let _needed = fields.u16()?;
    let flags = fields.u16()?;
    let method = fields.u16()?;
    let _time = fields.u32()?;
    let crc = fields.u32()?;
    let (packed, size) = (fields.u32()?, fields.u32()?);
    let (name_length, extra_length) = (fields.u16()?, fields.u16()?);
    let (comment_length, disk) = (fields.u16()?, fields.u16()?);
    let _internal = fields.u16()?;
    let attributes = fields.u32()?;
    let offset = fields.u32()?;
    let name = read_name(reader, name_length)?;
    let mut extra = vec![0; usize::from(extra_length)];
    reader.read_exact(&mut extra)?;
    io::copy(&mut reader.take(comment_length.into()), &mut io::sink())?;
    let shown = String::from_utf8_lossy(&name[..name.len().min(100)]).into_owned();
    if flags & ENCRYPTED != 0 {
        return refuse(
            "archive_unsupported",
            format!(
                "`{}` is encrypted; pack it without a password",
                shown.escape_debug()
            ),
        );
    }
    if !matches!(method, 0 | 8) {
        return refuse(
            "archive_unsupported",
            format!(
                "`{}` is packed with method {method}; use deflate, as most tools do",
                shown.escape_debug()
            ),
        );
    }
    let mut wide = Fields(find_extra_64(&extra)?);
    let mut widen = |narrow: u32| match narrow {
        IN_64 => wide.u64(),
        narrow => Ok(narrow.into()),
    };
    let (size, packed, offset) = (widen(size)?, widen(packed)?, widen(offset)?);
    if disk != 0 && disk != u16::MAX {
        return refuse("archive_unsupported", "the archive is one part of several");
    }
    // Made on Unix or macOS; elsewhere the upper half means something else.
    let is_unix = matches!(made_by >> 8, 3 | 19);
    Ok(Entry {
        name,
        method,
        crc,
        packed,
        size,
        offset,
        kind: if is_unix {
            attributes >> 16 & TYPE_MASK
        } else {
            0
        },
    })
}

fn read_name(reader: &mut impl Read, length: u16) -> Result<Vec<u8>, UnpackError> {
    let length = usize::from(length);
    if length > MAX_NAME_BYTES {
        return refuse(
            "archive_unsafe",
            "the archive has a name that is far too long",
        );
    }
    let mut name = vec![0; length];
    reader.read_exact(&mut name)?;
    Ok(name)
}

/// The field with numbers that need 64 bits; empty when there is none.
fn find_extra_64(extra: &[u8]) -> Result<&[u8], UnpackError> {
    let mut rest = extra;
    while rest.len() >= 4 {
        let (id, length) = (
            u16::from_le_bytes([rest[0], rest[1]]),
            u16::from_le_bytes([rest[2], rest[3]]),
        );
        let Some(field) = rest.get(4..4 + usize::from(length)) else {
            return damaged("a record is too short");
        };
        if id == 1 {
            return Ok(field);
        }
        rest = &rest[4 + usize::from(length)..];
    }
    Ok(&[])
}

/// Adds one file, whose bytes must end before `end`.
fn add_entry(
    tree: &mut Tree<impl ContentSink>,
    archive: &impl RandomAccess,
    entry: &Entry,
    end: u64,
) -> Result<(), UnpackError> {
    let start = find_content(archive, entry)?;
    if start
        .checked_add(entry.packed)
        .is_none_or(|stop| stop > end)
    {
        return refuse(
            "archive_unsafe",
            "two files of the archive share the same bytes",
        );
    }
    let packed = BufReader::with_capacity(64 * 1024, archive.part(start, entry.packed));
    let inner: Box<dyn Read + '_> = match entry.method {
        0 => Box::new(packed),
        _ => Box::new(DeflateDecoder::new(packed)),
    };
    let mut content = VerifiedReader {
        inner,
        left: entry.size,
        expected: entry.crc,
        crc: Crc::new(),
        is_over: false,
    };
    match entry.kind {
        _ if entry.name.ends_with(b"/") => tree.add(&entry.name, Member::File(&mut io::empty())),
        0 | TYPE_FILE => tree.add(&entry.name, Member::File(&mut content)),
        TYPE_FOLDER => Ok(()),
        TYPE_LINK => {
            let mut target = String::new();
            if entry.size > MAX_TARGET_BYTES || content.read_to_string(&mut target).is_err() {
                return damaged("a link has a target that is no path");
            }
            tree.add(&entry.name, Member::SymbolicLink(target))
        }
        _ => refuse(
            "archive_unsafe",
            format!(
                "`{}` is neither a file nor a folder nor a link",
                String::from_utf8_lossy(&entry.name).escape_debug()
            ),
        ),
    }
}

/// Where the content of a file begins, after what stands before it.
fn find_content(archive: &impl RandomAccess, entry: &Entry) -> Result<u64, UnpackError> {
    let header = read_exactly::<30>(archive, entry.offset)?;
    let mut fields = Fields(&header);
    let signature = fields.u32()?;
    let _needed = fields.u16()?;
    let (flags, method) = (fields.u16()?, fields.u16()?);
    let mut fields = Fields(&header[26..]);
    let (name_length, extra_length) = (fields.u16()?, fields.u16()?);
    let name_at = entry.offset + 30;
    let is_same = signature == LOCAL_HEADER
        && flags & ENCRYPTED == 0
        && method == entry.method
        && usize::from(name_length) == entry.name.len();
    let mut name = vec![0; entry.name.len()];
    archive
        .part(name_at, entry.name.len() as u64)
        .read_exact(&mut name)?;
    if !is_same || name != entry.name {
        return damaged("its directory does not agree with its files");
    }
    Ok(name_at + u64::from(name_length) + u64::from(extra_length))
}

/// A content that must be as long as announced and have the right checksum.
struct VerifiedReader<'r> {
    inner: Box<dyn Read + 'r>,
    left: u64,
    expected: u32,
    crc: Crc,
    is_over: bool,
}

impl Read for VerifiedReader<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_over || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.inner.read(buffer)?;
        self.crc.update(&buffer[..count]);
        let left = self.left.checked_sub(count as u64);
        self.left = left.ok_or_else(|| io::Error::other("a file is longer than it says"))?;
        if count == 0 {
            self.is_over = true;
            if self.left > 0 {
                return Err(io::Error::other("a file is shorter than it says"));
            }
            if self.crc.sum() != self.expected {
                return Err(io::Error::other("a file has a wrong checksum"));
            }
        }
        Ok(count)
    }
}
