//! The person who is signed in, and the scope that they look at.
//!
//! [`Visit`] is what every page begins with. It is the only place that reads the session cookie.

use crate::cookies::{Cookie, is_secure};
use crate::error::PanelError;
use crate::flash;
use crate::form::CsrfToken;
use crate::layout::{Layout, Person, Section, with_team};
use crate::list::just_after;
use crate::respond::see_other;
use axum::extract::FromRequestParts;
use axum::http::header;
use axum::http::request::Parts;
use axum::response::Response;
use estrade_listener::peer::PeerAddr;
use estrade_model::TeamId;
use estrade_model::secret::Secret;
use estrade_model::team::Team;
use estrade_server::app::AppState;
use estrade_server::context::RequestContext;
use estrade_service::identity::access::{self, NOT_A_MEMBER};
use estrade_service::identity::sessions::{Client, NewSession, SignedIn};
use estrade_service::identity::teams;
use estrade_service::{Error, Scope};
use std::convert::Infallible;
use std::net::Ipv4Addr;

/// How long a browser keeps the cookie: as long as a session may last.
const MAX_AGE_SECONDS: u64 = 30 * 24 * 3600;
/// How many teams the scope switch offers.
const MAX_TEAMS: u32 = 20;

/// A request of a person who is signed in.
#[derive(Clone)]
pub struct Visit {
    /// Whose things the page shows: the person's, or those of the team that `?team=` selects.
    pub scope: Scope,
    /// The session, and the account behind it.
    pub session: SignedIn,
    /// The browser.
    pub client: Client,
    secret: Secret,
    team: Option<TeamId>,
    teams: Vec<Team>,
    more_teams: bool,
    toast: Option<String>,
    secure: bool,
}

/// The browser of a request, also of somebody who is not signed in.
pub struct Browser(pub Client);

impl FromRequestParts<AppState> for Browser {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &AppState) -> Result<Self, Infallible> {
        let address = parts.extensions.get().map(|PeerAddr(address)| *address);
        let user_agent = parts.headers.get(header::USER_AGENT);
        let user_agent = user_agent.and_then(|value| value.to_str().ok());
        Ok(Self(Client {
            address: address.unwrap_or(Ipv4Addr::UNSPECIFIED.into()),
            user_agent: user_agent.unwrap_or_default().to_owned(),
        }))
    }
}

impl FromRequestParts<AppState> for Visit {
    type Rejection = PanelError;

    async fn from_request_parts(parts: &mut Parts, app: &AppState) -> Result<Self, PanelError> {
        let secure = is_secure(&app.core);
        let secret = Cookie::Session.read(&parts.headers, secure);
        let secret = Secret(secret.ok_or(PanelError::SignIn)?.to_owned());
        let Ok(Browser(client)) = Browser::from_request_parts(parts, app).await;
        let sessions = &app.services.sessions;
        let mut session = sessions.authenticate(secret.expose(), &client).await?;
        let caller = &mut session.caller;
        caller.origin.request =
            RequestContext::of(&parts.extensions).map(|context| context.id().into());
        let caller = caller.clone();
        app.account_rates.check(caller.account.as_bytes())?;
        // Bodies count for the account.
        parts.extensions.insert(caller.clone());
        let team = selected_team(parts)?;
        let mut teams = teams::list_teams(&app.core, &caller, None, MAX_TEAMS + 1, 0).await?;
        let more_teams = teams.len() > MAX_TEAMS as usize;
        teams.truncate(MAX_TEAMS as usize);
        let scope = access::scope_of(&app.core, caller, team).await?;
        if let Some(id) = team.filter(|id| teams.iter().all(|team| team.id != *id)) {
            let (caller, from) = (&scope.caller, Some(just_after(id)));
            let selected = teams::list_teams(&app.core, caller, from, 1, 0).await?;
            teams.extend(selected.into_iter().filter(|team| team.id == id));
        }
        let toast = Cookie::Flash.read(&parts.headers, secure);
        let toast = toast.and_then(|value| flash::open(value, secret.expose()));
        Ok(Self {
            scope,
            session,
            client,
            secret,
            team,
            teams,
            more_teams,
            toast,
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

/// Sets the cookie of a new session.
pub fn set_session(response: &mut Response, session: &NewSession, app: &AppState) {
    let value = session.secret.expose();
    let cookie = Cookie::Session.set(value, is_secure(&app.core), Some(MAX_AGE_SECONDS));
    if let Some(cookie) = cookie {
        response.headers_mut().append(header::SET_COOKIE, cookie);
    }
}

/// Removes the cookie of a session that has ended.
pub fn remove_session(response: &mut Response, app: &AppState) {
    let secure = is_secure(&app.core);
    for cookie in [Cookie::Session, Cookie::Flash] {
        if let Some(cookie) = cookie.remove(secure) {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
    }
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
            more_teams: self.more_teams,
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
        CsrfToken::of(self.secret.expose())
    }

    /// After a change: shows another page of the same scope, which says what happened.
    pub fn done(&self, text: impl AsRef<str>, path: &str) -> Response {
        self.done_at(text, &self.href(path))
    }

    /// The same for an address that names its scope itself.
    pub fn done_at(&self, text: impl AsRef<str>, address: &str) -> Response {
        let mut response = see_other(address);
        let value = flash::seal(text.as_ref(), self.secret.expose());
        let cookie = Cookie::Flash.set(&value, self.secure, Some(flash::FLASH_SECONDS));
        if let Some(cookie) = cookie {
            response.headers_mut().append(header::SET_COOKIE, cookie);
        }
        response
    }

    /// Sends people whose sign-in is older than ten minutes to confirm that it is them, before they fill in a form
    /// that the services would refuse.
    pub fn require_recent(&self, app: &AppState) -> Result<(), PanelError> {
        Ok(self.scope.caller.require_recent(&app.core)?)
    }
}
