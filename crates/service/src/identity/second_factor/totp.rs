//! Time-based one-time passwords (RFC 6238): SHA-1, six digits, a new one every 30 seconds.

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use estrade_model::Timestamp;

/// Length of a secret: that of a SHA-1 hash, as RFC 4226 recommends.
pub(super) const SECRET_BYTES: usize = 20;
/// How long a code is shown.
const STEP_MS: i64 = 30_000;
/// How many digits a code has.
const DIGITS: u32 = 6;
/// Codes of so many steps before and after the present one are good: clocks differ, and typing takes time.
const SKEW_STEPS: i64 = 1;

/// The code of a time step (RFC 4226, with the step as the counter).
fn code_of(secret: &[u8], step: i64) -> u32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, secret);
    let tag = hmac::sign(&key, &step.to_be_bytes());
    let hash = tag.as_ref();
    // Dynamic truncation: the last four bits say where the four bytes of the code begin.
    let offset = usize::from(hash.last().copied().unwrap_or(0) & 0x0f);
    let bytes = hash.iter().skip(offset).take(4);
    let number = bytes.fold(0_u32, |number, byte| number << 8 | u32::from(*byte));
    (number & 0x7fff_ffff) % 10_u32.pow(DIGITS)
}

/// A code as people type it, with or without spaces in between.
pub(super) fn parse(text: &str) -> Option<u32> {
    let digits: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    let is_code = digits.len() == DIGITS as usize && digits.bytes().all(|b| b.is_ascii_digit());
    is_code.then(|| digits.parse().ok()).flatten()
}

/// The time step whose code this is, if it is good now.
pub(super) fn find_step(secret: &[u8], code: &str, now: Timestamp) -> Option<i64> {
    let code = parse(code)?;
    let present = now.millis().div_euclid(STEP_MS);
    let mut steps = present - SKEW_STEPS..=present + SKEW_STEPS;
    steps.find(|step| code_of(secret, *step) == code)
}

/// A secret as it is typed into an app.
pub(super) fn in_base32(secret: &[u8]) -> String {
    BASE32_NOPAD.encode(secret)
}

/// The URL that an app scans.
pub(super) fn url(issuer: &str, email: &str, secret: &str) -> String {
    let email = escape(email);
    format!(
        "otpauth://totp/{issuer}:{email}?secret={secret}&issuer={issuer}&algorithm=SHA1&digits={DIGITS}&period={}",
        STEP_MS / 1000
    )
}

/// Percent-encodes what is not allowed everywhere in a URL.
fn escape(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"12345678901234567890";

    #[test]
    fn the_codes_of_the_rfc() {
        // RFC 6238, appendix B; the last six of its eight digits.
        for (seconds, code) in [
            (59, "287082"),
            (1_111_111_109, "081804"),
            (1_111_111_111, "050471"),
            (1_234_567_890, "005924"),
            (2_000_000_000, "279037"),
            (20_000_000_000, "353130"),
        ] {
            let step = seconds / 30;
            assert_eq!(format!("{:06}", code_of(SECRET, step)), code);
            let at = |seconds: i64| Timestamp::from_millis(seconds * 1000);
            for skew in [-30, 0, 30] {
                assert_eq!(find_step(SECRET, code, at(seconds + skew)), Some(step));
            }
            for skew in [-60, 60] {
                assert_eq!(find_step(SECRET, code, at(seconds + skew)), None);
            }
        }
    }

    #[test]
    fn a_code_is_six_digits() {
        assert_eq!(parse("050 471"), Some(50_471));
        for bad in ["", "05047", "0504711", "-50471", "05047a", "٠٥٠٤٧١"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn the_url_is_what_apps_scan() {
        assert_eq!(
            url("Estrade", "ada+1@example.com", &in_base32(SECRET)),
            "otpauth://totp/Estrade:ada%2B1%40example.com?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ\
             &issuer=Estrade&algorithm=SHA1&digits=6&period=30"
        );
    }
}
