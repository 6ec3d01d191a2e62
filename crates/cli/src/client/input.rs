//! Texts that are read from files and pipes.

use std::io::{self, Read};

/// A text of at most so many bytes. One that is longer is an error, not the half of it.
pub fn read_text(from: impl Read, max_bytes: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = from.take(max_bytes + 1).read_to_string(&mut text)?;
    if read as u64 > max_bytes {
        let reason = format!("it is longer than {max_bytes} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_whole_or_refused() {
        assert_eq!(read_text(&b"1234"[..], 4).unwrap(), "1234");
        let error = read_text(&b"12345"[..], 4).unwrap_err();
        assert!(error.to_string().contains("longer than 4"), "{error}");
        assert!(read_text(&b"\xff"[..], 4).is_err());
    }
}
