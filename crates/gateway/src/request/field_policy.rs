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
mod tests;
