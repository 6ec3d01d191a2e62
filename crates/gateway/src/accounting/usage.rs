//! Arithmetic of usage: tokens, amounts and spans of a call.

use estrade_model::amount::Amount;
use estrade_model::call::{Operation, Tokens};
use std::time::Duration;

/// Tokens of a call: as reported, else estimated from its content at four bytes each.
pub(crate) fn tokens(
    operation: Operation,
    reported: Option<Tokens>,
    prompt: u64,
    content_bytes: u64,
) -> (Tokens, bool) {
    if let Some(tokens) = reported {
        return (tokens, false);
    }
    let completion = match operation {
        Operation::Chat => content_bytes.div_ceil(4),
        Operation::Embeddings | Operation::Images => 0,
    };
    (Tokens { prompt, completion }, true)
}

pub(crate) fn micros(span: Duration) -> u64 {
    u64::try_from(span.as_micros()).unwrap_or(u64::MAX)
}

pub(crate) fn sum(one: Amount, other: Amount) -> Amount {
    Amount::from_nanos(one.nanos().saturating_add(other.nanos()))
}
