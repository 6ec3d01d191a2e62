//! The process id that the `sh` of a shell tells before it becomes the command.

use super::shell::WHAT;
use crate::error::Error;
use crate::output_frames::{HEADER_BYTES, OutputStream, build_header, parse_header};
use tokio::io::{AsyncRead, AsyncReadExt};

/// Longest line that may come before the shell.
const MAX_FIRST_LINE: usize = 500;
/// Most that may come before the process id: the `sh` of an image is its owner's, and may write anything.
const MAX_EARLIER_BYTES: usize = 64 << 10;

/// Reads it from a terminal, or why there is no shell.
pub(super) async fn read_line(terminal: &mut (impl AsyncRead + Unpin)) -> Result<u32, Error> {
    let mut line = Vec::new();
    // Byte by byte: what follows the line is for the one at the terminal.
    loop {
        let byte = terminal.read_u8().await;
        match byte {
            Ok(b'\n') => break,
            Ok(byte) if line.len() < MAX_FIRST_LINE => line.push(byte),
            Ok(_) | Err(_) => break,
        }
    }
    parse(&line)
}

/// Reads it from the first frame of standard output. What else came, such as a warning of that `sh` about its locale,
/// is returned as frames. The engine copies both streams on its own, so standard error may overtake the process id.
pub(super) async fn read_frames(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<(u32, Vec<u8>), Error> {
    let mut earlier = Vec::new();
    loop {
        let mut header = [0; HEADER_BYTES];
        if let Err(error) = read_exact(stream, &mut header).await {
            return Err(first_error(&earlier).map_or(error, |line| refused(&line)));
        }
        let Some((kind, length)) = parse_header(header) else {
            return Err(read_reason(stream, &header).await?);
        };
        if earlier.len().saturating_add(length) > MAX_EARLIER_BYTES {
            return Err(refused("its `sh` writes too much before the command"));
        }
        let mut bytes = vec![0; length];
        read_exact(stream, &mut bytes).await?;
        if kind == OutputStream::Stderr {
            earlier.extend_from_slice(&header);
            earlier.extend_from_slice(&bytes);
            continue;
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let pid = parse(line)?;
        if let Some(rest @ [_, ..]) = rest.get(1..) {
            earlier.extend_from_slice(&build_header(kind, rest.len()));
            earlier.extend_from_slice(rest);
        }
        return Ok((pid, earlier));
    }
}

/// The first line of what the image's own `sh` wrote before it ended.
fn first_error(earlier: &[u8]) -> Option<String> {
    let text = earlier.get(HEADER_BYTES..)?;
    let text = String::from_utf8_lossy(&text[..text.len().min(MAX_FIRST_LINE)]);
    let line = text.lines().next()?.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// What the engine writes instead of frames when it cannot start the command.
async fn read_reason(stream: &mut (impl AsyncRead + Unpin), begun: &[u8]) -> Result<Error, Error> {
    let mut text = begun.to_vec();
    let mut rest = stream.take(MAX_FIRST_LINE as u64);
    let read = rest.read_to_end(&mut text).await;
    read.map_err(|error| Error::broken(WHAT, error))?;
    Ok(refused(String::from_utf8_lossy(&text).trim()))
}

async fn read_exact(stream: &mut (impl AsyncRead + Unpin), bytes: &mut [u8]) -> Result<(), Error> {
    let read = stream.read_exact(bytes).await;
    read.map(drop).map_err(|error| Error::broken(WHAT, error))
}

fn parse(line: &[u8]) -> Result<u32, Error> {
    let line = String::from_utf8_lossy(line);
    line.trim().parse().map_err(|_| refused(line.trim()))
}

fn refused(message: &str) -> Error {
    Error::Refused {
        what: WHAT,
        status: 0,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output_frames::OutputFrames;
    use std::io::Cursor;

    const OUT: OutputStream = OutputStream::Stdout;
    const ERR: OutputStream = OutputStream::Stderr;

    /// The process id, and what a reader of frames makes of the rest.
    async fn read(frames: &[(OutputStream, &str)]) -> Result<(u32, String), Error> {
        let mut sent = Vec::new();
        for (stream, text) in frames {
            sent.extend_from_slice(&build_header(*stream, text.len()));
            sent.extend_from_slice(text.as_bytes());
        }
        let mut stream = sent.as_slice();
        let (pid, earlier) = read_frames(&mut stream).await?;
        let mut frames = OutputFrames::new(Cursor::new(earlier).chain(stream), 100);
        let mut shown = String::new();
        while let Some((_, piece)) = frames.next().await.unwrap() {
            shown.push_str(std::str::from_utf8(&piece).unwrap());
        }
        Ok((pid, shown))
    }

    #[tokio::test]
    async fn standard_error_may_overtake_the_process_id() {
        let read = read(&[(ERR, "no locale\n"), (OUT, "42\n"), (ERR, "Killed\n")]).await;
        assert_eq!(read.unwrap(), (42, "no locale\nKilled\n".to_owned()));
    }

    #[tokio::test]
    async fn what_follows_the_process_id_is_output() {
        let long = "x".repeat(3000);
        for rest in ["", "hello", &long] {
            let told = read(&[(OUT, &format!("42\n{rest}"))]).await;
            assert_eq!(told.unwrap(), (42, rest.to_owned()));
        }
        assert_eq!(read(&[(OUT, "42")]).await.unwrap(), (42, String::new()));
        // A number without an end is one all the same, however long: there is nothing behind it to cut off.
        let zeros = format!("{:0>5000}", 7);
        assert_eq!(read(&[(OUT, &zeros)]).await.unwrap(), (7, String::new()));
    }

    #[tokio::test]
    async fn what_is_no_process_id_is_refused() {
        let flood = "x".repeat(MAX_EARLIER_BYTES);
        for frames in [
            &[(OUT, "")][..],
            &[(OUT, "no number")],
            &[(OUT, "99999999999999")],
            &[(ERR, &flood), (ERR, &flood), (OUT, "42\n")],
        ] {
            assert!(read(frames).await.is_err(), "{frames:?}");
        }
        let reason = read(&[(ERR, "no shell in here\n")]).await.unwrap_err();
        assert!(reason.to_string().contains("no shell in here"), "{reason}");
        let longest = build_header(OUT, usize::MAX);
        assert!(read_frames(&mut longest.as_slice()).await.is_err());
        let reason = read_frames(&mut &b"OCI runtime exec failed: no `sh`\r\n"[..]).await;
        let reason = reason.unwrap_err().to_string();
        assert!(reason.contains("exec failed: no `sh`"), "{reason}");
    }
}
