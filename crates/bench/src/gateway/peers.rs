//! The mock provider, and what the gateway is measured against.

use super::PROVIDER_KEY;
use crate::child::{self, Child};
use crate::suite::Bench;
use anyhow::Context;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A server that runs beside ours.
pub(crate) struct Peer {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
}

const COMPLETION: &str = r#"{"id":"chatcmpl-bench0000000000000000000000","object":"chat.completion","created":1760000000,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog.","refusal":null,"annotations":[]},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":19,"completion_tokens":30,"total_tokens":49,"prompt_tokens_details":{"cached_tokens":0,"audio_tokens":0},"completion_tokens_details":{"reasoning_tokens":0,"audio_tokens":0}},"service_tier":"default","system_fingerprint":"fp_bench"}"#;

/// What a gateway does with the client's key.
pub(super) fn replace_key() -> String {
    format!("proxy_set_header Authorization \"Bearer {PROVIDER_KEY}\";")
}

/// The fixed response of the mock provider.
pub(super) fn response() -> &'static str {
    COMPLETION
}

/// A provider that answers everything with the same completion: nginx, on the core of the load.
pub(super) fn provider(bench: &Bench<'_>, directory: &Path) -> anyhow::Result<Peer> {
    let address = child::free_address()?;
    let server = format!(
        "server {{ listen {address} backlog=4096; default_type application/json;
                   location / {{ return 200 '{COMPLETION}'; }} }}"
    );
    let mut command = nginx(directory, "provider", &server)?;
    bench
        .cores
        .as_load_process(|| start("nginx", &mut command, address))
}

/// nginx as a bare reverse proxy, with the settings for many small requests or for streams, and perhaps
/// some more.
pub(crate) fn proxy(
    bench: &Bench<'_>,
    directory: &Path,
    provider: SocketAddr,
    buffering: bool,
    settings: &str,
) -> anyhow::Result<Peer> {
    let address = child::free_address()?;
    let buffering = if buffering { "on" } else { "off" };
    let server = format!(
        "upstream up {{ server {provider}; keepalive 512; keepalive_requests 100000000; }}
         server {{ listen {address} backlog=4096;
                   location / {{ proxy_pass http://up; proxy_http_version 1.1;
                                 proxy_set_header Connection \"\"; proxy_buffering {buffering};
                                 {settings} }} }}"
    );
    let mut command = nginx(directory, "proxy", &server)?;
    bench
        .cores
        .as_server(|| start("nginx", &mut command, address))
}

/// Another AI gateway, if it is installed.
pub(super) fn crabllm(
    bench: &Bench<'_>,
    directory: &Path,
    provider: SocketAddr,
) -> anyhow::Result<Option<Peer>> {
    let Some(program) = find("crabllm") else {
        return Ok(None);
    };
    let address = child::free_address()?;
    let file = directory.join("crabllm.toml");
    fs::write(
        &file,
        format!(
            "listen = \"{address}\"\nadmin_token = \"adm-bench\"\nopenapi = false\n\
             [providers.mock]\nkind = \"openai\"\napi_key = \"x\"\nbase_url = \"http://{provider}/v1\"\n\
             models = [\"{}\"]\n[[keys]]\nname = \"bench\"\nkey = \"sk-bench-crab\"\nmodels = [\"*\"]\n\
             [extensions.usage]\n",
            super::MODEL
        ),
    )?;
    let mut command = Command::new(program);
    command
        .current_dir(directory)
        .args(["serve", "--config"])
        .arg(file);
    bench
        .cores
        .as_server(|| start("crabllm", &mut command, address))
        .map(Some)
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

fn nginx(directory: &Path, name: &str, server: &str) -> anyhow::Result<Command> {
    let folder = directory.join(name);
    fs::create_dir_all(&folder)?;
    let at = folder.display();
    let text = format!(
        "daemon off; master_process off; pid {at}/nginx.pid; error_log {at}/nginx.log crit;
         worker_rlimit_nofile 65536;
         events {{ worker_connections 16384; }}
         http {{
             access_log off; tcp_nodelay on; keepalive_timeout 600s; keepalive_requests 100000000;
             client_body_temp_path {at}/b; proxy_temp_path {at}/p; fastcgi_temp_path {at}/f;
             uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;
             {server}
         }}"
    );
    let file = folder.join("nginx.conf");
    fs::write(&file, text)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(folder).arg("-c").arg(file);
    Ok(command)
}

fn start(name: &str, command: &mut Command, address: SocketAddr) -> anyhow::Result<Peer> {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = Child::start(name, command).with_context(|| format!("install {name}"))?;
    child.wait_until_listening(address)?;
    Ok(Peer { child, address })
}
