//! Request fields that some provider understands as another model, another route or another price.
//!
//! The gateway chooses the provider, reserves what a call may cost, and lets a key use only its models. A field
//! that changes one of these behind its back is refused unless the provider's `pass_fields` names it.
//! `docs/INFERENCE.md` has the same list; a test compares them.

use crate::request::json::{JsonString, Scanner};
use estrade_model::provider::FieldRules;

/// Fields that are refused unless a provider's `pass_fields` names them.
pub(crate) const RESTRICTED: [&str; 72] = [
    // Another model.
    "models",
    "fallbacks",
    "fallback",
    "fallback_models",
    "context_window_fallbacks",
    "content_policy_fallbacks",
    "model_list",
    "model_id",
    "engine",
    "deployment",
    "deployment_id",
    "adapter_id",
    "lora",
    "lora_path",
    "preset",
    "draft_model",
    "safety_model",
    "compound_custom",
    "user_config",
    "prompt_id",
    // Another route.
    "route",
    "router",
    "routing",
    "provider",
    "providers",
    "custom_llm_provider",
    "api_base",
    "base_url",
    "api_key",
    "api_version",
    "extra_body",
    "extra_headers",
    "num_retries",
    "mock_testing_fallbacks",
    "provider_options",
    "providerOptions",
    "region_name",
    "aws_region_name",
    "vertex_location",
    "inference_geo",
    // Another price per token, or something that is paid for besides tokens.
    "service_tier",
    "transforms",
    "plugins",
    "web_search_options",
    "web_search",
    "enable_search",
    "search_options",
    "search_parameters",
    "search_settings",
    "prediction",
    "deferred",
    "speed",
    "connectors",
    "mcp_servers",
    "data_sources",
    "enable_code_interpreter",
    "input_cost_per_token",
    "output_cost_per_token",
    // More tokens than `max_tokens` and `n` say.
    "max_new_tokens",
    "max_output_tokens",
    "max_tokens_to_sample",
    "max_gen_len",
    "max_length",
    "num_predict",
    "num_return_sequences",
    "num_beams",
    "use_beam_search",
    "num_images",
    "num_outputs",
    "thinking_budget",
    "thinking_budget_tokens",
    "reasoning_budget",
];

/// Kinds of tools that the client runs itself: they cost nothing but their tokens.
pub(crate) const CLIENT_TOOLS: [&str; 2] = ["function", "custom"];

/// Fields that list tools. `functions` is what `tools` was before, and some servers read both alike.
pub(crate) const TOOL_FIELDS: [&str; 2] = ["tools", "functions"];

/// What describes a tool that the client runs. Some servers take a tool for the one that another member names, whatever
/// its `type` (`{"type":"function","google_search":{}}`).
pub(crate) const TOOL_DEFINITION: [&str; 13] = [
    "function",
    "custom",
    "name",
    "description",
    "parameters",
    "input_schema",
    "strict",
    "cache_control",
    "title",
    "format",
    "required",
    "returns",
    "annotations",
];

/// Members by which some server knows a tool that it runs. They count beside any `type`, which that server may not read.
pub(crate) const SERVER_TOOL_MEMBERS: [&str; 18] = [
    "google_search",
    "googleSearch",
    "google_search_retrieval",
    "googleSearchRetrieval",
    "enterprise_web_search",
    "google_maps",
    "googleMaps",
    "url_context",
    "urlContext",
    "code_execution",
    "codeExecution",
    "code_interpreter",
    "computer_use",
    "computerUse",
    "file_search",
    "retrieval",
    "web_search",
    "mcp",
];

/// Names of functions that some servers take for tools that they run. Only these spellings: `google_search` or
/// `web_search` is what many clients call a function of their own.
pub(crate) const SERVER_FUNCTIONS: [&str; 3] = ["googleSearch", "codeExecution", "urlContext"];

