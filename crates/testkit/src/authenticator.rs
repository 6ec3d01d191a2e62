//! An authenticator app (RFC 6238), written apart from the product.

use aws_lc_rs::hmac;
use data_encoding::BASE32_NOPAD;
use estrade_model::Timestamp;

/// Makes the codes of a second factor.
pub struct Authenticator(Vec<u8>);

impl Authenticator {
    /// With a secret as it is typed into an app.
    pub fn new(base32: &str) -> Self {
        let secret = BASE32_NOPAD.decode(base32.as_bytes());
        Self(secret.expect("a secret in base 32"))
    }

    /// The code of a moment.
    pub fn code(&self, now: Timestamp) -> String {
        let step = now.millis() / 30_000;
        let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &self.0);
        let tag = hmac::sign(&key, &step.to_be_bytes());
        let hash = tag.as_ref();
        let offset = usize::from(hash[19] & 15);
        let word = hash[offset..offset + 4].try_into().expect("four bytes");
        format!(
            "{:06}",
            (u32::from_be_bytes(word) & 0x7fff_ffff) % 1_000_000
        )
    }
}
