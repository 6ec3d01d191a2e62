//! The body of a create-release request, read without holding its files in memory.
//!
//! `files` may be 256 MiB. The body is in a spool; this reader parses it once and stages each file as it
//! is read. If the body is small enough to be in memory as a whole, its files are extracted first, which
//! is several times as fast.

mod files;

use super::bounded_json::BoundedJson;
use crate::api_error::ApiError;
use crate::spool::Spool;
use crate::strict_json::{self, FieldSelector};
use estrade_model::platform::Platform;
use estrade_model::port::Port;
use estrade_model::release::NewRelease;
use estrade_service::Error;
use estrade_service::platform::releases::{MAX_GIT_INFO_BYTES, MAX_SETTINGS_BYTES, Upload};
use files::{EarlyContents, ExtractedFiles, File, FileSink, add_early};
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

/// From so many bytes of a document on, a thread costs less than it saves.
const MIN_PARALLEL_BYTES: usize = 256 * 1024;
/// Texts that wait to be taken.
const MAX_QUEUED_TEXTS: usize = 64;

/// What a release is made from.
#[derive(Debug)]
pub enum Source {
    /// Files, which the upload has taken.
    Files,
    /// An archive that was uploaded, by its id.
    Archive(String),
    /// An image of a registry.
    Image(String),
}

/// A create-release request.
pub struct ReleaseBody {
    /// Everything but the source.
    pub new: NewRelease,
    /// What it is made from.
    pub source: Source,
}

/// Reads the body; blocks, because the spool may be on disk and files are written as they come.
pub fn read(spool: &Spool, upload: &mut Upload) -> Result<ReleaseBody, ApiError> {
    // serde's errors are text; the upload's own error is kept beside it.
    let refused = RefCell::new(None);
    let whole = spool.whole().map_err(Error::internal)?;
    let extracted = match &whole {
        Some(whole) => extract_files(whole, upload)?,
        None => None,
    };
    let parsed = if let Some((extracted, early)) = extracted {
        let mut sink = ExtractedFiles {
            upload,
            texts: extracted.texts,
            early,
        };
        let seed = BodySeed::new(&mut sink, &refused);
        let parsed = strict_json::from_slice_seed(seed, &extracted.document);
        if parsed.is_err() && refused.borrow().is_none() {
            // The error must point into the document that was sent.
            strict_json::validate(whole.as_deref().unwrap_or_default()).map_err(Error::from)?;
        }
        parsed
    } else {
        upload.forget_ahead();
        // The document was not extracted: it is parsed as it is, which reports its faults.
        let reader = spool.reader().map_err(Error::internal)?;
        strict_json::from_reader_seed(BodySeed::new(upload, &refused), reader)
    };
    if let Some(error) = refused.into_inner() {
        return Err(ApiError::from(error));
    }
    Ok(parsed.map_err(Error::from)?.check()?)
}

const FILES: FieldSelector = FieldSelector {
    list: "files",
    key: "data",
    unless: "encoding",
};

/// Takes the texts of files out of a document; the upload gets them while the next ones are decoded.
fn extract_files<'d>(
    document: &'d [u8],
    upload: &mut Upload,
) -> Result<Option<(strict_json::ExtractedStrings<'d>, EarlyContents)>, Error> {
    let most = upload.max_files();
    let extract_alone = || {
        let extracted = strict_json::extract_strings(document, &FILES, most, |_, _| ());
        Ok(extracted.map(|extracted| (extracted, EarlyContents::new())))
    };
    if document.len() < MIN_PARALLEL_BYTES {
        return extract_alone();
    }
    thread::scope(|scope| {
        let (sender, texts) = sync_channel(MAX_QUEUED_TEXTS);
        let take = || add_early(texts.into_iter(), upload);
        let Ok(sink) = thread::Builder::new().spawn_scoped(scope, take) else {
            return extract_alone();
        };
        let extracted = strict_json::extract_strings(document, &FILES, most, |id, text| {
            // The receiver has failed, and reports its error at the end.
            drop(sender.send((id, text.clone())));
        });
        drop(sender);
        let early = sink.join().unwrap_or_else(|panic| resume_unwind(panic))?;
        Ok(extracted.map(|extracted| (extracted, early)))
    })
}

