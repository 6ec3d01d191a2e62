//! Forms of people who are signed in.
//!
//! Each carries a token that only a page of the same session knows: a keyed hash of the session's secret. It is
//! neither stored nor guessable from what is stored, and compared in constant time.

use crate::cookies::{Cookie, is_secure};
use crate::error::PanelError;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use bytes::Bytes;
use estrade_server::app::AppState;
use estrade_server::body_reader::{BodyLimits, BodyReader};
use estrade_service::Error;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// Most bytes of a form.
pub const MAX_FORM_BYTES: u64 = 1024 * 1024;
/// Most bytes of a form that anybody may send.
pub const MAX_PUBLIC_FORM_BYTES: u64 = 16 * 1024;
/// The name of the field with the token.
const TOKEN_FIELD: &str = "csrf";
/// The header with the token, for requests of scripts.
const TOKEN_HEADER: &str = "x-csrf-token";

/// The token of a session's forms.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct CsrfToken(blake3::Hash);

impl CsrfToken {
    /// The token of the session with this secret.
    pub fn of(secret: &str) -> Self {
        let key = blake3::derive_key("estrade panel form token", secret.as_bytes());
        Self(key.into())
    }

    /// As it is written in a form.
    pub fn text(&self) -> String {
        self.0.to_hex().to_string()
    }

    /// Refuses (403) another token.
    pub fn verify(&self, text: &str) -> Result<(), PanelError> {
        // The comparison of these hashes takes constant time.
        match blake3::Hash::from_hex(text) {
            Ok(given) if given == self.0 => Ok(()),
            _ => Err(PanelError::ForgedForm),
        }
    }

    /// The token that the forms of a request must carry.
    pub fn expected(headers: &HeaderMap, app: &AppState) -> Result<Self, PanelError> {
        let secret = Cookie::Session.read(headers, is_secure(&app.core));
        secret.map(Self::of).ok_or(PanelError::SignIn)
    }
}

/// A form of a person who is signed in, urlencoded. Repeated fields make a `Vec`.
pub struct SignedForm<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for SignedForm<T> {
    type Rejection = PanelError;

    async fn from_request(request: Request, app: &AppState) -> Result<Self, PanelError> {
        let token = CsrfToken::expected(request.headers(), app)?;
        let bytes = read_form(request, MAX_FORM_BYTES).await?;
        let fields: Vec<(String, String)> = parse(&bytes)?;
        let mut given = fields.iter().filter(|(name, _)| name == TOKEN_FIELD);
        let (Some((_, text)), None) = (given.next(), given.next()) else {
            return Err(PanelError::ForgedForm);
        };
        token.verify(text)?;
        Ok(Self(parse(&bytes)?))
    }
}

/// A form with no fields of its own: its button is all that it says.
#[derive(Debug, Deserialize)]
pub struct NoFields {}

/// A request of a script, whose token is in the header `X-CSRF-Token`.
pub struct SignedScript;

impl FromRequestParts<AppState> for SignedScript {
    type Rejection = PanelError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, PanelError> {
        let token = CsrfToken::expected(&parts.headers, app)?;
        let given = parts.headers.get(TOKEN_HEADER);
        let given = given.and_then(|value| value.to_str().ok());
        token.verify(given.unwrap_or_default())?;
        Ok(Self)
    }
}

/// A form of anybody: only its origin is checked, by the middleware.
pub struct PublicForm<T>(pub T);

impl<T: DeserializeOwned> FromRequest<AppState> for PublicForm<T> {
    type Rejection = PanelError;

    async fn from_request(request: Request, _: &AppState) -> Result<Self, PanelError> {
        let bytes = read_form(request, MAX_PUBLIC_FORM_BYTES).await?;
        Ok(Self(parse(&bytes)?))
    }
}

async fn read_form(request: Request, max_bytes: u64) -> Result<Bytes, PanelError> {
    const FORM: &str = "application/x-www-form-urlencoded";
    let media_type = request.headers().get(header::CONTENT_TYPE);
    let media_type = media_type.and_then(|value| value.to_str().ok()?.split(';').next());
    if !media_type.is_some_and(|essence| essence.trim().eq_ignore_ascii_case(FORM)) {
        return Err(Error::UnsupportedMediaType(FORM).into());
    }
    let reader = BodyReader::new(request, BodyLimits::at_most(max_bytes))?;
    Ok(reader.read_all().await?)
}

fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PanelError> {
    let refused = |error: serde_html_form::de::Error| Error::invalid(format!("the form: {error}"));
    Ok(serde_html_form::from_bytes(bytes).map_err(refused)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_belongs_to_one_session() {
        let token = CsrfToken::of("a secret");
        assert!(token.verify(&token.text()).is_ok());
        assert!(token.verify(&CsrfToken::of("another").text()).is_err());
        for bad in ["", "00", &"g".repeat(64)] {
            assert!(token.verify(bad).is_err(), "{bad}");
        }
        assert!(!token.text().contains("secret"));
    }

    #[test]
    fn repeated_fields_are_a_list() {
        #[derive(serde::Deserialize)]
        struct Form {
            name: String,
            #[serde(default)]
            models: Vec<String>,
        }
        let form: Form = parse(b"csrf=x&name=a&models=b&models=c%20d").unwrap();
        assert_eq!(
            (form.name.as_str(), form.models),
            ("a", vec!["b".to_owned(), "c d".to_owned()])
        );
        let form: Form = parse(b"name=a").unwrap();
        assert!(form.models.is_empty());
    }
}
