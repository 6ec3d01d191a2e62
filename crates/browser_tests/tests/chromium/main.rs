//! The account panel in Chromium: what people click, and what must hold on every page.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod accessibility;
mod activity;
mod browser;
mod chromedriver;
mod comforts;
mod crawl;
mod entry_points;
mod every_page;
mod eyes;
mod first_hour;
mod foreign_site;
mod form_answers;
mod furnish;
mod hostile;
mod large_folder;
mod states;
mod viewer;
