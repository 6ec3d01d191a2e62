//! The Docker Engine's API, used as `docker` itself would.

use super::PORT;
use crate::installation::Site;
use anyhow::{Context, ensure};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_mins(1);
/// Downloads included.
const BUILD_TIMEOUT: Duration = Duration::from_mins(10);

/// An engine.
pub(crate) struct Engine {
    socket: PathBuf,
}

/// A container that nobody but the engine takes care of.
pub(crate) struct Bare {
    id: String,
    pub(crate) address: SocketAddr,
}

impl Engine {
    /// The one that `./bench` has started.
    pub(crate) fn find() -> anyhow::Result<Self> {
        let socket = std::env::var_os("ESTRADE_TEST_DOCKER");
        let socket = socket.context("ESTRADE_TEST_DOCKER is not set: run ./bench containers")?;
        Ok(Self {
            socket: socket.into(),
        })
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let body = body.map(Value::to_string).unwrap_or_default();
        let response = self.exchange(method, path, "application/json", body.as_bytes(), TIMEOUT)?;
        Ok(serde_json::from_str(&response).unwrap_or_default())
    }

    /// The body of a response that is no error.
    fn exchange(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &[u8],
        timeout: Duration,
    ) -> anyhow::Result<String> {
        let mut stream = UnixStream::connect(&self.socket).context("no Docker Engine")?;
        stream.set_read_timeout(Some(timeout))?;
        // In HTTP/1.0 the response ends with the connection.
        let head = format!(
            "{method} /v1.41{path} HTTP/1.0\r\nHost: docker\r\nContent-Type: {content_type}\r\n\
             Content-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body)?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").context("half a response")?;
        let status: u16 = head.split(' ').nth(1).context("no status")?.parse()?;
        ensure!(status < 300, "{method} {path}: {status} {body}");
        Ok(body.to_owned())
    }

    /// `docker build`: the context is a tar with a `Dockerfile`.
    pub(crate) fn build(&self, query: &str, context: &[u8]) -> anyhow::Result<()> {
        let path = format!("/build?version=1&{query}");
        let log = self.exchange("POST", &path, "application/x-tar", context, BUILD_TIMEOUT)?;
        ensure!(
            log.contains("Successfully built"),
            "the build failed:\n{log}"
        );
        Ok(())
    }

    /// Removes an image by its name.
    pub(crate) fn remove_image(&self, name: &str) -> anyhow::Result<()> {
        let path = format!("/images/{name}?force=1");
        self.request("DELETE", &path, None).map(drop)
    }

    /// `docker run -d --network … image command`.
    pub(crate) fn run(
        &self,
        network: &str,
        image: &str,
        command: &[String],
    ) -> anyhow::Result<Bare> {
        let spec = json!({
            "Image": image, "Cmd": command, "HostConfig": {"NetworkMode": network},
        });
        let made = self.request("POST", "/containers/create", Some(&spec))?;
        let id = text(&made["Id"])?;
        self.request("POST", &format!("/containers/{id}/start"), None)?;
        let read = self.request("GET", &format!("/containers/{id}/json"), None)?;
        let ip = text(&read["NetworkSettings"]["Networks"][network]["IPAddress"])?;
        let address = (ip.parse::<Ipv4Addr>()?, PORT).into();
        Ok(Bare { id, address })
    }

    /// Removes a container at once.
    pub(crate) fn remove(&self, bare: &Bare) -> anyhow::Result<()> {
        let path = format!("/containers/{}?force=1&v=1", bare.id);
        self.request("DELETE", &path, None).map(drop)
    }
}

/// What an installation has on an engine; removed at the end.
pub(crate) struct Things<'e> {
    engine: &'e Engine,
    installation: String,
}

impl<'e> Things<'e> {
    /// Of an installation that was started once.
    pub(crate) fn of(engine: &'e Engine, site: &Site) -> anyhow::Result<Self> {
        let sql = "SELECT name FROM installation";
        let installation = site.open()?.query_row(sql, [], |row| row.get(0))?;
        Ok(Self {
            engine,
            installation,
        })
    }

    fn list(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let filters = format!(
            r#"{{"label":["estrade.installation={}"]}}"#,
            self.installation
        );
        let filters = filters.bytes().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "%{byte:02x}");
            text
        });
        let list = self
            .engine
            .request("GET", &format!("{path}filters={filters}"), None)?;
        Ok(list.as_array().cloned().unwrap_or_default())
    }

    /// Its containers.
    pub(crate) fn containers(&self) -> anyhow::Result<Vec<Value>> {
        self.list("/containers/json?all=1&")
    }

    /// Waits until so many containers are left.
    pub(crate) fn wait_for(&self, count: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.containers()?.len() != count {
            ensure!(began.elapsed() < TIMEOUT, "there are not {count} instances");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The network of its only owner.
    pub(crate) fn network(&self) -> anyhow::Result<String> {
        let networks = self.list("/networks?")?;
        text(&networks.first().context("no network")?["Name"])
    }

    /// Where its only instance listens, and its processes as the host knows them.
    pub(crate) fn instance(&self) -> anyhow::Result<(SocketAddr, Vec<u32>)> {
        let containers = self.containers()?;
        let container = containers.first().context("no instance")?;
        let networks = container["NetworkSettings"]["Networks"].as_object();
        let network = networks.and_then(|networks| networks.values().next());
        let ip = text(&network.context("no network")?["IPAddress"])?;
        let path = format!(
            "/containers/{}/top?ps_args=-eo%20pid",
            text(&container["Id"])?
        );
        let top = self.engine.request("GET", &path, None)?;
        let rows = top["Processes"].as_array().context("no processes")?;
        let ids = rows.iter().map(|row| Ok(text(&row[0])?.trim().parse()?));
        let ids = ids.collect::<anyhow::Result<_>>()?;
        Ok(((ip.parse::<Ipv4Addr>()?, PORT).into(), ids))
    }

    fn clean(&self) -> anyhow::Result<()> {
        let remove = |path: String| self.engine.request("DELETE", &path, None);
        for container in self.containers()? {
            remove(format!(
                "/containers/{}?force=1&v=1",
                text(&container["Id"])?
            ))?;
        }
        for network in self.list("/networks?")? {
            remove(format!("/networks/{}", text(&network["Id"])?))?;
        }
        let prefix = format!("estrade-{}/", self.installation);
        let images = self.engine.request("GET", "/images/json", None)?;
        let images = images.as_array().cloned().unwrap_or_default();
        let tags = images
            .iter()
            .filter_map(|image| image["RepoTags"].as_array());
        for tag in tags.flatten().filter_map(Value::as_str) {
            if tag.starts_with(&prefix) {
                remove(format!("/images/{tag}?force=1"))?;
            }
        }
        Ok(())
    }
}

impl Drop for Things<'_> {
    fn drop(&mut self) {
        // What cannot be removed is seen by whoever looks at the engine; the numbers are good.
        let _ = self.clean();
    }
}

fn text(value: &Value) -> anyhow::Result<String> {
    Ok(value.as_str().context("the engine says less")?.to_owned())
}
