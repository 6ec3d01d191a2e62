//! The person who is signed in, and the scope that they look at.
//!
//! [`Visit`] is what every page begins with. It is the only place that reads the session cookie.

use crate::cookies::{Cookie, is_secure};
use crate::error::PanelError;
use crate::flash;
use crate::form::CsrfToken;
use crate::layout::{Layout, Person, Section, with_team};
use crate::respond::see_other;
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use axum::http::{HeaderMap, header};
use axum::response::Response;
use estrade_listener::peer::PeerAddr;
use estrade_model::team::Team;
use estrade_model::{TeamId, Timestamp};
use estrade_server::app::AppState;
use estrade_server::context::RequestContext;
use estrade_service::identity::access::{self, NOT_A_MEMBER};
use estrade_service::identity::teams;
use estrade_service::{Caller, Error, Origin, Scope};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How old a sign-in may be for what asks to confirm it.
const RECENT: Duration = Duration::from_mins(10);
/// How many teams the scope switch offers.
const MAX_TEAMS: u32 = 20;

/// A session of a person.
#[derive(Debug, Clone, Copy)]
pub struct Session {
    /// When the password or the second factor was last asked for.
    pub authenticated_at: Timestamp,
}

/// A request of a person who is signed in.
#[derive(Clone)]
pub struct Visit {
    /// Whose things the page shows: the person's, or those of the team that `?team=` selects.
    pub scope: Scope,
    pub session: Session,
    pub client: Client,
    team: Option<TeamId>,
    teams: Vec<Team>,
    toast: Option<String>,
    secret: String,
    secure: bool,
}

/// The browser of a request.
#[derive(Debug, Clone)]
pub struct Client {
    pub address: IpAddr,
    pub user_agent: String,
}

impl Client {
    /// Where a request comes from.
    pub fn of(parts: &Parts) -> Self {
        let address = parts.extensions.get().map(|PeerAddr(address)| *address);
        let user_agent = parts.headers.get(header::USER_AGENT);
        let user_agent = user_agent.and_then(|value| value.to_str().ok());
        Self {
            address: address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            user_agent: user_agent.unwrap_or_default().chars().take(300).collect(),
        }
    }
}

/// Proves a session. The only place that knows how.
fn authenticate(
    _app: &AppState,
    _secret: &str,
    _client: &Client,
) -> estrade_service::Result<(Caller, Session)> {
    Err(Error::Unauthenticated)
}

impl FromRequestParts<AppState> for Visit {
    type Rejection = PanelError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, PanelError> {
        let secure = is_secure(&app.core);
        let secret = Cookie::Session.read(&parts.headers, secure);
        let secret = secret.ok_or(PanelError::SignIn)?.to_owned();
        let client = Client::of(parts);
        let (mut caller, session) = authenticate(app, &secret, &client)?;
        caller.origin = Origin {
            address: parts.extensions.get().map(|PeerAddr(address)| *address),
            request: RequestContext::of(&parts.extensions).map(|context| context.id().into()),
        };
        app.account_rates.check(caller.account.as_bytes())?;
        // Bodies count for the account.
        parts.extensions.insert(caller.clone());
        let team = selected_team(parts)?;
        let teams = teams::list_teams(&app.core, &caller, None, MAX_TEAMS, 0).await?;
        let scope = access::scope_of(&app.core, caller, team).await?;
        let toast = Cookie::Flash.read(&parts.headers, secure);
        let toast = toast.and_then(|value| flash::open(value, &secret));
        Ok(Self {
            scope,
            session,
            client,
            team,
            teams,
            toast,
            secret,
            secure,
        })
    }
}

/// The team that `?team=` names; a malformed id is a team that does not exist.
fn selected_team(parts: &Parts) -> Result<Option<TeamId>, PanelError> {
    let query = parts.uri.query().unwrap_or_default().as_bytes();
    let pairs: Vec<(String, String)> = serde_html_form::from_bytes(query).unwrap_or_default();
    let mut named = pairs
        .into_iter()
        .filter(|(key, value)| key == "team" && !value.is_empty());
    let Some((_, text)) = named.next() else {
        return Ok(None);
    };
    let unknown = || Error::Forbidden(NOT_A_MEMBER.into());
    let team = text.parse().map_err(|_| unknown())?;
    if named.next().is_some() {
        return Err(unknown().into());
    }
    Ok(Some(team))
}

impl Visit {
    /// What the frame of a page needs.
    pub fn layout(&self, title: impl Into<String>, section: Section) -> Layout {
        let caller = &self.scope.caller;
        let person = Person {
            name: caller.fullname.clone(),
            email: caller.email.clone(),
            admin: caller.admin,
        };
        Layout {
            title: title.into(),
            section,
            person,
            role: self.scope.role,
            team: self.team,
            teams: self.teams.clone(),
            toast: self.toast.clone(),
            csrf: self.csrf().text(),
        }
    }

    /// A path of the panel in the same scope.
    pub fn href(&self, path: &str) -> String {
        with_team(path, self.team)
    }

    /// Whether the page shows a team's things.
    pub fn team(&self) -> Option<TeamId> {
        self.team
    }

    /// The token that the forms of this session carry.
    pub fn csrf(&self) -> CsrfToken {
        CsrfToken::of(&self.secret)
    }

    /// After a change: shows another page of the same scope, which says what happened.
    pub fn done(&self, text: impl AsRef<str>, path: &str) -> Response {
        let mut response = see_other(&self.href(path));
        let value = flash::seal(text.as_ref(), &self.secret);
        let cookie = Cookie::Flash.set(&value, self.secure, Some(flash::FLASH_SECONDS));
        if let Some(cookie) = cookie {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }

    /// Sends people whose sign-in is older than ten minutes to confirm that it is them.
    pub fn require_recent(&self, app: &AppState) -> Result<(), PanelError> {
        if self.session.authenticated_at < app.core.now().before(RECENT) {
            return Err(PanelError::Confirm);
        }
        Ok(())
    }
}

/// Whether a request carries a session cookie at all.
pub fn has_session(headers: &HeaderMap, app: &AppState) -> bool {
    Cookie::Session
        .read(headers, is_secure(&app.core))
        .is_some()
}
