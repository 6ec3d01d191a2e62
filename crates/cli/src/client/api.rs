//! `estrade api METHOD PATH`: one request, as it is.

use super::failure::of_status;
use super::session::Session;
use crate::printer::write;
use anyhow::Context;
use clap::Args;
use estrade_client::text::neutralize;
use estrade_client::{ClientError, Result};
use reqwest::Method;
use reqwest::header::{self, HeaderName, HeaderValue};
use std::io::{IsTerminal, Read};
use std::process::ExitCode;

/// `estrade api`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade api GET /v1/projects
  estrade api POST /v1/projects --data '{\"name\":\"hello\",\"platform\":\"static\",\"planID\":\"nano\"}'
  estrade api GET /v1/keys --ai
  estrade api POST /v2/teams --data @team.json

The body of the response goes to stdout as it came; the exit code says what its status was.")]
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
    let is_terminal = std::io::stdout().is_terminal();
    let mut is_empty = true;
    while let Some(piece) = response.chunk().await.context("the response broke off")? {
        is_empty &= piece.is_empty();
        let is_read = if is_terminal {
            write(neutralize(&String::from_utf8_lossy(&piece)).as_bytes())?
        } else {
            write(&piece)?
        };
        if !is_read {
            break;
        }
    }
    if is_empty && session.output.is_json() {
        printer.data("null")?;
    } else if !is_empty && is_terminal {
        printer.data("")?;
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
