//! A provider that streams: a role, so many words at a steady pace, a finish, the usage, `[DONE]`.

use anyhow::Context;
use std::io::{self, Write};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;

/// How the provider streams.
#[derive(clap::Args, Clone, Copy)]
pub(crate) struct Pace {
    /// Words per response.
    #[arg(long)]
    pub(crate) words: u32,
    /// Milliseconds between two of them.
    #[arg(long)]
    pub(crate) gap_ms: u64,
}

const BEGIN: &str =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";

/// Serves on a free port of loopback, whose number it prints first.
pub(crate) fn serve(pace: Pace) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        writeln!(io::stdout(), "{}", listener.local_addr()?)?;
        let connections = TaskTracker::new();
        loop {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            // Who hangs up concerns nobody here.
            connections.spawn(async move { drop(response(stream, pace).await) });
        }
    })
}

async fn response(mut stream: TcpStream, pace: Pace) -> anyhow::Result<()> {
    let mut received = Vec::new();
    loop {
        while !take_request(&mut received)? {
            let mut chunk = [0; 4096];
            let read = stream.read(&mut chunk).await?;
            if read == 0 {
                return Ok(());
            }
            received.extend_from_slice(&chunk[..read]);
        }
        // By the clock, and not after each other: so streams keep the distance that they began with.
        let mut due = Instant::now();
        stream.write_all(BEGIN.as_bytes()).await?;
        for number in 0..pace.words + 4 {
            if pace.gap_ms > 0 && (1..=pace.words).contains(&number) {
                due += Duration::from_millis(pace.gap_ms);
                sleep_until(due).await;
            }
            let event = event(number, pace.words);
            let chunk = format!("{:x}\r\n{event}\r\n", event.len());
            stream.write_all(chunk.as_bytes()).await?;
        }
        stream.write_all(b"0\r\n\r\n").await?;
    }
}

/// Takes one whole request away from the front; false when there is none yet.
fn take_request(received: &mut Vec<u8>) -> anyhow::Result<bool> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(received)? else {
        return Ok(false);
    };
    let length = request
        .headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let length = length.context("a request without content-length")?;
    let end = head + std::str::from_utf8(length.value)?.parse::<usize>()?;
    let whole = received.len() >= end;
    if whole {
        received.drain(..end);
    }
    Ok(whole)
}

fn event(number: u32, words: u32) -> String {
    let chunk = |rest: &str| {
        format!(
            "data: {{\"id\":\"chatcmpl-b\",\"object\":\"chat.completion.chunk\",\"created\":1760000000,\
             \"model\":\"gpt-4o-mini\",{rest}}}\n\n"
        )
    };
    let delta = |delta: &str, finish: &str| {
        chunk(&format!(
            "\"choices\":[{{\"index\":0,\"delta\":{delta},\"finish_reason\":{finish}}}]"
        ))
    };
    match number {
        0 => delta("{\"role\":\"assistant\",\"content\":\"\"}", "null"),
        number if number <= words => delta(&format!("{{\"content\":\"tok{number:04} \"}}"), "null"),
        number if number == words + 1 => delta("{}", "\"stop\""),
        number if number == words + 2 => chunk(&format!(
            "\"choices\":[],\"usage\":{{\"prompt_tokens\":19,\"completion_tokens\":{words},\"total_tokens\":{}}}",
            words + 19
        )),
        _ => "data: [DONE]\n\n".to_owned(),
    }
}
