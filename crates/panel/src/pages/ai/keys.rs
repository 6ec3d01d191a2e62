//! Keys: listed, made, changed, switched, rotated, deleted. A secret is in the response that made it and nowhere else.

use super::budget::{self, BudgetBar, refused};
use super::choices;
use super::key_form::{KeyFields, KeyForm};
use super::snippets::{Snippets, example_model};
use crate::error::PanelError;
use crate::form::{NoFields, SignedForm};
use crate::format::number;
use crate::layout::{Layout, Section};
use crate::list::{PAGE_SIZE, split_page};
use crate::next::{encode, is_safe};
use crate::page::{render, render_with};
use crate::pages::ask::{AskPage, Question};
use crate::session::Visit;
use askama::Template;
use axum::Router;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::{get, post};
use estrade_model::key::{Grace, Key, UpdateKey};
use estrade_model::secret::Secret;
use estrade_model::serde_rules::Patch;
use estrade_model::team::Role;
use estrade_model::{KeyId, Timestamp, WorkspaceId};
use estrade_server::app::AppState;
use estrade_service::ai::keys::{self, KeySearch};
use estrade_service::ai::workspaces;
use estrade_service::{Error, Scope};
use serde::Deserialize;

/// The list of keys.
const LIST: &str = "/panel/keys";
/// Characters of an id.
const ID_LENGTH: usize = 24;

pub(super) fn routes() -> Router<AppState> {
    Router::new()
        .route("/panel/keys", get(list_keys))
        .route("/panel/keys/new", get(new_key).post(create_key))
        .route("/panel/keys/{id}", get(show_key).post(update_key))
        .route("/panel/keys/{id}/enabled", post(set_enabled))
        .route(
            "/panel/keys/{id}/rotate",
            get(ask_rotation).post(rotate_key),
        )
        .route(
            "/panel/keys/{id}/delete",
            get(ask_deletion).post(delete_key),
        )
}

/// A key as lists show it.
struct KeyRow {
    id: KeyId,
    name: String,
    enabled: bool,
    state: (&'static str, &'static str),
    workspaces: String,
    limits: String,
    budget: Option<BudgetBar>,
    last_used_at: Option<Timestamp>,
}

impl KeyRow {
    fn new(key: &Key, budget: Option<BudgetBar>, now: Timestamp) -> Self {
        let names: Vec<_> = key
            .workspaces
            .iter()
            .map(|workspace| workspace.name.as_str())
            .collect();
        Self {
            id: key.id,
            name: key.name.to_string(),
            enabled: key.enabled,
            state: state(key, now),
            workspaces: match &names[..] {
                [first, second, _, ..] => format!("{first}, {second} and {} more", names.len() - 2),
                few => few.join(", "),
            },
            limits: limits(key),
            budget,
            last_used_at: key.last_used_at,
        }
    }
}

/// The kind and the text of a key's badge.
fn state(key: &Key, now: Timestamp) -> (&'static str, &'static str) {
    if key.limits.expires_at.is_some_and(|at| at <= now) {
        ("bad", "Expired")
    } else if key.enabled {
        ("ok", "Enabled")
    } else {
        ("off", "Disabled")
    }
}

fn limits(key: &Key) -> String {
    let limits = &key.limits;
    let mut parts = Vec::new();
    parts.extend(
        limits
            .rpm
            .map(|rpm| format!("{} requests/min", number(rpm.get().into()))),
    );
    parts.extend(
        limits
            .tpm
            .map(|tpm| format!("{} tokens/min", number(tpm.get().into()))),
    );
    parts.extend(limits.models.as_ref().map(|models| match &models[..] {
        [one] => one.clone(),
        many => format!("{} models", many.len()),
    }));
    if parts.is_empty() {
        "No limit".to_owned()
    } else {
        parts.join(" · ")
    }
}

#[derive(Default, Deserialize)]
struct KeysQuery {
    before: Option<String>,
    workspace: Option<String>,
    /// Only keys whose names begin so, by name; `before` is then the end of [`Found::next`].
    #[serde(default)]
    q: String,
}

/// A page of a list of keys.
struct Found {
    keys: Vec<Key>,
    /// The workspace whose keys they are.
    workspace: Option<(WorkspaceId, String)>,
    /// What the next page goes on from.
    next: Option<String>,
    /// The address of the list with its filter.
    list: String,
}

