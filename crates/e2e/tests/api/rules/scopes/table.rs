//! Which scopes of tokens each operation is open to, besides `full`.

use crate::rules::Operation;
use estrade_testkit::Api;

/// What the scope of a token says about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Works without a token as well.
    Public,
    /// Takes an AI key, and no token of any scope.
    KeysOnly,
    /// Open to tokens of these scopes, and of `full`.
    OpenTo(&'static [&'static str]),
}

const FULL: Rule = Rule::OpenTo(&[]);
const READ: Rule = Rule::OpenTo(&["read"]);
const PROJECT: Rule = Rule::OpenTo(&["project"]);
const READ_PROJECT: Rule = Rule::OpenTo(&["read", "project"]);
const AI: Rule = Rule::OpenTo(&["ai"]);
const READ_AI: Rule = Rule::OpenTo(&["read", "ai"]);

/// The rule of an operation; a new route fails here until somebody has decided.
pub(super) fn rule(operation: &Operation) -> Rule {
    let name = operation.name();
    let rule = match operation.api {
        Api::Platform => platform_rule(&name),
        Api::Ai => ai_rule(&name),
    };
    let api = operation.api;
    rule.unwrap_or_else(|| {
        panic!(
            "decide which scopes {name} ({api:?}) is open to, in {}",
            file!()
        )
    })
}

fn platform_rule(name: &str) -> Option<Rule> {
    Some(match name {
        "GET /.well-known/estrade.json"
        | "GET /healthz"
        | "GET /readyz"
        | "POST /v1/login"
        | "POST /v1/login/check-if-exists"
        | "POST /v1/device/code"
        | "POST /v1/device/token" => Rule::Public,
        "GET /v1/me" => Rule::OpenTo(&["read", "project", "ai"]),
        "GET /v1/projects"
        | "GET /v1/projects/{project_id}"
        | "GET /v1/projects/{project_id}/events"
        | "GET /v1/projects/{project_id}/events/stream"
        | "GET /v1/projects/{project_id}/logs"
        | "GET /v2/projects/{project_id}/logs"
        | "GET /v1/projects/{project_id}/releases"
        | "GET /v1/projects/{project_id}/disks"
        | "GET /v1/projects/{project_id}/disks/{name}"
        | "GET /v1/projects/{project_id}/metrics"
        | "GET /v1/projects/{project_id}/metrics.svg"
        | "GET /v1/projects/{project_id}/metrics/summary"
        | "GET /v1/releases/{releaseID}"
        | "GET /v2/releases/{releaseID}/build-logs"
        | "GET /v1/domains"
        | "GET /v1/domains/{id}" => READ_PROJECT,
        // With a body, as here, it creates a release.
        "GET /v2/projects/{project_id}/releases"
        // A shell.
        | "GET /v1/exec"
        // Sources may hold secrets.
        | "GET /v2/releases/{releaseID}/source"
        // A domain that is proved begins to serve.
        | "GET /v1/domains/{id}/check"
        | "DELETE /v1/projects/{project_id}"
        | "POST /v1/projects/update-envs"
        | "POST /v1/projects/{project_id}/actions/scale"
        | "POST /v1/projects/{project_id}/actions/restart"
        | "POST /v1/projects/{project_id}/resize"
        | "POST /v1/projects/{project_id}/zero-downtime/{action}"
        | "POST /v1/projects/{project_id}/default-subdomain/{action}"
        | "POST /v1/projects/{project_id}/read-only/{action}"
        | "POST /v1/projects/{project_id}/fixed-ip/{action}"
        | "POST /v1/projects/{project_id}/disks"
        | "DELETE /v1/projects/{project_id}/disks/{name}"
        | "POST /v1/projects/{project_id}/disks/{name}/resize"
        | "POST /v2/projects/{project_id}/releases"
        | "PUT /v2/projects/{project_id}/blobs/{digest}"
        | "POST /v2/projects/{project_id}/sources"
        | "POST /v1/releases/{releaseID}/rollback"
        | "POST /v2/releases/{releaseID}/cancel"
        | "POST /v1/domains"
        | "DELETE /v1/domains/{id}" => PROJECT,
        "GET /v1/projects/{project_id}/check-availability"
        | "GET /v1/networks"
        | "GET /v1/networks/{id}"
        | "GET /v1/databases"
        | "GET /v1/tokens"
        | "GET /v2/teams"
        | "GET /v2/teams/{id}/members" => READ,
        "GET /v1/audit"
        | "GET /v1/admin/nodes"
        | "POST /v1/projects"
        | "POST /v1/networks"
        | "DELETE /v1/networks/{id}"
        | "POST /v1/databases"
        | "POST /v1/api-token"
        | "DELETE /v1/tokens/{id}"
        | "POST /v2/teams"
        | "DELETE /v2/teams/{id}"
        | "DELETE /v2/teams/{id}/members/{memberID}"
        | "POST /v2/teams/{id}/members/{memberID}/role"
        | "POST /v2/teams/{id}/invitations"
        | "POST /v2/teams/invitations/join" => FULL,
        _ => return None,
    })
}

fn ai_rule(name: &str) -> Option<Rule> {
    Some(match name {
        "GET /healthz" | "GET /readyz" | "GET /.well-known/jwks.json" => Rule::Public,
        "GET /v1/keys/authorize" | "POST /v1/keys/authorize" => Rule::KeysOnly,
        "GET /v1/keys"
        | "GET /v1/keys/{keyID}"
        | "GET /v1/workspaces"
        | "GET /v1/workspaces/{id}"
        | "GET /v1/workspaces/{id}/activity"
        | "GET /v1/workspaces/{id}/logs"
        | "GET /v1/workspaces/{id}/logs/{callID}"
        | "GET /v1/models"
        | "GET /v1/models/{id}"
        // A question, whatever its method.
        | "POST /v1/keys/verify" => READ_AI,
        "POST /v1/keys"
        | "PUT /v1/keys/{keyID}"
        | "DELETE /v1/keys/{keyID}"
        | "POST /v1/keys/{keyID}/rotate"
        | "POST /v1/workspaces"
        | "PUT /v1/workspaces/{id}"
        | "DELETE /v1/workspaces/{id}" => AI,
        "GET /v1/audit"
        | "GET /v1/providers"
        | "POST /v1/providers"
        | "GET /v1/providers/{id}"
        | "PUT /v1/providers/{id}"
        | "DELETE /v1/providers/{id}" => FULL,
        _ => return None,
    })
}
