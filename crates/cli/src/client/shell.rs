//! `estrade shell`: a command in a running instance, at this terminal or between pipes.

use super::selection::ProjectOption;
use super::session::Session;
use super::terminal::{RawMode, Signal, Signals, is_interactive, size};
use bytes::Bytes;
use clap::Args;
use estrade_client::shell::{self, Ends, MAX_INPUT_BYTES, Output, ShellInput, ShellOutput};
use estrade_client::{ClientError, Result};
use std::io::{self, Read, Write};
use std::process::ExitCode;
use tokio::sync::{Notify, mpsc};

/// `estrade shell`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  estrade shell --project my-app
  estrade shell -- bash                      another shell than `sh`
  estrade shell -- ls -l /app                one command; its exit code is the one of this program
  estrade shell -- 'env | sort'              a single word is a line for `sh`
  estrade shell -- cat data.db > copy.db     bytes, because stdout is no terminal
  gunzip -c dump.sql.gz | estrade shell -- psql shop")]
pub struct ShellArgs {
    #[command(flatten)]
    project: ProjectOption,
    /// What to run; a single word is a line for `sh` [default: sh]
    #[arg(last = true)]
    command: Vec<String>,
}

pub async fn run(args: &ShellArgs, session: &Session<'_>) -> anyhow::Result<ExitCode> {
    if session.output.is_json() {
        let reason = "--json prints one document, and a shell prints what it runs; leave it out";
        return Err(ClientError::Usage(reason.to_owned()).into());
    }
    let command = command_line(&args.command)?;
    let client = session.client().await?;
    let project = args.project.resolve(session)?;
    let is_interactive = is_interactive();
    let ends = if is_interactive {
        let (columns, rows) = size();
        Ends::Terminal { columns, rows }
    } else {
        Ends::Streams
    };
    let (input, output) = shell::open(&client, &project, command.as_deref(), ends).await?;
    let signals = Signals::listen()?;
    // Only now: Ctrl-C ends what has not begun.
    let raw_mode = is_interactive.then(RawMode::enter).transpose()?;
    let resized = Notify::new();
    let outcome = tokio::select! {
        outcome = show(output) => outcome,
        // Apart from the input: what cannot be sent at the moment does not delay the end.
        code = heed(signals, &resized) => Ok(ExitCode::from(code)),
        () = forward(input, &resized) => Ok(ExitCode::SUCCESS),
    };
    // Before anything is said about an error.
    drop(raw_mode);
    outcome
}

/// The words as one line for `sh`. Several are a command and its arguments, which shall arrive as they are.
fn command_line(words: &[String]) -> Result<Option<String>> {
    match words {
        [] => Ok(None),
        [line] if line.trim().is_empty() => {
            Err(ClientError::Usage("the command is empty".to_owned()))
        }
        [line] => Ok(Some(line.clone())),
        words => {
            let quoted: Vec<_> = words.iter().map(|word| quote(word)).collect();
            Ok(Some(quoted.join(" ")))
        }
    }
}

/// A word as `sh` reads it.
fn quote(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+:,@%=".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Writes what comes, as it comes: it is what the user's own container says to the user's terminal or file. Nothing
/// more is taken of the server before it is written.
async fn show(mut output: ShellOutput) -> anyhow::Result<ExitCode> {
    loop {
        let written = match output.next().await? {
            Output::Stdout(bytes) => write(io::stdout(), bytes).await,
            Output::Stderr(bytes) => write(io::stderr(), bytes).await,
            Output::Exited(code) => return Ok(ExitCode::from(exit_code(code))),
        };
        match written {
            Ok(()) => {}
            // Nobody reads any more (`| head -1`): like every program that is hung up on.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                return Ok(ExitCode::SUCCESS);
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Writes on a thread of its own: a reader that waits holds up neither signals nor what is typed.
async fn write(mut stream: impl Write + Send + 'static, bytes: Bytes) -> io::Result<()> {
    let write = move || stream.write_all(&bytes).and_then(|()| stream.flush());
    tokio::task::spawn_blocking(write).await?
}

/// An exit code of another machine as one of this: eight bits, and a failure stays one.
fn exit_code(code: i64) -> u8 {
    u8::try_from(code).unwrap_or(255)
}

/// Waits for the signal that ends this process, and returns its exit code.
async fn heed(mut signals: Signals, resized: &Notify) -> u8 {
    loop {
        match signals.next().await {
            Signal::Resized => resized.notify_one(),
            Signal::End(code) => return code,
        }
    }
}

/// Sends what is typed or piped, and the size of the terminal when it changes. Never ends: why a shell does, the
/// server says.
async fn forward(mut input: ShellInput, resized: &Notify) {
    let mut stdin = read_stdin();
    let mut is_open = true;
    loop {
        let sent = tokio::select! {
            () = resized.notified() => {
                let (columns, rows) = size();
                input.resize(columns, rows).await
            }
            read = stdin.recv(), if is_open => {
                if let Some(bytes) = read {
                    input.send(&bytes).await
                } else {
                    is_open = false;
                    input.end().await
                }
            }
        };
        if sent.is_err() {
            // The server has closed, and its reason is on the way.
            std::future::pending::<()>().await;
        }
    }
}

/// Reads standard input on a thread of its own, a piece ahead of what is sent. The thread ends with the process: no
/// read of a terminal can be called back.
fn read_stdin() -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel(1);
    std::thread::spawn(move || {
        let mut stdin = io::stdin().lock();
        let mut bytes = vec![0; MAX_INPUT_BYTES];
        // What cannot be read has ended.
        while let Ok(count @ 1..) = read(&mut stdin, &mut bytes) {
            if sender.blocking_send(bytes[..count].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A read that a signal interrupts, such as the one about another size, begins again.
fn read(from: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match from.read(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(words: &[&str]) -> Result<Option<String>> {
        let words: Vec<_> = words.iter().map(|word| (*word).to_owned()).collect();
        command_line(&words)
    }

    #[test]
    fn several_words_arrive_as_they_are() {
        for (words, expected) in [
            (&["bash"][..], "bash"),
            (&["env | sort"], "env | sort"),
            (&["ls", "-l", "/app"], "ls -l /app"),
            (
                &["echo", "a b", "it's", "$HOME", ""],
                r"echo 'a b' 'it'\''s' '$HOME' ''",
            ),
        ] {
            assert_eq!(line(words).unwrap().as_deref(), Some(expected));
        }
        assert_eq!(line(&[]).unwrap(), None);
        assert!(line(&[" "]).is_err());
    }

    #[test]
    fn a_failure_stays_one() {
        for (code, expected) in [(0, 0), (3, 3), (255, 255), (256, 255), (-1, 255)] {
            assert_eq!(exit_code(code), expected);
        }
    }
}
