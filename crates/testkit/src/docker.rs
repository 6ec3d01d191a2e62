//! A Docker Engine past the server: what one installation has on it, in the engine's own words.

use serde_json::{Map, Value};
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread::sleep;
use std::time::Duration;

/// What everything of an installation carries.
const LABEL: &str = "estrade.installation";

/// What one installation has on an engine; all of it is removed at the end, whatever the test did.
pub struct Docker {
    socket: PathBuf,
    installation: String,
}

impl Docker {
    /// The image that tests run and build on.
    pub const BASE: &'static str = "estrade-test/base:2";

    /// The socket of the engine that tests share. A test that was not run has not passed.
    pub fn socket() -> PathBuf {
        let socket = std::env::var_os("ESTRADE_TEST_DOCKER");
        let socket = socket.expect(
            "ESTRADE_TEST_DOCKER is not set: run `./test tests`, which starts a Docker Engine, or set it to the \
             socket of an engine that has the image of tests/docker/base-image as estrade-test/base:2",
        );
        socket.into()
    }

    /// What this installation has on the engine at a socket.
    pub fn new(socket: impl Into<PathBuf>, installation: impl Into<String>) -> Self {
        Self {
            socket: socket.into(),
            installation: installation.into(),
        }
    }

    /// Asks the engine; the status, and the body if it is JSON.
    pub fn request(&self, method: &str, path: &str) -> (u16, Value) {
        let mut stream = UnixStream::connect(&self.socket).expect("an engine");
        let patience = Some(Duration::from_secs(30));
        stream.set_read_timeout(patience).expect("a time limit");
        // In HTTP/1.0 the response ends with the connection.
        let request =
            format!("{method} /v1.41{path} HTTP/1.0\r\nHost: docker\r\nContent-Length: 0\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut response = Vec::new();
        stream.read_to_end(&mut response).expect("a response");
        let response = String::from_utf8_lossy(&response);
        let (head, body) = response.split_once("\r\n\r\n").expect("a head");
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok());
        let body = serde_json::from_str(body).unwrap_or_default();
        (status.expect("a status"), body)
    }

