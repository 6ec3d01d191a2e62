//! Authentication: the extractors for caller and scope that every management route begins with.
//!
//! They come first in a handler's arguments, so that 401 wins over anything that may be wrong with
//! the rest of the request.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::context::RequestContext;
use crate::error::ErrorShape;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use estrade_listener::peer::PeerAddr;
use estrade_model::TeamId;
use estrade_service::identity::access::{self, Caller, Origin, Scope};
use estrade_service::{Error, Result};
use std::borrow::Cow;

/// The header that selects a team; the query parameter is `teamID`.
const TEAM_HEADER: &str = "x-teamid";

/// The caller, proved by a bearer token and within its rate limit.
pub struct Auth<E: ErrorShape>(pub E::Plain<Caller>);

/// The caller and whose things the request is about.
pub struct Scoped<E: ErrorShape>(pub E::Plain<Scope>);

/// The same for a WebSocket, whose client in a browser cannot send headers of its own: where there is no
/// `Authorization`, a token among the subprotocols counts, and where there is none, the query's `token`.
pub struct SocketScoped<E: ErrorShape>(pub E::Plain<Scope>);

/// The WebSocket subprotocol that is selected; it carries no token.
pub const SUBPROTOCOL: &str = "estrade";
/// How the one begins that has the token; it is never sent back.
const TOKEN_SUBPROTOCOL: &str = "estrade.token.";

impl<E: ErrorShape> FromRequestParts<AppState> for Auth<E> {
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> std::result::Result<Self, E> {
        Ok(Self(E::plain(authenticate(app, parts).await?)))
    }
}

impl<E: ErrorShape> FromRequestParts<AppState> for Scoped<E> {
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> std::result::Result<Self, E> {
        let caller = authenticate(app, parts).await?;
        let team = selected_team(parts)?;
        Ok(Self(E::plain(
            access::scope_of(&app.core, caller, team).await?,
        )))
    }
}

impl<E: ErrorShape> FromRequestParts<AppState> for SocketScoped<E> {
    type Rejection = E;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> std::result::Result<Self, E> {
        if !parts.headers.contains_key(header::AUTHORIZATION) {
            let token = socket_token(parts).ok_or(Error::Unauthenticated)?;
            let caller = verify(app, parts, &token).await?;
            parts.extensions.insert(caller);
        }
        let Scoped(scope) = Scoped::<E>::from_request_parts(parts, app).await?;
        Ok(Self(scope))
    }
}

/// The caller of a request; authenticated once per request, however many extractors need it.
pub async fn authenticate(
    app: &AppState,
    parts: &mut Parts,
) -> std::result::Result<Caller, ApiError> {
    if let Some(caller) = parts.extensions.get::<Caller>() {
        return Ok(caller.clone());
    }
    let token = bearer(&parts.headers).ok_or(Error::Unauthenticated)?;
    let caller = verify(app, parts, token).await?;
    parts.extensions.insert(caller.clone());
    Ok(caller)
}

async fn verify(
    app: &AppState,
    parts: &Parts,
    token: &str,
) -> std::result::Result<Caller, ApiError> {
    let caller = app
        .services
        .tokens
        .authenticate(token, origin(parts))
        .await?;
    app.rates.check(caller.credential.as_bytes())?;
    app.account_rates.check(caller.account.as_bytes())?;
    Ok(caller)
}

/// Where a request came from, for the audit log.
fn origin(parts: &Parts) -> Origin {
    Origin {
        address: parts.extensions.get().map(|PeerAddr(address)| *address),
        request: RequestContext::of(&parts.extensions).map(|context| context.id().into()),
    }
}

