//! Readiness probes of instances, from outside of the container, as requests arrive.

use crate::instance::Instance;
use crate::runtime::Runtime;
use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, HOST, USER_AGENT};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

/// The time between two attempts at first.
const MIN_RETRY_DELAY: Duration = Duration::from_millis(100);
/// For how long attempts come that quickly.
const FAST_RETRY_PERIOD: Duration = Duration::from_secs(10);
/// The longest time between two attempts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long one attempt may take.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(5);

/// How to find out whether an instance is ready.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// It accepts connections.
    Tcp,
    /// It responds to a GET with a status from 200 to 399.
    Http {
        /// The path, with its query.
        path: String,
        /// The `Host` header.
        host: String,
    },
    /// A command in it ends with 0.
    Command(Vec<String>),
}

/// An instance was not ready in time; what the last attempt met.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unhealthy(pub String);

/// Waits until an instance is ready: the first attempt at once, then every 100 ms, later every second.
/// It does not see that the instance has ended: [`Runtime::wait_for_exit`] beside it does.
pub(crate) async fn wait_until_ready<R: Runtime + ?Sized>(
    runtime: &R,
    instance: &Instance,
    probe: &Probe,
    limit: Duration,
) -> Result<(), Unhealthy> {
    let begin = Instant::now();
    let (deadline, mut pause) = (begin + limit, MIN_RETRY_DELAY);
    let mut last = Unhealthy("no response in time".to_owned());
    loop {
        let started = Instant::now();
        match timeout_at(deadline, attempt(runtime, instance, probe)).await {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(unhealthy)) => last = unhealthy,
            Err(_) => return Err(last),
        }
        if started - begin > FAST_RETRY_PERIOD {
            pause = (pause + pause / 4).min(MAX_RETRY_DELAY);
        }
        // From start to start, so that a slow refusal does not slow down the next attempt.
        let next = (started + pause).max(Instant::now() + MIN_RETRY_DELAY / 4);
        if next >= deadline {
            return Err(last);
        }
        sleep_until(next).await;
    }
}

/// One attempt.
async fn attempt<R: Runtime + ?Sized>(
    runtime: &R,
    instance: &Instance,
    probe: &Probe,
) -> Result<(), Unhealthy> {
    let address = instance
        .address
        .ok_or_else(|| Unhealthy("it does not run".to_owned()));
    let attempt = async {
        match probe {
            Probe::Tcp => connect(address?).await.map(drop),
            Probe::Http { path, host } => send_request(address?, path, host).await,
            Probe::Command(command) => run_command(runtime, instance, command).await,
        }
    };
    let attempt = timeout(ATTEMPT_TIMEOUT, attempt).await;
    attempt.unwrap_or_else(|_| {
        Err(Unhealthy(format!(
            "no response within {} s",
            ATTEMPT_TIMEOUT.as_secs()
        )))
    })
}

async fn run_command<R: Runtime + ?Sized>(
    runtime: &R,
    instance: &Instance,
    command: &[String],
) -> Result<(), Unhealthy> {
    match runtime
        .run_command(&instance.id, command.to_vec(), ATTEMPT_TIMEOUT)
        .await
    {
        Ok(end) if end.code == 0 => Ok(()),
        Ok(end) => {
            let first_line = end.output.lines().next().unwrap_or_default();
            Err(Unhealthy(format!(
                "the command ended with {}: {first_line}",
                end.code
            )))
        }
        Err(error) => Err(Unhealthy(error.to_string())),
    }
}

async fn connect(address: SocketAddr) -> Result<TcpStream, Unhealthy> {
    let connected = TcpStream::connect(address).await;
    connected.map_err(|error| {
        let port = address.port();
        let advice = match error.kind() {
            ErrorKind::ConnectionRefused => {
                "; the app must listen on 0.0.0.0:$PORT, not on localhost or another port"
            }
            _ => "",
        };
        Unhealthy(format!("port {port}: {error}{advice}"))
    })
}

