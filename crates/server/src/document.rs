//! The OpenAPI documents: the descriptions of the handlers, completed by the rules that hold for
//! every route, so that each rule is written once here and not at fifty handlers.

use crate::error::ErrorBody;
use axum::http::StatusCode;
use std::collections::HashSet;
use utoipa::openapi::path::{Operation, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::tag::TagBuilder;
use utoipa::openapi::{
    Components, Content, HeaderBuilder, InfoBuilder, KnownFormat, ObjectBuilder, OpenApi, Ref,
    RefOr, Required, Response, ResponseBuilder, Schema, SchemaFormat, ServerBuilder, Type,
};
use utoipa::{PartialSchema, ToSchema};

/// What differs between the two documents.
pub struct Description {
    title: &'static str,
    version: &'static str,
    text: &'static str,
    /// Whether errors have a JSON body.
    errors_have_bodies: bool,
    /// The sections, in the order in which a reader meets them.
    sections: &'static [(&'static str, &'static str)],
    /// Tags of routes that are about the caller, not about the things of an owner.
    personal: &'static [&'static str],
}

/// The platform API.
pub const PLATFORM: Description = Description {
    title: "Estrade platform API",
    version: env!("CARGO_PKG_VERSION"),
    text: "Projects, their releases, environment variables, networks, teams and tokens.",
    errors_have_bodies: true,
    sections: &[
        ("projects", "What you run"),
        ("releases", "Its versions: deploy, wait, roll back"),
        ("events", "What happened to it"),
        ("logs", "What it writes"),
        ("domains", "Host names of your own"),
        ("disks", "What instances keep across releases"),
        ("metrics", "What it uses"),
        ("shell", "A terminal in what runs"),
        ("account", "Signing in, and tokens"),
        ("teams", "Working together"),
        ("audit", "Who changed what"),
        ("networks", "Private networks"),
        ("databases", "Not offered"),
        ("admin", "The installation, for administrators"),
        ("health", "For those who watch the server"),
    ],
    personal: &["account", "teams", "admin", "health"],
};

/// The AI API.
pub const AI: Description = Description {
    title: "Estrade AI key API",
    version: "1.0.0",
    text: "Keys that authenticate AI inference requests, and the workspaces they are for. \
           Errors have empty bodies, except those of inference; `x-error-code` and `x-error-message` carry the reason.",
    errors_have_bodies: false,
    sections: &[
        (
            "inference",
            "What keys are for: the API of OpenAI, with errors in its shape",
        ),
        ("models", "What there is to call"),
        ("keys", "Make, change and check keys"),
        ("workspaces", "What keys are for"),
        ("usage", "What they used, and what it cost"),
        ("audit", "Who changed what"),
        ("providers", "Who answers, for administrators"),
        ("health", "For those who watch the server"),
    ],
    personal: &["providers", "health"],
};

/// The name of the account token in the document.
const TOKEN: &str = "account_token";
/// The name of the AI key in the document.
const KEY: &str = "inference_key";

/// Adds to a document what the handlers do not describe themselves.
pub fn complete(openapi: &mut OpenApi, about: &Description) {
    openapi.info = InfoBuilder::new()
        .title(about.title)
        .version(about.version)
        .description(Some(about.text))
        .build();
    let tag = |(name, text): &(&str, &str)| {
        TagBuilder::new()
            .name(*name)
            .description(Some(*text))
            .build()
    };
    // Wherever the document was read: also behind a proxy.
    let server = ServerBuilder::new()
        .url("/")
        .description(Some("This server"));
    openapi.servers = Some(vec![server.build()]);
    openapi.tags = Some(about.sections.iter().map(tag).collect());
    openapi.security = Some(vec![SecurityRequirement::new(TOKEN, Vec::<String>::new())]);
    let components = openapi.components.get_or_insert_with(Components::new);
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .build();
    components.add_security_scheme(TOKEN, SecurityScheme::Http(bearer.clone()));
    if !about.errors_have_bodies {
        components.add_security_scheme(KEY, SecurityScheme::Http(bearer));
    }
    if about.errors_have_bodies {
        let mut schemas = vec![(ErrorBody::name().to_string(), ErrorBody::schema())];
        ErrorBody::schemas(&mut schemas);
        components.schemas.extend(schemas);
    }
    let mut names = HashSet::new();
    for item in openapi.paths.paths.values_mut() {
        let operations = [
            ("get", &mut item.get),
            ("post", &mut item.post),
            ("put", &mut item.put),
            ("delete", &mut item.delete),
        ];
        for (method, operation) in operations {
            if let Some(operation) = operation {
                complete_operation(operation, method, about);
                describe_responses(operation);
                describe_bodies(operation);
                make_unique(operation, method, &mut names);
            }
        }
    }
}

