//! `/openapi.json` and `/docs`

use crate::rules::routes::{document, operations};
use estrade_testkit::{Api, Backend, TestApp};
use serde_json::Value;
use std::collections::BTreeSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documents_are_served_as_they_are_made() {
    let app = TestApp::start(Backend::Sqlite).await;
    for api in [Api::Platform, Api::Ai] {
        let response = app
            .stranger()
            .on(api)
            .get("/openapi.json")
            .await
            .assert(200);
        assert_eq!(response.header("content-type"), "application/json");
        assert_eq!(response.json(), document(api));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_docs_page_names_no_outside_host() {
    let app = TestApp::start(Backend::Sqlite).await;
    for api in [Api::Platform, Api::Ai] {
        let stranger = app.stranger().on(api);
        for path in ["/docs", "/docs/"] {
            let page = stranger.get(path).await.assert(200);
            assert!(page.header("content-type").starts_with("text/html"));
            let policy = page.header("content-security-policy");
            assert!(
                policy.contains("default-src 'self'") && !policy.contains("http"),
                "{policy}"
            );
            let mut assets = 0;
            for attribute in ["src=\"", "href=\""] {
                for piece in page.text().split(attribute).skip(1) {
                    let asset = piece.split('"').next().unwrap();
                    assert!(asset.starts_with("/docs/"), "{asset}");
                    stranger.get(asset).await.assert(200);
                    assets += 1;
                }
            }
            assert!(assets >= 3);
            assert!(!page.text().contains("//"), "{}", page.text());
        }
        let script = stranger.get("/docs/page.js").await.assert(200).text();
        assert!(
            !script.contains("http:") && !script.contains("https:"),
            "{script}"
        );
        for missing in [
            "/docs/nothing.js",
            "/docs/..%2fopenapi.json",
            "/docs/swagger-initializer.js",
        ] {
            stranger.get(missing).await.refused(404, "not_found");
        }
    }
    app.finish().await;
}

#[test]
fn the_documents_are_openapi_3_1() {
    for api in [Api::Platform, Api::Ai] {
        let document = document(api);
        assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
        assert_ne!(document["info"]["title"], "");
        let mut references = BTreeSet::new();
        collect_references(&document, &mut references);
        for reference in references {
            let pointer = reference.strip_prefix('#').expect("a local reference");
            assert!(
                document.pointer(pointer).is_some(),
                "{reference} leads nowhere"
            );
        }
        for name in document["security"]
            .as_array()
            .unwrap()
            .iter()
            .flat_map(|one| one.as_object().unwrap().keys())
        {
            assert!(
                document["components"]["securitySchemes"]
                    .get(name)
                    .is_some(),
                "{name}"
            );
        }
    }
    let ai = document(Api::Ai);
    assert_eq!(
        ai["info"]["version"], "1.0.0",
        "as the specification declares"
    );
}

/// What generators of clients stumble over.
#[test]
fn the_documents_say_what_programs_need() {
    for api in [Api::Platform, Api::Ai] {
        let document = document(api);
        assert_ne!(document["servers"].as_array().map_or(0, Vec::len), 0);
        assert_lists_have_items(&document, "");
    }
    for operation in operations() {
        let (name, about) = (operation.name(), &operation.about);
        let body = &about["requestBody"]["content"];
        for (kind, content) in contents(body).chain(responses(about)) {
            let schema = &content["schema"];
            let is_binary = matches!(
                kind,
                "application/octet-stream" | "application/gzip" | "application/zip"
            );
            let says_binary = schema["format"] == "binary" && schema["type"] == "string";
            assert_eq!(is_binary, says_binary, "{name}: {kind} {schema}");
        }
        for (_, content) in contents(body) {
            let options = content["schema"]["oneOf"].as_array();
            let takes_null = options.is_some_and(|all| all.iter().any(|one| one["type"] == "null"));
            assert!(
                !takes_null,
                "{name}: a body that may be left out is not null"
            );
        }
    }
}

fn contents(content: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let kinds = content.as_object().into_iter().flatten();
    kinds.map(|(kind, content)| (kind.as_str(), content))
}

fn responses(about: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let all = about["responses"].as_object().into_iter().flatten();
    all.flat_map(|(_, response)| contents(&response["content"]))
}

fn assert_lists_have_items(value: &Value, path: &str) {
    let types = value.get("type");
    let is_list = types.is_some_and(|it| {
        *it == "array"
            || it
                .as_array()
                .is_some_and(|all| all.contains(&"array".into()))
    });
    let is_described = ["items", "prefixItems"]
        .iter()
        .any(|name| value.get(name).is_some());
    assert!(!is_list || is_described, "{path} is a list of what?");
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                assert_lists_have_items(value, &format!("{path}/{name}"));
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| assert_lists_have_items(item, path)),
        _ => {}
    }
}

fn collect_references(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value {
                    Value::String(text) if name == "$ref" => drop(found.insert(text.clone())),
                    other => collect_references(other, found),
                }
            }
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_references(item, found)),
        _ => {}
    }
}

#[test]
fn every_operation_is_described() {
    let mut names = BTreeSet::new();
    for operation in operations() {
        let about = &operation.about;
        let name = operation.name();
        let id = about["operationId"].as_str().expect(&name);
        assert!(
            names.insert((format!("{:?}", operation.api), id.to_owned())),
            "{id} twice"
        );
        assert!(about["summary"].is_string(), "{name} has no summary");
        let declared: BTreeSet<_> = about["parameters"]
            .as_array()
            .into_iter()
            .flatten()
            .filter(|one| one["in"] == "path")
            .map(|one| {
                assert_eq!(one["required"], true, "{name}");
                one["name"].as_str().unwrap().to_owned()
            })
            .collect();
        let used: BTreeSet<_> = operation
            .path
            .split('/')
            .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
            .map(str::to_owned)
            .collect();
        assert_eq!(declared, used, "{name}");
        let responses = about["responses"].as_object().unwrap();
        assert!(
            responses
                .keys()
                .any(|status| status.starts_with('2') || status == "101")
                // What is not offered is there for clients that ask for it all the same.
                || about["description"].as_str().is_some_and(|it| it.contains("`not_offered`")),
            "{name}"
        );
        for response in responses.values() {
            assert!(response["description"].is_string(), "{name}");
        }
        if !operation.is_public() {
            assert!(responses.contains_key("401"), "{name}");
        }
    }
}

/// The routes that the specification gives, word by word.
#[test]
fn every_endpoint_of_the_specification_is_served() {
    let all: BTreeSet<_> = operations()
        .iter()
        .map(|operation| format!("{:?} {}", operation.api, operation.name()))
        .collect();
    for endpoint in [
        "Platform GET /v1/projects",
        "Platform POST /v1/projects",
        "Platform DELETE /v1/projects/{project_id}",
        "Platform GET /v1/projects/{project_id}/releases",
        "Platform GET /v2/projects/{project_id}/releases",
        "Ai POST /v1/keys",
        "Ai PUT /v1/keys/{keyID}",
    ] {
        assert!(all.contains(endpoint), "{endpoint}");
    }
}
