//! The body of a create-release request, read without holding its files in memory.
//!
//! `files` may be 256 MiB. The body waits in a spool; this reader walks through it once and hands
//! each file on as it comes.

use super::small_value::SmallValue;
use crate::problem::Problem;
use crate::spool::Spool;
use crate::strict_json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use estrade_model::Invalid;
use estrade_model::platform::Platform;
use estrade_model::release::NewRelease;
use estrade_service::Error;
use estrade_service::releases::{MOST_GIT_INFO, MOST_SETTINGS, Upload};
use estrade_store::blobs::{BadDigest, Digest};
use serde::Deserialize;
use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor,
};
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::marker::PhantomData;
use std::num::NonZeroU16;

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

/// What a create-release request says.
pub struct ReleaseBody {
    /// Everything but the source.
    pub new: NewRelease,
    /// What it is made from.
    pub source: Source,
}

/// Reads the body; blocks, because the spool may be on disk and files are written as they come.
pub fn read(spool: &Spool, upload: &mut Upload) -> Result<ReleaseBody, Problem> {
    // serde's errors are text; the upload's own error is kept beside it.
    let refused = RefCell::new(None);
    let parsed = if let Some(bytes) = spool.whole().map_err(Error::internal)? {
        strict_json::from_slice_seed(BodySeed::<InMemory>::new(upload, &refused), &bytes)
    } else {
        let reader = spool.reader().map_err(Error::internal)?;
        strict_json::from_reader_seed(BodySeed::<OnDisk>::new(upload, &refused), reader)
    };
    match refused.into_inner() {
        Some(error) => Err(Problem::from(error)),
        None => Ok(parsed.map_err(Error::from)?.check()?),
    }
}

#[derive(Default)]
struct Parsed {
    new: NewRelease,
    image: Option<String>,
    source_id: Option<String>,
    files: Option<usize>,
}

impl Parsed {
    fn check(self) -> Result<ReleaseBody, Error> {
        let new = self.new;
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

/// Where the document is, and so how the contents of files are best read.
trait Home {
    /// The text of a file.
    type Text<'de>: Deserialize<'de> + Text;
}

/// What a file says.
trait Text {
    fn decode(&self) -> Result<Cow<'_, str>, Invalid>;
}

struct InMemory;
struct OnDisk;

impl Home for InMemory {
    type Text<'de> = &'de RawValue;
}

impl Home for OnDisk {
    type Text<'de> = String;
}

impl Text for &RawValue {
    fn decode(&self) -> Result<Cow<'_, str>, Invalid> {
        strict_json::decode_text(self)
    }
}

impl Text for String {
    fn decode(&self) -> Result<Cow<'_, str>, Invalid> {
        Ok(Cow::Borrowed(self))
    }
}

struct BodySeed<'u, H> {
    upload: &'u mut Upload,
    refused: &'u RefCell<Option<Error>>,
    home: PhantomData<H>,
}

impl<'u, H> BodySeed<'u, H> {
    fn new(upload: &'u mut Upload, refused: &'u RefCell<Option<Error>>) -> Self {
        Self {
            upload,
            refused,
            home: PhantomData,
        }
    }
}

