//! An interactive shell in an instance.
//!
//! The engine lets a command live on when its terminal is gone. So the command prints its process id
//! first, and gets SIGHUP when the [`Shell`] is dropped, as from a real terminal. Without a terminal it
//! is the same: what was started for somebody ends with them.

use crate::docker::engine::{Engine, QUICK_TIMEOUT, SETTLE_DELAY};
use crate::docker::shell_pid;
use crate::error::Error;
use crate::exec::{Shell, ShellProcess, ShellSpec};
use crate::instance::InstanceId;
use crate::runtime::Call;
use bollard::body_full;
use bollard::models::ExecConfig;
use bollard::query_parameters::ResizeExecOptions;
use bytes::Bytes;
use http::Request;
use http::header::{CONNECTION, CONTENT_TYPE, UPGRADE};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use std::io::{self, Cursor};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::runtime::Handle;
use tokio::time::{sleep, timeout};

pub(super) const WHAT: &str = "opening a shell in an instance";
/// Tells its process id and becomes the command.
const TERMINAL_PROLOGUE: &str = r#"echo "$$"; exec "$@""#;
/// The same without a terminal, where the command begins only when the process id was read: the engine copies standard
/// output and error on its own, so what the command writes could overtake it. `sh` takes no more than the line, and ends
/// without it: whoever asked has gone, or was told that there is no shell.
const STREAMS_PROLOGUE: &str = r#"echo "$$"; read -r _ && exec "$@""#;
/// Hangs up, and insists. The command leads a group, whose others no terminal would tell.
const HANG_UP: &str = r#"
send() { kill -s "$1" -- "-$2" 2>/dev/null || kill -s "$1" "$2"; }
send HUP "$0" && sleep 1 && send KILL "$0""#;
/// How often to look whether a shell that cannot be resized has ended.
const MAX_EXIT_POLLS: u32 = 10;
/// How long hanging up may take.
const HANG_UP_TIMEOUT: Duration = Duration::from_secs(10);

/// The terminal of a shell.
struct DockerTerminal {
    stream: TokioIo<Upgraded>,
    /// What comes before the stream: it was read together with the process id.
    earlier: Cursor<Vec<u8>>,
    process: DockerProcess,
    /// The process in the container.
    pid: u32,
    runtime: Handle,
}

/// The command that runs in a terminal.
#[derive(Debug, Clone)]
struct DockerProcess {
    engine: Engine,
    instance: InstanceId,
    exec: String,
}

impl Engine {
    /// Opens a shell in a running instance. The image must have `sh`.
    pub async fn open_shell(&self, id: &InstanceId, spec: &ShellSpec) -> Result<Shell, Error> {
        let has_terminal = spec.terminal.is_some();
        let prologue = if has_terminal {
            TERMINAL_PROLOGUE
        } else {
            STREAMS_PROLOGUE
        };
        let prologue = ["sh", "-c", prologue, "sh"].map(str::to_owned);
        let config = ExecConfig {
            cmd: Some(
                prologue
                    .into_iter()
                    .chain(spec.command.iter().cloned())
                    .collect(),
            ),
            env: Some(vec!["TERM=xterm-256color".to_owned()]),
            attach_stdin: Some(true),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            tty: Some(has_terminal),
            ..Default::default()
        };
        let exec = self
            .call(WHAT, QUICK_TIMEOUT, self.docker.create_exec(&id.0, config))
            .await?
            .id;
        let opening = async {
            let mut stream = self.attach(&exec, has_terminal).await?;
            if has_terminal {
                let pid = shell_pid::read_line(&mut stream).await?;
                return Ok((stream, pid, Vec::new()));
            }
            let (pid, earlier) = shell_pid::read_frames(&mut stream).await?;
            let begin = stream.write_all(b"\n").await;
            begin.map_err(|error| Error::broken(WHAT, error))?;
            Ok((stream, pid, earlier))
        };
        let opened = timeout(QUICK_TIMEOUT, opening).await;
        let (stream, pid, earlier) = opened.unwrap_or(Err(Error::TimedOut(WHAT)))?;
        let process = DockerProcess {
            engine: self.clone(),
            instance: id.clone(),
            exec,
        };
        let terminal = DockerTerminal {
            stream,
            earlier: Cursor::new(earlier),
            process: process.clone(),
            pid,
            runtime: Handle::current(),
        };
        let shell = Shell::new(terminal, Arc::new(process));
        if let Some(size) = spec.terminal {
            shell.control().resize(size.columns, size.rows).await?;
        }
        Ok(shell)
    }

