//! Platform API: the login of the command line through a browser (RFC 8628).
//!
//! Both routes are public: whoever begins a login has no credential yet, and the device code is the credential of the
//! other. A login that nobody approves is good for nothing. They are for programs: any page could otherwise make the
//! browsers of its visitors begin logins until their network has as many as it may have.

use crate::api_error::ApiError;
use crate::app::AppState;
use crate::body::{Body, BodyRules, OptionalBody};
use crate::body_reader::BodyLimits;
use crate::error::PlatformError;
use axum::extract::State;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Uri, header};
use axum::response::IntoResponse;
use axum::{Extension, Json};
use estrade_listener::peer::PeerAddr;
use estrade_model::device_login::{
    DeviceToken, RedeemDeviceCode, StartDeviceLogin, StartedDeviceLogin,
};
use estrade_service::identity::device_login::{self, redemption};
use estrade_service::identity::sessions::Client;
use std::net::IpAddr;

/// The page of the panel that asks for the code.
pub const PAGE: &str = "/panel/device";

/// Anybody can send any number of these: the body is bounded to what the fields need.
pub(super) const DEVICE_BODY: BodyRules = BodyRules {
    limits: BodyLimits::at_most(4 * 1024),
    any_type: false,
};

/// Begin a login through a browser
///
/// The device authorization grant (RFC 8628), for programs on a machine that has no token yet. The program shows
/// `user_code` and `verification_uri` to its person, who signs in to the panel there and approves; it polls
/// `POST /v1/device/token` meanwhile. Both codes are good for ten minutes.
#[utoipa::path(post, path = "/v1/device/code", tag = "account", request_body = Option<StartDeviceLogin>, security(()), responses(
    (status = 200, body = StartedDeviceLogin),
    (status = 403, description = "`sent_by_page`: a page in a browser sent this"),
    (status = 429, description = "Too many logins wait; `Retry-After` says when to repeat"),
    (status = 503, description = "Not available right now"),
))]
pub async fn start_device_login(
    State(app): State<AppState>,
    Extension(PeerAddr(address)): Extension<PeerAddr>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(new): OptionalBody<StartDeviceLogin, PlatformError>,
) -> Result<impl IntoResponse, PlatformError> {
    refuse_pages(&headers)?;
    let client = client(address, &headers);
    let started = device_login::start(&app.core, new, &client).await?;
    let (page, code) = (panel_url(&app, &uri, &headers) + PAGE, started.user_code);
    let started = StartedDeviceLogin {
        device_code: started.device_code,
        user_code: code.to_string(),
        verification_uri_complete: format!("{page}?code={code}"),
        verification_uri: page,
        expires_in: device_login::LIFETIME.as_secs(),
        interval: device_login::POLL_INTERVAL.as_secs(),
    };
    Ok((no_store(), Json(started)))
}

/// Get the token of a login through a browser
///
/// The token lives for 90 days and is listed and revoked like any other. It is handed over once: the device code is used
/// up by it.
#[utoipa::path(post, path = "/v1/device/token", tag = "account", request_body = RedeemDeviceCode, security(()), responses(
    (status = 200, body = DeviceToken),
    (status = 400, description = "`authorization_pending`: nobody has approved it yet, ask again after `interval`; `slow_down`: the same, and this came too soon; `access_denied`: it was denied; `expired_token`: it has expired, was used, or never was a code"),
    (status = 403, description = "`quota`: the account has as many tokens as it may have; `sent_by_page`: a page in a browser sent this"),
    (status = 503, description = "Not available right now"),
))]
pub async fn redeem_device_code(
    State(app): State<AppState>,
    Extension(PeerAddr(address)): Extension<PeerAddr>,
    headers: HeaderMap,
    Body(request): Body<RedeemDeviceCode, PlatformError>,
) -> Result<impl IntoResponse, PlatformError> {
    refuse_pages(&headers)?;
    let token = redemption::redeem(&app.core, &request.device_code, address).await?;
    Ok((no_store(), Json(token)))
}

/// Refuses what a page sent. Browsers say one of these with every POST, and no page can leave them out; programs say
/// neither. CORS does not help: it keeps the answer from the page, not the request from us.
fn refuse_pages(headers: &HeaderMap) -> Result<(), PlatformError> {
    let says = |name: &str| headers.contains_key(name);
    if says("origin") || says("sec-fetch-site") {
        return Err(ApiError::SentByPage.into());
    }
    Ok(())
}

fn no_store() -> [(header::HeaderName, &'static str); 1] {
    [(header::CACHE_CONTROL, "no-store")]
}

fn client(address: IpAddr, headers: &HeaderMap) -> Client {
    let user_agent = headers.get(header::USER_AGENT);
    let user_agent = user_agent.and_then(|value| value.to_str().ok());
    Client {
        address,
        user_agent: user_agent.unwrap_or_default().to_owned(),
    }
}

/// The panel as this client's person reaches it: at the configured address, else where the client found the API.
fn panel_url(app: &AppState, uri: &Uri, headers: &HeaderMap) -> String {
    let settings = &app.core.settings;
    if let Some(url) = &settings.platform_public_url {
        return url.clone();
    }
    let host = headers
        .get(header::HOST)
        .and_then(|host| host.to_str().ok()?.parse::<Authority>().ok())
        .or_else(|| uri.authority().cloned());
    match (host, settings.public_url.split_once("://")) {
        (Some(host), Some((scheme, _))) => match host.port_u16() {
            Some(port) => format!("{scheme}://{}:{port}", host.host()),
            None => format!("{scheme}://{}", host.host()),
        },
        _ => settings.public_url.clone(),
    }
}
