//! The login of the command line through a browser (RFC 8628), on the wire.

use crate::secret::Secret;
use crate::token_scope::TokenScope;
use crate::{Invalid, Timestamp, TokenId};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The letters of user codes: no vowels, so that no word comes out, and none that look like another (RFC 8628, 6.1).
pub const USER_CODE_LETTERS: &[u8; 20] = b"BCDFGHJKLMNPQRSTVWXZ";
/// How many of them a user code has.
pub const USER_CODE_LENGTH: usize = 8;
/// Longest host name of a client that is kept, in characters.
const MAX_HOST_CHARS: usize = 60;

/// The code that a person compares and types: eight letters, shown as `WDJB-MJHT`.
#[derive(Clone, PartialEq, Eq)]
pub struct UserCode([u8; USER_CODE_LENGTH]);

impl UserCode {
    /// The code that random bytes stand for; none when one of them would favour some letters over others.
    pub fn from_random(bytes: [u8; 2 * USER_CODE_LENGTH]) -> Option<Self> {
        const FAIR: u8 = 240;
        let mut letters = bytes.into_iter().filter(|byte| *byte < FAIR);
        let mut code = [0; USER_CODE_LENGTH];
        for letter in &mut code {
            let index = usize::from(letters.next()?) % USER_CODE_LETTERS.len();
            *letter = *USER_CODE_LETTERS.get(index)?;
        }
        Some(Self(code))
    }

    /// The letters alone.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// As people type it: in any case, with or without the dash, with spaces.
impl FromStr for UserCode {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refused = || Invalid::from("must be eight letters, such as WDJB-MJHT");
        let mut code = [0; USER_CODE_LENGTH];
        let mut letters = code.iter_mut();
        for typed in text.chars().filter(|c| !matches!(c, '-' | ' ' | '\t')) {
            let letter = u8::try_from(typed).map_err(|_| refused())?;
            let letter = letter.to_ascii_uppercase();
            if !USER_CODE_LETTERS.contains(&letter) {
                return Err(refused());
            }
            *letters.next().ok_or_else(refused)? = letter;
        }
        if letters.next().is_some() {
            return Err(refused());
        }
        Ok(Self(code))
    }
}

impl fmt::Display for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = String::from_utf8_lossy(&self.0);
        let (first, second) = letters.split_at(USER_CODE_LENGTH / 2);
        write!(f, "{first}-{second}")
    }
}

impl fmt::Debug for UserCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UserCode(..)")
    }
}

/// The name that a client gives its machine. Anybody may send any, so it has the characters of host names only: no
/// sentence, no markup, nothing that changes the direction of text.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub struct ClientHost(String);

impl ClientHost {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for ClientHost {
    fn from(text: String) -> Self {
        let of_hosts = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        Self(text.chars().filter(of_hosts).take(MAX_HOST_CHARS).collect())
    }
}

/// `POST /v1/device/code`.
#[derive(Debug, Default, Deserialize, utoipa::ToSchema)]
pub struct StartDeviceLogin {
    /// What the token is to be good for: `full` (unless said), `read`, `ai` or `project:` and the `_id` of a project.
    #[serde(default)]
    pub scope: TokenScope,
    /// The name of the machine, for the person who approves. What is none of a host name is left out.
    #[serde(default)]
    #[schema(value_type = String, required = false, example = "laptop")]
    pub host: ClientHost,
}

/// The answer: the codes, and where the person types theirs.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct StartedDeviceLogin {
    /// For `POST /v1/device/token`. Whoever has it gets the token.
    pub device_code: Secret,
    /// For the person.
    #[schema(example = "WDJB-MJHT")]
    pub user_code: String,
    /// The page that asks for `user_code`.
    #[schema(example = "https://cloud.example.com/panel/device")]
    pub verification_uri: String,
    /// The same page with the code filled in; the person still confirms.
    #[schema(example = "https://cloud.example.com/panel/device?code=WDJB-MJHT")]
    pub verification_uri_complete: String,
    /// How long the codes are good, in seconds.
    #[schema(example = 600)]
    pub expires_in: u64,
    /// How long to wait between two polls, in seconds.
    #[schema(example = 5)]
    pub interval: u64,
}

/// `POST /v1/device/token`.
#[derive(Debug, Deserialize, utoipa::ToSchema)]
pub struct RedeemDeviceCode {
    /// From the answer of `POST /v1/device/code`.
    pub device_code: Secret,
}

/// The token of a login that was approved; the only time that it is shown.
#[derive(Debug, Serialize, utoipa::ToSchema)]
pub struct DeviceToken {
    /// Identifier, for revoking.
    #[serde(rename = "_id")]
    pub id: TokenId,
    /// The bearer token.
    pub api_token: Secret,
    /// The address of the account.
    pub email: String,
    /// What it is good for.
    pub scope: TokenScope,
    /// When it ends.
    #[serde(rename = "expiresAt")]
    pub expires_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_code_is_read_as_people_type_it() {
        let code: UserCode = "WDJB-MJHT".parse().unwrap();
        assert_eq!(code.to_string(), "WDJB-MJHT");
        for typed in ["wdjbmjht", " wdjb mjht ", "WDJB--MJHT", "W D J B M J H T"] {
            assert_eq!(typed.parse::<UserCode>().unwrap(), code, "{typed}");
        }
        for bad in [
            "",
            "WDJB-MJH",
            "WDJB-MJHTX",
            "WDJB-MJHA",
            "WDJB-MJH0",
            "WDJB_MJHT",
            "ẆDJBMJHT",
        ] {
            assert!(bad.parse::<UserCode>().is_err(), "{bad}");
        }
        assert!(!format!("{code:?}").contains("WDJB"));
    }

    #[test]
    fn every_letter_of_a_user_code_is_as_likely() {
        let code = |byte: u8| UserCode::from_random([byte; 16]);
        let mut counts = [0; 26];
        for byte in 0..=u8::MAX {
            let Some(code) = code(byte) else {
                assert!(byte >= 240);
                continue;
            };
            counts[usize::from(code.as_bytes()[0] - b'A')] += 1;
            assert_eq!(code.to_string().parse::<UserCode>().unwrap(), code);
        }
        assert_eq!(counts.iter().filter(|count| **count == 12).count(), 20);
        assert_eq!(counts.iter().sum::<i32>(), 240);
    }

    #[test]
    fn the_name_of_a_machine_is_no_message() {
        for (text, host) in [
            ("laptop-7.example.com", "laptop-7.example.com"),
            ("<b>x</b>", "bxb"),
            ("Support: please approve", "Supportpleaseapprove"),
            ("a\u{202e}b\u{1b}[2Jc", "ab2Jc"),
            ("", ""),
        ] {
            assert_eq!(ClientHost::from(text.to_owned()).as_str(), host, "{text:?}");
        }
        assert_eq!(ClientHost::from("x".repeat(500)).as_str().len(), 60);
    }
}
