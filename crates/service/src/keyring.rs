//! The two kinds of token, signed and read in one place.
//!
//! Account tokens open the management routes, AI keys the inference routes. Both are EdDSA JWTs
//! that differ in `aud`. `jti` is random and only its hash is stored: EdDSA is deterministic, so a
//! stored `jti` would let an attacker with the database and the signing key rebuild the token.

use crate::seal::MasterKey;
use crate::{Error, random};
use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_model::secret::Secret;
use estrade_model::{Id, Timestamp};
use estrade_store::signing_keys::SigningKeyRow;
use jsonwebtoken::{Algorithm, DecodingKey, Header, Validation};
use serde::{Deserialize, Serialize};

const ISSUER: &str = "estrade";

/// What a token is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Audience {
    /// The management routes of both APIs.
    Account,
    /// The inference routes.
    Inference,
}

impl Audience {
    fn claim(self) -> &'static str {
        match self {
            Self::Account => "estrade-account",
            Self::Inference => "estrade-inference",
        }
    }

    /// The first member of the header, so that leak scanners can tell the kinds apart.
    fn header_type(self) -> &'static str {
        match self {
            Self::Account => "estrade-token+jwt",
            Self::Inference => "estrade-key+jwt",
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: String,
    sub: String,
    jti: String,
    iat: i64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    exp: Option<i64>,
}

/// What a signature proves, for good: the live state is looked up by `id`.
pub(crate) struct Proof<T> {
    pub id: Id<T>,
    /// What its `jti` is known by.
    pub secret: SecretMark,
    /// When it ends, in seconds; [`NEVER`] without an end. Neither longer nor an `Option`: very many are kept.
    ends: u32,
}

/// The first half of the hash of a `jti`: 128 bits of a random value do not collide by chance, and very many are
/// kept in memory. Not less: an attacker with a signing key and a copy of the database could search for a `jti`
/// that has the mark of any of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SecretMark([u8; 16]);

impl From<&[u8; 32]> for SecretMark {
    fn from(hash: &[u8; 32]) -> Self {
        let mut mark = [0; 16];
        mark.copy_from_slice(&hash[..16]);
        Self(mark)
    }
}

const NEVER: u32 = u32::MAX;

/// The second of an `exp`: one before there were clocks has passed, and one after 2106 is then.
fn end_of(exp: i64) -> u32 {
    u32::try_from(exp.max(0)).map_or(NEVER - 1, |end| end.min(NEVER - 1))
}

impl<T> Proof<T> {
    /// Whether its time is over.
    pub(crate) fn has_ended(&self, now: Timestamp) -> bool {
        self.ends != NEVER && i64::from(self.ends) <= now.seconds()
    }
}

// By hand: the derives would add a bound on `T`, which is only a type tag.
impl<T> Clone for Proof<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T> Copy for Proof<T> {}

/// A fresh token and the hash to store of it.
pub(crate) struct Signed {
    pub token: Secret,
    pub secret_hash: [u8; 32],
}

struct SigningKey {
    kid: String,
    /// Kept ready: making it from its bytes costs as much as a signature.
    pair: Ed25519KeyPair,
    decoding: DecodingKey,
    public: Vec<u8>,
}

impl SigningKey {
    /// A JWT: three parts in base64, the last of which signs the first two.
    fn sign(&self, header: &Header, claims: &Claims) -> Result<String, Error> {
        let header = serde_json::to_vec(header).map_err(Error::internal)?;
        let claims = serde_json::to_vec(claims).map_err(Error::internal)?;
        let mut token = URL_SAFE_NO_PAD.encode(header);
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(claims, &mut token);
        let signature = self.pair.sign(token.as_bytes());
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature, &mut token);
        Ok(token)
    }
}

/// The signing keys of this installation: the first signs, all verify.
pub(crate) struct Keyring(Vec<SigningKey>);

/// What a signing key is sealed for.
fn purpose(kid: &str) -> String {
    format!("signing-key:{kid}")
}

/// Makes a new signing key, sealed and ready to be stored.
pub(crate) fn generate_signing_key(
    master: &MasterKey,
    now: Timestamp,
) -> Result<SigningKeyRow, Error> {
    let failed = |_| Error::internal("cannot make a signing key");
    let pair = Ed25519KeyPair::generate().map_err(failed)?;
    let der = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).map_err(failed)?;
    let kid = hex::encode(random::bytes::<8>()?);
    Ok(SigningKeyRow {
        public: pair.public_key().as_ref().to_vec(),
        sealed: master.seal(&purpose(&kid), der.as_ref())?,
        created_at: now,
        kid,
    })
}

impl Keyring {
    /// Opens stored keys; fails when the master key is not the one that sealed them.
    pub(crate) fn open(master: &MasterKey, rows: &[SigningKeyRow]) -> Result<Self, Error> {
        let open = |row: &SigningKeyRow| {
            let private = master.open(&purpose(&row.kid), &row.sealed)?;
            Ok(SigningKey {
                kid: row.kid.clone(),
                pair: Ed25519KeyPair::from_pkcs8(&private).map_err(Error::internal)?,
                decoding: DecodingKey::from_ed_der(&row.public),
                public: row.public.clone(),
            })
        };
        rows.iter().map(open).collect::<Result<_, _>>().map(Self)
    }

