//! What instances write: kept once each, read, followed and removed again.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    reason = "a failed step is a failed test"
)]

mod engine;
mod following;
mod keeping;
mod reading;
mod retention;
mod stored;
#[path = "../accounts_support/mod.rs"]
mod support;

use crate::support::Installation;
use estrade_model::ProjectId;
use estrade_model::platform::Platform;
use estrade_model::project::CreateProject;
use estrade_service::platform::containers::logs::StoredLine;
use estrade_service::{Core, Scope, platform::projects};

/// A new person in their own scope.
async fn owner(at: &Installation, name: &str) -> Scope {
    let caller = at.person(name).await;
    Scope::own(caller)
}

async fn create(core: &Core, scope: &Scope, name: &str, plan: &str) -> ProjectId {
    let new = CreateProject {
        name: name.to_owned().try_into().unwrap(),
        platform: Platform::Docker,
        plan_id: plan.into(),
        bundle_plan_id: None,
        network: None,
        read_only_root: None,
    };
    projects::create_project(core, scope, new).await.unwrap().id
}

fn texts(lines: &[StoredLine]) -> Vec<&str> {
    lines.iter().map(|line| line.text.as_str()).collect()
}