    async fn attach(&self, exec: &str, has_terminal: bool) -> Result<TokioIo<Upgraded>, Error> {
        let start = format!(r#"{{"Detach":false,"Tty":{has_terminal}}}"#);
        let request = Request::post(format!("/exec/{exec}/start"))
            .header(CONTENT_TYPE, "application/json")
            .header(CONNECTION, "Upgrade")
            .header(UPGRADE, "tcp")
            .body(body_full(Bytes::from(start)))
            .map_err(|error| Error::broken(WHAT, error))?;
        let response = self.send(WHAT, request).await?;
        let upgraded = hyper::upgrade::on(response).await;
        Ok(TokioIo::new(
            upgraded.map_err(|error| Error::broken(WHAT, error))?,
        ))
    }
}

impl ShellProcess for DockerProcess {
    fn resize(&self, columns: u16, rows: u16) -> Call<'_, ()> {
        Box::pin(DockerProcess::resize(self, columns, rows))
    }

    fn exit_code(&self) -> Call<'_, Option<i64>> {
        Box::pin(DockerProcess::exit_code(self))
    }
}

impl DockerProcess {
    async fn resize(&self, columns: u16, rows: u16) -> Result<(), Error> {
        let options = ResizeExecOptions {
            w: i32::from(columns),
            h: i32::from(rows),
        };
        let what = "resizing a terminal";
        let resized = self.engine.docker.resize_exec(&self.exec, options);
        match self.engine.call(what, QUICK_TIMEOUT, resized).await {
            Ok(()) => Ok(()),
            // It may just have ended, which the engine reports in many ways, and with a delay.
            Err(error) => {
                for _ in 0..MAX_EXIT_POLLS {
                    if !matches!(self.exit_code().await, Ok(None)) {
                        return Ok(());
                    }
                    sleep(SETTLE_DELAY).await;
                }
                Err(error)
            }
        }
    }

    async fn exit_code(&self) -> Result<Option<i64>, Error> {
        self.engine.exec_code(&self.exec).await
    }

    async fn hang_up(&self, pid: u32) -> Result<(), Error> {
        if self.exit_code().await?.is_some() {
            return Ok(());
        }
        let command = ["sh", "-c", HANG_UP].map(str::to_owned).into_iter();
        let command = command.chain([pid.to_string()]).collect();
        let done = self
            .engine
            .run_command(&self.instance, command, HANG_UP_TIMEOUT);
        done.await.map(drop)
    }
}

impl Drop for DockerTerminal {
    fn drop(&mut self) {
        let (process, pid) = (self.process.clone(), self.pid);
        let hang_up = async move {
            match process.hang_up(pid).await {
                // The instance may have ended, and its shell with it.
                Ok(()) | Err(Error::NotFound { .. } | Error::Conflict { .. }) => {}
                Err(error) => tracing::warn!(%error, "a shell may be left in an instance"),
            }
        };
        let tasks = self.process.engine.transport.tasks();
        tasks.spawn_on(hang_up, &self.runtime);
    }
}

impl AsyncRead for DockerTerminal {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let begun = buffer.filled().len();
        if let Poll::Ready(Err(error)) = Pin::new(&mut self.earlier).poll_read(context, buffer) {
            return Poll::Ready(Err(error));
        }
        if buffer.filled().len() > begun {
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for DockerTerminal {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
