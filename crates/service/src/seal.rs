//! Encryption at rest: one master key seals everything.

use crate::{Error, random};
use aws_lc_rs::aead::{AES_256_GCM, Aad, RandomizedNonceKey};
use zeroize::Zeroizing;

/// Length of the master key in bytes.
pub(crate) const KEY_LENGTH: usize = 32;
/// Length of the nonce that stands before each sealed text.
const NONCE_LENGTH: usize = 12;

/// The key that seals what is encrypted at rest.
pub(crate) struct MasterKey(RandomizedNonceKey);

impl MasterKey {
    /// From its 32 bytes.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        RandomizedNonceKey::new(&AES_256_GCM, bytes)
            .map(Self)
            .map_err(|_| Error::internal("the master key must be 32 bytes long"))
    }

    /// New random key bytes.
    pub(crate) fn generate() -> Result<Zeroizing<[u8; KEY_LENGTH]>, Error> {
        random::bytes().map(Zeroizing::new)
    }

    /// Seals `plain` for `purpose`; only the same purpose opens it again.
    pub(crate) fn seal(&self, purpose: &str, plain: &[u8]) -> Result<Vec<u8>, Error> {
        let mut text = plain.to_vec();
        let nonce = self
            .0
            .seal_in_place_append_tag(Aad::from(purpose.as_bytes()), &mut text)
            .map_err(|_| Error::internal("sealing failed"))?;
        Ok([&nonce.as_ref()[..], &text].concat())
    }

    /// Opens what [`Self::seal`] made; fails when the key, the purpose or the text is another one.
    pub(crate) fn open(&self, purpose: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let broken = || Error::internal("a sealed value does not open with this master key");
        let (nonce, text) = sealed.split_at_checked(NONCE_LENGTH).ok_or_else(broken)?;
        let nonce =
            aws_lc_rs::aead::Nonce::try_assume_unique_for_key(nonce).map_err(|_| broken())?;
        let mut text = Zeroizing::new(text.to_vec());
        let length = self
            .0
            .open_in_place(nonce, Aad::from(purpose.as_bytes()), &mut text)
            .map_err(|_| broken())?
            .len();
        text.truncate(length);
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_same_key_purpose_and_text_open() {
        let key = MasterKey::from_bytes(&[7; KEY_LENGTH]).unwrap();
        let sealed = key.seal("env:a", b"hunter2").unwrap();
        assert!(!sealed.windows(7).any(|window| window == b"hunter2"));
        assert_eq!(&key.open("env:a", &sealed).unwrap()[..], b"hunter2");
        assert!(key.open("env:b", &sealed).is_err());
        assert!(
            MasterKey::from_bytes(&[8; KEY_LENGTH])
                .unwrap()
                .open("env:a", &sealed)
                .is_err()
        );
        let mut torn = sealed.clone();
        torn[20] ^= 1;
        assert!(key.open("env:a", &torn).is_err());
        assert!(key.open("env:a", b"short").is_err());
        assert_ne!(sealed, key.seal("env:a", b"hunter2").unwrap());
    }
}
