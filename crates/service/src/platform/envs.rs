//! Environment variables: sealed at rest, masked for viewers.

use crate::audit::PendingEntry;
use crate::identity::access::ProjectOperation;
use crate::platform::events::{NewEvent, record_events};
use crate::platform::projects::parse_key;
use crate::platform::releases::queue_rerun;
use crate::{Core, Error, Result, Scope};
use estrade_model::audit::Action;
use estrade_model::names::EnvKey;
use estrade_model::project::{EnvId, EnvSetting, EnvVar, MAX_ENV_VALUE_BYTES, MAX_ENVS};
use estrade_model::release::ReleaseType;
use estrade_model::team::Role;
use estrade_model::{Invalid, ProjectId, ReleaseId};
use estrade_store::envs::{self, EnvRow};
use estrade_store::{projects, releases};
use futures_util::future::BoxFuture;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use zeroize::Zeroizing;

/// Shown instead of a value to callers that may not see it.
const MASK: &str = "***";

/// A sealed value opens only for the project and key that it was sealed for.
fn purpose(project: ProjectId, key: &EnvKey) -> String {
    format!("env:{project}:{key}")
}

/// The variables of a project; values are masked for viewers.
pub(crate) async fn list_envs(
    core: &Core,
    scope: &Scope,
    project: ProjectId,
) -> Result<Vec<EnvVar>> {
    let masked = !scope.may_read_secrets();
    let open = |row: EnvRow| {
        let value = if masked {
            MASK.to_owned()
        } else {
            let plain = core.master.open(&purpose(project, &row.key), &row.sealed)?;
            String::from_utf8(plain.to_vec()).map_err(Error::internal)?
        };
        Ok(EnvVar {
            id: row.id,
            key: row.key,
            value,
            encrypted: true,
        })
    };
    let rows = envs::list_envs(&core.db, project).await?;
    rows.into_iter().map(open).collect()
}

/// Replaces all variables of a project; the last of two with one key wins.
///
/// When a release serves, a new one with the same contents is made, so that the new values take
/// effect; its id is returned.
pub fn update_envs<'a>(
    core: &'a Core,
    scope: &'a Scope,
    project: &'a str,
    variables: Vec<EnvSetting>,
) -> BoxFuture<'a, Result<Option<ReleaseId>>> {
    replace_envs(core, scope, project, variables, None)
}

/// The same, if the variables are still those with the ids `expected`: every change gives them new ones.
pub fn update_envs_if_unchanged<'a>(
    core: &'a Core,
    scope: &'a Scope,
    project: &'a str,
    variables: Vec<EnvSetting>,
    expected: Vec<EnvId>,
) -> BoxFuture<'a, Result<Option<ReleaseId>>> {
    replace_envs(core, scope, project, variables, Some(expected))
}

fn replace_envs<'a>(
    core: &'a Core,
    scope: &'a Scope,
    project: &'a str,
    variables: Vec<EnvSetting>,
    expected: Option<Vec<EnvId>>,
) -> BoxFuture<'a, Result<Option<ReleaseId>>> {
    Box::pin(async move {
        let permission = scope.require_in_projects(ProjectOperation::Write, Role::Developer)?;
        check_variables(&variables)?;
        let (visible, now, author) = (permission.projects(), core.now(), permission.account());
        // The id never changes, and the values are sealed for it before the transaction begins.
        let id = crate::platform::projects::find_project(core, scope, project)
            .await?
            .id;
        let key = parse_key(&id.to_string())?;
        let unchanged = Arc::new(unchanged_rows(core, id, &variables).await?);
        let (rows, release) = (
            Arc::new(seal_variables(core, id, variables)?),
            core.new_id()?,
        );
        let expected = expected.map(Arc::new);
        let note = PendingEntry::of_project(core, scope, Action::UpdateEnvs)?;
        permission
            .transact(core, move |tx| {
                let (rows, key) = (Arc::clone(&rows), key.clone());
                let (unchanged, note) = (Arc::clone(&unchanged), note.clone());
                let expected = expected.clone();
                Box::pin(async move {
                    let row = projects::find_project(tx, visible, &key).await?;
                    let row = row.ok_or(Error::NotFound("the project"))?;
                    if let Some(expected) = expected
                        && envs::find_env_ids(tx, id).await? != *expected
                    {
                        return Err(Error::PreconditionFailed);
                    }
                    let names = changed_names(&envs::find_envs(tx, id).await?, &rows, &unchanged);
                    let note = note.on(id, &row.name).fields(&names);
                    let is_changed = !names.is_empty();
                    envs::replace_envs(tx, id, &rows).await?;
                    record_events(tx, id, vec![NewEvent::of_project("envs", "UPDATED")], now)
                        .await?;
                    let Some(current) = row.current_release else {
                        if is_changed {
                            note.write(tx).await?;
                        }
                        return Ok(None);
                    };
                    let tag = queue_rerun(
                        tx,
                        &row,
                        current,
                        (release, ReleaseType::EnvUpdate),
                        None,
                        now,
                    )
                    .await?;
                    releases::set_author(tx, release, author).await?;
                    // The same variables again are still a release that somebody made.
                    let note = if is_changed {
                        note
                    } else {
                        note.action(Action::CreateRelease)
                    };
                    note.detail(tag).write(tx).await?;
                    Ok(Some(release))
                })
            })
            .await
    })
}

/// The stored variables that would keep their value, by id. Read before the transaction: one that is not stored any
/// more when it begins has changed.
async fn unchanged_rows(
    core: &Core,
    project: ProjectId,
    variables: &[EnvSetting],
) -> Result<HashSet<EnvId>> {
    let new: BTreeMap<_, _> = variables
        .iter()
        .map(|EnvSetting { key, value }| (key.as_str(), value.as_bytes()))
        .collect();
    let mut unchanged = HashSet::new();
    for row in envs::list_envs(&core.db, project).await? {
        let value = core.master.open(&purpose(project, &row.key), &row.sealed)?;
        if new.get(row.key.as_str()) == Some(&value.as_slice()) {
            unchanged.insert(row.id);
        }
    }
    Ok(unchanged)
}