impl<'de, H: Home> DeserializeSeed<'de> for BodySeed<'_, H> {
    type Value = Parsed;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Parsed, D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de, H: Home> Visitor<'de> for BodySeed<'_, H> {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Parsed, A::Error> {
        let mut parsed = Parsed::default();
        let settings_left = Cell::new(MOST_SETTINGS);
        while let Some(key) = map.next_key::<Cow<'de, str>>()? {
            match key.as_ref() {
                "port" => {
                    parsed.new.port = map.next_value::<Option<NonZeroU16>>()?.map(NonZeroU16::get);
                }
                "type" => parsed.new.platform = map.next_value::<Option<Platform>>()?,
                "message" => parsed.new.message = map.next_value()?,
                "gitInfo" => {
                    let left = Cell::new(MOST_GIT_INFO);
                    let value = map.next_value_seed(SmallValue(&left))?;
                    parsed.new.git_info = Some(value).filter(|value| !value.is_null());
                }
                "image" => parsed.image = map.next_value()?,
                "sourceID" => parsed.source_id = map.next_value()?,
                "files" => {
                    parsed.files = map.next_value_seed(FilesSeed::<H> {
                        upload: &mut *self.upload,
                        refused: self.refused,
                        home: PhantomData,
                    })?;
                }
                "envs" | "healthCheck" | "disks" | "args" | "build" | "platformConfig" => {
                    let value = map.next_value_seed(SmallValue(&settings_left))?;
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

struct FilesSeed<'u, H> {
    upload: &'u mut Upload,
    refused: &'u RefCell<Option<Error>>,
    home: PhantomData<H>,
}

impl<'de, H: Home> DeserializeSeed<'de> for FilesSeed<'_, H> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<usize>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de, H: Home> Visitor<'de> for FilesSeed<'_, H> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an array of files")
    }

    fn visit_unit<E>(self) -> Result<Option<usize>, E> {
        Ok(None)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut files: A) -> Result<Option<usize>, A::Error> {
        let mut count = 0;
        while let Some(file) = files.next_element::<File<H::Text<'de>>>()? {
            if let Err(error) = file.add_to(self.upload) {
                let message = error.to_string();
                self.refused.replace(Some(error));
                return Err(A::Error::custom(message));
            }
            count += 1;
        }
        Ok(Some(count))
    }
}

#[derive(Deserialize)]
struct File<T> {
    path: String,
    #[serde(default = "none")]
    data: Option<T>,
    #[serde(default)]
    encoding: Option<Encoding>,
    #[serde(default)]
    digest: Option<String>,
    #[serde(default)]
    size: Option<u64>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    #[serde(rename = "utf-8", alias = "utf8", alias = "text")]
    Text,
    Base64,
}

fn none<T>() -> Option<T> {
    None
}

impl<T: Text> File<T> {
    /// Hands the file on: with its content, or by the name of a content that is there already.
    fn add_to(self, upload: &mut Upload) -> Result<(), Error> {
        let digest = self.digest()?;
        let text = self.data.as_ref().map(Text::decode).transpose();
        let text = text.map_err(|invalid| self.wrong(&format!("data: {invalid}")))?;
        let (data, size) = match (&text, digest, self.size) {
            (Some(text), _, _) => (self.decode(text)?, self.size),
            (None, Some(digest), Some(size)) => return upload.add_named(self.path, digest, size),
            (None, Some(_), None) => return Err(self.wrong("size: is missing")),
            (None, None, _) => return Err(self.wrong("send `data`, or `digest` and `size`")),
        };
        if size.is_some_and(|size| size != data.len() as u64) {
            return Err(self.wrong("size: is not that of `data`"));
        }
        let found = upload.add_file(self.path.clone(), &data)?;
        if digest.is_some_and(|digest| digest != found) {
            return Err(self.wrong("digest: is not that of `data`"));
        }
        Ok(())
    }

    fn digest(&self) -> Result<Option<Digest>, Error> {
        let parse = |text: &String| text.parse();
        let digest = self.digest.as_ref().map(parse).transpose();
        digest.map_err(|bad: BadDigest| self.wrong(&format!("digest: {bad}")))
    }

    fn decode<'d>(&self, data: &'d str) -> Result<Cow<'d, [u8]>, Error> {
        match self.encoding {
            None | Some(Encoding::Text) => Ok(Cow::Borrowed(data.as_bytes())),
            Some(Encoding::Base64) => match STANDARD.decode(data) {
                Ok(bytes) => Ok(Cow::Owned(bytes)),
                Err(error) => Err(self.wrong(&format!("data is not base64: {error}"))),
            },
        }
    }

    fn wrong(&self, what: &str) -> Error {
        let path: String = self.path.chars().take(100).collect();
        Error::invalid(format!("files: `{}`: {what}", path.escape_debug()))
    }
}
