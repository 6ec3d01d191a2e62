//! The form of a key: new, or one that is changed.

use super::budget::{parse_budget, parse_rate, refused};
use super::choices::{self, Choice};
use crate::format::strftime;
use estrade_model::key::{CreateKey, Key, ModelSet, UpdateKey, WorkspaceSet};
use estrade_model::names::{KeyName, WorkspaceLabel};
use estrade_model::serde_rules::Patch;
use estrade_model::{Invalid, Timestamp};
use estrade_server::app::App;
use estrade_service::{Error, Scope};
use serde::Deserialize;
use std::time::Duration;

/// Models that have a check box of their own; others are typed.
const MAX_MODEL_BOXES: usize = 60;

/// What a person typed.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyForm {
    pub(super) name: String,
    pub(super) workspaces: Vec<String>,
    pub(super) more_workspaces: String,
    pub(super) models: Vec<String>,
    pub(super) more_models: String,
    pub(super) rpm: String,
    pub(super) tpm: String,
    pub(super) budget: String,
    pub(super) period: String,
    pub(super) expires: String,
    pub(super) cache: String,
}

impl KeyForm {
    /// The form of a key as it is.
    pub(super) fn of(key: &Key) -> Self {
        let limits = &key.limits;
        let text = |number: Option<std::num::NonZeroU32>| {
            number.map_or_else(String::new, |number| number.to_string())
        };
        let budget = limits.budget.as_ref();
        Self {
            name: key.name.to_string(),
            workspaces: key
                .workspaces
                .iter()
                .map(|workspace| workspace.name.clone())
                .collect(),
            models: limits.models.clone().unwrap_or_default(),
            rpm: text(limits.rpm),
            tpm: text(limits.tpm),
            budget: budget.map_or_else(String::new, |budget| budget.amount.to_string()),
            period: budget
                .map_or("monthly", |budget| budget.period.as_str())
                .to_owned(),
            expires: limits
                .expires_at
                .map_or_else(String::new, |at| strftime(at, "%Y-%m-%d")),
            cache: if key.cache {
                "on".into()
            } else {
                String::new()
            },
            ..Self::default()
        }
    }

    fn name(&self) -> Result<KeyName, Error> {
        let name = self.name.parse();
        name.map_err(|Invalid(reason)| refused("Name", &reason))
    }

    fn workspaces(&self) -> Result<WorkspaceSet, Error> {
        let label = |name: &str| name.parse::<WorkspaceLabel>();
        let typed = separated(&self.more_workspaces);
        let all = self.workspaces.iter().map(String::as_str).chain(typed);
        let set = all.map(label).collect::<Result<Vec<_>, _>>();
        let set = set.and_then(WorkspaceSet::try_from);
        set.map_err(|Invalid(reason)| refused("Workspaces", &reason))
    }

    fn models(&self) -> Result<Patch<ModelSet>, Error> {
        let typed = separated(&self.more_models).map(str::to_owned);
        let mut all: Vec<String> = self.models.iter().cloned().chain(typed).collect();
        all.sort();
        all.dedup();
        if all.is_empty() {
            return Ok(Patch::Clear);
        }
        let set = ModelSet::try_from(all);
        set.map(Patch::Set)
            .map_err(|Invalid(reason)| refused("Models", &reason))
    }

    /// The end of the day that was chosen.
    fn expires_at(&self) -> Result<Patch<Timestamp>, Error> {
        let day = self.expires.trim();
        if day.is_empty() {
            return Ok(Patch::Clear);
        }
        let start = format!("{day}T00:00:00Z").parse::<Timestamp>();
        let start = start.map_err(|_| refused("Expiry", "must be a day such as 2027-01-31"))?;
        let last = Duration::from_hours(24).saturating_sub(Duration::from_millis(1));
        Ok(Patch::Set(start.after(last)))
    }

    /// A request for a new key.
    pub(super) fn create(&self) -> Result<CreateKey, Error> {
        Ok(CreateKey {
            name: self.name()?,
            workspaces: self.workspaces()?,
            expires_at: self.expires_at()?,
            models: self.models()?,
            rpm: parse_rate("Requests per minute", &self.rpm)?,
            tpm: parse_rate("Tokens per minute", &self.tpm)?,
            budget: parse_budget(&self.budget, &self.period)?,
            cache: Some(!self.cache.is_empty()),
        })
    }

