//! Asks a provider for its list of models, to see whether it can be reached and takes its key.

use super::{Base, Trust, Upstream};
use estrade_model::provider::Provider;
use estrade_model::secret::Secret;
use std::io;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// For all of it.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// The beginning of a status line, `HTTP/1.1 200`.
const STATUS_BYTES: usize = 12;

/// The status of the response, or why there is none, in words for a person. What the provider sends else is not
/// read: nothing of it is shown.
pub(crate) async fn probe(provider: &Provider) -> Result<u16, String> {
    let upstream = Upstream::build(provider, &[], &mut Trust::default())
        .map_err(|reason| reason.to_string())?;
    let base = Base::parse(&provider.base_url).map_err(str::to_owned)?;
    let authorization = provider.api_key.as_ref().map(Secret::expose);
    let authorization = authorization.map_or_else(String::new, |key| {
        format!("authorization: Bearer {key}\r\n")
    });
    let head = format!(
        "GET {}/models HTTP/1.1\r\nhost: {}\r\n{authorization}accept-encoding: identity\r\n\
         user-agent: estrade/{}\r\nconnection: close\r\n\r\n",
        base.path,
        base.authority,
        env!("CARGO_PKG_VERSION"),
    );
    let status = async {
        let address = (upstream.host.as_str(), upstream.port);
        let stream = TcpStream::connect(address).await;
        let stream = stream.map_err(|error| format!("it cannot be reached: {error}"))?;
        let status = match &upstream.tls {
            None => send_request(stream, &head).await,
            Some((connector, name)) => {
                let stream = connector.connect(name.clone(), stream).await;
                send_request(
                    stream.map_err(|error| format!("TLS fails: {error}"))?,
                    &head,
                )
                .await
            }
        };
        status.map_err(|error| format!("it does not answer properly: {error}"))
    };
    timeout(PROBE_TIMEOUT, status)
        .await
        .map_err(|_| "it does not answer within 10 seconds".to_owned())?
}

async fn send_request<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    head: &str,
) -> io::Result<u16> {
    stream.write_all(head.as_bytes()).await?;
    stream.flush().await?;
    let mut line = [0; STATUS_BYTES];
    stream.read_exact(&mut line).await?;
    let status = std::str::from_utf8(&line)
        .ok()
        .filter(|line| line.starts_with("HTTP/1."))
        .and_then(|line| line.get(9..)?.parse().ok());
    status.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "this is not HTTP"))
}