    /// Signs a new token for the credential `id`.
    pub(crate) fn sign<T>(
        &self,
        audience: Audience,
        id: Id<T>,
        now: Timestamp,
        expires_at: Option<Timestamp>,
    ) -> Result<Signed, Error> {
        let key = self
            .0
            .first()
            .ok_or_else(|| Error::internal("there is no signing key"))?;
        let mut header = Header::new(Algorithm::EdDSA);
        header.typ = Some(audience.header_type().into());
        header.kid = Some(key.kid.clone());
        let jti = URL_SAFE_NO_PAD.encode(random::bytes::<16>()?);
        let secret_hash = hash_secret(&jti);
        let claims = Claims {
            iss: ISSUER.into(),
            aud: audience.claim().into(),
            sub: id.to_string(),
            jti,
            iat: now.seconds(),
            // Rounded up, so that the token never ends before its row does.
            exp: expires_at.map(|at| at.millis().saturating_add(999).div_euclid(1000)),
        };
        Ok(Signed {
            token: Secret(key.sign(&header, &claims)?),
            secret_hash,
        })
    }

    /// Checks signature, issuer and audience; expiry is left to the caller.
    pub(crate) fn verify<T>(&self, audience: Audience, token: &str) -> Option<Proof<T>> {
        let header = jsonwebtoken::decode_header(token).ok()?;
        let key = self
            .0
            .iter()
            .find(|key| header.kid.as_deref() == Some(&key.kid))?;
        let mut validation = Validation::new(Algorithm::EdDSA);
        validation.set_audience(&[audience.claim()]);
        validation.set_issuer(&[ISSUER]);
        validation.set_required_spec_claims(&["iss", "aud", "sub"]);
        validation.validate_exp = false;
        let claims = jsonwebtoken::decode::<Claims>(token, &key.decoding, &validation)
            .ok()?
            .claims;
        Some(Proof {
            id: claims.sub.parse().ok()?,
            secret: SecretMark::from(&hash_secret(&claims.jti)),
            ends: claims.exp.map_or(NEVER, end_of),
        })
    }

    /// Whether the token names a signing key that this ring does not have.
    pub(crate) fn lacks_key_of(&self, token: &str) -> bool {
        let kid = jsonwebtoken::decode_header(token)
            .ok()
            .and_then(|header| header.kid);
        kid.is_some_and(|kid| !self.0.iter().any(|key| key.kid == kid))
    }

    /// The public halves as a JWK set.
    pub(crate) fn jwks(&self) -> serde_json::Value {
        let key = |key: &SigningKey| {
            serde_json::json!({
                "kty": "OKP", "crv": "Ed25519", "use": "sig", "alg": "EdDSA",
                "kid": key.kid, "x": URL_SAFE_NO_PAD.encode(&key.public),
            })
        };
        serde_json::json!({ "keys": self.0.iter().map(key).collect::<Vec<_>>() })
    }
}

/// The form in which a secret is stored: enough to recognise it, not enough to rebuild it.
pub(crate) fn hash_secret(secret: &str) -> [u8; 32] {
    *blake3::hash(secret.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use estrade_model::KeyId;

    fn ring() -> Keyring {
        let master = MasterKey::from_bytes(&[1; 32]).unwrap();
        let row = generate_signing_key(&master, Timestamp::from_millis(0)).unwrap();
        assert!(
            Keyring::open(
                &MasterKey::from_bytes(&[2; 32]).unwrap(),
                std::slice::from_ref(&row)
            )
            .is_err()
        );
        Keyring::open(&master, &[row]).unwrap()
    }

    #[test]
    fn an_end_of_any_size_is_kept() {
        let has_ended = |exp: Option<i64>, now: i64| {
            let proof = Proof::<()> {
                id: Id::from_bytes([1; 12]),
                secret: SecretMark([0; 16]),
                ends: exp.map_or(NEVER, end_of),
            };
            proof.has_ended(Timestamp::from_millis(now * 1000))
        };
        assert!(has_ended(Some(i64::MIN), 1) && has_ended(Some(1000), 1000));
        assert!(!has_ended(Some(1000), 999));
        // Longer than it has room for is not for ever; nothing is.
        let room = i64::from(u32::MAX);
        assert!(!has_ended(Some(i64::MAX), room - 2) && has_ended(Some(i64::MAX), room));
        assert!(!has_ended(None, room * 2));
    }

    #[test]
    fn a_token_proves_its_id_for_its_audience_only() {
        let (ring, now) = (ring(), Timestamp::from_millis(1_000_000));
        let id: KeyId = Id::generate(5, 5);
        let signed = ring.sign(Audience::Inference, id, now, Some(now)).unwrap();
        let token = signed.token.expose();
        let proof = ring.verify(Audience::Inference, token).unwrap();
        assert!(
            proof.id == id
                && proof.secret == SecretMark::from(&signed.secret_hash)
                && proof.ends == 1000
        );
        assert!(ring.verify::<()>(Audience::Account, token).is_none());
        assert!(
            super::tests::ring()
                .verify::<()>(Audience::Inference, token)
                .is_none()
        );
        let (head, _) = token.rsplit_once('.').unwrap();
        assert!(
            ring.verify::<()>(Audience::Inference, &format!("{head}.AAAA"))
                .is_none()
        );
    }

    #[test]
    fn every_key_begins_with_the_same_characters_and_none_is_made_twice() {
        let (ring, now) = (ring(), Timestamp::from_millis(0));
        let id: KeyId = Id::generate(5, 5);
        let tokens: Vec<_> = (0..2)
            .map(|_| ring.sign(Audience::Inference, id, now, None).unwrap().token)
            .collect();
        assert_ne!(tokens[0], tokens[1]);
        let start = URL_SAFE_NO_PAD.encode(r#"{"typ":"estrade-key+jwt""#);
        assert!(
            tokens
                .iter()
                .all(|token| token.expose().starts_with(&start))
        );
    }
}