    /// A request that changes a key. A day of expiry that was not touched stays the moment that it was.
    pub(super) fn update(&self, present: &Key) -> Result<UpdateKey, Error> {
        let untouched = Self::of(present).expires == self.expires.trim();
        let workspaces = self.workspaces()?;
        let names = workspaces.names().iter().map(WorkspaceLabel::as_str);
        let is_same = names.eq(present
            .workspaces
            .iter()
            .map(|workspace| workspace.name.as_str()));
        Ok(UpdateKey {
            name: Some(self.name()?),
            workspaces: (!is_same).then_some(workspaces),
            enabled: None,
            expires_at: if untouched {
                Patch::Keep
            } else {
                self.expires_at()?
            },
            models: self.models()?,
            rpm: parse_rate("Requests per minute", &self.rpm)?,
            tpm: parse_rate("Tokens per minute", &self.tpm)?,
            budget: parse_budget(&self.budget, &self.period)?,
            cache: Some(!self.cache.is_empty()),
        })
    }
}

/// Names that are typed into one field, separated by commas or lines.
fn separated(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', '\n', '\r'])
        .map(str::trim)
        .filter(|part| !part.is_empty())
}

/// What the template of the form needs.
pub(super) struct KeyFields {
    pub(super) form: KeyForm,
    pub(super) workspaces: Vec<Choice>,
    pub(super) models: Vec<Choice>,
    pub(super) periods: [Choice; 3],
}

impl KeyFields {
    /// The form with what there is to choose from.
    pub(super) async fn load(app: &App, scope: &Scope, mut form: KeyForm) -> Result<Self, Error> {
        let known = choices::workspaces(app, scope, None).await?;
        let mut workspaces: Vec<Choice> = Vec::new();
        for name in known
            .into_iter()
            .map(|workspace| workspace.name)
            .chain(form.workspaces.iter().cloned())
        {
            if workspaces.iter().all(|choice| choice.value != name) {
                workspaces.push(choice(&name, &form.workspaces));
            }
        }
        if workspaces.is_empty() && form.more_workspaces.is_empty() {
            form.more_workspaces = String::from("main");
        }
        let listed = app.gateway.listed_models(None);
        let listed = listed
            .iter()
            .map(|model| model.id.to_string())
            .take(MAX_MODEL_BOXES);
        let mut models: Vec<Choice> = Vec::new();
        for id in listed.chain(form.models.iter().cloned()) {
            if models.iter().all(|choice| choice.value != id) {
                models.push(choice(&id, &form.models));
            }
        }
        let period = |value: &str, label: &str| Choice {
            value: value.to_owned(),
            label: label.to_owned(),
            selected: form.period == value || (form.period.is_empty() && value == "monthly"),
        };
        Ok(Self {
            workspaces,
            models,
            periods: [
                period("daily", "each day"),
                period("monthly", "each month"),
                period("total", "in total"),
            ],
            form,
        })
    }
}

fn choice(name: &str, chosen: &[String]) -> Choice {
    Choice {
        value: name.to_owned(),
        label: name.to_owned(),
        selected: chosen.iter().any(|chosen| chosen == name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form() -> KeyForm {
        KeyForm {
            name: "ci-bot".into(),
            workspaces: vec!["main".into()],
            ..KeyForm::default()
        }
    }

    #[test]
    fn empty_fields_are_no_limits() {
        let new = form().create().unwrap();
        assert_eq!(
            (new.models, new.rpm, new.budget),
            (Patch::Clear, Patch::Clear, Patch::Clear)
        );
        assert_eq!((new.expires_at, new.cache), (Patch::Clear, Some(false)));
    }

    #[test]
    fn a_key_expires_at_the_end_of_its_day() {
        let with = |day: &str| {
            KeyForm {
                expires: day.into(),
                ..form()
            }
            .create()
        };
        let new = with("2027-01-31").unwrap();
        assert_eq!(
            new.expires_at,
            Patch::Set("2027-01-31T23:59:59.999Z".parse().unwrap())
        );
        assert!(with("31.1.2027").is_err());
    }

    #[test]
    fn names_are_separated_by_commas_and_lines() {
        let form = KeyForm {
            more_workspaces: "team a, b\r\nc,,".into(),
            more_models: "x/y\nx/y".into(),
            ..form()
        };
        let new = form.create().unwrap();
        let names: Vec<_> = new
            .workspaces
            .names()
            .iter()
            .map(WorkspaceLabel::as_str)
            .collect();
        assert_eq!(names, ["main", "team a", "b", "c"]);
        assert_eq!(new.models, Patch::Set(ModelSet(vec!["x/y".into()])));
        let none = KeyForm {
            workspaces: Vec::new(),
            ..KeyForm {
                name: "abc".into(),
                ..KeyForm::default()
            }
        };
        assert!(none.create().unwrap_err().to_string().contains("workspace"));
    }
}
