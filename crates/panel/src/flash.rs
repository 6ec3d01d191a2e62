//! What is said once after a redirect.
//!
//! The text travels in a cookie with a MAC by the session's secret: another site that manages to set the cookie
//! cannot put words into the panel's mouth.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Most bytes of a text; browsers keep cookies of 4 KiB.
const MAX_TEXT: usize = 1024;

/// How long a browser keeps a text that nobody came to read, in seconds.
pub const FLASH_SECONDS: u64 = 60;

/// The cookie's value.
pub fn seal(text: &str, secret: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let text = &text[..end.unwrap_or(0)];
    format!(
        "{}.{}",
        URL_SAFE_NO_PAD.encode(text),
        mac(text, secret).to_hex()
    )
}

/// The text, if this session sealed it.
pub fn open(value: &str, secret: &str) -> Option<String> {
    let (text, sum) = value.split_once('.')?;
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(text).ok()?).ok()?;
    let sum = blake3::Hash::from_hex(sum).ok()?;
    (text.len() <= MAX_TEXT && mac(&text, secret) == sum).then_some(text)
}

fn mac(text: &str, secret: &str) -> blake3::Hash {
    let key = blake3::derive_key("estrade panel flash", secret.as_bytes());
    blake3::keyed_hash(&key, text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_session_opens_it() {
        let sealed = seal("key ci-bot was disabled <é>", "s");
        assert_eq!(
            open(&sealed, "s").as_deref(),
            Some("key ci-bot was disabled <é>")
        );
        assert_eq!(open(&sealed, "t"), None);
        assert_eq!(open(&sealed.replace('.', "A."), "s"), None);
        assert!(open(&seal(&"é".repeat(2000), "s"), "s").unwrap().len() <= MAX_TEXT);
    }
}
