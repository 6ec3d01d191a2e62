//! The files of a create-release request.

use crate::strict_json;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use estrade_model::Invalid;
use estrade_service::Error;
use estrade_service::releases::{Upload, too_many_files};
use estrade_store::blobs::{BadDigest, Digest, Hashed};
use serde::Deserialize;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::num::NonZero;
use std::thread;

/// From so many bytes of a document on, a thread costs less than it saves.
const WORTH_THREADS: usize = 256 * 1024;

/// Takes files as they are read.
pub(super) trait Taker<'de> {
    /// The text of a file.
    type Text: Deserialize<'de> + Text;

    /// Takes one; an error refuses the whole release.
    fn take(&mut self, file: File<Self::Text>) -> Result<(), Error>;
}

/// What a file says.
pub(super) trait Text {
    fn decode(&self) -> Result<Cow<'_, str>, Invalid>;
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

/// From a document on disk: one file is in memory at a time.
impl Taker<'_> for Upload {
    type Text = String;

    fn take(&mut self, file: File<String>) -> Result<(), Error> {
        file.understand()?.add_to(self)
    }
}

/// Files of a document in memory, as they are written there.
pub(super) struct Held<'d> {
    files: Vec<File<&'d RawValue>>,
    most: usize,
}

impl<'de> Taker<'de> for Held<'de> {
    type Text = &'de RawValue;

    fn take(&mut self, file: File<&'de RawValue>) -> Result<(), Error> {
        if self.files.len() >= self.most {
            return Err(too_many_files(self.most));
        }
        self.files.push(file);
        Ok(())
    }
}

impl Held<'_> {
    pub(super) fn new(most: usize) -> Self {
        Self {
            files: Vec::new(),
            most,
        }
    }

    /// Hands all of them on, decoded and hashed on all cores.
    pub(super) fn add_to(self, upload: &mut Upload) -> Result<(), Error> {
        let bytes: usize = self.files.iter().map(File::written).sum();
        let cores = thread::available_parallelism().map_or(1, NonZero::get);
        let threads = if bytes < WORTH_THREADS { 1 } else { cores };
        let share = self.files.len().div_ceil(threads).max(1);
        let mut shares = self.files.chunks(share);
        let (own, others): (_, Vec<_>) = (shares.next().unwrap_or_default(), shares.collect());
        let understood = thread::scope(|scope| {
            let start =
                |share| thread::Builder::new().spawn_scoped(scope, move || understand(share));
            let begun: Vec<_> = others.iter().copied().map(start).collect();
            let mut all = vec![understand(own)];
            for (other, share) in begun.into_iter().zip(others) {
                let done = other.ok().and_then(|other| other.join().ok());
                // A thread that did not begin, or broke off, has done nothing.
                all.push(done.unwrap_or_else(|| understand(share)));
            }
            all
        });
        for share in understood {
            for file in share? {
                file.add_to(upload)?;
            }
        }
        Ok(())
    }
}

fn understand(files: &[File<&RawValue>]) -> Result<Vec<Understood>, Error> {
    files.iter().map(File::understand).collect()
}

/// A file of which everything is known.
pub(super) struct Understood {
    path: String,
    content: Content,
}

enum Content {
    /// It came along.
    Sent(Hashed),
    /// The project should have it.
    Named(Digest, u64),
}

impl Understood {
    fn add_to(self, upload: &mut Upload) -> Result<(), Error> {
        match self.content {
            Content::Sent(content) => upload.add_hashed(self.path, content),
            Content::Named(digest, size) => upload.add_named(self.path, digest, size),
        }
    }
}

#[derive(Deserialize)]
pub(super) struct File<T> {
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

impl File<&RawValue> {
    /// How long its text is as it is written.
    fn written(&self) -> usize {
        self.data.map_or(0, |data| data.get().len())
    }
}

impl<T: Text> File<T> {
    /// Decodes and checks it: with its content, or by the name of a content that is there already.
    fn understand(&self) -> Result<Understood, Error> {
        let digest = self.digest()?;
        let text = self.data.as_ref().map(Text::decode).transpose();
        let text = text.map_err(|invalid| self.wrong(&format!("data: {invalid}")))?;
        let content = match (text, digest, self.size) {
            (Some(text), _, _) => self.sent(text, digest)?,
            (None, Some(digest), Some(size)) => Content::Named(digest, size),
            (None, Some(_), None) => return Err(self.wrong("size: is missing")),
            (None, None, _) => return Err(self.wrong("send `data`, or `digest` and `size`")),
        };
        Ok(Understood {
            path: self.path.clone(),
            content,
        })
    }

    fn sent(&self, text: Cow<'_, str>, digest: Option<Digest>) -> Result<Content, Error> {
        let content = Hashed::new(self.bytes(text)?);
        if self
            .size
            .is_some_and(|size| size != content.bytes().len() as u64)
        {
            return Err(self.wrong("size: is not that of `data`"));
        }
        if digest.is_some_and(|digest| digest != content.digest()) {
            return Err(self.wrong("digest: is not that of `data`"));
        }
        Ok(Content::Sent(content))
    }

    fn digest(&self) -> Result<Option<Digest>, Error> {
        let parse = |text: &String| text.parse();
        let digest = self.digest.as_ref().map(parse).transpose();
        digest.map_err(|bad: BadDigest| self.wrong(&format!("digest: {bad}")))
    }

    fn bytes(&self, text: Cow<'_, str>) -> Result<Vec<u8>, Error> {
        match self.encoding {
            None | Some(Encoding::Text) => Ok(text.into_owned().into_bytes()),
            Some(Encoding::Base64) => STANDARD
                .decode(&*text)
                .map_err(|error| self.wrong(&format!("data is not base64: {error}"))),
        }
    }

    fn wrong(&self, what: &str) -> Error {
        let path: String = self.path.chars().take(100).collect();
        Error::invalid(format!("files: `{}`: {what}", path.escape_debug()))
    }
}
