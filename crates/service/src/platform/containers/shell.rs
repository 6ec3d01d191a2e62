//! Shells in running instances: authorization, and the choice of the instance.

use crate::audit::PendingEntry;
use crate::identity::access::ProjectOperation;
use crate::{Core, Error, Result, Scope, platform::projects};
use estrade_model::audit::Action;
use estrade_model::error::error_chain;
use estrade_model::project::ProjectKey;
use estrade_model::team::Role;
use estrade_model::{OwnerId, ProjectId};
use estrade_runtime::{Error as EngineError, Instance, InstanceState, ShellSpec};
use estrade_store::projects::{self as project_rows, ProjectFilter};

pub use estrade_runtime::{OutputFrames, OutputStream, Shell, ShellControl, TerminalSize};

/// Longest command line, in bytes.
const MAX_COMMAND: usize = 8 * 1024;

/// An authorized shell that was not opened yet.
#[derive(Debug, Clone)]
pub struct ShellRequest {
    scope: Scope,
    owner: OwnerId,
    project: ProjectId,
    command: Vec<String>,
}

/// Why there is no shell.
#[derive(Debug, thiserror::Error)]
pub enum NoShell {
    /// The project has no instance that runs.
    #[error("no instance of this project is running; deploy it, or scale it to 1 or more")]
    NothingRuns,
    /// It could not be opened; the message is for the client.
    #[error("{0}")]
    Failed(String),
}

/// Authorizes a shell in a project, for developers. `command` is a line for `sh`.
pub async fn request_shell(
    core: &Core,
    scope: Scope,
    project: &str,
    command: Option<&str>,
) -> Result<ShellRequest> {
    let visible = scope.read_projects_as(ProjectOperation::OpenShell, Role::Developer)?;
    let project = projects::find_project(core, &scope, project).await?.id;
    let command = parse_command(command.unwrap_or("sh"))?;
    Ok(ShellRequest {
        scope,
        owner: visible.owner(),
        project,
        command,
    })
}

/// A single word is the command itself, so that it gets the terminal without a shell around it.
fn parse_command(line: &str) -> Result<Vec<String>> {
    let line = line.trim();
    if line.is_empty() || line.len() > MAX_COMMAND || line.contains('\0') {
        return Err(Error::invalid(format!(
            "cmd: must be a command of at most {MAX_COMMAND} bytes, without NUL"
        )));
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-./+".contains(&byte);
    Ok(if line.bytes().all(plain) {
        vec![line.to_owned()]
    } else {
        ["sh", "-c", line].map(str::to_owned).into()
    })
}

impl ShellRequest {
    pub fn project(&self) -> ProjectId {
        self.project
    }

    /// Whose project it is.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// The scope of the request.
    pub fn scope(&self) -> &Scope {
        &self.scope
    }

    /// Checks it once more: a shell outlives its request, and members come and go.
    pub async fn check_again(&self, core: &Core) -> Result<()> {
        let scope = self.scope.renew(core).await?;
        let visible = scope.read_projects_as(ProjectOperation::OpenShell, Role::Developer)?;
        let key = ProjectKey::Id(self.project);
        let found = project_rows::read_project(&core.db, visible, &key).await?;
        found.map(drop).ok_or(Error::NotFound("the project"))
    }

    /// The running instances of the release that serves; at least one.
    pub async fn instances(&self, core: &Core) -> std::result::Result<Vec<Instance>, NoShell> {
        let key = ProjectKey::Id(self.project);
        let visible = ProjectFilter::new(self.owner, Some(self.project));
        let row = project_rows::read_project(&core.db, visible, &key).await;
        let row = row.map_err(|error| failed(&error, "the service is not available right now"))?;
        let current = row.and_then(|row| row.current_release);
        let current = current.ok_or(NoShell::NothingRuns)?;
        let mut instances = core.runtime.instances().await.map_err(|e| refused(&e))?;
        instances.retain(|instance| {
            instance.key.release == current && instance.state == InstanceState::Running
        });
        instances.sort_by_key(|instance| instance.key.number);
        if instances.is_empty() {
            return Err(NoShell::NothingRuns);
        }
        Ok(instances)
    }

    /// Opens the shell in the first of these instances that still runs; without a terminal, between streams. No shell
    /// begins that the audit log does not have.
    pub async fn open(
        &self,
        core: &Core,
        instances: Vec<Instance>,
        terminal: Option<TerminalSize>,
    ) -> std::result::Result<Shell, NoShell> {
        if let Err(error) = self.note_opening(core).await {
            return Err(match error {
                Error::Forbidden(reason) => NoShell::Failed(reason),
                error => failed(&error, "the service is not available right now"),
            });
        }
        let spec = ShellSpec {
            command: self.command.clone(),
            terminal,
        };
        for instance in instances {
            match core.runtime.open_shell(&instance.id, &spec).await {
                Ok(shell) => return Ok(shell),
                // It has just ended; another may run.
                Err(EngineError::NotFound { .. } | EngineError::Conflict { .. }) => {}
                Err(error) => return Err(refused(&error)),
            }
        }
        Err(NoShell::NothingRuns)
    }

    /// Writes down who opens a shell. Not what is run in it: a command line may have a password in it.
    async fn note_opening(&self, core: &Core) -> Result<()> {
        let operation = ProjectOperation::OpenShell;
        let permission = self.scope.require_in_projects(operation, Role::Developer)?;
        let note = PendingEntry::of_project(core, &self.scope, Action::OpenShell)?;
        let (key, visible) = (ProjectKey::Id(self.project), permission.projects());
        permission
            .transact(core, move |tx| {
                let (key, note) = (key.clone(), note.clone());
                Box::pin(async move {
                    let row = project_rows::find_project(tx, visible, &key).await?;
                    let row = row.ok_or(Error::NotFound("the project"))?;
                    note.on(row.id, &row.name).write(tx).await
                })
            })
            .await
    }
}

fn refused(error: &EngineError) -> NoShell {
    match error {
        // Such as: its image has no `sh`.
        EngineError::Refused { message, .. } if !message.is_empty() => {
            NoShell::Failed(message.clone())
        }
        error if error.is_engine_away() => failed(error, "the container engine does not answer"),
        error => failed(error, "the shell could not be opened"),
    }
}

fn failed(error: &(dyn std::error::Error + 'static), sentence: &str) -> NoShell {
    tracing::warn!(error = error_chain(error), "cannot open a shell");
    NoShell::Failed(sentence.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_word_is_the_command_itself() {
        for word in ["sh", "bash", " /bin/bash ", "python3.11"] {
            assert_eq!(parse_command(word).unwrap(), [word.trim()]);
        }
        for line in ["ls -l", "a;b", "$HOME", "a|b", "é", "a\tb", "a'b'"] {
            assert_eq!(parse_command(line).unwrap(), ["sh", "-c", line]);
        }
        for bad in ["", " ", "a\0b", &"a".repeat(8193)] {
            assert!(parse_command(bad).is_err(), "{bad:?}");
        }
    }
}