/// Fields of `OpenAI`'s API that pass to a provider with `strict_fields`, besides those that are looked at.
pub(crate) const STANDARD: [&str; 35] = [
    "messages",
    "input",
    "prompt",
    "user",
    "stop",
    "top_p",
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "functions",
    "function_call",
    "response_format",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "verbosity",
    "modalities",
    "audio",
    "metadata",
    "store",
    "safety_identifier",
    "prompt_cache_key",
    "encoding_format",
    "dimensions",
    "size",
    "quality",
    "style",
    "background",
    "moderation",
    "output_format",
    "output_compression",
    "partial_images",
];

/// A set of restricted fields, a bit for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct FieldSet(u128);

const _: () = assert!(RESTRICTED.len() <= 128, "a bit for each");

impl FieldSet {
    fn of(fields: &[String]) -> Self {
        let bit = |(number, field): (usize, &&str)| {
            let is_there = fields.iter().any(|other| other.eq_ignore_ascii_case(field));
            u128::from(is_there) << number
        };
        Self(RESTRICTED.iter().enumerate().map(bit).sum())
    }

    /// The field of the list that a name is, however it is written: some servers do not mind the case.
    pub(crate) fn find(scanner: &Scanner<'_>, name: &JsonString) -> Option<Self> {
        let found = scanner.find_ignoring_case(name, &RESTRICTED)?;
        let number = RESTRICTED.iter().position(|field| *field == found)?;
        Some(Self(1 << number))
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// The first one that is not in the other set.
    fn first_not_in(self, other: Self) -> Option<&'static str> {
        let missing = self.0 & !other.0;
        RESTRICTED.get(missing.trailing_zeros() as usize).copied()
    }
}

/// So many characters of a name that is refused are shown.
const MAX_SHOWN: usize = 100;
/// So many names that are not standard are recorded: more than `pass_fields` can list, so that one of them
/// is refused whatever the others are.
const MAX_EXTRA: usize = 128;
/// Fields that not every provider may be sent.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct GuardedFields {
    /// Fields that can change the model, the routing or the price.
    pub(crate) restricted: FieldSet,
    /// Fields that are not standard; looked for only where a provider is strict.
    pub(crate) extra: Vec<String>,
    /// Tools that the provider runs, and may charge for.
    pub(crate) tools: Vec<ServerTool>,
}

/// A tool that the provider runs, and may charge for.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ServerTool {
    /// The field that lists it: one of [`TOOL_FIELDS`].
    pub(crate) field: &'static str,
    /// The first entry there that is of this kind.
    pub(crate) index: usize,
    /// Its `type`, a member that is not of a function's definition, or one of [`SERVER_FUNCTIONS`].
    pub(crate) kind: String,
    pub(crate) named_by: ToolNamedBy,
}

/// What says of which kind a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ToolNamedBy {
    /// The value of a member.
    Value(&'static str),
    /// A member of that name.
    Member,
}

impl GuardedFields {
    /// Adds a field that is not standard.
    pub(crate) fn add_extra(&mut self, name: &str) {
        let name: String = name.chars().take(MAX_SHOWN).collect();
        if self.extra.len() < MAX_EXTRA && !self.extra.contains(&name) {
            self.extra.push(name);
        }
    }

    pub(crate) fn add_tool(
        &mut self,
        field: &'static str,
        index: usize,
        kind: &str,
        named_by: ToolNamedBy,
    ) {
        let kind: String = kind.chars().take(MAX_SHOWN).collect();
        if self.tools.len() < MAX_EXTRA && self.tools.iter().all(|tool| tool.kind != kind) {
            self.tools.push(ServerTool {
                field,
                index,
                kind,
                named_by,
            });
        }
    }
}

/// A field of a request that a provider must not be sent.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct RefusedField {
    /// Where it is in the request.
    pub(crate) param: String,
    /// What `pass_fields` has to name for it to pass.
    pub(crate) pass_field: String,
}

