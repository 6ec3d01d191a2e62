//! Reading `.tar.gz`.
//!
//! Entries are taken raw and the extensions for long names are read here, because a reader that does
//! it by itself holds as much of a name in memory as the archive says that there is.

use crate::error::{TooLarge, UnpackError, refuse};
use crate::tree::{CancelFlag, ContentSink, Member, Tree};
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufReader, Read};
use tar::{Archive, EntryType};

/// Longest extension: a name, a link's target, or what pax has to say of one file.
const MAX_EXTENSION_BYTES: u64 = 64 * 1024;
/// What an entry takes besides its content: its header, that of an extension, and the padding.
const ENTRY_OVERHEAD: u64 = 4096;

/// Adds all files of a `.tar.gz`.
pub fn read(tree: &mut Tree<impl ContentSink>, archive: impl Read) -> Result<(), UnpackError> {
    let archive = BufReader::with_capacity(64 * 1024, archive);
    read_plain(tree, MultiGzDecoder::new(archive))
}

/// Adds all files of a tar.
pub fn read_plain(
    tree: &mut Tree<impl ContentSink>,
    archive: impl Read,
) -> Result<(), UnpackError> {
    let max_entries = tree.max_entries();
    let most = tree
        .max_bytes()
        .saturating_add(max_entries.saturating_mul(ENTRY_OVERHEAD));
    let mut unzipped = LimitedReader {
        inner: archive,
        left: most,
        most: tree.max_bytes(),
        canceled: tree.canceled().clone(),
    };
    {
        let mut archive = Archive::new(&mut unzipped);
        let mut said = Extensions::default();
        for (number, entry) in (0..).zip(archive.entries()?.raw(true)) {
            if number > max_entries {
                return refuse(
                    "archive_too_large",
                    format!("the archive has more than {max_entries} entries"),
                );
            }
            add_entry(tree, &mut said, entry?)?;
        }
        if said != Extensions::default() {
            return refuse(
                "archive_invalid",
                "the archive ends in the middle of a file",
            );
        }
    }
    // To the end, where the checksum is.
    io::copy(&mut unzipped, &mut io::sink())?;
    Ok(())
}

/// What extensions said of the entry that follows them.
#[derive(Default, PartialEq)]
struct Extensions {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    is_sparse: bool,
}

fn add_entry<R: Read>(
    tree: &mut Tree<impl ContentSink>,
    said: &mut Extensions,
    mut entry: tar::Entry<'_, R>,
) -> Result<(), UnpackError> {
    match entry.header().entry_type() {
        EntryType::GNULongName => said.name = Some(read_extension(&mut entry)?),
        EntryType::GNULongLink => said.link = Some(read_extension(&mut entry)?),
        EntryType::XHeader => read_pax(said, &read_pax_text(&mut entry)?)?,
        // About the whole archive, such as the commit that it was made from.
        EntryType::XGlobalHeader => {}
        kind => return add_member(tree, std::mem::take(said), kind, &mut entry),
    }
    Ok(())
}

fn add_member<R: Read>(
    tree: &mut Tree<impl ContentSink>,
    said: Extensions,
    kind: EntryType,
    entry: &mut tar::Entry<'_, R>,
) -> Result<(), UnpackError> {
    let name = said.name.unwrap_or_else(|| entry.path_bytes().into_owned());
    let shown = String::from_utf8_lossy(&name)
        .chars()
        .take(100)
        .collect::<String>();
    let shown = shown.escape_debug();
    if said.is_sparse || kind.is_gnu_sparse() {
        return refuse(
            "archive_unsupported",
            format!("`{shown}` is a sparse file; pack it without --sparse"),
        );
    }
    if said.size.is_some_and(|size| size != entry.size()) {
        return refuse(
            "archive_invalid",
            format!("`{shown}` has two different sizes"),
        );
    }
    let target = || -> Result<String, UnpackError> {
        let target = said
            .link
            .or_else(|| entry.link_name_bytes().map(Into::into));
        match String::from_utf8(target.unwrap_or_default()) {
            Ok(target) => Ok(target),
            Err(_) => refuse(
                "archive_invalid",
                format!("`{shown}`: its target is not UTF-8"),
            ),
        }
    };
    match kind {
        EntryType::Directory => Ok(()),
        EntryType::Regular | EntryType::Continuous => tree.add(&name, Member::File(entry)),
        EntryType::Symlink => {
            let target = target()?;
            tree.add(&name, Member::SymbolicLink(target))
        }
        EntryType::Link => {
            let target = target()?;
            tree.add(&name, Member::HardLink(target))
        }
        _ => refuse(
            "archive_unsafe",
            format!("`{shown}` is neither a file nor a folder nor a link"),
        ),
    }
}

fn read_extension<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, UnpackError> {
    let mut text = read_pax_text(entry)?;
    // GNU tar ends names with NUL.
    while text.last() == Some(&0) {
        text.pop();
    }
    Ok(text)
}

fn read_pax_text<R: Read>(entry: &mut tar::Entry<'_, R>) -> Result<Vec<u8>, UnpackError> {
    if entry.size() > MAX_EXTENSION_BYTES {
        return refuse(
            "archive_unsafe",
            "the archive has a name that is far too long",
        );
    }
    let mut text = Vec::new();
    entry.read_to_end(&mut text)?;
    Ok(text)
}

/// Reads records such as `18 path=some/file\n`.
fn read_pax(said: &mut Extensions, text: &[u8]) -> Result<(), UnpackError> {
    for record in tar::PaxExtensions::new(text) {
        let record = record?;
        let (key, value) = (record.key_bytes(), record.value_bytes());
        match key {
            b"path" => said.name = Some(value.to_vec()),
            b"linkpath" => said.link = Some(value.to_vec()),
            b"size" => {
                let size = std::str::from_utf8(value)
                    .ok()
                    .and_then(|it| it.parse().ok());
                let Some(size) = size else {
                    return refuse(
                        "archive_invalid",
                        "the archive has a size that is no number",
                    );
                };
                said.size = Some(size);
            }
            key => said.is_sparse |= key.starts_with(b"GNU.sparse."),
        }
    }
    Ok(())
}

/// Counts what comes out of the decompressor, also what no file gets: headers can be a bomb too.
struct LimitedReader<R> {
    inner: R,
    left: u64,
    most: u64,
    canceled: CancelFlag,
}

impl<R: Read> Read for LimitedReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.canceled.check().map_err(io::Error::other)?;
        let count = self.inner.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => return Err(io::Error::other(TooLarge(self.most))),
        }
        Ok(count)
    }
}
