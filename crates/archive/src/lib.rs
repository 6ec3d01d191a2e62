//! Reading archives that strangers wrote, writing our own, and compressing contents for browsers.
//!
//! Archives are written by people and by attackers. Everything that is counted (entries, files, bytes, the lengths of
//! names and extensions) is counted while it is decompressed, so that no bomb is unpacked to find out that it is one.
//! Names are only ever compared and never opened: a [`Tree`] checks them, follows links among them, and hands contents
//! to a [`ContentSink`], which stores them under names of its own. The work blocks: it needs a thread, and a
//! [`CancelFlag`] stops it at the next piece.
//!
//! [`codecs`] makes the compressed variants of a content where they are worth keeping; [`file_types`] tells which
//! contents to try. [`TarWriter`] makes archives for downloads and builds. The crate opens no file and no socket.

pub mod codecs;
mod error;
mod file;
pub mod file_types;
mod links;
pub mod tar;
#[cfg(test)]
mod tests;
mod tree;
mod writer;
pub mod zip;

pub use error::{UnpackError, refuse};
pub use file::UnpackedFile;
pub use tree::{CancelFlag, ContentSink, Limits, Tree, UnpackedTree};
pub use writer::{SourceFile, TarWriter};
pub use zip::RandomAccess;
