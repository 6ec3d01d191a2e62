//! Which paths of the AI listener are inference, and what they mean.

use crate::auth::WorkspaceSelector;
use estrade_model::call::Operation;
use http::Method;

/// An inference request's path, understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InferenceRoute<'p> {
    pub selector: WorkspaceSelector<'p>,
    pub endpoint: Endpoint<'p>,
}

/// What a path asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Endpoint<'p> {
    Call(Operation),
    /// The list of models.
    Models,
    /// One model, by its id as the path has it: percent-encoded or not, slashes included.
    Model(&'p str),
    /// There is something here, but not for this method; these are allowed.
    WrongMethod(&'static str),
    /// There is nothing here.
    Unknown,
}

/// Recognises `/api/{workspace}/v1/…`, the older `/api/v1/{workspace}/…` and plain `/v1/…`; none:
/// the path is not one of the gateway's.
pub fn parse<'p>(method: &Method, path: &'p str) -> Option<InferenceRoute<'p>> {
    let path = path.strip_suffix('/').unwrap_or(path);
    let Some(inside) = path.strip_prefix("/api/") else {
        let endpoint = endpoint(method, path.strip_prefix("/v1/")?);
        // Models without a workspace, and all that is not inference, are the management API's.
        let is_models = path == "/v1/models" || path.starts_with("/v1/models/");
        let ours = !matches!(endpoint, Endpoint::Unknown) && !is_models;
        let selector = WorkspaceSelector::Only;
        return ours.then_some(InferenceRoute { selector, endpoint });
    };
    let (first, rest) = inside.split_once('/').unwrap_or((inside, ""));
    let (second, rest_of_rest) = rest.split_once('/').unwrap_or((rest, ""));
    let (workspace, tail) = match (first, second) {
        ("v1", workspace) | (workspace, "v1") => (workspace, rest_of_rest),
        (workspace, _) => (workspace, ""),
    };
    Some(InferenceRoute {
        selector: WorkspaceSelector::Workspace(workspace),
        endpoint: endpoint(method, tail),
    })
}

fn endpoint<'p>(method: &Method, tail: &'p str) -> Endpoint<'p> {
    let model = tail.strip_prefix("models/").filter(|id| !id.is_empty());
    if tail == "models" || model.is_some() {
        return match (method, model) {
            (&Method::GET | &Method::HEAD, None) => Endpoint::Models,
            (&Method::GET | &Method::HEAD, Some(id)) => Endpoint::Model(id),
            _ => Endpoint::WrongMethod("GET, HEAD"),
        };
    }
    match Operation::ALL.into_iter().find(|op| op.path() == tail) {
        Some(operation) if method == Method::POST => Endpoint::Call(operation),
        Some(_) => Endpoint::WrongMethod("POST"),
        None => Endpoint::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        let at = |method: Method, path| {
            parse(&method, path).map(|route| (route.selector, route.endpoint))
        };
        let chat = Endpoint::Call(Operation::Chat);
        let ws = WorkspaceSelector::Workspace("w1");
        assert_eq!(
            at(Method::POST, "/api/w1/v1/chat/completions"),
            Some((ws, chat))
        );
        assert_eq!(
            at(Method::POST, "/api/v1/w1/chat/completions/"),
            Some((ws, chat))
        );
        assert_eq!(
            at(Method::POST, "/v1/chat/completions"),
            Some((WorkspaceSelector::Only, chat))
        );
        assert_eq!(
            at(Method::POST, "/v1/images/generations/"),
            Some((WorkspaceSelector::Only, Endpoint::Call(Operation::Images)))
        );
        assert_eq!(
            at(Method::GET, "/api/w1/v1/models"),
            Some((ws, Endpoint::Models))
        );
        assert_eq!(
            at(Method::GET, "/api/v1/w1/models"),
            Some((ws, Endpoint::Models))
        );
        for path in ["/api/w1/v1/models/a/b%2Fc", "/api/v1/w1/models/a/b%2Fc"] {
            let model = Endpoint::Model("a/b%2Fc");
            assert_eq!(at(Method::GET, path), Some((ws, model)));
            let wrong = Endpoint::WrongMethod("GET, HEAD");
            assert_eq!(at(Method::DELETE, path), Some((ws, wrong)));
        }
        assert_eq!(
            at(Method::GET, "/api/w1/v1/embeddings"),
            Some((ws, Endpoint::WrongMethod("POST")))
        );
        assert_eq!(
            at(Method::GET, "/v1/embeddings"),
            Some((WorkspaceSelector::Only, Endpoint::WrongMethod("POST")))
        );
        assert_eq!(
            at(Method::POST, "/api/w1/v1/audio"),
            Some((ws, Endpoint::Unknown))
        );
        assert_eq!(at(Method::POST, "/api/w1"), Some((ws, Endpoint::Unknown)));
        for other in [
            "/v1/models",
            "/v1/models/a/b",
            "/v1/keys",
            "/v1/workspaces",
            "/",
            "/healthz",
            "/v1",
            "/apix",
        ] {
            assert_eq!(at(Method::GET, other), None, "{other}");
        }
    }
}
