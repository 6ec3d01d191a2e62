//! Request fields that some provider understands as another model, another route or another price.
//!
//! The gateway chooses the provider, reserves what a call may cost, and lets a key use only its models. A field
//! that changes one of these behind its back is refused unless the provider's `pass_fields` names it.
//! `docs/INFERENCE.md` has the same list; a test compares them.

use crate::json::{Scanner, Text};
use crate::look::Look;
use estrade_model::provider::FieldRules;
use std::borrow::Cow;

/// Fields that are refused unless a provider's `pass_fields` names them.
pub(crate) const RESTRICTED: [&str; 50] = [
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
];

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
pub(crate) struct FieldSet(u64);

const _: () = assert!(RESTRICTED.len() <= 64, "a bit for each");

impl FieldSet {
    fn of(fields: &[String]) -> Self {
        let bit = |(number, field): (usize, &&str)| {
            let is_there = fields.iter().any(|other| other.eq_ignore_ascii_case(field));
            u64::from(is_there) << number
        };
        Self(RESTRICTED.iter().enumerate().map(bit).sum())
    }

    /// The field of the list that a name is, however it is written: some servers do not mind the case.
    pub(crate) fn find(scanner: &Scanner<'_>, name: &Text) -> Option<Self> {
        let found = scanner.resembles(name, &RESTRICTED)?;
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
    pub(crate) fn refused<'l>(&self, look: &'l Look) -> Option<Cow<'l, str>> {
        let guarded = look.guarded.as_deref()?;
        if let Some(field) = guarded.restricted.first_not_in(self.passed) {
            return Some(Cow::Borrowed(field));
        }
        let is_new = |field: &&String| !self.pass.contains(field);
        let extra = guarded.extra.iter().find(is_new).filter(|_| self.strict);
        extra.map(|field| Cow::Borrowed(&**field))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::look;

    fn rules(pass: &[&str], strict: bool) -> FieldPolicy {
        FieldPolicy::new(&FieldRules {
            pass: pass.iter().map(|field| (*field).to_owned()).collect(),
            strict,
        })
    }

    fn refused(policy: &FieldPolicy, more: &str) -> Option<String> {
        let body = format!(r#"{{"model":"a","messages":[]{more}}}"#);
        let look = look(body.as_bytes(), policy.strict).unwrap();
        policy.refused(&look).map(Cow::into_owned)
    }

    #[test]
    fn every_field_of_the_list_is_refused_by_name_unless_it_is_let_through() {
        let usual = rules(&[], false);
        for field in RESTRICTED {
            let said = format!(r#","{field}":["x"]"#);
            assert_eq!(refused(&usual, &said).as_deref(), Some(field));
            let other = said.to_uppercase();
            assert_eq!(refused(&usual, &other).as_deref(), Some(field), "{other}");
            let escaped = said.replacen('e', r"\u0065", 1);
            assert_eq!(refused(&usual, &escaped).as_deref(), Some(field));
            assert_eq!(refused(&rules(&[field], false), &said), None);
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
    fn a_strict_provider_gets_what_is_standard_and_what_is_let_through() {
        let strict = rules(&["top_k"], true);
        for field in STANDARD {
            let said = format!(r#","{field}":"x""#).replace(r#","messages":"x""#, "");
            assert_eq!(refused(&strict, &said), None, "{field}");
        }
        assert_eq!(refused(&strict, r#","top_k":4,"seed":1,"n":2"#), None);
        assert_eq!(refused(&strict, r#","my_own":1"#).unwrap(), "my_own");
        assert_eq!(refused(&strict, r#","models":[]"#).unwrap(), "models");
    }

    #[test]
    fn the_documentation_has_the_same_lists() {
        let text = include_str!("../../../docs/INFERENCE.md");
        let section = text.split("## Fields").nth(1).unwrap();
        let section = section.split("\n## ").next().unwrap();
        let (refused, strict) = section.split_once("strict_fields = true").unwrap();
        for field in RESTRICTED {
            assert!(refused.contains(&format!("`{field}`")), "{field}");
        }
        for field in STANDARD {
            assert!(strict.contains(&format!("`{field}`")), "{field}");
        }
    }
}
