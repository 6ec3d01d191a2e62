//! What the relay has to know of a request's body, and the few places where it changes it.

use crate::request::field_policy::{
    CLIENT_TOOLS, FieldSet, GuardedFields, SERVER_FUNCTIONS, SERVER_TOOL_MEMBERS, STANDARD,
    TOOL_DEFINITION, TOOL_FIELDS, ToolNamedBy,
};
use crate::request::json::{JsonError, JsonString, Scanner, ValueKind};
use bytes::Bytes;
use std::ops::Range;

/// What a body says, with the places where it says it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct RequestFields {
    pub(crate) model: String,
    /// Where the name stands, with its quotes.
    model_span: Range<usize>,
    /// Whether the response shall be a stream.
    pub(crate) stream: bool,
    /// Whether the caller wants to see the usage of a stream.
    pub(crate) include_usage: bool,
    usage_edit: Option<(Range<usize>, &'static [u8])>,
    /// The most tokens per completion, if there is such a limit.
    pub(crate) max_tokens: Option<u64>,
    /// How many images, sounds and files it may have.
    pub(crate) media: u64,
    /// How many completions are generated.
    pub(crate) n: u64,
    /// Fields that not every provider may be sent. In a box: most requests have none.
    pub(crate) guarded: Option<Box<GuardedFields>>,
    /// Whether the same request gives the same response.
    pub(crate) deterministic: bool,
}

/// Why a body is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// It is not UTF-8.
    NotText,
    /// It is not JSON.
    Json(JsonError),
    /// It names no model.
    NoModel,
    /// A field says something that it must not, or says it twice.
    Field(&'static str, &'static str),
}

impl From<JsonError> for RequestError {
    fn from(malformed: JsonError) -> Self {
        Self::Json(malformed)
    }
}

const FIELDS: [&str; 10] = [
    "model",
    "stream",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "n",
    "temperature",
    "seed",
    "n_predict",
    "best_of",
];
/// Fields that only describe: a tool may well have a parameter that is called `file`.
const DESCRIPTIONS: [&str; 3] = ["tools", "functions", "response_format"];

/// What counts as the kind of a tool that is a number, a truth value or a list.
const NOT_AN_OBJECT: &str = "not_an_object";
/// More than any limit.
const UNLIMITED: u64 = u64::MAX;
const OTHER_CASE: &str = "must be written exactly so: some servers do not mind the case";