#[derive(Default)]
struct Parsed {
    new: NewRelease,
    image: Option<String>,
    source_id: Option<String>,
    files: Option<usize>,
    env_vars: Option<serde_json::Value>,
}

impl Parsed {
    fn check(self) -> Result<ReleaseBody, Error> {
        let mut new = self.new;
        if let Some(variables) = self.env_vars {
            if new.settings.get("envs").is_some_and(|envs| !envs.is_null()) {
                return Err(Error::invalid(
                    "envVars: means the same as `envs`; send one of them",
                ));
            }
            new.settings.insert("envs".to_owned(), variables);
        }
        let source = match (self.files, self.image, self.source_id) {
            (Some(0), None, None) => return Err(Error::invalid("files: send at least one file")),
            (Some(_), None, None) => Source::Files,
            (None, Some(image), None) => Source::Image(image),
            (None, None, Some(source)) => Source::Archive(source),
            _ => {
                return Err(Error::invalid(
                    "send exactly one of `files`, `sourceID` and `image`",
                ));
            }
        };
        Ok(ReleaseBody { new, source })
    }
}

struct BodySeed<'u, T> {
    sink: &'u mut T,
    refused: &'u RefCell<Option<Error>>,
}

impl<'u, T> BodySeed<'u, T> {
    fn new(sink: &'u mut T, refused: &'u RefCell<Option<Error>>) -> Self {
        Self { sink, refused }
    }
}

impl<'de, T: FileSink<'de>> DeserializeSeed<'de> for BodySeed<'_, T> {
    type Value = Parsed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, T: FileSink<'de>> Visitor<'de> for BodySeed<'_, T> {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut parsed = Parsed::default();
        let settings_left = Cell::new(MAX_SETTINGS_BYTES);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "port" => parsed.new.port = map.next_value::<Option<Port>>()?.map(|port| port.0),
                "type" => parsed.new.platform = map.next_value::<Option<Platform>>()?,
                "message" => parsed.new.message = map.next_value()?,
                "gitInfo" => {
                    let left = Cell::new(MAX_GIT_INFO_BYTES);
                    let value = map.next_value_seed(BoundedJson(&left))?;
                    parsed.new.git_info = Some(value).filter(|value| !value.is_null());
                }
                "image" => parsed.image = map.next_value()?,
                "sourceID" => parsed.source_id = map.next_value()?,
                "files" => {
                    parsed.files = map.next_value_seed(FilesSeed {
                        sink: &mut *self.sink,
                        refused: self.refused,
                    })?;
                }
                // Some clients call them so.
                "envVars" => {
                    let value = map.next_value_seed(BoundedJson(&settings_left))?;
                    parsed.env_vars = Some(value).filter(|value| !value.is_null());
                }
                "envs" | "healthCheck" | "disks" | "args" | "build" | "platformConfig" => {
                    let value = map.next_value_seed(BoundedJson(&settings_left))?;
                    parsed.new.settings.insert(key.into_owned(), value);
                }
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(parsed)
    }
}

struct FilesSeed<'u, T> {
    sink: &'u mut T,
    refused: &'u RefCell<Option<Error>>,
}

impl<'de, T: FileSink<'de>> DeserializeSeed<'de> for FilesSeed<'_, T> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, T: FileSink<'de>> Visitor<'de> for FilesSeed<'_, T> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of files")
    }

    fn visit_unit<E>(self) -> Result<Option<usize>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<Option<usize>, A::Error> {
        let mut count = 0;
        while let Some(file) = files.next_element::<File<T::Text>>()? {
            if let Err(error) = self.sink.take(file) {
                let message = error.to_string();
                self.refused.replace(Some(error));
                return Err(A::Error::custom(message));
            }
            count += 1;
        }
        Ok(Some(count))
    }
}
