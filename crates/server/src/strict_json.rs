//! Strict JSON parsing.
//!
//! serde_json keeps the last of two equal keys, goes 128 levels deep and accepts NUL. Each of these
//! has caused vulnerabilities elsewhere, so a document is validated before it is deserialised.
//! Invariant: what a handler gets has no duplicate keys at any depth, bounded nesting, no NUL, is UTF-8 and has nothing
//! after its end; and a struct comes from an object, never from an array.
//!
//! [`validate`] is a full parse that builds nothing. [`extract_strings`](mod@extract_strings) decodes the files of a
//! release.

mod extract_strings;
mod objects;
mod validate;

use estrade_model::Invalid;
use objects::ObjectsOnly;
use serde::de::{DeserializeOwned, DeserializeSeed};
use std::io::{Read, Seek, SeekFrom};
use validate::Validator;

pub use extract_strings::{ExtractedStrings, FieldSelector, TextId, extract_strings};
pub use validate::{MAX_DEPTH, MAX_KEYS};

/// serde's messages repeat the input; a response need not carry all of it.
const MAX_MESSAGE: usize = 300;

/// Why a document was not read.
#[derive(Debug)]
pub enum JsonError {
    /// It is not acceptable; the reason names the field.
    Invalid(Invalid),
    /// It could not be read from where it is.
    Io(std::io::Error),
}

impl From<JsonError> for estrade_service::Error {
    fn from(error: JsonError) -> Self {
        match error {
            JsonError::Invalid(reason) => reason.into(),
            JsonError::Io(cause) => Self::internal(cause),
        }
    }
}

/// Reads a document from memory.
pub fn from_slice<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Invalid> {
    let text = std::str::from_utf8(bytes).map_err(|_| Invalid::from("the body is not UTF-8"))?;
    if text.trim_ascii().is_empty() {
        return Err(Invalid::from("the body is empty; send JSON"));
    }
    Validator::validate(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| invalid(&error))?;
    typed(&mut serde_json::Deserializer::from_str(text))
        .map_err(|error| Invalid(field_message(&error)))
}

/// Reads a document from a file: validates it in a first pass, deserialises it in a second, and never holds it whole.
pub fn from_reader<T: DeserializeOwned>(reader: impl Read + Seek) -> Result<T, JsonError> {
    from_reader_seed(std::marker::PhantomData::<T>, reader)
}

/// [`from_reader`] with a seed.
pub fn from_reader_seed<S, T>(seed: S, mut reader: impl Read + Seek) -> Result<T, JsonError>
where
    S: for<'de> DeserializeSeed<'de, Value = T>,
{
    Validator::validate(&mut serde_json::Deserializer::from_reader(&mut reader))
        .map_err(|error| classify(error, invalid))?;
    reader.seek(SeekFrom::Start(0)).map_err(JsonError::Io)?;
    seeded(seed, &mut serde_json::Deserializer::from_reader(reader))
}

/// [`from_reader_seed`] from memory, which is several times as fast.
pub fn from_slice_seed<'de, S>(seed: S, bytes: &'de [u8]) -> Result<S::Value, JsonError>
where
    S: DeserializeSeed<'de>,
{
    validate(bytes)?;
    seeded(seed, &mut serde_json::Deserializer::from_slice(bytes))
}

/// Validates a document, whatever type it is for.
pub fn validate(bytes: &[u8]) -> Result<(), JsonError> {
    Validator::validate(&mut serde_json::Deserializer::from_slice(bytes))
        .map_err(|error| classify(error, invalid))
}

fn seeded<'de, R, S, T>(seed: S, json: &mut serde_json::Deserializer<R>) -> Result<T, JsonError>
where
    R: serde_json::de::Read<'de>,
    S: DeserializeSeed<'de, Value = T>,
{
    let mut track = serde_path_to_error::Track::new();
    let parsed = seed.deserialize(serde_path_to_error::Deserializer::new(
        ObjectsOnly(json),
        &mut track,
    ));
    parsed.map_err(|error| {
        let message = Invalid(message_at(&track.path(), &error));
        classify(error, |_| message)
    })
}

/// Deserialises into the type; an error knows the path of its field.
fn typed<'de, R, T>(
    json: &mut serde_json::Deserializer<R>,
) -> Result<T, serde_path_to_error::Error<serde_json::Error>>
where
    R: serde_json::de::Read<'de>,
    T: DeserializeOwned,
{
    serde_path_to_error::deserialize(ObjectsOnly(json))
}

/// Parts failures of the reader from faults of the document.
fn classify(
    error: serde_json::Error,
    invalid: impl FnOnce(&serde_json::Error) -> Invalid,
) -> JsonError {
    if error.is_io() {
        JsonError::Io(error.into())
    } else {
        JsonError::Invalid(invalid(&error))
    }
}