/// Looks at a body; `strict`: also for fields that are not standard.
pub(crate) fn parse_request_fields(
    body: &[u8],
    strict: bool,
) -> Result<RequestFields, RequestError> {
    let text = std::str::from_utf8(body).map_err(|_| RequestError::NotText)?;
    let mut fields = RequestFields {
        n: 1,
        ..RequestFields::default()
    };
    let mut scanner = Scanner::new(text);
    let start = memchr::memchr(b'{', body).unwrap_or(0) + 1;
    let mut seen = 0_u16;
    scanner.object(|scanner, name| {
        let known = FIELDS
            .iter()
            .enumerate()
            .find(|(_, field)| scanner.equals(name, field));
        let Some((number, field)) = known else {
            // A server that does not mind the case would believe this one.
            if let Some(field) = scanner.find_ignoring_case(name, &FIELDS) {
                return Err(RequestError::Field(field, OTHER_CASE));
            }
            let media = scanner.media;
            fields.other_field(scanner, name, strict)?;
            if let Some(field) = scanner.find_ignoring_case(name, &TOOL_FIELDS) {
                fields.tools(scanner, field)?;
            } else {
                scanner.skip()?;
            }
            if DESCRIPTIONS.iter().any(|field| scanner.equals(name, field)) {
                scanner.media = media;
            }
            return Ok(());
        };
        // Two readers may believe two different ones, so neither is believed.
        if seen & 1 << number != 0 {
            return Err(RequestError::Field(field, "is given twice"));
        }
        seen |= 1 << number;
        fields.field(field, scanner)
    })?;
    scanner.end()?;
    fields.media = scanner.media;
    fields.max_tokens = fields.max_tokens.filter(|most| *most != UNLIMITED);
    if fields.model.is_empty() {
        return Err(RequestError::NoModel);
    }
    if seen & 1 << 2 == 0 {
        fields.usage_edit = Some((start..start, br#""stream_options":{"include_usage":true},"#));
    }
    Ok(fields)
}

impl RequestFields {
    /// Takes note of a field that is passed on, if a provider may not be sent it.
    fn other_field(
        &mut self,
        scanner: &mut Scanner<'_>,
        name: &JsonString,
        strict: bool,
    ) -> Result<(), RequestError> {
        if let Some(restricted) = FieldSet::find(scanner, name) {
            // Nothing is what it is without the field.
            if scanner.kind()? != ValueKind::Null {
                let guarded = self.guarded.get_or_insert_default();
                guarded.restricted.add(restricted);
            }
        } else if strict && !STANDARD.iter().any(|field| scanner.equals(name, field)) {
            let guarded = self.guarded.get_or_insert_default();
            guarded.add_extra(&scanner.value(name));
        }
        Ok(())
    }

    /// Takes note of the tools that the provider runs.
    fn tools(
        &mut self,
        scanner: &mut Scanner<'_>,
        field: &'static str,
    ) -> Result<(), RequestError> {
        if scanner.kind()? == ValueKind::Array {
            scanner.array(|scanner, index| self.tool(scanner, field, index))
        } else {
            // Some servers take one tool for a list of one.
            self.tool(scanner, field, 0)
        }
    }

    /// Allow list: a tool that the client runs has no type or one of [`CLIENT_TOOLS`], and no member with a value besides
    /// [`TOOL_DEFINITION`]. Everything else may be a tool that the provider runs: some servers go by the `type`, others
    /// by whichever member they know.
    fn tool(
        &mut self,
        scanner: &mut Scanner<'_>,
        field: &'static str,
        index: usize,
    ) -> Result<(), RequestError> {
        let mut add = |kind: &str, named_by| {
            let guarded = self.guarded.get_or_insert_default();
            guarded.add_tool(field, index, kind, named_by);
        };
        let by_type = ToolNamedBy::Value("type");
        match scanner.kind()? {
            ValueKind::Object => {}
            ValueKind::Null => {
                scanner.skip()?;
                return Ok(());
            }
            ValueKind::String => {
                let kind = scanner.string()?;
                add(&scanner.value(&kind), by_type);
                return Ok(());
            }
            _ => {
                scanner.skip()?;
                add(NOT_AN_OBJECT, by_type);
                return Ok(());
            }
        }
        let (mut types, mut server_types) = (0_u32, 0_u32);
        let mut unknown = GuardedFields::default();
        scanner.object(|scanner, name| {
            if scanner.find_ignoring_case(name, &["type"]).is_some() {
                types += 1;
                match scanner.kind()? {
                    // Of two types a server may believe either.
                    ValueKind::String => {
                        let kind = scanner.string()?;
                        if !CLIENT_TOOLS.iter().any(|tool| scanner.equals(&kind, tool)) {
                            server_types += 1;
                            add(&scanner.value(&kind), by_type);
                        }
                        return Ok::<_, RequestError>(());
                    }
                    ValueKind::Null => {}
                    _ => add("type", by_type),
                }
            } else if scanner
                .find_ignoring_case(name, &SERVER_TOOL_MEMBERS)
                .is_some()
            {
                // Also without a value: some servers go by its presence.
                add(&scanner.value(name), ToolNamedBy::Member);
            } else if scanner.kind()? != ValueKind::Null
                && !TOOL_DEFINITION
                    .iter()
                    .any(|word| scanner.equals(name, word))
            {
                unknown.add_tool(field, index, &scanner.value(name), ToolNamedBy::Member);
            }
            server_functions(scanner, name, |function, member| {
                add(function, ToolNamedBy::Value(member));
            })
        })?;
        // The members of a tool that only has the type of one that the provider runs are its options. Of two types a
        // server may believe the other, or none.
        if (types, server_types) != (1, 1) {
            for tool in &unknown.tools {
                add(&tool.kind, tool.named_by);
            }
        }
        Ok(())
    }

    fn field(
        &mut self,
        field: &'static str,
        scanner: &mut Scanner<'_>,
    ) -> Result<(), RequestError> {
        let kind = scanner.kind()?;
        match (field, kind) {
            ("model", ValueKind::String) => {
                let text = scanner.string()?;
                self.model = scanner.value(&text).into_owned();
                self.model_span = text.span.start - 1..text.span.end + 1;
            }
            ("model", _) => return Err(RequestError::Field("model", "must be a string")),
            ("stream", ValueKind::Bool(stream)) => {
                self.stream = stream;
                scanner.skip()?;
            }
            ("stream_options", ValueKind::Object) => self.stream_options(scanner)?,
            ("stream_options", ValueKind::Null) => {
                let whole = scanner.skip()?;
                self.usage_edit = Some((whole, br#"{"include_usage":true}"#));
            }
            ("max_tokens" | "max_completion_tokens", ValueKind::Number) => {
                let most = count(field, scanner.number()?)?;
                self.limit(most);
            }
            // llama.cpp believes this one rather than the others; below zero is without a limit.
            ("n_predict", ValueKind::Number) => {
                let most = count(field, scanner.number()?.max(0.0))?;
                self.limit(most);
            }
            // So many are generated, and the best `n` of them sent.
            ("n" | "best_of", ValueKind::Number) => {
                self.n = self.n.max(count(field, scanner.number()?)?);
            }
            ("temperature", ValueKind::Number) => {
                let temperature = scanner.number()?;
                self.deterministic |= temperature == 0.0;
            }
            ("seed", ValueKind::Number) => {
                self.deterministic = true;
                scanner.skip()?;
            }
            (_, ValueKind::Null) => {
                scanner.skip()?;
            }
            ("stream", _) => return Err(RequestError::Field(field, "must be true or false")),
            ("stream_options", _) => return Err(RequestError::Field(field, "must be an object")),
            _ => return Err(RequestError::Field(field, "must be a number")),
        }
        Ok(())
    }

    /// Records a limit of tokens. The largest one counts, since it is unknown which one a provider applies; some treat 0
    /// as unlimited.
    fn limit(&mut self, most: u64) {
        let most = if most == 0 { UNLIMITED } else { most };
        self.max_tokens = self.max_tokens.max(Some(most));
    }

    fn stream_options(&mut self, scanner: &mut Scanner<'_>) -> Result<(), RequestError> {
        let start = scanner.at() + 1;
        let (mut found, mut empty) = (None, true);
        scanner.object(|scanner, name| {
            empty = false;
            if !scanner.equals(name, "include_usage") {
                if scanner
                    .find_ignoring_case(name, &["include_usage"])
                    .is_some()
                {
                    return Err(RequestError::Field("include_usage", OTHER_CASE));
                }
                scanner.skip()?;
                return Ok(());
            }
            if found.is_some() {
                return Err(RequestError::Field(
                    "stream_options",
                    "says include_usage twice",
                ));
            }
            self.include_usage = scanner.kind()? == ValueKind::Bool(true);
            found = Some(scanner.skip()?);
            Ok(())
        })?;
        self.usage_edit = match found {
            _ if self.include_usage => None,
            Some(value) => Some((value, b"true")),
            None if empty => Some((start..start, br#""include_usage":true"#)),
            None => Some((start..start, br#""include_usage":true,"#)),
        };
        Ok(())
    }

    /// The body as a provider gets it: its own name of the model (as JSON), and asked for the usage
    /// of a stream. Everything else stays as it is, byte for byte.
    pub(crate) fn rewrite(&self, body: &Bytes, model: Option<&[u8]>, ask_usage: bool) -> Bytes {
        let mut edits = [None, None];
        if let Some(name) = model {
            edits[0] = Some((self.model_span.clone(), name));
        }
        if let (true, Some((span, text))) = (ask_usage, &self.usage_edit) {
            edits[1] = Some((span.clone(), *text));
        }
        if edits == [None, None] {
            return body.clone();
        }
        edits.sort_by_key(|edit| edit.as_ref().map(|(span, _)| span.start));
        let mut new = Vec::with_capacity(body.len() + 160);
        let mut at = 0;
        for (span, text) in edits.into_iter().flatten() {
            new.extend_from_slice(&body[at..span.start]);
            new.extend_from_slice(text);
            at = span.end;
        }
        new.extend_from_slice(&body[at..]);
        Bytes::from(new)
    }

    /// The parts of a body before and after the model's name.
    pub(crate) fn around_model<'b>(&self, body: &'b [u8]) -> (&'b [u8], &'b [u8]) {
        (&body[..self.model_span.start], &body[self.model_span.end..])
    }
}

/// Reads a member of a tool. `found` gets each function in it that some servers run, and where its name stands: of two
/// names a server may believe either.
fn server_functions(
    scanner: &mut Scanner<'_>,
    member: &JsonString,
    mut found: impl FnMut(&'static str, &'static str),
) -> Result<(), RequestError> {
    let member = scanner.find_ignoring_case(member, &["name", "function", "custom"]);
    let place = match (member, scanner.kind()?) {
        (Some("name"), ValueKind::String) => {
            if let Some(function) = server_function_name(scanner)? {
                found(function, "name");
            }
            return Ok(());
        }
        (Some("function"), ValueKind::Object) => "function.name",
        (Some("custom"), ValueKind::Object) => "custom.name",
        _ => {
            scanner.skip()?;
            return Ok(());
        }
    };
    scanner.object(|scanner, name| {
        let is_name = scanner.find_ignoring_case(name, &["name"]).is_some();
        if !is_name || scanner.kind()? != ValueKind::String {
            scanner.skip()?;
        } else if let Some(function) = server_function_name(scanner)? {
            found(function, place);
        }
        Ok(())
    })
}

fn server_function_name(scanner: &mut Scanner<'_>) -> Result<Option<&'static str>, RequestError> {
    let name = scanner.string()?;
    let is_said = |function: &&&str| scanner.equals(&name, function);
    Ok(SERVER_FUNCTIONS.iter().find(is_said).copied())
}

fn count(field: &'static str, number: f64) -> Result<u64, RequestError> {
    // A provider may round it up.
    if number.fract() != 0.0 {
        return Err(RequestError::Field(field, "must be an integer"));
    }
    if !(0.0..1e12).contains(&number) {
        return Err(RequestError::Field(
            field,
            "must not be negative or so large",
        ));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "its range was checked"
    )]
    let count = number as u64;
    Ok(count)
}

#[cfg(test)]
mod tests;