    fn get(&self, path: &str) -> Value {
        let (status, body) = self.request("GET", path);
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    fn list(&self, path: &str) -> Vec<Value> {
        let filters = format!(r#"{{"label":["{LABEL}={}"]}}"#, self.installation);
        let filters = filters.bytes().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "%{byte:02x}");
            text
        });
        let response = self.get(&format!("{path}filters={filters}"));
        let list = response.get("Volumes").unwrap_or(&response);
        list.as_array().cloned().unwrap_or_default()
    }

    /// Its containers, also those that do not run, as the engine lists them.
    pub fn containers(&self) -> Vec<Value> {
        self.list("/containers/json?all=1&")
    }

    /// Its containers that run, as the engine describes them.
    pub fn running(&self) -> Vec<Value> {
        let all = self.containers().into_iter();
        let running = all.filter(|container| container["State"] == "running");
        // One may go between the two questions.
        let look = |container: Value| {
            self.request(
                "GET",
                &format!("/containers/{}/json", text(&container["Id"])),
            )
        };
        running
            .map(look)
            .filter_map(|(status, body)| (status == 200).then_some(body))
            .filter(|container| container["State"]["Running"] == true)
            .collect()
    }

    /// Which instances run, as `project release number`, sorted.
    pub fn instances(&self) -> Vec<String> {
        let label = |container: &Value, name: &str| text(&container["Labels"][name]);
        let key = |container: &Value| {
            ["estrade.project", "estrade.release", "estrade.instance"]
                .map(|name| label(container, name))
                .join(" ")
        };
        let mut keys: Vec<_> = self
            .containers()
            .iter()
            .map(|container| match container["State"].as_str() {
                Some("running") => key(container),
                state => format!("{} {}", key(container), state.unwrap_or_default()),
            })
            .collect();
        keys.sort();
        keys
    }

    /// The images of its releases, by the names that it gave them.
    pub fn images(&self) -> Vec<String> {
        let mut names = self.image_names();
        names.retain(|name| !name.contains("/layers:") && !name.contains("/caches:"));
        names
    }

    /// What package managers keep for the builds of its projects, by the names that it gave them.
    pub fn package_caches(&self) -> Vec<String> {
        let mut names = self.image_names();
        names.retain(|name| name.contains("/caches:"));
        names.sort();
        names
    }

    /// The same with what builds may use again.
    fn image_names(&self) -> Vec<String> {
        let prefix = format!("estrade-{}/", self.installation);
        let all = self.get("/images/json?all=1");
        let tags = all.as_array().into_iter().flatten();
        let tags = tags.flat_map(|image| image["RepoTags"].as_array().cloned().unwrap_or_default());
        tags.map(|tag| text(&tag))
            .filter(|tag| tag.starts_with(&prefix))
            .collect()
    }

    /// What the engine says of an image, and how it was made.
    pub fn image(&self, name: &str) -> String {
        let (image, history) = (
            self.get(&format!("/images/{name}/json")),
            self.get(&format!("/images/{name}/history")),
        );
        format!("{image}{history}")
    }

    /// Everything that it has, by kind and name.
    pub fn left(&self) -> Vec<String> {
        let named = |kind: &str, list: Vec<Value>, field: &str| -> Vec<String> {
            let name = |item: &Value| format!("{kind} {}", item[field]);
            list.iter().map(name).collect()
        };
        let images = self.image_names().into_iter();
        let mut left = named("container", self.containers(), "Names");
        left.extend(named("network", self.list("/networks?"), "Name"));
        left.extend(named("volume", self.list("/volumes?"), "Name"));
        left.extend(images.map(|name| format!("image {name}")));
        left
    }

    /// What the engine says of its networks; of one that cannot be removed, who is in it.
    pub fn networks(&self) -> Vec<Value> {
        let id = |network: &Value| text(&network["Id"]);
        let look = |network| {
            self.request("GET", &format!("/networks/{}", id(&network)))
                .1
        };
        self.list("/networks?").into_iter().map(look).collect()
    }

    /// Whether all that is left are networks that the engine does not remove for anybody, although nobody is in them.
    /// Old engines may lose count when an instance is removed while it starts, and mend that when they are restarted.
    pub fn has_lost_count(&self) -> bool {
        let networks = self.networks();
        let refused = |network: &Value| {
            let members = network["Containers"].as_object();
            let removed = self.request("DELETE", &format!("/networks/{}", text(&network["Id"])));
            let message = removed.1["message"].as_str().unwrap_or_default();
            members.is_some_and(Map::is_empty) && message.contains("has active endpoints")
        };
        !networks.is_empty() && self.left().len() == networks.len() && networks.iter().all(refused)
    }

    /// Removes its images, as if the installation had been restored onto another engine. An instance that is started
    /// anew between the removal of its container and that of its image keeps the image: then both are removed again.
    pub fn lose_images(&self) {
        for image in self.image_names() {
            let mut attempts = 0;
            while !self.lose_image(&image) {
                attempts += 1;
                assert!(attempts < 100, "{image} is still in use");
                sleep(Duration::from_millis(50));
            }
        }
    }

    fn lose_image(&self, image: &str) -> bool {
        let (_, found) = self.request("GET", &format!("/images/{image}/json"));
        for container in self.containers() {
            if container["ImageID"] == found["Id"] {
                let path = format!("/containers/{}?force=1", text(&container["Id"]));
                self.request("DELETE", &path);
            }
        }
        let (status, _) = self.request("DELETE", &format!("/images/{image}?force=1"));
        matches!(status, 200 | 404)
    }

    /// Removes everything that it has. Whoever is still at work would make it anew: stop that first.
    pub fn clean(&self) {
        let remove = |path: String| drop(self.request("DELETE", &path));
        for container in self.containers() {
            remove(format!(
                "/containers/{}?force=1&v=1",
                text(&container["Id"])
            ));
        }
        for network in self.list("/networks?") {
            remove(format!("/networks/{}", text(&network["Id"])));
        }
        for volume in self.list("/volumes?") {
            remove(format!("/volumes/{}?force=1", text(&volume["Name"])));
        }
        for image in self.image_names() {
            remove(format!("/images/{image}?force=1"));
        }
    }
}

impl Drop for Docker {
    fn drop(&mut self) {
        // The engine may be a test's own, and gone.
        if UnixStream::connect(&self.socket).is_ok() {
            self.clean();
        }
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}
