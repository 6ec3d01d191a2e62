//! Every operation of both APIs, from the documents that the routers themselves make.

use estrade_testkit::Api;
use http::Method;
use serde_json::Value;

/// One path and method.
#[derive(Debug, Clone)]
pub(crate) struct Operation {
    pub(crate) api: Api,
    pub(crate) method: Method,
    pub(crate) path: String,
    /// What the document says of it.
    pub(crate) about: Value,
}

impl Operation {
    /// Whether the document says that it needs no credential.
    pub(crate) fn is_public(&self) -> bool {
        self.about["security"] == serde_json::json!([{}])
    }

    /// `POST /v1/keys`.
    pub(crate) fn name(&self) -> String {
        format!("{} {}", self.method, self.path)
    }
}

/// The document of an API.
pub(crate) fn document(api: Api) -> Value {
    let openapi = match api {
        Api::Platform => estrade_server::platform::document(),
        Api::Ai => estrade_server::ai::document(),
    };
    serde_json::to_value(openapi).unwrap()
}

/// Every operation of management. Inference has rules, and tests, of its own.
pub(crate) fn operations() -> Vec<Operation> {
    let mut all = Vec::new();
    for api in [Api::Platform, Api::Ai] {
        let document = document(api);
        for (path, item) in document["paths"].as_object().unwrap() {
            for method in ["get", "post", "put", "delete", "patch", "head", "options"] {
                if let Some(about) = item.get(method)
                    && about["tags"][0] != "inference"
                {
                    all.push(Operation {
                        api,
                        method: method.to_uppercase().parse().unwrap(),
                        path: path.clone(),
                        about: about.clone(),
                    });
                }
            }
        }
    }
    assert!(all.len() > 40, "the documents list the routes");
    all
}
