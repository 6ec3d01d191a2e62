//! `./bench gateway`: inference through the relay, beside nginx as a bare proxy and another gateway.
//!
//! Load and mock provider share one core, the gateways have the others, one at a time. Keys with
//! limits, prices and the ledger are on for us; nginx checks and counts nothing.

mod calls;
mod memory;
pub(crate) mod peers;
mod soak;
mod stream_load;
mod streams;
pub(crate) mod upstream;

use crate::Options;
use crate::installation::{Running, Site};
use crate::suite::{self, Bench, Part};
use anyhow::{Context, ensure};
use serde_json::json;
use std::fmt::Write as _;
use std::fs;
use std::net::SocketAddr;
use std::process::ExitCode;

const PARTS: [(&str, Part); 3] = [
    ("calls", calls::run),
    ("streams", streams::run),
    ("memory", memory::run),
];

const MODEL: &str = "gpt-4o-mini";

/// Takes half an hour, so it runs only when it is asked for.
const SOAK: (&str, Part) = ("soak", soak::run);

/// Runs the suite; fails when a target is missed.
pub(crate) fn run(options: &Options) -> anyhow::Result<ExitCode> {
    let soak = options.only.as_deref() == Some(SOAK.0);
    let parts = if soak { &[SOAK][..] } else { &PARTS };
    suite::run("gateway", parts, options)
}

/// The provider's key, as long as real ones are: it is looked for in every response.
const PROVIDER_KEY: &str = "sk-this-is-no-key-but-it-is-as-long-as-real-ones-are";

/// An installation whose one provider is at this address.
fn installation(bench: &Bench<'_>, name: &str, provider: SocketAddr) -> anyhow::Result<Site> {
    let site = Site::new(bench, name)?;
    let file = site.directory.join("estrade.toml");
    let mut config = fs::read_to_string(&file)?;
    // Writing to a string cannot fail.
    let _ = write!(
        config,
        "[[ai.providers]]\nname = \"mock\"\nbase_url = \"http://{provider}/v1\"\napi_key = \"{PROVIDER_KEY}\"\n\
         [[ai.providers.models]]\nid = \"{MODEL}\"\nprice = {{ prompt = \"0.15\", completion = \"0.60\" }}\n"
    );
    fs::write(file, config)?;
    Ok(site)
}

/// A key with limits that are never reached.
fn key(server: &Running, name: &str, budget: bool) -> anyhow::Result<String> {
    let mut body = json!({
        "name": name, "workspaces": ["main"],
        "rpm": 1_000_000_000, "tpm": 4_000_000_000_u32, "models": [MODEL],
    });
    if budget {
        body["budget"] = json!({"amount": "999999999", "period": "monthly"});
    }
    let response = crate::http::post(server.ai, "/v1/keys", &server.token, &body)?;
    let text = String::from_utf8_lossy(&response.body);
    ensure!(response.status == 201, "status {}: {text}", response.status);
    let made = response.json()?;
    Ok(made["key"].as_str().context("no key")?.to_owned())
}

/// A chat request, as an SDK sends it.
fn chat(key: &str, stream: bool) -> String {
    chat_with(MODEL, key, stream)
}

fn chat_with(model: &str, key: &str, stream: bool) -> String {
    let mut body = json!({
        "model": model,
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": "Say a short sentence about foxes and dogs, please."},
        ],
        "max_tokens": 64, "temperature": 0.2,
    });
    if stream {
        body["stream"] = json!(true);
        // Else the event with the usage is for us only, and others would have sent one event more.
        body["stream_options"] = json!({"include_usage": true});
    }
    crate::http::request(
        "POST",
        "/v1/chat/completions",
        Some(key),
        Some(&body.to_string()),
    )
}
