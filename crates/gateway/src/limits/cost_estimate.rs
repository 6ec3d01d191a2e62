//! What a call is taken to need before it goes out: likely, for rates, and at most, for money.

use crate::request::request_fields::RequestFields;
use crate::upstream::catalogue::Model;
use estrade_model::amount::Amount;
use estrade_model::call::{Operation, Tokens};

/// How many tokens a completion, an image or a file is assumed to have without a limit.
const DEFAULT_TOKENS: u64 = 4096;

/// What a call may need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CostEstimate {
    /// The tokens of the prompt, as a guess.
    pub(crate) prompt: u64,
    /// The most tokens of all its completions.
    pub(crate) completion: u64,
    /// The most that it may cost; only what is free costs nothing.
    pub(crate) max_cost: Amount,
}

impl CostEstimate {
    /// Of a call with a body of so many bytes.
    pub(crate) fn new(
        operation: Operation,
        fields: &RequestFields,
        model: &Model,
        bytes: usize,
    ) -> Self {
        let bytes = bytes as u64;
        let completion = max_completion(operation, fields, model);
        let max_prompt = max_prompt(operation, fields, model, bytes);
        let prompt = bytes.div_ceil(4).min(max_prompt);
        // Attempts that came to nothing may have to be paid for as well, see `CallAccount::record_lost`.
        let failed_attempts = prompt.saturating_mul(model.attempts.saturating_sub(1));
        let max_cost = model.max_price.cost(Tokens {
            prompt: max_prompt.saturating_add(failed_attempts),
            completion,
        });
        let one = model.max_price.cost(Tokens {
            prompt: 1,
            completion: 1,
        });
        Self {
            prompt,
            completion,
            max_cost: max_cost.max(one),
        }
    }
}

/// The most tokens that a completion may have.
fn max_completion(operation: Operation, fields: &RequestFields, model: &Model) -> u64 {
    if operation == Operation::Embeddings {
        return 0;
    }
    let context = model.context_length.map(u64::from);
    let each = fields.max_tokens.or(context).unwrap_or(DEFAULT_TOKENS);
    each.saturating_mul(fields.n)
}

/// The most tokens that a prompt may have. No token is shorter than a byte; but a few bytes may name
/// an image of many tokens.
fn max_prompt(operation: Operation, fields: &RequestFields, model: &Model, bytes: u64) -> u64 {
    let context = model.context_bound.map(u64::from);
    let Some(context) = context else {
        return bytes.saturating_add(fields.media.saturating_mul(DEFAULT_TOKENS));
    };
    let largest = if fields.media > 0 {
        bytes.max(context)
    } else {
        bytes
    };
    match operation {
        // One context holds all of it.
        Operation::Chat => largest.min(context),
        // Every input has one of its own.
        Operation::Embeddings | Operation::Images => largest,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::request_fields::parse_request_fields;
    use crate::upstream::catalogue::Catalogue;
    use crate::upstream::catalogue::tests::{build, provider};
    use estrade_model::call::Price;
    use estrade_model::provider::Provider;
    use std::num::NonZeroU32;

    fn priced(prompt: i64, completion: i64, context: u32) -> Provider {
        let mut provider = provider("a", 0, 0);
        provider.models[0].price = Price {
            prompt: Amount::from_nanos(prompt),
            completion: Amount::from_nanos(completion),
        };
        provider.models[0].context_length = NonZeroU32::new(context);
        provider
    }

    fn bound(providers: &[Provider], operation: Operation, more: &str) -> (CostEstimate, u64) {
        let catalogue = build(providers, &Catalogue::default());
        let body = format!(r#"{{"model":"m"{more}}}"#);
        let fields = parse_request_fields(body.as_bytes(), false).unwrap();
        let model = catalogue.model("m").unwrap();
        let bound = CostEstimate::new(operation, &fields, model, body.len());
        (bound, body.len() as u64)
    }

    /// A million tokens cost as many nanos as a token costs millionths of them.
    fn prompt_of(providers: &[Provider], operation: Operation, more: &str) -> (u64, u64) {
        let (bound, bytes) = bound(providers, operation, more);
        (u64::try_from(bound.max_cost.nanos()).unwrap(), bytes)
    }

    #[test]
    fn a_byte_is_a_token_at_most_and_the_context_bounds_it() {
        let each = 1_000_000;
        let chat = Operation::Chat;
        let (max_cost, bytes) = prompt_of(&[priced(each, 0, 0)], chat, r#","messages":"你好""#);
        assert_eq!(max_cost, bytes);
        let small = [priced(each, 0, 20)];
        assert_eq!(prompt_of(&small, chat, r#","messages":"hello you""#).0, 20);
        let tokens = r#","input":[[1,2,3,4,5,6,7,8,9]]"#;
        let (max_cost, bytes) = prompt_of(&small, Operation::Embeddings, tokens);
        assert_eq!(max_cost, bytes, "every input has its own context");
        let (likely, _) = bound(&small, chat, r#","messages":"hello you""#);
        assert_eq!(likely.prompt, 9);
    }

    #[test]
    fn an_image_may_fill_the_context() {
        let image = r#","messages":[{"content":[{"image_url":{"url":"http://a/b"}}]}]"#;
        let at = |context| prompt_of(&[priced(1_000_000, 0, context)], Operation::Chat, image);
        assert_eq!(at(128_000).0, 128_000);
        let (max_cost, bytes) = at(0);
        assert_eq!(max_cost, bytes + DEFAULT_TOKENS);
    }

    #[test]
    fn a_context_that_one_target_does_not_tell_bounds_nothing() {
        let mut other = priced(1_000_000, 0, 0);
        other.name = "b".to_owned();
        let (max_cost, bytes) = prompt_of(
            &[priced(1_000_000, 0, 10), other],
            Operation::Chat,
            r#","messages":"hello""#,
        );
        assert_eq!(max_cost, bytes + bytes.div_ceil(4), "and two may be asked");
    }

    #[test]
    fn what_has_a_price_never_seems_free() {
        let max_cost = |providers: &[Provider], operation, more| {
            bound(providers, operation, more).0.max_cost.nanos()
        };
        let chat = Operation::Chat;
        let unlimited = [priced(0, 1_000_000, 300)];
        assert_eq!(max_cost(&unlimited, chat, r#","max_tokens":0"#), 300);
        assert_eq!(max_cost(&unlimited, Operation::Embeddings, ""), 1);
        assert_eq!(max_cost(&[priced(0, 5, 0)], Operation::Embeddings, ""), 1);
        let free = priced(0, 0, 0);
        assert_eq!(max_cost(&[free], chat, r#","max_tokens":9"#), 0);
        let beside = r#","max_tokens":1,"n_predict":-1"#;
        assert_eq!(max_cost(&unlimited, chat, beside), 300);
    }

    #[test]
    fn every_repetition_is_reserved_for() {
        let mut often = priced(1_000_000, 0, 0);
        often.retries = 2;
        let (max_cost, bytes) = prompt_of(&[often], Operation::Chat, r#","messages":"hello""#);
        assert_eq!(max_cost, bytes + 2 * bytes.div_ceil(4));
    }
}
