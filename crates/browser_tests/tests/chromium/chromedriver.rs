//! The process that starts and drives Chromium.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};

const PROXY_VARIABLES: [&str; 6] = [
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
];

/// A chromedriver on a free port, which ends with this value.
pub(crate) struct Chromedriver {
    child: Child,
    port: u16,
    /// Open as long as it runs, so that it can say more.
    _output: BufReader<ChildStdout>,
}

impl Chromedriver {
    /// Starts it and waits until it listens.
    pub(crate) fn start() -> Self {
        let mut command = Command::new("chromedriver");
        for name in PROXY_VARIABLES {
            command.env_remove(name);
        }
        command
            .args(["--port=0", "--log-level=SEVERE"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null());
        let mut child = command.spawn().expect(
            "chromedriver, of Debian's chromium-driver: `./test browser` installs it when it is missing",
        );
        let mut output = BufReader::new(child.stdout.take().expect("its output"));
        let port = read_port(&mut output);
        Self {
            child,
            port,
            _output: output,
        }
    }

    /// Where it listens.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}

impl Drop for Chromedriver {
    fn drop(&mut self) {
        // It may be gone already, and nobody is left to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// It says "ChromeDriver was started successfully on port 40123."
fn read_port(output: &mut impl BufRead) -> u16 {
    let mut said = String::new();
    while output.read_line(&mut said).expect("chromedriver's output") > 0 {
        if let Some((_, port)) = said.split_once("successfully on port ") {
            return port.trim().trim_end_matches('.').parse().expect("a port");
        }
    }
    panic!("chromedriver did not start: {said}");
}
