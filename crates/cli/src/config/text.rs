//! Values that a configuration writes as text and the code holds as a type.
//!
//! Every such type has one parser (`FromStr`), which the file, the environment and the
//! command line share, and one way back to text (`Display`), which is safe to print.

pub use estrade_model::Invalid;
use estrade_model::serde_rules::deserialize_text;
use serde::Deserializer;

use std::net::SocketAddr;

/// Gives a type with `FromStr` and `Display` its serde form: a string.
macro_rules! serde_as_text {
    ($name:ty) => {
        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(source: D) -> Result<Self, D::Error> {
                estrade_model::serde_rules::deserialize_text(source, str::parse)
            }
        }
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, sink: S) -> Result<S::Ok, S::Error> {
                sink.collect_str(self)
            }
        }
    };
}
pub(crate) use serde_as_text;

/// Parses the address of a listener; unlike the standard parser, it says what is wrong.
pub fn parse_listen(text: &str) -> Result<SocketAddr, Invalid> {
    text.parse().map_err(|_| {
        Invalid(format!(
            "`{text}` is not an IP address with a port, such as 127.0.0.1:3000 or [::]:3000"
        ))
    })
}

/// [`parse_listen`] for serde's `deserialize_with`.
pub(super) fn deserialize_listen<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<SocketAddr, D::Error> {
    deserialize_text(source, parse_listen)
}

/// [`deserialize_listen`] for an address that may be absent.
pub(super) fn deserialize_optional_listen<'de, D: Deserializer<'de>>(
    source: D,
) -> Result<Option<SocketAddr>, D::Error> {
    deserialize_listen(source).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listen_address_needs_an_ip_and_a_port() {
        assert!(parse_listen("127.0.0.1:3000").is_ok());
        assert!(parse_listen("[::1]:0").is_ok());
        for bad in [
            "",
            "3000",
            ":3000",
            "localhost:3000",
            "127.0.0.1",
            "1.2.3.4:70000",
        ] {
            let refused = parse_listen(bad).unwrap_err();
            assert!(
                refused.0.contains(&format!("`{bad}`")) && refused.0.contains("127.0.0.1:3000"),
                "{refused}"
            );
        }
    }
}
