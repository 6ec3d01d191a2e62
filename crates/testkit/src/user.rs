//! People who act on an app.

use crate::call::{Api, Call, Line};
use http::{HeaderMap, HeaderValue, Method};
use serde::Serialize;
use std::sync::Arc;

/// Somebody with a token (or without), on one of the two APIs, perhaps in a team.
#[derive(Clone)]
pub struct User {
    pub(crate) line: Arc<Line>,
    pub(crate) api: Api,
    pub(crate) team: Option<String>,
    /// The bearer token; none for a stranger.
    pub token: Option<String>,
    /// Identifier of the account.
    pub account: String,
    /// Address of the account.
    pub email: String,
    /// Name of the account.
    pub fullname: String,
}

impl User {
    /// The same person at the AI API.
    pub fn ai(&self) -> Self {
        self.on(Api::Ai)
    }

    /// The same person at the platform API.
    pub fn platform(&self) -> Self {
        self.on(Api::Platform)
    }

    /// The same person at either API.
    pub fn on(&self, api: Api) -> Self {
        Self {
            api,
            ..self.clone()
        }
    }

    /// The same person, acting for a team.
    pub fn in_team(&self, team: &str) -> Self {
        Self {
            team: Some(team.to_owned()),
            ..self.clone()
        }
    }

    /// The same person with another token.
    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: Some(token.to_owned()),
            ..self.clone()
        }
    }

    /// The token; a stranger has none.
    pub fn token(&self) -> &str {
        self.token.as_deref().expect("not a stranger")
    }

    /// Starts a request.
    pub fn call(&self, method: Method, path: &str) -> Call {
        let mut headers = HeaderMap::new();
        let value = |text: &str| HeaderValue::from_str(text).expect("a header's value");
        if let Some(token) = &self.token {
            headers.insert("authorization", value(&format!("Bearer {token}")));
        }
        if let Some(team) = &self.team {
            headers.insert("x-teamid", value(team));
        }
        Call {
            line: Arc::clone(&self.line),
            api: self.api,
            method,
            path: path.to_owned(),
            headers,
            body: None,
        }
    }

    pub fn get(&self, path: &str) -> Call {
        self.call(Method::GET, path)
    }

    pub fn delete(&self, path: &str) -> Call {
        self.call(Method::DELETE, path)
    }

    /// `POST` with a JSON body.
    pub fn post(&self, path: &str, body: &impl Serialize) -> Call {
        self.call(Method::POST, path).json(body)
    }

    /// `POST` without a body.
    pub fn post_empty(&self, path: &str) -> Call {
        self.call(Method::POST, path)
    }

    /// `PUT` with a JSON body.
    pub fn put(&self, path: &str, body: &impl Serialize) -> Call {
        self.call(Method::PUT, path).json(body)
    }
}
