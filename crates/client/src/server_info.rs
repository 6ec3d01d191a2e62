//! What a server says about itself to everyone: `GET /.well-known/estrade.json`.

use crate::credentials::Target;
use crate::error::{ClientError, Result};
use crate::http::Client;
use crate::url::{is_readable_in_transit, parse_server};
use serde::Deserialize;

/// Where the description is found.
pub const PATH: &str = "/.well-known/estrade.json";

/// The part of it that clients use.
#[derive(Debug, Clone, Deserialize)]
pub struct ServerInfo {
    pub version: String,
    pub ai: Address,
    #[serde(default)]
    pub limits: Limits,
}

/// Where something is reached.
#[derive(Debug, Clone, Deserialize)]
pub struct Address {
    pub url: String,
}

/// What the server would refuse.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Most bytes of one release; 0: not known.
    pub release_bytes: u64,
    /// Most files of one release; 0: not known.
    pub release_files: u64,
}

impl ServerInfo {
    /// Asks the server.
    pub async fn read(client: &Client) -> Result<Self> {
        client.get(PATH).await
    }
}

/// The address of the AI API for requests with the token of `target`: what the server says, or `chosen`, which the
/// environment names.
///
/// A stored token goes to the host that it was stored for, or to where that server says; a variable that is left over
/// from another project must not send it elsewhere. A token that nobody on the way can read stays so.
pub async fn ai_address(client: &Client, target: &Target, chosen: Option<&str>) -> Result<String> {
    let address = match chosen {
        Some(chosen) => {
            let address = parse_server(chosen)?;
            if target.is_stored
                && host(&address) != host(&target.server)
                && parse_server(&ServerInfo::read(client).await?.ai.url)? != address
            {
                return Err(ClientError::Usage(format!(
                    "the token of {} is not sent to {address}, which ESTRADE_AI_URL names; set ESTRADE_URL and ESTRADE_TOKEN with it, or unset it",
                    target.server
                )));
            }
            address
        }
        None => parse_server(&ServerInfo::read(client).await?.ai.url)?,
    };
    if is_readable_in_transit(&address) && !is_readable_in_transit(&target.server) {
        return Err(ClientError::Usage(format!(
            "the AI API of this server is at {address}, without TLS; its administrator has to set ai.public_url"
        )));
    }
    Ok(address)
}

fn host(server: &str) -> Option<String> {
    let url = reqwest::Url::parse(server).ok()?;
    url.host_str().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is decided without asking the server.
    async fn chosen(server: &str, is_stored: bool, address: &str) -> Result<String> {
        let target = Target {
            server: server.to_owned(),
            credential: None,
            is_stored,
        };
        // Nothing listens there.
        let client = Client::new("http://127.0.0.1:1", None, None)?;
        ai_address(&client, &target, Some(address)).await
    }

    #[tokio::test]
    async fn a_stored_token_stays_with_its_host() {
        let own = chosen("https://a.example", true, "https://a.example:3001").await;
        assert_eq!(own.unwrap(), "https://a.example:3001");
        // The server is asked whether that is its address.
        let other = chosen("https://a.example", true, "https://b.example").await;
        assert!(matches!(other, Err(ClientError::Unreachable { .. })));
        let given = chosen("https://a.example", false, "https://b.example").await;
        assert_eq!(given.unwrap(), "https://b.example");
        for (server, address) in [
            ("https://a.example", "http://a.example"),
            ("http://127.0.0.1:3000", "http://b.example"),
        ] {
            let open = chosen(server, false, address).await;
            assert!(matches!(open, Err(ClientError::Usage(_))), "{address}");
        }
        let open = chosen("http://a.example", true, "http://a.example:3001").await;
        assert!(open.is_ok());
    }
}
