//! The page that asks before something is done: for browsers without JavaScript, and after a refusal.

use super::project_tabs::ProjectTabs;
use crate::error::PanelError;
use crate::layout::Layout;
use crate::page::{render, render_with};
use askama::Template;
use axum::http::StatusCode;
use axum::response::Response;

/// Why nothing was deleted.
pub const WRONG_NAME: &str = "This is another name. Nothing was deleted.";

/// What a question is about.
pub struct Question {
    /// The question itself.
    pub title: String,
    /// What happens then.
    pub text: String,
    /// What the button says.
    pub label: String,
    /// Where the form goes, as a path of the panel.
    pub action: String,
}

/// A choice beside a question.
pub struct Check {
    /// The name of the field; its value is `yes`.
    pub name: &'static str,
    pub label: &'static str,
    pub hint: &'static str,
    pub checked: bool,
}

/// A question, with one button that does it and a way back.
#[must_use]
#[derive(Template)]
#[template(path = "ask.html")]
pub struct AskPage {
    layout: Layout,
    question: Question,
    /// The class of the button.
    kind: &'static str,
    /// What the form sends besides.
    fields: Vec<(&'static str, &'static str)>,
    /// The name that the person has to type, and what they typed.
    name: Option<(String, String)>,
    check: Option<Check>,
    /// The names and paths of the pages above; the last one is the way back.
    parents: Vec<(String, String)>,
    /// The head of a project's pages, instead of the path.
    tabs: Option<ProjectTabs>,
    problem: String,
}

impl AskPage {
    /// A question whose answer takes something away.
    pub fn new(layout: Layout, question: Question) -> Self {
        Self {
            layout,
            question,
            kind: "danger solid",
            fields: Vec::new(),
            name: None,
            check: None,
            parents: Vec::new(),
            tabs: None,
            problem: String::new(),
        }
    }

    /// A question whose answer takes nothing away.
    pub fn harmless(mut self) -> Self {
        self.kind = "primary";
        self
    }

    /// Below this page, and below those that were named before.
    pub fn below(mut self, name: impl Into<String>, path: impl Into<String>) -> Self {
        self.parents.push((name.into(), path.into()));
        self
    }

    /// Among the pages of a project.
    pub fn in_project(mut self, tabs: ProjectTabs) -> Self {
        self.tabs = Some(tabs.without_actions());
        self
    }

    /// The form also sends this.
    pub fn with_field(mut self, name: &'static str, value: &'static str) -> Self {
        self.fields.push((name, value));
        self
    }

    /// The person has to type this name.
    pub fn with_name(mut self, name: impl Into<String>, typed: impl Into<String>) -> Self {
        self.name = Some((name.into(), typed.into()));
        self
    }

    /// The name, if it was typed right.
    pub fn typed_name(&self) -> Option<&str> {
        let (name, typed) = self.name.as_ref()?;
        (typed.trim() == name).then_some(name.as_str())
    }

    pub fn with_check(mut self, check: Check) -> Self {
        self.check = Some(check);
        self
    }

    /// Why it was not done.
    pub fn refused(mut self, problem: String) -> Self {
        self.problem = problem;
        self
    }

    pub fn respond(&self) -> Result<Response, PanelError> {
        render(self)
    }

    pub fn respond_with(&self, status: StatusCode) -> Result<Response, PanelError> {
        render_with(status, self)
    }

    /// Where `Cancel` leads.
    fn back(&self) -> String {
        let parent = self.parents.last();
        let path = parent.map_or("/panel/projects", |(_, path)| path);
        self.layout.href(path)
    }
}
