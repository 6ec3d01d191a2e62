//! `estrade api METHOD PATH`: one request, as it is.

use super::failure::of_status;
use super::output::Output;
use super::session::Session;
use crate::printer::write;
use anyhow::Context;
use clap::Args;
use estrade_client::text::{Neutralizer, neutralize};
use estrade_client::{ClientError, Result};
use reqwest::Method;
use reqwest::header::{self, HeaderName, HeaderValue};
use serde::de::IgnoredAny;
use std::io::{IsTerminal, Read};
use std::process::ExitCode;

/// Longest document that `--json` takes.
const MAX_DOCUMENT_BYTES: usize = 64 << 20;
const BROKEN_OFF: &str = "the response broke off";

/// `estrade api`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade api GET /v1/projects
  estrade api POST /v1/projects --data '{\"name\":\"hello\",\"platform\":\"static\",\"planID\":\"nano\"}'
  estrade api GET /v1/keys --ai
  estrade api POST /v2/teams --data @team.json

The body of the response goes to stdout as it came; the exit code says what its status was. With --json
what is no JSON is not printed, and a response without a body is null.")]
pub struct ApiArgs {
    /// GET, POST, PUT, PATCH or DELETE
    #[arg(value_parser = parse_method)]
    method: Method,
    /// A path with its query, such as /v1/projects?count=5
    path: String,
    /// The body, as JSON; @FILE reads a file, - standard input
    #[arg(long, short, value_name = "JSON")]
    data: Option<String>,
    /// Send a header besides
    #[arg(long, short = 'H', value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// Ask the AI API instead of the platform API
    #[arg(long)]
    ai: bool,
    /// Write the status and the headers of the response to stderr
    #[arg(long, short)]
    include: bool,
}

fn parse_method(text: &str) -> std::result::Result<Method, String> {
    match text.to_ascii_uppercase().parse() {
        Ok(
            method @ (Method::GET
            | Method::POST
            | Method::PUT
            | Method::PATCH
            | Method::DELETE
            | Method::HEAD),
        ) => Ok(method),
        _ => Err("must be GET, POST, PUT, PATCH, DELETE or HEAD".to_owned()),
    }
}

pub async fn run(args: &ApiArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    let client = if args.ai {
        session.ai().await?
    } else {
        session.client().await?
    };
    let mut request = client.request(args.method.clone(), &args.path);
    let mut has_type = false;
    for line in &args.header {
        let (name, value) = parse_header(line)?;
        has_type |= name == header::CONTENT_TYPE;
        request = request.header(name, value);
    }
    if let Some(data) = &args.data {
        request = request.bytes(read_data(data)?.into());
        if !has_type {
            request = request.header(
                header::CONTENT_TYPE,
                HeaderValue::from_static("application/json"),
            );
        }
    }
    let mut response = request.send_any().await?;
    let printer = &session.output.printer;
    let status = response.status();
    if args.include {
        printer.note(format_args!("{:?} {status}", response.version()));
        for (name, value) in response.headers() {
            printer.note(neutralize(&format!(
                "{name}: {}",
                String::from_utf8_lossy(value.as_bytes())
            )));
        }
    }
    if session.output.is_json() {
        let body = read_document(&mut response).await?;
        let is_document = serde_json::from_slice::<IgnoredAny>(&body).is_ok();
        if is_document {
            print_document(&body, &session.output)?;
        } else if status.is_success() {
            return Err(ClientError::Failed(
                "the response is no JSON, and so not printed; leave --json out to see it"
                    .to_owned(),
            )
            .into());
        }
    } else {
        print_body(&mut response).await?;
    }
    if !status.is_success() {
        let reason = response
            .headers()
            .get("x-error-message")
            .and_then(|value| value.to_str().ok());
        let reason = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        printer.error(neutralize(&format!("the server answered {status}{reason}")));
    }
    Ok(ExitCode::from(of_status(status.as_u16())))
}

/// The whole body; null when there is none.
async fn read_document(response: &mut reqwest::Response) -> anyhow::Result<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.context(BROKEN_OFF)? {
        if body.len() + piece.len() > MAX_DOCUMENT_BYTES {
            anyhow::bail!("the response is longer than {MAX_DOCUMENT_BYTES} bytes");
        }
        body.extend_from_slice(&piece);
    }
    if body.is_empty() {
        body.extend_from_slice(b"null");
    }
    Ok(body)
}

fn print_document(body: &[u8], output: &Output) -> anyhow::Result<()> {
    let text = String::from_utf8_lossy(body);
    output
        .printer
        .data(output.shown(text.trim_end().to_owned()))?;
    Ok(())
}

/// Prints the body as it comes; on a terminal without what would steer it.
async fn print_body(response: &mut reqwest::Response) -> anyhow::Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut neutralizer = Neutralizer::default();
    let mut is_empty = true;
    while let Some(piece) = response.chunk().await.context(BROKEN_OFF)? {
        is_empty &= piece.is_empty();
        let is_read = if is_terminal {
            write(neutralizer.push_bytes(&piece).as_bytes())?
        } else {
            write(&piece)?
        };
        if !is_read {
            return Ok(());
        }
    }
    if is_terminal && !is_empty {
        write(format!("{}\n", neutralizer.finish()).as_bytes())?;
    }
    Ok(())
}

fn parse_header(line: &str) -> Result<(HeaderName, HeaderValue)> {
    let refused = || ClientError::Usage(format!("--header `{line}`: write NAME: VALUE"));
    let (name, value) = line.split_once(':').ok_or_else(refused)?;
    let name: HeaderName = name.trim().parse().map_err(|_| refused())?;
    let value = HeaderValue::from_str(value.trim()).map_err(|_| refused())?;
    Ok((name, value))
}

fn read_data(data: &str) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if data == "-" {
        let read = std::io::stdin().read_to_end(&mut bytes);
        read.map_err(|error| ClientError::Usage(format!("cannot read the body: {error}")))?;
        return Ok(bytes);
    }
    match data.strip_prefix('@') {
        Some(file) => {
            let path = std::path::Path::new(file);
            std::fs::read(path).map_err(ClientError::file(path))
        }
        None => Ok(data.as_bytes().to_vec()),
    }
}