impl RefusedField {
    fn named(field: &str) -> Self {
        Self {
            param: field.to_owned(),
            pass_field: field.to_owned(),
        }
    }
}

/// What a provider may be sent.
pub(crate) struct FieldPolicy {
    pass: Vec<String>,
    passed: FieldSet,
    pub(crate) strict: bool,
}

impl FieldPolicy {
    pub(crate) fn new(rules: &FieldRules) -> Self {
        Self {
            pass: rules.pass.clone(),
            passed: FieldSet::of(&rules.pass),
            strict: rules.strict,
        }
    }

    /// A field of a request that must not be sent there.
    pub(crate) fn refused(&self, guarded: Option<&GuardedFields>) -> Option<RefusedField> {
        let guarded = guarded?;
        if let Some(field) = guarded.restricted.first_not_in(self.passed) {
            return Some(RefusedField::named(field));
        }
        if let Some(tool) = guarded.tools.iter().find(|tool| !self.passes_tool(tool)) {
            let member = match tool.named_by {
                ToolNamedBy::Value(member) => member,
                ToolNamedBy::Member => &tool.kind,
            };
            return Some(RefusedField {
                param: format!("{}[{}].{member}", tool.field, tool.index),
                pass_field: format!("tools.{}", tool.kind),
            });
        }
        let is_new = |field: &&String| !self.pass.contains(field);
        let extra = guarded.extra.iter().find(is_new).filter(|_| self.strict);
        extra.map(|field| RefusedField::named(field))
    }

