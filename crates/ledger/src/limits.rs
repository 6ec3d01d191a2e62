//! Bounds of what is recorded of a call.

use estrade_model::amount::Amount;
use estrade_model::call::Call;

/// A call is recorded with at most this cost, a million units: then no sum of costs overflows an `i64`.
pub(crate) const MAX_COST_NANOS: i64 = 1_000_000 * 1_000_000_000;
const MAX_TOKENS: u64 = 1_000_000_000;
const MAX_MODEL_BYTES: usize = 200;

/// Clamps what an upstream claims to what the database can hold.
pub(crate) fn clamp(call: &mut Call) {
    call.cost = call.cost.min(Amount::from_nanos(MAX_COST_NANOS));
    call.tokens.prompt = call.tokens.prompt.min(MAX_TOKENS);
    call.tokens.completion = call.tokens.completion.min(MAX_TOKENS);
    if call.model.len() > MAX_MODEL_BYTES || call.model.contains('\0') {
        let end = call.model.floor_char_boundary(MAX_MODEL_BYTES);
        let text = call.model.get(..end).unwrap_or_default();
        // PostgreSQL refuses NUL in texts.
        call.model = text.replace('\0', "").into();
    }
}
