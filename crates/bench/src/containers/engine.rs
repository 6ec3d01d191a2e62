//! The Docker Engine's API, used as `docker` itself would.

use super::{IMAGE, PORT};
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

/// An engine.
pub(super) struct Engine {
    socket: PathBuf,
}

/// A container that nobody but the engine takes care of.
pub(super) struct Bare {
    id: String,
    pub(super) address: SocketAddr,
}

impl Engine {
    /// The one that `./bench` has started.
    pub(super) fn find() -> anyhow::Result<Self> {
        let socket = std::env::var_os("ESTRADE_TEST_DOCKER");
        let socket = socket.context("ESTRADE_TEST_DOCKER is not set: run ./bench containers")?;
        Ok(Self {
            socket: socket.into(),
        })
    }

    pub(super) fn socket(&self) -> &Path {
        &self.socket
    }

    fn request(&self, method: &str, path: &str, body: Option<&Value>) -> anyhow::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket).context("no Docker Engine")?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        // In HTTP/1.0 the response ends with the connection.
        let request = format!(
            "{method} /v1.41{path} HTTP/1.0\r\nHost: docker\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        );
        stream.write_all(request.as_bytes())?;
        let mut response = String::new();
        stream.read_to_string(&mut response)?;
        let (head, body) = response.split_once("\r\n\r\n").context("half a response")?;
        let status: u16 = head.split(' ').nth(1).context("no status")?.parse()?;
        ensure!(status < 300, "{method} {path}: {status} {body}");
        Ok(serde_json::from_str(body).unwrap_or_default())
    }

    /// `docker run -d --network … image command`.
    pub(super) fn run(&self, network: &str, command: &[String]) -> anyhow::Result<Bare> {
        let spec = json!({
            "Image": IMAGE, "Cmd": command, "HostConfig": {"NetworkMode": network},
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
    pub(super) fn remove(&self, bare: &Bare) -> anyhow::Result<()> {
        let path = format!("/containers/{}?force=1&v=1", bare.id);
        self.request("DELETE", &path, None).map(drop)
    }
}

/// What an installation has on an engine; removed at the end.
pub(super) struct Things<'e> {
    engine: &'e Engine,
    installation: String,
}

impl<'e> Things<'e> {
    /// Of an installation that was started once.
    pub(super) fn of(engine: &'e Engine, site: &Site) -> anyhow::Result<Self> {
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
    pub(super) fn containers(&self) -> anyhow::Result<Vec<Value>> {
        self.list("/containers/json?all=1&")
    }

    /// Waits until so many containers are left.
    pub(super) fn wait_for(&self, count: usize) -> anyhow::Result<()> {
        let began = Instant::now();
        while self.containers()?.len() != count {
            ensure!(began.elapsed() < TIMEOUT, "there are not {count} instances");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// The network of its only owner.
    pub(super) fn network(&self) -> anyhow::Result<String> {
        let networks = self.list("/networks?")?;
        text(&networks.first().context("no network")?["Name"])
    }

    /// Where its only instance listens, and its processes as the host knows them.
    pub(super) fn instance(&self) -> anyhow::Result<(SocketAddr, Vec<u32>)> {
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
