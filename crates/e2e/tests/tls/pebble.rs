//! Pebble: the ACME server that its protocol's authors test with, from the Debian package.

use crate::edge_client;
use estrade_service::platform::certificates::{AcmeSettings, Challenge};
use estrade_testkit::{TestApp, free_port};
use serde_json::json;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// A server that is not started yet: it has to know the ports of the edge, and the edge its address.
pub(crate) struct Pebble {
    place: TempDir,
    address: SocketAddr,
    management: SocketAddr,
    certificate: String,
    child: Option<Child>,
}

fn free_address() -> SocketAddr {
    ([127, 0, 0, 1], free_port()).into()
}

impl Pebble {
    pub(crate) fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let certificate = made.cert.pem();
        std::fs::write(place.path().join("cert.pem"), &certificate).unwrap();
        std::fs::write(
            place.path().join("key.pem"),
            made.signing_key.serialize_pem(),
        )
        .unwrap();
        Self {
            place,
            address: free_address(),
            management: free_address(),
            certificate,
            child: None,
        }
    }

    /// What the app is told of it.
    pub(crate) fn settings(&self, challenges: &[Challenge]) -> AcmeSettings {
        AcmeSettings {
            directory: format!("https://{}/dir", self.address),
            email: Some("ops@example.com".into()),
            ca_file: Some(self.file("cert.pem")),
            challenges: challenges.to_vec(),
            orders_per_hour: 50,
        }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// Starts it. It asks the app's DNS server, and checks hosts at these ports.
    pub(crate) async fn start(&mut self, app: &TestApp, http: u16, tls: u16) {
        let config = json!({"pebble": {
            "listenAddress": self.address.to_string(),
            "managementListenAddress": self.management.to_string(),
            "certificate": self.file("cert.pem"),
            "privateKey": self.file("key.pem"),
            "httpPort": http,
            "tlsPort": tls,
            "ocspResponderURL": "",
            "externalAccountBindingRequired": false,
        }});
        std::fs::write(self.file("pebble.json"), config.to_string()).unwrap();
        let log = std::fs::File::create(self.file("log")).unwrap();
        let child = Command::new("pebble")
            .arg("-config")
            .arg(self.file("pebble.json"))
            .args(["-dnsserver", &app.dns().address().to_string()])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("pebble, which `./test` installs"));
        for _ in 0..200 {
            if tokio::net::TcpStream::connect(self.management)
                .await
                .is_ok()
            {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("pebble did not start: {}", self.log());
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.file("log")).unwrap_or_default()
    }

    /// How many certificates it has issued.
    pub(crate) fn issued(&self) -> usize {
        self.log().matches("Issued certificate serial").count()
    }

    /// The root of what it issues, new with every start.
    pub(crate) async fn root(&self) -> String {
        let page = edge_client::secure(self.management, "127.0.0.1", "/roots/0", &self.certificate);
        page.await.unwrap().body
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It is ours, and nothing of it is needed any more.
            drop(child.kill());
            drop(child.wait());
        }
    }
}
