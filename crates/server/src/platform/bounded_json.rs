//! JSON of any shape that is kept as it came, as long as it is small.
//!
//! A parsed value takes thirty times the room of its text, and the body of a release may be large:
//! what is too large must be refused while it is read, not after.

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use std::cell::Cell;
use std::fmt;

/// Reads a value; an error once its text is certainly longer than what is left.
#[derive(Clone, Copy)]
pub(super) struct BoundedJson<'b>(pub(super) &'b Cell<usize>);

impl BoundedJson<'_> {
    /// Every value and every comma is at least one byte of text, and a text is at least its length.
    fn spend<E: Error>(self, bytes: usize) -> Result<(), E> {
        match self.0.get().checked_sub(bytes) {
            Some(left) => {
                self.0.set(left);
                Ok(())
            }
            None => Err(E::custom("is too large")),
        }
    }
}

impl<'de> DeserializeSeed<'de> for BoundedJson<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for BoundedJson<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E: Error>(self) -> Result<Value, E> {
        self.spend(1)?;
        Ok(Value::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Value, E> {
        self.spend(1)?;
        Ok(Value::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Value, E> {
        self.spend(1)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Value, E> {
        self.spend(1)?;
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        self.spend(1)?;
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Value, E> {
        self.spend(text.len() + 1)?;
        Ok(Value::String(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        self.spend(1)?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Value::Array(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        self.spend(1)?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            self.spend(key.len() + 1)?;
            object.insert(key, entries.next_value_seed(self)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, most: usize) -> serde_json::Result<Value> {
        let left = Cell::new(most);
        BoundedJson(&left).deserialize(&mut serde_json::Deserializer::from_str(json))
    }

    #[test]
    fn a_small_value_is_kept_as_it_came() {
        let json = r#"{"a":[1,-2,2.5,null,true,"é",{}],"b":{"c":""}}"#;
        let plain: Value = serde_json::from_str(json).unwrap();
        assert_eq!(read(json, json.len()).unwrap(), plain);
    }

    #[test]
    fn a_large_value_is_refused_while_it_is_read() {
        // The rest is not even JSON: nobody gets that far.
        for start in ["[0,0,0,0,0,0,0,", r#"["0123456789","#, r#"{"0123456789":"#] {
            let error = read(&format!("{start} nonsense"), 7).unwrap_err();
            assert!(error.to_string().starts_with("is too large"), "{error}");
        }
    }
}
