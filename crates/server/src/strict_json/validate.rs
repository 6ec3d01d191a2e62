//! The validator: one parse of a document that builds nothing.
//!
//! Its memory is bounded by [`MAX_DEPTH`] and [`MAX_KEYS`]: it keeps the path, for messages, and a hash of each key of
//! the objects that are open.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use std::collections::HashSet;
use std::fmt::{self, Write};
use std::hash::{BuildHasher, RandomState};

/// Deepest nesting of arrays and objects.
pub const MAX_DEPTH: usize = 64;
/// Most keys of one object: bounds what is kept to find duplicates.
pub const MAX_KEYS: usize = 100_000;

pub(super) struct Validator {
    /// Where it is, for messages.
    path: Vec<Step>,
    hasher: RandomState,
}

enum Step {
    Key(String),
    Index(usize),
}

impl Validator {
    /// Validates a whole document, and that nothing follows it.
    pub(super) fn validate<'de, R>(json: &mut serde_json::Deserializer<R>) -> serde_json::Result<()>
    where
        R: serde_json::de::Read<'de>,
    {
        let mut validator = Self {
            path: Vec::new(),
            hasher: RandomState::new(),
        };
        Node(&mut validator).deserialize(&mut *json)?;
        json.end()
    }

    /// The error for what is at the present path.
    fn refuse<E: Error>(&self, reason: &str) -> E {
        let mut path = String::new();
        for step in &self.path {
            let written = match step {
                Step::Key(key) if path.is_empty() => write!(path, "{key}"),
                Step::Key(key) => write!(path, ".{key}"),
                Step::Index(index) => write!(path, "[{index}]"),
            };
            debug_assert!(written.is_ok());
        }
        if path.is_empty() {
            E::custom(format_args!("the body {reason}"))
        } else {
            E::custom(format_args!("{path}: {reason}"))
        }
    }

    fn enter<E: Error>(&mut self, step: Step) -> Result<(), E> {
        if !has_room(self.path.len() + 1) {
            return Err(E::custom(format_args!(
                "the body is more than {MAX_DEPTH} levels deep"
            )));
        }
        self.path.push(step);
        Ok(())
    }
}

/// Whether so many arrays and objects may be open at once.
fn has_room(depth: usize) -> bool {
    depth <= MAX_DEPTH
}

/// Validates a value and all below it.
struct Node<'w>(&'w mut Validator);

impl<'de> DeserializeSeed<'de> for Node<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<(), E> {
        if text.contains('\0') {
            return Err(self.0.refuse("must not contain NUL"));
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<(), A::Error> {
        let Self(validator) = self;
        validator.enter(Step::Index(0))?;
        while items.next_element_seed(Node(validator))?.is_some() {
            if let Some(Step::Index(index)) = validator.path.last_mut() {
                *index += 1;
            }
        }
        validator.path.pop();
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<(), A::Error> {
        let Self(validator) = self;
        validator.enter(Step::Key(String::new()))?;
        let mut seen = Keys::default();
        while let Some(hash) = entries.next_key_seed(Key(validator))? {
            if !seen.insert(hash) {
                return Err(validator.refuse("the key is there twice"));
            }
            if seen.are_too_many() {
                return Err(A::Error::custom(format_args!(
                    "an object has more than {MAX_KEYS} keys"
                )));
            }
            entries.next_value_seed(Node(validator))?;
        }
        validator.path.pop();
        Ok(())
    }
}

/// The keys of one object, as 64-bit hashes under a random seed: a client can neither make keys collide on purpose nor
/// make long keys take memory.
#[derive(Default)]
struct Keys {
    few: Vec<u64>,
    many: HashSet<u64>,
}

/// Up to so many keys a linear scan is faster than a hash table.
const MAX_SCANNED_KEYS: usize = 16;

impl Keys {
    /// Adds a key; false when it is a duplicate.
    fn insert(&mut self, hash: u64) -> bool {
        if self.few.contains(&hash) || self.many.contains(&hash) {
            return false;
        }
        if self.few.len() < MAX_SCANNED_KEYS {
            self.few.push(hash);
        } else {
            self.many.insert(hash);
        }
        true
    }

    fn are_too_many(&self) -> bool {
        self.few.len() + self.many.len() > MAX_KEYS
    }
}

/// A key: becomes the last step of the path, and yields its hash.
struct Key<'w>(&'w mut Validator);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = u64;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<u64, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: Error>(self, key: &str) -> Result<u64, E> {
        let Self(validator) = self;
        if let Some(Step::Key(last)) = validator.path.last_mut() {
            last.clear();
            last.push_str(key);
        }
        if key.contains('\0') {
            return Err(validator.refuse("must not contain NUL"));
        }
        Ok(validator.hasher.hash_one(key))
    }
}
