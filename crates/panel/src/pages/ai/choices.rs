//! What the select fields of these pages offer: bounded, and always with what is chosen already.

use estrade_model::key::Key;
use estrade_model::workspace::Workspace;
use estrade_model::{KeyId, WorkspaceId};
use estrade_server::app::App;
use estrade_service::ai::{keys, workspaces};
use estrade_service::{Error, Scope};

/// Most entries of a select field.
const MAX_CHOICES: u32 = 50;

/// An entry of a select field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) value: String,
    pub(super) label: String,
    pub(super) selected: bool,
}

/// The newest keys, and the chosen one.
pub(super) async fn newest_keys(
    app: &App,
    scope: &Scope,
    chosen: Option<KeyId>,
) -> Result<Vec<Key>, Error> {
    let mut newest = keys::list_keys(&app.core, scope, None, MAX_CHOICES, 0).await?;
    if let Some(id) = chosen
        && newest.iter().all(|key| key.id != id)
    {
        match keys::read_key(&app.core, scope, id).await {
            Ok((key, _)) => newest.insert(0, key),
            Err(Error::NotFound(_)) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(newest)
}

/// The newest keys as choices; a chosen one that was deleted stays, under its id.
pub(super) async fn key_choices(
    app: &App,
    scope: &Scope,
    chosen: Option<KeyId>,
) -> Result<Vec<Choice>, Error> {
    let newest = newest_keys(app, scope, chosen).await?;
    let choice = |key: &Key| Choice {
        value: key.id.to_string(),
        label: key.name.to_string(),
        selected: chosen == Some(key.id),
    };
    let mut choices: Vec<_> = newest.iter().map(choice).collect();
    if let Some(id) = chosen
        && !choices.iter().any(|choice| choice.selected)
    {
        choices.push(Choice {
            value: id.to_string(),
            label: format!("deleted key {id}"),
            selected: true,
        });
    }
    Ok(choices)
}

/// The newest workspaces, and the chosen one.
pub(super) async fn workspaces(
    app: &App,
    scope: &Scope,
    chosen: Option<WorkspaceId>,
) -> Result<Vec<Workspace>, Error> {
    let mut newest = workspaces::list_workspaces(&app.core, scope, None, MAX_CHOICES, 0).await?;
    if let Some(id) = chosen
        && newest.iter().all(|workspace| workspace.id != id)
    {
        let (detail, _) = workspaces::read_workspace(&app.core, scope, id).await?;
        newest.insert(0, detail.workspace);
    }
    Ok(newest)
}

/// Workspaces as choices.
pub(super) fn workspace_choices(
    workspaces: &[Workspace],
    chosen: Option<WorkspaceId>,
) -> Vec<Choice> {
    let choice = |workspace: &Workspace| Choice {
        value: workspace.id.to_string(),
        label: workspace.name.clone(),
        selected: chosen == Some(workspace.id),
    };
    workspaces.iter().map(choice).collect()
}

/// An optional id of a query: an empty field is none.
pub(super) fn optional_id<T>(
    label: &str,
    text: Option<&str>,
) -> Result<Option<estrade_model::Id<T>>, Error> {
    let text = text.map(str::trim).filter(|text| !text.is_empty());
    let parse = |text: &str| {
        let refused = |_| {
            Error::invalid(format!(
                "{label}: must be an id of 24 hexadecimal characters"
            ))
        };
        text.parse().map_err(refused)
    };
    text.map(parse).transpose()
}