impl Found {
    /// The newest keys, also of a workspace.
    async fn newest(app: &AppState, scope: &Scope, query: &KeysQuery) -> Result<Self, Error> {
        let before = choices::optional_id("before", query.before.as_deref())?;
        let filter = choices::optional_id("workspace", query.workspace.as_deref())?;
        let (core, count) = (&app.core, PAGE_SIZE + 1);
        let (mut keys, workspace) = match filter {
            None => (keys::list_keys(core, scope, before, count, 0).await?, None),
            Some(id) => {
                let (detail, _) = workspaces::read_workspace(core, scope, id).await?;
                let found = keys::list_keys_of_workspace(core, scope, id, before, count).await?;
                (found, Some((id, detail.workspace.name)))
            }
        };
        Ok(Self {
            next: split_page(&mut keys, |key| key.id),
            keys,
            workspace,
            list: filter.map_or(LIST.to_owned(), |id| format!("{LIST}?workspace={id}")),
        })
    }

    /// Those whose names begin with a text, by name. The next page goes on from an id and the name behind it.
    async fn search(
        app: &AppState,
        scope: &Scope,
        prefix: &str,
        before: Option<&str>,
    ) -> Result<Self, Error> {
        let after = before.filter(|text| !text.is_empty());
        let after = after.map(|text| {
            let parts = text.split_at_checked(ID_LENGTH);
            let parsed = parts.and_then(|(id, name)| Some((id.parse().ok()?, name.to_owned())));
            parsed.ok_or_else(|| Error::invalid("before: must be where a page of the list ends"))
        });
        let search = KeySearch {
            prefix: prefix.to_owned(),
            after: after.transpose()?,
            count: PAGE_SIZE + 1,
        };
        let mut keys = keys::search_keys(&app.core, scope, &search).await?;
        let more = split_page(&mut keys, |key| key.id);
        let last = more.and(keys.last());
        Ok(Self {
            next: last.map(|key| format!("{}{}", key.id, encode(key.name.as_str()))),
            keys,
            workspace: None,
            list: format!("{LIST}?q={}", encode(prefix)),
        })
    }
}

#[derive(Template)]
#[template(path = "ai/keys.html")]
struct KeysPage {
    layout: Layout,
    keys: Vec<KeyRow>,
    /// The workspace whose keys are shown.
    workspace: Option<(WorkspaceId, String)>,
    search: String,
    is_first: bool,
    next: Option<String>,
    /// The list with its filter, and this page of it.
    list: String,
    here: String,
}

async fn list_keys(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<KeysQuery>,
) -> Result<Response, PanelError> {
    let search = query.q.trim();
    let found = if search.is_empty() {
        Found::newest(&app, &visit.scope, &query).await?
    } else {
        Found::search(&app, &visit.scope, search, query.before.as_deref()).await?
    };
    let budgets = found.keys.iter();
    let budgets = budgets.map(|key| (key.id, key.limits.budget.clone()));
    let mut bars = budget::bars(&app, budgets).await?;
    let now = app.core.now();
    let row = |key: &Key| KeyRow::new(key, bars.remove(&key.id), now);
    let before = query.before.filter(|text| !text.is_empty());
    let join = if found.list == LIST { '?' } else { '&' };
    let here = before.as_ref().map_or(found.list.clone(), |before| {
        format!("{}{join}before={}", found.list, encode(before))
    });
    render(&KeysPage {
        layout: visit.layout("Keys", Section::Keys),
        keys: found.keys.iter().map(row).collect(),
        workspace: found.workspace,
        search: search.to_owned(),
        is_first: before.is_none(),
        next: found.next,
        list: found.list,
        here,
    })
}

#[derive(Template)]
#[template(path = "ai/key_new.html")]
struct NewKeyPage {
    layout: Layout,
    fields: KeyFields,
    problem: String,
}

#[derive(Default, Deserialize)]
struct NewKeyQuery {
    workspace: Option<String>,
}