/// The names of variables that are added, changed or removed.
fn changed_names(old: &[EnvRow], new: &[EnvRow], unchanged: &HashSet<EnvId>) -> Vec<String> {
    let kept = old.iter().filter(|row| unchanged.contains(&row.id));
    let kept: HashSet<_> = kept.map(|row| row.key.as_str()).collect();
    let all = old.iter().chain(new).map(|row| row.key.as_str());
    let changed: BTreeSet<_> = all.filter(|name| !kept.contains(name)).collect();
    changed.into_iter().map(str::to_owned).collect()
}

/// The name under which the variables of a release are sealed.
fn release_purpose(project: ProjectId) -> String {
    format!("release-env:{project}")
}

/// The environment of a new release's instances: the project's present variables, and those that the
/// release brings itself.
pub(crate) async fn seal_release_env(
    core: &Core,
    project: ProjectId,
    settings: &Map<String, Value>,
) -> Result<Vec<u8>> {
    let mut all = BTreeMap::new();
    for row in envs::list_envs(&core.db, project).await? {
        let value = core.master.open(&purpose(project, &row.key), &row.sealed)?;
        let value = String::from_utf8(value.to_vec()).map_err(Error::internal)?;
        all.insert(row.key.to_string(), value);
    }
    all.extend(own_variables(settings));
    let all = Zeroizing::new(serde_json::to_vec(&all).map_err(Error::internal)?);
    core.master.seal(&release_purpose(project), &all)
}

/// Opens what [`seal_release_env`] has sealed.
pub(crate) fn open_release_env(
    core: &Core,
    project: ProjectId,
    sealed: &[u8],
) -> Result<BTreeMap<String, String>> {
    let opened = core.master.open(&release_purpose(project), sealed)?;
    serde_json::from_slice(&opened).map_err(Error::internal)
}

/// `envs` of a release: a list of keys and values, or an object. What cannot be one is left out here, and
/// refused by [`check_own_variables`] when the release is made.
fn own_variables(settings: &Map<String, Value>) -> Vec<(String, String)> {
    let pair = |(key, value): (&str, &Value)| Some((key.to_owned(), text_of(value)?));
    let all = listed_variables(settings).unwrap_or_default();
    all.into_iter().filter_map(pair).collect()
}

/// The names and values of `envs`; none when it, or an item of it, is something else.
fn listed_variables(settings: &Map<String, Value>) -> Option<Vec<(&str, &Value)>> {
    match settings.get("envs") {
        None | Some(Value::Null) => Some(Vec::new()),
        Some(Value::Array(items)) => items.iter().map(listed_variable).collect(),
        Some(Value::Object(map)) => Some(map.iter().map(|(key, value)| (&**key, value)).collect()),
        Some(_) => None,
    }
}

fn listed_variable(item: &Value) -> Option<(&str, &Value)> {
    Some((item.get("key")?.as_str()?, item.get("value")?))
}

/// Numbers and booleans are what manifests have where a text is meant.
fn text_of(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Refuses variables of a new release that instances could not be given.
pub(crate) fn check_own_variables(settings: &Map<String, Value>) -> Result<()> {
    let all = listed_variables(settings).ok_or_else(|| {
        Error::invalid("envs: must be an object of names and values, or a list of {key, value}")
    })?;
    if all.len() > MAX_ENVS {
        return Err(Error::invalid(format!(
            "envs: at most {MAX_ENVS} are allowed, {} were sent",
            all.len()
        )));
    }
    for (key, value) in all {
        let key: EnvKey = key
            .parse()
            .map_err(|Invalid(reason)| Error::invalid(format!("envs: a name {reason}")))?;
        let value = text_of(value)
            .ok_or_else(|| Error::invalid(format!("envs: the value of {key} must be a text")))?;
        if value.len() > MAX_ENV_VALUE_BYTES || value.contains('\0') {
            return Err(Error::invalid(format!(
                "envs: the value of {key} must be at most {MAX_ENV_VALUE_BYTES} bytes, without NUL"
            )));
        }
    }
    Ok(())
}

fn check_variables(variables: &[EnvSetting]) -> Result<()> {
    if variables.len() > MAX_ENVS {
        return Err(Error::invalid(format!(
            "variables: at most {MAX_ENVS} are allowed, {} were sent",
            variables.len()
        )));
    }
    for EnvSetting { key, value } in variables {
        if value.len() > MAX_ENV_VALUE_BYTES {
            return Err(Error::invalid(format!(
                "variables: the value of {key} is longer than {MAX_ENV_VALUE_BYTES} bytes"
            )));
        }
        // No operating system can pass it on.
        if value.contains('\0') {
            return Err(Error::invalid(format!(
                "variables: the value of {key} contains a NUL character"
            )));
        }
    }
    Ok(())
}

fn seal_variables(
    core: &Core,
    project: ProjectId,
    variables: Vec<EnvSetting>,
) -> Result<Vec<EnvRow>> {
    let mut seen = HashSet::new();
    let mut last: Vec<_> = variables
        .into_iter()
        .rev()
        .filter(|variable| seen.insert(variable.key.clone()))
        .collect();
    last.reverse();
    let seal = |EnvSetting { key, value }| {
        Ok(EnvRow {
            id: core.new_id()?,
            sealed: core
                .master
                .seal(&purpose(project, &key), value.as_bytes())?,
            key,
        })
    };
    last.into_iter().map(seal).collect()
}
