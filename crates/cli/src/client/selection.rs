//! Which project is meant: an argument, `--project`, the project file of the folder, or what was remembered of it.

use super::session::Session;
use clap::Args;
use estrade_client::{ClientError, Result};
use estrade_model::site_settings::{MAX_PROJECT_FILE_BYTES, PROJECT_FILES};
use serde::Deserialize;
use std::io::Read;
use std::path::Path;

/// `--project`.
#[derive(Debug, Clone, Default, Args)]
pub struct ProjectOption {
    /// The project, by name or id [default: `project` in ./estrade.json]
    #[arg(long, short, value_name = "NAME")]
    pub project: Option<String>,
}

impl ProjectOption {
    /// The project that is meant.
    pub fn resolve(&self, session: &Session<'_>) -> Result<String> {
        if let Some(project) = &self.project {
            return Ok(project.clone());
        }
        let here = std::env::current_dir().map_err(ClientError::file(Path::new(".")))?;
        if let Some(project) = ProjectFile::read(&here)?.project {
            return Ok(project);
        }
        remembered(session, &here)?.ok_or_else(|| {
            ClientError::Usage(
                "which project? name it with --project NAME, or write {\"project\": \"NAME\"} to estrade.json".to_owned(),
            )
        })
    }

    /// The same, where the name may also stand alone.
    pub fn resolve_or(&self, name: Option<&str>, session: &Session<'_>) -> Result<String> {
        match (name, &self.project) {
            (Some(name), Some(option)) if name != option => Err(ClientError::Usage(format!(
                "`{name}` or `{option}`? name one project"
            ))),
            (Some(name), _) => Ok(name.to_owned()),
            (None, _) => self.resolve(session),
        }
    }
}

/// What `[NAME] VALUE` and its options say: the project and the value.
pub fn name_and_value(
    words: &[String],
    option: Option<String>,
    project: &ProjectOption,
    session: &Session<'_>,
    noun: &str,
) -> Result<(String, String)> {
    let missing =
        || ClientError::Usage(format!("which {noun}? write it behind the project's name"));
    match (words, option) {
        ([name, value], None) => Ok((project.resolve_or(Some(name), session)?, value.clone())),
        ([name], Some(value)) => Ok((project.resolve_or(Some(name), session)?, value)),
        ([value], None) => Ok((project.resolve(session)?, value.clone())),
        ([], Some(value)) => Ok((project.resolve(session)?, value)),
        ([], None) => Err(missing()),
        _ => Err(ClientError::Usage(format!(
            "too many words; write the project's name and the {noun}"
        ))),
    }
}

/// What the project file of a folder says to a client.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ProjectFile {
    pub project: Option<String>,
    /// The same as other clients of this API family write it.
    app: Option<String>,
    pub platform: Option<String>,
    pub port: Option<u16>,
}

impl ProjectFile {
    /// Reads `estrade.json`, else `liara.json`; a folder without either says nothing.
    pub fn read(folder: &Path) -> Result<Self> {
        for name in PROJECT_FILES {
            let path = folder.join(name);
            let file = match std::fs::File::open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => continue,
                Err(error) => return Err(ClientError::file(&path)(error)),
            };
            let mut bytes = Vec::new();
            let mut file = file.take(MAX_PROJECT_FILE_BYTES as u64 + 1);
            file.read_to_end(&mut bytes)
                .map_err(ClientError::file(&path))?;
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
            return Self::parse(bytes)
                .map_err(|error| ClientError::Usage(format!("{}: {error}", path.display())));
        }
        Ok(Self::default())
    }

    fn parse(bytes: &[u8]) -> serde_json::Result<Self> {
        let mut file: Self = serde_json::from_slice(bytes)?;
        file.project = file.project.or(file.app.take());
        Ok(file)
    }
}

/// The project that a folder was deployed to on the server that is meant.
pub fn remembered(session: &Session<'_>, folder: &Path) -> Result<Option<String>> {
    // Without a home directory nothing is remembered.
    let Ok(store) = session.store() else {
        return Ok(None);
    };
    let target = session.target()?;
    let contexts = match store.load() {
        Ok(contexts) => contexts,
        // A token of the environment needs no file.
        Err(_) if !target.is_stored => return Ok(None),
        Err(error) => return Err(error),
    };
    let project = contexts.project_of(&target.server, &folder.display().to_string());
    Ok(project.map(str::to_owned))
}

/// Remembers the project that a folder was deployed to, unless there is one: another `--project` later means that one
/// time. A command with a token of its environment leaves no file behind.
pub fn remember(session: &Session<'_>, folder: &Path, project: &str) -> Result<()> {
    let target = session.target()?;
    let Ok(store) = session.store() else {
        return Ok(());
    };
    if !target.is_stored || remembered(session, folder)?.is_some() {
        return Ok(());
    }
    store.change(|contexts| {
        contexts.set_project(&target.server, &folder.display().to_string(), project);
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_project_file_may_name_its_project_for_several_clients() {
        for (text, project) in [
            (r#"{"project": "a", "app": "b"}"#, Some("a")),
            (r#"{"app": "b", "project": "a"}"#, Some("a")),
            (r#"{"app": "b", "other": 1}"#, Some("b")),
            (r#"{"port": 80}"#, None),
        ] {
            let file = ProjectFile::parse(text.as_bytes()).unwrap();
            assert_eq!(file.project.as_deref(), project, "{text}");
        }
    }
}