async fn new_key(
    State(app): State<AppState>,
    visit: Visit,
    Query(query): Query<NewKeyQuery>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let form = KeyForm {
        workspaces: query
            .workspace
            .into_iter()
            .filter(|name| name.len() <= 200)
            .collect(),
        ..KeyForm::default()
    };
    let mut fields = KeyFields::load(&app, &visit.scope, form).await?;
    // With one workspace there is nothing to choose.
    if let [only] = &mut fields.workspaces[..] {
        only.selected = true;
    }
    render(&NewKeyPage {
        layout: visit.layout("New key", Section::Keys),
        fields,
        problem: String::new(),
    })
}

async fn create_key(
    State(app): State<AppState>,
    visit: Visit,
    SignedForm(form): SignedForm<KeyForm>,
) -> Result<Response, PanelError> {
    let created = async { keys::create_key(&app.core, &visit.scope, form.create()?).await };
    match created.await {
        Ok(key) => {
            let title = format!("{} is ready", key.name);
            show_secret(&app, &visit, title, &key, key.key.as_ref(), None)
        }
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = NewKeyPage {
                layout: visit.layout("New key", Section::Keys),
                fields: KeyFields::load(&app, &visit.scope, form).await?,
                problem,
            };
            render_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

#[derive(Template)]
#[template(path = "ai/key_secret.html")]
struct SecretPage {
    layout: Layout,
    id: KeyId,
    name: String,
    secret: String,
    /// What becomes of the secret that was replaced.
    replaced: Option<&'static str>,
    snippets: Option<Snippets>,
}

/// The one response that has the secret.
fn show_secret(
    app: &AppState,
    visit: &Visit,
    title: String,
    key: &Key,
    secret: Option<&Secret>,
    replaced: Option<&'static str>,
) -> Result<Response, PanelError> {
    let model = example_model(app, key.limits.models.as_deref());
    let first = key.workspaces.first();
    render(&SecretPage {
        layout: visit.layout(title, Section::Keys),
        id: key.id,
        name: key.name.to_string(),
        secret: secret.map_or_else(String::new, |secret| secret.expose().to_owned()),
        replaced,
        snippets: first.map(|workspace| Snippets::new(app, workspace.id, &model)),
    })
}

#[derive(Template)]
#[template(path = "ai/key.html")]
struct KeyPage {
    layout: Layout,
    key: KeyRow,
    created_at: Timestamp,
    created_by: String,
    expires_at: Option<Timestamp>,
    workspaces: Vec<(WorkspaceId, String)>,
    models: Option<Vec<String>>,
    snippets: Option<Snippets>,
    fields: KeyFields,
    calls: String,
    problem: String,
}

impl KeyPage {
    async fn load(
        app: &AppState,
        visit: &Visit,
        key: &Key,
        form: KeyForm,
        problem: String,
    ) -> Result<Self, PanelError> {
        let budgets = [(key.id, key.limits.budget.clone())];
        let bar = budget::bars(app, budgets).await?.remove(&key.id);
        let model = example_model(app, key.limits.models.as_deref());
        let first = key.workspaces.first();
        Ok(Self {
            layout: visit.layout(key.name.to_string(), Section::Keys),
            key: KeyRow::new(key, bar, app.core.now()),
            created_at: key.created_at,
            created_by: key.created_by.fullname.clone(),
            expires_at: key.limits.expires_at,
            workspaces: key
                .workspaces
                .iter()
                .map(|workspace| (workspace.id, workspace.name.clone()))
                .collect(),
            models: key.limits.models.clone(),
            snippets: first.map(|workspace| Snippets::new(app, workspace.id, &model)),
            fields: KeyFields::load(app, &visit.scope, form).await?,
            calls: visit.href(&format!("/panel/calls?key={}", key.id)),
            problem,
        })
    }
}

async fn show_key(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
) -> Result<Response, PanelError> {
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    let form = KeyForm::of(&key);
    render(&KeyPage::load(&app, &visit, &key, form, String::new()).await?)
}

async fn update_key(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
    SignedForm(form): SignedForm<KeyForm>,
) -> Result<Response, PanelError> {
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    let updated = async {
        let update = form.update(&key)?;
        keys::update_key(&app.core, &visit.scope, id, update, None).await
    };
    match updated.await {
        Ok(()) => Ok(visit.done(
            format!("Key {} was saved", form.name),
            &format!("/panel/keys/{id}"),
        )),
        Err(error) => {
            let problem = PanelError::from(error).correctable()?;
            let page = KeyPage::load(&app, &visit, &key, form, problem).await?;
            render_with(StatusCode::UNPROCESSABLE_ENTITY, &page)
        }
    }
}

#[derive(Deserialize)]
struct EnabledForm {
    enabled: bool,
    /// The page with the switch: the list as it was filtered, or the key's.
    #[serde(default)]
    from: String,
}

async fn set_enabled(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
    SignedForm(form): SignedForm<EnabledForm>,
) -> Result<Response, PanelError> {
    let update = UpdateKey {
        name: None,
        workspaces: None,
        enabled: Some(form.enabled),
        expires_at: Patch::Keep,
        models: Patch::Keep,
        rpm: Patch::Keep,
        tpm: Patch::Keep,
        budget: Patch::Keep,
        cache: None,
    };
    keys::update_key(&app.core, &visit.scope, id, update, None).await?;
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    let said = if form.enabled { "enabled" } else { "disabled" };
    let back = match form.from.as_str() {
        from if from.starts_with(LIST) && is_safe(from) => from,
        _ => LIST,
    };
    Ok(visit.done(format!("Key {} was {said}", key.name), back))
}

/// For how long a replaced secret may still work.
const GRACES: [(u32, &str, &str); 5] = [
    (0, "not at all", "The old secret stopped working."),
    (
        3600,
        "for one hour",
        "The old secret works for one more hour.",
    ),
    (
        86_400,
        "for one day",
        "The old secret works for one more day.",
    ),
    (
        604_800,
        "for 7 days",
        "The old secret works for 7 more days.",
    ),
    (
        2_592_000,
        "for 30 days",
        "The old secret works for 30 more days.",
    ),
];

#[derive(Template)]
#[template(path = "ai/key_rotate.html")]
struct RotatePage {
    layout: Layout,
    id: KeyId,
    name: String,
    graces: [(u32, &'static str, &'static str); 5],
}

async fn ask_rotation(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    render(&RotatePage {
        layout: visit.layout(format!("Rotate {}", key.name), Section::Keys),
        id,
        name: key.name.to_string(),
        graces: GRACES,
    })
}

#[derive(Deserialize)]
struct RotateForm {
    grace: u32,
}

async fn rotate_key(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
    SignedForm(form): SignedForm<RotateForm>,
) -> Result<Response, PanelError> {
    let grace = GRACES.iter().find(|(seconds, ..)| *seconds == form.grace);
    let (seconds, _, said) =
        grace.ok_or_else(|| refused("The old secret", "choose one of the times of the list"))?;
    let rotated = keys::rotate_key(&app.core, &visit.scope, id, Grace(*seconds)).await?;
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    let title = format!("{} has a new secret", key.name);
    show_secret(&app, &visit, title, &key, rotated.key.as_ref(), Some(said))
}

async fn ask_deletion(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
) -> Result<Response, PanelError> {
    visit.scope.require_to_read(Role::Developer)?;
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    let path = format!("/panel/keys/{id}");
    let question = Question {
        title: format!("Delete key {}?", key.name),
        text: "Programs that use it are refused at once. Its calls stay in the log. This cannot be undone; to stop it for a while, disable it."
            .into(),
        label: "Delete key".into(),
        action: format!("{path}/delete"),
    };
    let layout = visit.layout(format!("Delete {}", key.name), Section::Keys);
    AskPage::new(layout, question)
        .below("Keys", "/panel/keys")
        .below(key.name.to_string(), path)
        .respond()
}

async fn delete_key(
    State(app): State<AppState>,
    visit: Visit,
    Path(id): Path<KeyId>,
    SignedForm(NoFields {}): SignedForm<NoFields>,
) -> Result<Response, PanelError> {
    let (key, _) = keys::read_key(&app.core, &visit.scope, id).await?;
    match keys::delete_key(&app.core, &visit.scope, id, None).await {
        Ok(()) | Err(Error::NotFound(_)) => {}
        Err(error) => return Err(error.into()),
    }
    Ok(visit.done(format!("Key {} was deleted", key.name), "/panel/keys"))
}
