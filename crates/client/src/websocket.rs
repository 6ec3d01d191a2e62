//! A WebSocket to a server: over the same connections as requests, with their TLS, proxies and credentials.

use crate::error::{ClientError, Result};
use crate::http::Request;
use reqwest::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use reqwest::{Response, StatusCode, Upgraded};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::client::generate_key;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

/// Longest message that is taken of a server: memory is not the server's to fill.
const MAX_MESSAGE_BYTES: usize = 1 << 20;
/// What is read at once.
const READ_BUFFER_BYTES: usize = 16 << 10;

/// A WebSocket that is open.
pub(crate) struct WebSocket {
    pub(crate) stream: WebSocketStream<Upgraded>,
    /// The id that the server's log has it under.
    pub(crate) request_id: Option<String>,
}

/// Turns a request into a WebSocket of this subprotocol.
pub(crate) async fn connect(request: Request, subprotocol: &'static str) -> Result<WebSocket> {
    let url = request.shown_url();
    let malformed = |reason: &str| ClientError::Malformed {
        url: url.clone(),
        reason: reason.to_owned(),
    };
    let key = generate_key();
    let sent_key =
        HeaderValue::from_str(&key).map_err(|error| ClientError::Failed(error.to_string()))?;
    let text = HeaderValue::from_static;
    let response = request
        .header(CONNECTION, text("Upgrade"))
        .header(UPGRADE, text("websocket"))
        .header(SEC_WEBSOCKET_VERSION, text("13"))
        .header(SEC_WEBSOCKET_PROTOCOL, text(subprotocol))
        .header(SEC_WEBSOCKET_KEY, sent_key)
        .send_upgrade()
        .await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Err(malformed("it does not open a WebSocket"));
    }
    if value(&response, SEC_WEBSOCKET_ACCEPT) != Some(derive_accept_key(key.as_bytes())) {
        return Err(malformed("it has not read the request for a WebSocket"));
    }
    if value(&response, SEC_WEBSOCKET_PROTOCOL).as_deref() != Some(subprotocol) {
        return Err(ClientError::Failed(format!(
            "the server does not know the subprotocol `{subprotocol}`: it is older than this program"
        )));
    }
    let request_id = value(&response, HeaderName::from_static("x-request-id"));
    let upgraded = response.upgrade().await;
    let upgraded = upgraded.map_err(|error| ClientError::Unreachable {
        url: url.clone(),
        cause: error.to_string(),
    })?;
    // Nothing is kept back: what is typed goes out at once.
    let config = WebSocketConfig::default()
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(0)
        .max_message_size(Some(MAX_MESSAGE_BYTES))
        .max_frame_size(Some(MAX_MESSAGE_BYTES));
    Ok(WebSocket {
        stream: WebSocketStream::from_raw_socket(upgraded, Role::Client, Some(config)).await,
        request_id,
    })
}

fn value(response: &Response, name: HeaderName) -> Option<String> {
    let value = response.headers().get(name)?.to_str().ok()?;
    Some(value.to_owned())
}
