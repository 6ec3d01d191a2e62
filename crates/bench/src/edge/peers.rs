//! Other servers on the same files, with the settings that their manuals give for speed.

use crate::child::{self, Child};
use crate::suite::Bench;
use anyhow::Context;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server to compare with.
pub(super) struct Peer {
    pub(super) child: Child,
    pub(super) address: SocketAddr,
}

/// The directory of a virtual host's files.
pub(super) fn root(directory: &Path, host: &str) -> PathBuf {
    directory.join("www").join(host)
}

/// nginx, with one worker per core that the server has.
pub(super) fn nginx(bench: &Bench<'_>, directory: &Path, hosts: &[&str]) -> anyhow::Result<Peer> {
    let address = child::free_address()?;
    let folder = directory.display();
    let servers: Vec<String> = hosts
        .iter()
        .map(|host| {
            let root = root(directory, host);
            format!(
                "server {{ listen {address}; server_name {host}; root {}; }}\n",
                root.display()
            )
        })
        .collect();
    let servers = servers.concat();
    // One process where one is enough: it ends with us, whatever happens.
    let processes = match bench.cores.count().0 {
        1 => "master_process off;".to_owned(),
        workers => format!("user root; worker_processes {workers};"),
    };
    let text = format!(
        "daemon off; {processes} pid {folder}/nginx.pid; error_log {folder}/nginx.log;
         events {{ worker_connections 1024; }}
         http {{
             access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000;
             open_file_cache max=10000; types {{ text/plain txt; }}
             client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
             uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
             {servers}
         }}"
    );
    let file = directory.join("nginx.conf");
    fs::write(&file, text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(directory).arg("-c").arg(file);
    start(bench, "nginx", &mut command, address)
}

/// caddy, as it comes.
pub(super) fn caddy(bench: &Bench<'_>, directory: &Path, hosts: &[&str]) -> anyhow::Result<Peer> {
    let address = child::free_address()?;
    let port = address.port();
    let sites: Vec<String> = hosts
        .iter()
        .map(|host| {
            let root = root(directory, host);
            format!(
                "http://{host}:{port} {{\n bind 127.0.0.1\n root * {}\n file_server\n}}\n",
                root.display()
            )
        })
        .collect();
    let sites = sites.concat();
    let file = directory.join("Caddyfile");
    fs::write(
        &file,
        format!("{{\n admin off\n auto_https off\n}}\n{sites}"),
    )?;
    let mut command = Command::new("caddy");
    command
        .env("HOME", directory)
        .args(["run", "--adapter", "caddyfile", "--config"])
        .arg(file);
    start(bench, "caddy", &mut command, address)
}

fn start(
    bench: &Bench<'_>,
    name: &'static str,
    command: &mut Command,
    address: SocketAddr,
) -> anyhow::Result<Peer> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = bench
        .cores
        .as_server(|| Child::start(name, command))
        .with_context(|| format!("install it: apt-get install {name}"))?;
    child.wait_until_listening(address)?;
    Ok(Peer { child, address })
}