/// An error of the validator: of the syntax, where the position helps, or one of our rules.
fn invalid(error: &serde_json::Error) -> Invalid {
    if error.is_data() {
        Invalid(shorten(without_position(error)))
    } else {
        Invalid(shorten(format!("the body is not JSON: {error}")))
    }
}

fn field_message(error: &serde_path_to_error::Error<serde_json::Error>) -> String {
    message_at(error.path(), error.inner())
}

/// `name: must be 3 to 15 characters long`.
fn message_at(path: &serde_path_to_error::Path, error: &serde_json::Error) -> String {
    let reason = without_position(error);
    let path = path.to_string();
    shorten(if path == "." {
        reason
    } else {
        format!("{path}: {reason}")
    })
}

/// serde_json ends its messages with a position; beside the path of a field it only confuses.
fn without_position(error: &serde_json::Error) -> String {
    let message = error.to_string();
    let position = format!(" at line {} column {}", error.line(), error.column());
    message
        .strip_suffix(&position)
        .map(str::to_owned)
        .unwrap_or(message)
}

fn shorten(mut message: String) -> String {
    if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
        message.truncate(end);
        message.push('…');
    }
    message
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::Value;
    use std::io::Cursor;

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the types of the fields matter")]
    struct Release {
        port: u16,
        #[serde(default)]
        files: Vec<File>,
    }

    #[derive(Debug, Deserialize)]
    #[expect(dead_code, reason = "only the types of the fields matter")]
    struct File {
        path: String,
    }

    /// Both ways of reading must agree.
    fn refusal(json: &str) -> String {
        let from_memory = from_slice::<Release>(json.as_bytes()).unwrap_err().0;
        match from_reader::<Release>(Cursor::new(json)) {
            Err(JsonError::Invalid(Invalid(from_file))) => assert_eq!(from_file, from_memory),
            other => panic!("{other:?}"),
        }
        from_memory
    }

    #[test]
    fn a_wrong_field_is_named() {
        assert_eq!(
            refusal(r#"{"port":"x"}"#),
            "port: invalid type: string \"x\", expected u16"
        );
        assert_eq!(
            refusal(r#"{"port":1,"files":[{"path":"a"},{"path":7}]}"#),
            "files[1].path: invalid type: integer `7`, expected a string"
        );
        assert_eq!(refusal("{}"), "missing field `port`");
        assert_eq!(
            refusal(r#"{"port":1,"files":[{}]}"#),
            "files[0]: missing field `path`"
        );
    }

    #[test]
    fn duplicate_keys_are_refused_even_where_nobody_reads_them() {
        assert_eq!(
            refusal(r#"{"port":1,"port":1}"#),
            "port: the key is there twice"
        );
        assert_eq!(
            refusal(r#"{"port":1,"extra":[0,{"a":{"b":1,"\u0062":2}}]}"#),
            "extra[1].a.b: the key is there twice"
        );
    }

    #[test]
    fn nul_is_refused_in_strings_and_keys() {
        assert_eq!(
            refusal(r#"{"port":1,"extra":"a\u0000b"}"#),
            "extra: must not contain NUL"
        );
        assert!(refusal(r#"{"port":1,"a\u0000":1}"#).contains("must not contain NUL"));
        assert!(from_slice::<Value>(b"\"a\0b\"").is_err());
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(from_slice::<Value>(nested(MAX_DEPTH).as_bytes()).is_ok());
        let refused = from_slice::<Value>(nested(MAX_DEPTH + 1).as_bytes())
            .unwrap_err()
            .0;
        assert!(refused.contains("more than 64 levels deep"), "{refused}");
        assert!(from_slice::<Value>(nested(1_000_000).as_bytes()).is_err());
    }

    #[test]
    fn only_one_document_of_utf8_is_read() {
        for bad in [
            "{} {}",
            "{},",
            "[1,]",
            "{",
            "nul",
            "1e999",
            "\u{feff}{}",
            "",
            " \n",
        ] {
            assert!(from_slice::<Value>(bad.as_bytes()).is_err(), "{bad:?}");
        }
        assert_eq!(
            from_slice::<Value>(b"\"\xff\"").unwrap_err().0,
            "the body is not UTF-8"
        );
        assert!(from_reader::<Value>(Cursor::new(b"\"\xff\"")).is_err());
        assert!(from_slice::<Value>(br#""\ud800""#).is_err());
        assert!(from_slice::<Value>(b" {\"a\":[1,-2.5,null,true,\"\\u00e9\"]}\n").is_ok());
    }

    #[test]
    fn what_serde_repeats_is_cut_short() {
        let json = format!(r#"{{"port":"{}"}}"#, "é".repeat(10_000));
        assert_eq!(refusal(&json).chars().count(), MAX_MESSAGE + 1);
    }
}