/// The text of a bearer token; the scheme's case does not matter.
pub fn bearer(headers: &HeaderMap) -> Option<&str> {
    let mut values = headers.get_all(header::AUTHORIZATION).iter();
    let (value, None) = (values.next()?, values.next()) else {
        return None;
    };
    // Not `to_str`, which looks at each byte alone; what is not ASCII is no token anyway.
    let text = std::str::from_utf8(value.as_bytes()).ok()?;
    let (scheme, token) = text.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// The token of a WebSocket without `Authorization`; none also when there are two.
fn socket_token(parts: &Parts) -> Option<String> {
    let offered = parts.headers.get_all(header::SEC_WEBSOCKET_PROTOCOL);
    let offered = offered.iter().filter_map(|value| value.to_str().ok());
    let words = offered.flat_map(|value| value.split(','));
    let tokens = words.filter_map(|word| word.trim().strip_prefix(TOKEN_SUBPROTOCOL));
    let mut tokens: Vec<_> = tokens.map(str::to_owned).collect();
    if tokens.is_empty() {
        let query = parts.uri.query().unwrap_or_default();
        tokens.extend(query_values(query, "token"));
    }
    let token = tokens.pop()?;
    tokens.is_empty().then_some(token)
}

/// The team that a request names; empty is none.
fn selected_team(parts: &Parts) -> Result<Option<TeamId>> {
    let headers = parts.headers.get_all(TEAM_HEADER).iter();
    let headers = headers.map(|value| Cow::from(value.to_str().unwrap_or("?").trim()));
    let query = parts.uri.query().unwrap_or_default();
    let queries = query_values(query, "teamID").map(Cow::from);
    let mut named = headers.chain(queries).filter(|text| !text.is_empty());
    let Some(text) = named.next() else {
        return Ok(None);
    };
    // Two headers must be equal: a proxy may read the first and we the last.
    if named.any(|other| other != text) {
        return Err(Error::invalid(
            "teamID and x-teamid name different teams; send one of them",
        ));
    }
    // A malformed id gives the same error as a team that does not exist.
    let team = text
        .parse()
        .map_err(|_| Error::Forbidden(access::NOT_A_MEMBER.into()))?;
    Ok(Some(team))
}

/// The decoded values of a query parameter.
fn query_values(query: &str, name: &str) -> impl Iterator<Item = String> {
    serde_urlencoded::from_str::<Vec<(String, String)>>(query)
        .unwrap_or_default()
        .into_iter()
        .filter(move |(key, _)| key == name)
        .map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::{HeaderValue, Request};

    fn headers(values: &[&str]) -> HeaderMap {
        let pair = |value: &&str| (header::AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        values.iter().map(pair).collect()
    }

    #[test]
    fn the_scheme_is_case_insensitive_and_the_token_is_not_empty() {
        for good in ["Bearer abc", "bearer abc", "BEARER  abc"] {
            assert_eq!(bearer(&headers(&[good])), Some("abc"), "{good}");
        }
        for bad in [
            &["Basic abc"][..],
            &["Bearer"],
            &["Bearer "],
            &["abc"],
            &[],
            &["Bearer a", "Bearer b"],
        ] {
            assert_eq!(bearer(&headers(bad)), None, "{bad:?}");
        }
    }

    #[test]
    fn a_socket_has_one_token_and_subprotocols_go_before_the_query() {
        let token = |uri: &str, protocols: &[&str]| {
            let mut request = Request::get(uri);
            for value in protocols {
                request = request.header(header::SEC_WEBSOCKET_PROTOCOL, *value);
            }
            socket_token(&request.body(()).unwrap().into_parts().0)
        };
        assert_eq!(token("/?token=a.b.c", &[]).as_deref(), Some("a.b.c"));
        let offered = ["estrade, estrade.token.d.e.f"];
        assert_eq!(token("/?token=a.b.c", &offered).as_deref(), Some("d.e.f"));
        let apart = ["estrade.token.d.e.f", "estrade"];
        assert_eq!(token("/", &apart).as_deref(), Some("d.e.f"));
        assert_eq!(token("/", &["estrade, chat"]), None);
        assert_eq!(token("/", &["estrade.token.a,estrade.token.b"]), None);
        assert_eq!(token("/?token=a&token=b", &[]), None);
    }

    #[test]
    fn a_team_is_named_once() {
        let team = |uri: &str, header: Option<&str>| {
            let mut request = Request::get(uri);
            if let Some(text) = header {
                request = request.header(TEAM_HEADER, text);
            }
            selected_team(&request.body(()).unwrap().into_parts().0)
        };
        let id = "0123456789abcdef01234567";
        let other = "0123456789abcdef01234568";
        assert_eq!(team("/", None).unwrap(), None);
        assert_eq!(team("/?teamID=", Some("")).unwrap(), None);
        assert!(team(&format!("/?teamID={id}"), None).unwrap().is_some());
        assert!(team(&format!("/?teamID={id}"), Some(id)).unwrap().is_some());
        assert!(matches!(
            team(&format!("/?teamID={id}"), Some(other)),
            Err(Error::Invalid { .. })
        ));
        assert!(matches!(
            team(&format!("/?teamID={id}&teamID={other}"), None),
            Err(Error::Invalid { .. })
        ));
        assert!(matches!(
            team("/?teamID=nonsense", None),
            Err(Error::Forbidden(_))
        ));
    }
}