    fn passes_tool(&self, tool: &ServerTool) -> bool {
        let passed = |field: &String| field.strip_prefix("tools.") == Some(&*tool.kind);
        self.pass.iter().any(passed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::json::MAX_WORD;
    use crate::request::request_fields::parse_request_fields;
    use estrade_model::provider::MAX_PASS_FIELDS;

    fn rules(pass: &[&str], strict: bool) -> FieldPolicy {
        FieldPolicy::new(&FieldRules {
            pass: pass.iter().map(|field| (*field).to_owned()).collect(),
            strict,
        })
    }

    fn refused(policy: &FieldPolicy, more: &str) -> Option<String> {
        let body = format!(r#"{{"model":"a","messages":[]{more}}}"#);
        let fields = parse_request_fields(body.as_bytes(), policy.strict).unwrap();
        policy
            .refused(fields.guarded.as_deref())
            .map(|field| field.param)
    }

    #[test]
    fn every_field_of_the_list_is_refused_by_name_unless_it_is_let_through() {
        let usual = rules(&[], false);
        for field in RESTRICTED {
            assert!(field.len() <= MAX_WORD, "{field}");
            let fields = format!(r#","{field}":["x"]"#);
            assert_eq!(refused(&usual, &fields).as_deref(), Some(field));
            let other = fields.to_uppercase();
            assert_eq!(refused(&usual, &other).as_deref(), Some(field), "{other}");
            let escaped = fields.replacen('e', r"\u0065", 1);
            assert_eq!(refused(&usual, &escaped).as_deref(), Some(field));
            assert_eq!(refused(&rules(&[field], false), &fields), None);
            let nothing = format!(r#","{field}":null"#);
            assert_eq!(refused(&usual, &nothing), None, "{field}");
            let nested = format!(r#","metadata":{{"{field}":1}}"#);
            assert_eq!(refused(&usual, &nested), None, "only at the top");
        }
        let (one, two) = (r#","route":"a""#, r#","models":["b"]"#);
        let some = rules(&["route"], false);
        assert_eq!(refused(&some, one), None);
        assert_eq!(refused(&some, &format!("{one}{two}")).unwrap(), "models");
        assert_eq!(refused(&usual, r#","my_own":1,"top_k":4"#), None);
    }

    #[test]
    fn tools_that_the_provider_runs_are_refused_unless_they_are_let_through() {
        let usual = rules(&[], false);
        let function =
            r#"{"type":"function","function":{"name":"a","parameters":{"type":"object"}}}"#;
        for (tool, kind) in [
            (r#"{"type":"web_search"}"#, "web_search"),
            (
                r#"{"type":"code_interpreter","container":{"type":"auto"}}"#,
                "code_interpreter",
            ),
            (
                r#"{"type":"web_search_20250305","name":"web_search"}"#,
                "web_search_20250305",
            ),
            (r#"{"type":"function","type":"file_search"}"#, "file_search"),
            (r#"{"Type":"computer_use"}"#, "computer_use"),
            (r#"{"t\u0079pe":"web\u005fsearch"}"#, "web_search"),
            (r#"{"type":"Function"}"#, "Function"),
            (r#"{"type":["web_search"]}"#, "type"),
            (r#""web_search""#, "web_search"),
            (r#"[{"type":"web_search"}]"#, "not_an_object"),
        ] {
            for field in ["tools", "Tools"] {
                let fields = format!(r#","{field}":[{function},{tool}]"#);
                assert_eq!(
                    refused(&usual, &fields).unwrap(),
                    "tools[1].type",
                    "{fields}"
                );
                let passed = format!("tools.{kind}");
                assert_eq!(
                    refused(&rules(&[&passed], false), &fields),
                    None,
                    "{fields}"
                );
                let other = rules(&["tools.other", "tools"], false);
                assert_eq!(
                    refused(&other, &fields).unwrap(),
                    "tools[1].type",
                    "{fields}"
                );
            }
        }
        for (tool, kind) in [
            (r#"{"google_search":{}}"#, "google_search"),
            (r#"{"name":"a","googleSearch":{}}"#, "googleSearch"),
            (r#"{"type":"function","googleSearch":{}}"#, "googleSearch"),
            // Some servers go by its mere presence.
            (r#"{"type":"function","googleSearch":null}"#, "googleSearch"),
            (
                r#"{"type":"custom","custom":{"name":"b"},"code_execution":{}}"#,
                "code_execution",
            ),
            (r#"{"type":"function","Function":{"name":"a"}}"#, "Function"),
            (r#"{"type":"function","my_own":false}"#, "my_own"),
        ] {
            let fields = format!(r#","tools":[{function},{tool}]"#);
            let named = format!("tools[1].{kind}");
            assert_eq!(refused(&usual, &fields), Some(named), "{fields}");
            let passed = format!("tools.{kind}");
            assert_eq!(
                refused(&rules(&[&passed], false), &fields),
                None,
                "{fields}"
            );
        }
        for fine in [
            "[]",
            "null",
            &format!("[{function}]"),
            r#"[{"type":"custom","custom":{"name":"b"}}]"#,
            r#"[{"function":{"name":"a"}},{"name":"a","input_schema":{"type":"object"}}]"#,
            r#"[{"type":null,"function":{}},{},null]"#,
            r#"[{"type":"function","function":{"name":"a"},"my_own":null,"title":"A"}]"#,
            r#"[{"type":"custom","name":"a","format":{"type":"text"},"annotations":{}}]"#,
            r#"[{"name":"a","parameters":{},"required":["b"],"returns":{}}]"#,
        ] {
            let fields = format!(r#","tools":{fine}"#);
            assert_eq!(refused(&usual, &fields), None, "{fields}");
        }
        let elsewhere = r#","metadata":{"tools":[{"type":"web_search"}]}"#;
        assert_eq!(refused(&usual, elsewhere), None);
    }

    #[test]
    fn tools_are_looked_at_wherever_and_however_they_are_listed() {
        let usual = rules(&[], false);
        for (fields, param) in [
            (
                r#","functions":[{"name":"a"},{"googleSearch":{}}]"#,
                "functions[1].googleSearch",
            ),
            (
                r#","functions":[{"name":"a"},{"type":"web_search"}]"#,
                "functions[1].type",
            ),
            (
                r#","Functions":[{"name":"a"},{"name":"b","web_search":{}}]"#,
                "functions[1].web_search",
            ),
            (r#","tools":{"googleSearch":{}}"#, "tools[0].googleSearch"),
            (r#","tools":"web_search""#, "tools[0].type"),
        ] {
            assert_eq!(refused(&usual, fields).unwrap(), param, "{fields}");
        }
        let legacy =
            r#","functions":[{"name":"a","description":"b","parameters":{"type":"object"}}]"#;
        assert_eq!(refused(&usual, legacy), None);
    }

    #[test]
    fn functions_that_servers_run_are_known_by_their_names() {
        let usual = rules(&[], false);
        for (tool, member) in [
            (
                r#"{"type":"function","function":{"name":"NAME"}}"#,
                "function.name",
            ),
            (
                r#"{"function":{"strict":true,"Name":"NAME"}}"#,
                "function.name",
            ),
            (
                r#"{"type":"function","function":{"name":"a","name":"NAME"}}"#,
                "function.name",
            ),
            (
                r#"{"type":"custom","custom":{"n\u0061me":"NAME"}}"#,
                "custom.name",
            ),
            (r#"{"type":"function","name":"NAME"}"#, "name"),
        ] {
            for name in SERVER_FUNCTIONS {
                let fields = format!(r#","tools":[{}]"#, tool.replace("NAME", name));
                let named = format!("tools[0].{member}");
                assert_eq!(refused(&usual, &fields), Some(named), "{fields}");
                let passed = format!("tools.{name}");
                assert_eq!(
                    refused(&rules(&[&passed], false), &fields),
                    None,
                    "{fields}"
                );
            }
            for name in [
                "google_search",
                "web_search",
                "googlesearch",
                "googleSearch2",
            ] {
                let fields = format!(r#","tools":[{}]"#, tool.replace("NAME", name));
                assert_eq!(refused(&usual, &fields), None, "{fields}");
            }
        }
        let legacy = r#","functions":[{"name":"a"},{"name":"googleSe\u0061rch"}]"#;
        assert_eq!(refused(&usual, legacy).unwrap(), "functions[1].name");
        let parameter = r#"{"name":"a","parameters":{"name":"googleSearch","function":{"name":"googleSearch"}}}"#;
        let fields = format!(r#","tools":[{{"type":"function","function":{parameter}}}]"#);
        assert_eq!(refused(&usual, &fields), None, "only its own name");
        let some = rules(&["tools.web_search", "tools.googleSearch"], false);
        let two = r#","tools":[{"function":{"name":"googleSearch","name":"urlContext"}}]"#;
        assert_eq!(refused(&some, two).unwrap(), "tools[0].function.name");
        let option = r#","tools":[{"type":"web_search","Function":{"name":"urlContext"}}]"#;
        assert_eq!(refused(&some, option).unwrap(), "tools[0].function.name");
    }

    #[test]
    fn to_let_one_tool_through_is_not_to_let_another_through() {
        let some = rules(&["tools.web_search", "tools.google_search"], false);
        for (tool, is_fine) in [
            (r#"{"type":"web_search","max_uses":5}"#, true),
            (r#"{"google_search":{}}"#, true),
            (r#"{"type":"function","google_search":{}}"#, true),
            (r#"{"google_search":{},"code_execution":{}}"#, false),
            (
                r#"{"type":"function","google_search":{},"code_execution":{}}"#,
                false,
            ),
            (
                r#"{"type":"web_search","type":"function","code_execution":{}}"#,
                false,
            ),
            (
                r#"{"type":"web_search","web_search":{"enable":true}}"#,
                true,
            ),
            (r#"{"type":"web_search","code_execution":{}}"#, false),
            (r#"{"type":"web_search","Code_Execution":{}}"#, false),
            (r#"{"type":"web_search","code_execution":null}"#, false),
            (r#"{"type":"web_search","type":null,"other":{}}"#, false),
            (
                r#"{"type":"web_search","Type":"web_search","other":{}}"#,
                false,
            ),
        ] {
            let fields = format!(r#","tools":[{tool}]"#);
            assert_eq!(refused(&some, &fields).is_none(), is_fine, "{fields}");
        }
        // Also behind more options than are recorded.
        let options: Vec<_> = (0..2 * MAX_EXTRA)
            .map(|at| format!(r#""o{at}":1"#))
            .collect();
        let options = options.join(",");
        for (member, is_fine) in [("code_execution", false), ("other", true)] {
            let fields = format!(r#","tools":[{{"type":"web_search",{options},"{member}":{{}}}}]"#);
            assert_eq!(refused(&some, &fields).is_none(), is_fine, "{member}");
        }
    }

    /// A request with more names than anybody can let through is refused without keeping them all.
    #[test]
    fn a_flood_of_names_is_refused_and_not_kept() {
        let passed: Vec<String> = (0..MAX_PASS_FIELDS).map(|at| format!("f{at}")).collect();
        let passed: Vec<&str> = passed.iter().map(|field| &**field).collect();
        let strict = rules(&passed, true);
        let names: Vec<_> = (0..20_000).map(|at| format!(r#","f{at}":1"#)).collect();
        let body = format!(r#"{{"model":"a"{}}}"#, names.concat());
        let fields = parse_request_fields(body.as_bytes(), true).unwrap();
        let kept = fields.guarded.as_deref().unwrap().extra.len();
        assert!((MAX_PASS_FIELDS + 1..1000).contains(&kept), "{kept}");
        assert_eq!(
            strict.refused(fields.guarded.as_deref()).unwrap().param,
            "f100"
        );
        let tools = (0..20_000).map(|at| format!(r#"{{"type":"t{at}"}}"#));
        let body = format!(
            r#"{{"model":"a","tools":[{}]}}"#,
            tools.collect::<Vec<_>>().join(",")
        );
        let fields = parse_request_fields(body.as_bytes(), true).unwrap();
        let kept = fields.guarded.as_deref().unwrap().tools.len();
        assert!((MAX_PASS_FIELDS + 1..1000).contains(&kept), "{kept}");
    }

    #[test]
    fn a_strict_provider_gets_what_is_standard_and_what_is_let_through() {
        let strict = rules(&["top_k"], true);
        for field in STANDARD {
            let value = if TOOL_FIELDS.contains(&field) {
                "[]"
            } else {
                r#""x""#
            };
            let fields = format!(r#","{field}":{value}"#).replace(r#","messages":"x""#, "");
            assert_eq!(refused(&strict, &fields), None, "{field}");
        }
        assert_eq!(refused(&strict, r#","top_k":4,"seed":1,"n":2"#), None);
        assert_eq!(refused(&strict, r#","my_own":1"#).unwrap(), "my_own");
        assert_eq!(refused(&strict, r#","models":[]"#).unwrap(), "models");
    }

    #[test]
    fn the_documentation_has_the_same_lists() {
        let text = include_str!("../../../../docs/INFERENCE.md");
        let section = text.split("## Fields").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let (refused, strict) = section.split_once("strict_fields = true").unwrap();
        for field in RESTRICTED {
            assert!(refused.contains(&format!("`{field}`")), "{field}");
        }
        let words = SERVER_TOOL_MEMBERS.iter().chain(&TOOL_DEFINITION);
        for word in words.chain(&SERVER_FUNCTIONS) {
            assert!(word.len() <= MAX_WORD, "{word}");
            assert!(refused.contains(&format!("`{word}`")), "{word}");
        }
        for field in STANDARD {
            assert!(strict.contains(&format!("`{field}`")), "{field}");
        }
    }
}
