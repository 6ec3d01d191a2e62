//! The page that asks before something is taken away.

use crate::Layout;
use crate::pages::project_tabs::ProjectTabs;
use askama::Template;

/// A question with one button that does it and a way back.
#[derive(Template)]
#[template(path = "projects/confirm.html")]
pub(super) struct ConfirmPage {
    pub(super) layout: Layout,
    pub(super) tabs: ProjectTabs,
    pub(super) title: String,
    pub(super) text: String,
    pub(super) button: String,
    /// What the form sends besides.
    pub(super) fields: Vec<(&'static str, String)>,
    pub(super) action: String,
    pub(super) back: String,
    /// Why it was refused.
    pub(super) problem: Option<String>,
}
