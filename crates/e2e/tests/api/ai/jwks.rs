//! `/.well-known/jwks.json`

use crate::support::new_key;
use aws_lc_rs::signature::{ED25519, UnparsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use estrade_testkit::{TestApp, on_both_backends};
use serde_json::Value;

on_both_backends! {
    the_signature_of_a_key_can_be_checked_offline;
}

fn decode(part: &str) -> Vec<u8> {
    URL_SAFE_NO_PAD.decode(part).unwrap()
}

async fn the_signature_of_a_key_can_be_checked_offline(app: &TestApp) {
    let ada = app.new_account("ada").await;
    let (id, key) = new_key(&ada, "ci-bot").await;
    let response = app
        .stranger()
        .ai()
        .get("/.well-known/jwks.json")
        .await
        .assert(200);
    let jwks = response.json();
    let (signed, signature) = key.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let header: Value = serde_json::from_slice(&decode(header)).unwrap();
    let claims: Value = serde_json::from_slice(&decode(claims)).unwrap();
    assert_eq!(header["alg"], "EdDSA");
    assert_eq!(header["typ"], "estrade-key+jwt");
    assert_eq!(claims["sub"], id.as_str());
    assert_eq!(claims.get("exp"), None);
    for claim in ["iss", "aud", "jti"] {
        assert!(claims[claim].is_string(), "{claim}");
    }
    let jwk = jwks["keys"]
        .as_array()
        .unwrap()
        .iter()
        .find(|jwk| jwk["kid"] == header["kid"])
        .unwrap();
    assert_eq!(
        (&jwk["kty"], &jwk["crv"]),
        (&"OKP".into(), &"Ed25519".into())
    );
    assert!(jwk.get("d").is_none(), "the private part stays here");
    let public = UnparsedPublicKey::new(&ED25519, decode(jwk["x"].as_str().unwrap()));
    public
        .verify(signed.as_bytes(), &decode(signature))
        .unwrap();
    assert!(
        public
            .verify(b"something else", &decode(signature))
            .is_err()
    );
}
