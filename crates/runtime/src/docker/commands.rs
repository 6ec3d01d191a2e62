//! Commands that are run inside of an instance.

use crate::docker::engine::{Engine, QUICK_TIMEOUT};
use crate::error::Error;
use crate::exec::CommandEnd;
use crate::instance::InstanceId;
use bollard::exec::StartExecResults;
use bollard::models::ExecConfig;
use futures_util::TryStreamExt;
use std::time::Duration;

const WHAT: &str = "running a command in an instance";
/// How much is kept of what a command writes.
const MAX_OUTPUT: usize = 4 << 10;

impl Engine {
    /// Runs a command in a running instance and waits for its end. A command that takes too long is left
    /// alone, not ended: the engine has no way to.
    pub async fn run_command(
        &self,
        id: &InstanceId,
        command: Vec<String>,
        limit: Duration,
    ) -> Result<CommandEnd, Error> {
        let config = ExecConfig {
            cmd: Some(command),
            attach_stdout: Some(true),
            attach_stderr: Some(true),
            ..Default::default()
        };
        let running = async {
            let exec = self.docker.create_exec(&id.0, config).await?.id;
            let mut written = Vec::new();
            if let StartExecResults::Attached { mut output, .. } =
                self.docker.start_exec(&exec, None).await?
            {
                while let Some(piece) = output.try_next().await? {
                    let room = MAX_OUTPUT - written.len();
                    let piece = piece.into_bytes();
                    written.extend_from_slice(&piece[..piece.len().min(room)]);
                }
            }
            Ok((exec, written))
        };
        let (exec, written) = self.call(WHAT, limit, running).await?;
        let code = self.exec_code(&exec).await?;
        Ok(CommandEnd {
            code: code.ok_or_else(|| Error::broken(WHAT, "it has ended without a code"))?,
            output: String::from_utf8_lossy(&written).into_owned(),
        })
    }

    /// The exit code of a command; none: it still runs.
    pub(crate) async fn exec_code(&self, exec: &str) -> Result<Option<i64>, Error> {
        let found = self
            .call(WHAT, QUICK_TIMEOUT, self.docker.inspect_exec(exec))
            .await?;
        Ok(found.exit_code.filter(|_| found.running != Some(true)))
    }
}