async fn send_request(address: SocketAddr, path: &str, host: &str) -> Result<(), Unhealthy> {
    let unhealthy = |error: hyper::Error| Unhealthy(format!("GET {path}: {error}"));
    let request = Request::get(path)
        .header(HOST, host)
        .header(USER_AGENT, "estrade-probe")
        .header(CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| Unhealthy(format!("GET {path}: {error}")))?;
    let stream = TokioIo::new(connect(address).await?);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream)
        .await
        .map_err(unhealthy)?;
    // It ends with this attempt.
    let mut tasks = JoinSet::new();
    tasks.spawn(connection);
    let status = sender
        .send_request(request)
        .await
        .map_err(unhealthy)?
        .status();
    if status.is_success() || status.is_redirection() {
        Ok(())
    } else {
        Err(Unhealthy(format!("GET {path}: {status}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, EngineHost, InstanceId, InstanceKey, InstanceState};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    fn engine() -> Engine {
        let host = EngineHost::Unix("/nonexistent".into());
        Engine::new(host, "a".parse().unwrap(), crate::SubnetPool::default()).unwrap()
    }

    fn instance(address: SocketAddr) -> Instance {
        Instance {
            id: InstanceId("0".into()),
            key: InstanceKey {
                owner: estrade_model::Id::generate(1, 1),
                project: estrade_model::Id::generate(1, 1),
                release: estrade_model::Id::generate(1, 1),
                number: 1,
            },
            digest: String::new(),
            state: InstanceState::Running,
            address: Some(address),
            disk_limited: false,
            started_at: None,
        }
    }

    async fn free_address() -> SocketAddr {
        TcpListener::bind("127.0.0.1:0")
            .await
            .unwrap()
            .local_addr()
            .unwrap()
    }

    /// Responds to every connection in turn with one of these.
    async fn serve(address: SocketAddr, responses: Vec<&'static str>) {
        let listener = TcpListener::bind(address).await.unwrap();
        for response in responses {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = [0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            assert!(head[..read].starts_with(b"GET /up?x=1 HTTP/1.1\r\nhost: app.test\r\n"));
            stream.write_all(response.as_bytes()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_port_that_opens_late_is_found_soon() {
        let address = free_address().await;
        let (engine, instance) = (engine(), instance(address));
        let opening = async {
            tokio::time::sleep(Duration::from_millis(450)).await;
            (TcpListener::bind(address).await.unwrap(), Instant::now())
        };
        let waiting = engine.wait_until_ready(&instance, &Probe::Tcp, Duration::from_secs(20));
        let ((_listener, opened), ready) =
            tokio::join!(opening, async { waiting.await.map(|()| Instant::now()) });
        let late = ready.unwrap() - opened;
        // The behaviour itself: at first attempts come a tenth of a second apart, and only later a whole one.
        assert!(late < MAX_RETRY_DELAY, "{late:?}");
    }

    #[tokio::test]
    async fn http_waits_for_a_good_status() {
        let address = free_address().await;
        let responses = vec![
            "HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n",
            "nonsense",
            "HTTP/1.1 302 Found\r\ncontent-length: 0\r\n\r\n",
        ];
        let probe = Probe::Http {
            path: "/up?x=1".into(),
            host: "app.test".into(),
        };
        let (engine, instance) = (engine(), instance(address));
        let waiting = engine.wait_until_ready(&instance, &probe, Duration::from_secs(20));
        let ((), ready) = tokio::join!(serve(address, responses), waiting);
        ready.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_attempt_says_why() {
        let instance = instance(free_address().await);
        let (begin, limit) = (Instant::now(), Duration::from_millis(350));
        let engine = engine();
        let waited = engine.wait_until_ready(&instance, &Probe::Tcp, limit);
        let Unhealthy(why) = waited.await.unwrap_err();
        assert!(why.contains("refused"), "{why}");
        assert!(begin.elapsed() <= limit, "{:?}", begin.elapsed());
    }
}