fn complete_operation(operation: &mut Operation, method: &str, about: &Description) {
    // An operation with a security of its own is public, or open to AI keys.
    let managed = operation.security.is_none();
    let has_body = operation.request_body.is_some();
    let has_path = operation
        .parameters
        .iter()
        .flatten()
        .any(|one| matches!(one, RefOr::T(one) if one.parameter_in == ParameterIn::Path));
    let tags = operation.tags.clone().unwrap_or_default();
    let personal = tags
        .iter()
        .any(|tag| about.personal.contains(&tag.as_str()));

    let parameters = standard_parameters(operation, method, managed && !personal, managed);
    operation
        .parameters
        .get_or_insert_default()
        .extend(parameters.into_iter().map(RefOr::T));

    let standard = [
        (
            managed,
            "400",
            "Something in the request is not acceptable; the message names it",
        ),
        (
            has_body,
            "400",
            "The body is not acceptable; the message names the field",
        ),
        (true, "401", "Authentication is missing or invalid"),
        (
            managed,
            "403",
            "The team or the role does not allow it, or a quota is reached",
        ),
        (
            has_path && managed,
            "404",
            "It does not exist, or you may not see it",
        ),
        (has_body, "408", "The body did not arrive in time"),
        (
            managed && method == "post",
            "409",
            "It clashes with what is there",
        ),
        (
            managed && matches!(method, "put" | "delete"),
            "412",
            "It has changed since it was read",
        ),
        (has_body, "413", "The body is too large"),
        (has_body, "415", "The body is not JSON"),
        (
            managed && method == "post",
            "422",
            "The idempotency key was used for another request",
        ),
        (
            true,
            "429",
            "Too many requests; `Retry-After` says when to repeat",
        ),
        (
            true,
            "503",
            "Not available right now; `Retry-After` says when to repeat",
        ),
    ];
    for (applies, status, text) in standard {
        if applies && (managed || !matches!(status, "401" | "429" | "503") || !is_public(operation))
        {
            let own = operation.responses.responses.remove(status);
            let text = own
                .and_then(description)
                .filter(|own| !own.is_empty())
                .unwrap_or(text.into());
            operation
                .responses
                .responses
                .insert(status.into(), error(&text, about));
        }
    }
}

/// OpenAPI demands that no two operations have one id; a handler of two methods has both.
fn make_unique(operation: &mut Operation, method: &str, names: &mut HashSet<String>) {
    if let Some(name) = &mut operation.operation_id
        && !names.insert(name.clone())
    {
        *name = format!("{name}_{method}");
    }
}

/// OpenAPI demands a description of every response; what the handlers leave out is the status.
fn describe_responses(operation: &mut Operation) {
    for (status, response) in &mut operation.responses.responses {
        if let RefOr::T(response) = response
            && response.description.is_empty()
        {
            let status = status.parse().unwrap_or(StatusCode::OK);
            response.description = status.canonical_reason().unwrap_or("An answer").into();
        }
    }
}

/// Media types whose bodies are bytes and no text.
const BINARY: [&str; 3] = [
    "application/gzip",
    "application/octet-stream",
    "application/zip",
];

/// Corrects the types of bodies: bytes are no list of numbers, and an optional body is not `null`.
fn describe_bodies(operation: &mut Operation) {
    if let Some(RefOr::T(body)) = &mut operation.request_body {
        for (kind, content) in &mut body.content {
            describe_bytes(kind, content);
            if let RefOr::T(content) = content
                && let Some(RefOr::T(Schema::OneOf(one_of))) = &mut content.schema
            {
                one_of.items.retain(|schema| !is_null(schema));
                if let [only] = &one_of.items[..] {
                    content.schema = Some(only.clone());
                }
            }
        }
    }
    for response in operation.responses.responses.values_mut() {
        if let RefOr::T(response) = response {
            for (kind, content) in &mut response.content {
                describe_bytes(kind, content);
            }
        }
    }
}

fn describe_bytes(kind: &str, content: &mut RefOr<Content>) {
    if let (true, RefOr::T(content)) = (BINARY.contains(&kind), content) {
        let bytes = ObjectBuilder::new()
            .schema_type(Type::String)
            .format(Some(SchemaFormat::KnownFormat(KnownFormat::Binary)));
        content.schema = Some(bytes.into());
    }
}

fn is_null(schema: &RefOr<Schema>) -> bool {
    matches!(schema, RefOr::T(Schema::Object(object)) if object.schema_type == Type::Null.into())
}

/// The parameters that follow from a rule: which team, repeats, conditions.
fn standard_parameters(
    operation: &Operation,
    method: &str,
    owned: bool,
    managed: bool,
) -> Vec<Parameter> {
    let mut parameters = Vec::new();
    if owned {
        parameters.push(parameter(
            "teamID",
            ParameterIn::Query,
            "The team whose things are meant.",
        ));
        parameters.push(parameter(
            "x-teamid",
            ParameterIn::Header,
            "The same as `teamID`.",
        ));
    }
    if managed && method == "post" {
        let text = "Makes it safe to repeat the request: the stored answer is sent again for 24 h.";
        parameters.push(parameter("Idempotency-Key", ParameterIn::Header, text));
    }
    if operation.responses.responses.contains_key("304") {
        let text = "An `ETag` that was read before; 304 when it still holds.";
        parameters.push(parameter("If-None-Match", ParameterIn::Header, text));
    }
    if operation.responses.responses.contains_key("412") {
        let text = "The `ETag` that the change is made to; 412 when it no longer holds.";
        parameters.push(parameter("If-Match", ParameterIn::Header, text));
    }
    parameters
}

/// Whether the operation is declared to need no credential.
fn is_public(operation: &Operation) -> bool {
    let none = SecurityRequirement::default();
    operation
        .security
        .as_ref()
        .is_some_and(|list| list.iter().all(|one| *one == none))
}

fn description(response: RefOr<Response>) -> Option<String> {
    match response {
        RefOr::T(response) => Some(response.description),
        RefOr::Ref(_) => None,
    }
}

fn error(text: &str, about: &Description) -> RefOr<Response> {
    let response = ResponseBuilder::new().description(text);
    if about.errors_have_bodies {
        let schema = Ref::from_schema_name(ErrorBody::name());
        return response
            .content("application/json", Content::new(Some(schema)))
            .build()
            .into();
    }
    let header = |text: &str| HeaderBuilder::new().description(Some(text)).build();
    response
        .header("x-error-code", header("A stable code"))
        .header("x-error-message", header("What went wrong and what to do"))
        .build()
        .into()
}

fn parameter(name: &str, place: ParameterIn, text: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(place)
        .required(Required::False)
        .description(Some(text))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}
