//! The page that asks before something is done, for browsers without JavaScript and after a refusal.

use crate::error::PanelError;
use crate::layout::Layout;
use crate::page::render;
use askama::Template;
use axum::response::Response;

#[derive(Template)]
#[template(path = "ask.html")]
pub struct AskPage {
    pub layout: Layout,
    pub title: String,
    pub text: &'static str,
    /// What the button says, and its class.
    pub label: &'static str,
    pub kind: &'static str,
    pub action: String,
    /// Where to go instead.
    pub back: String,
    pub back_label: &'static str,
    pub problem: String,
}

impl AskPage {
    pub fn respond(&self) -> Result<Response, PanelError> {
        render(self)
    }
}
