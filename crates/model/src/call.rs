//! Calls: what an AI key was used for, what it took and what it cost.

use crate::amount::Amount;
use crate::id::{Id, kind};
use crate::{KeyId, Timestamp, WorkspaceId};
use std::sync::Arc;

/// Identifies a call; `x-estrade-call` carries it.
pub type CallId = Id<kind::Call>;
/// Identifies a slice of a budget that a node has leased.
pub type SliceId = Id<kind::Slice>;

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Operation {
    /// `chat/completions`.
    Chat,
    /// `embeddings`.
    Embeddings,
    /// `images/generations`.
    Images,
}

impl Operation {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Chat, Self::Embeddings, Self::Images];

    /// Its path behind the base URL, without a slash before it.
    pub fn path(self) -> &'static str {
        match self {
            Self::Chat => "chat/completions",
            Self::Embeddings => "embeddings",
            Self::Images => "images/generations",
        }
    }
}

/// What a call took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tokens {
    /// Of what was sent.
    pub prompt: u64,
    /// Of what came back.
    pub completion: u64,
}

impl Tokens {
    /// Both together.
    pub fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Price {
    /// Of what is sent.
    pub prompt: Amount,
    /// Of what comes back.
    pub completion: Amount,
}

impl Price {
    /// Costs nothing.
    pub const FREE: Self = Self {
        prompt: Amount::ZERO,
        completion: Amount::ZERO,
    };

    /// What so many tokens cost, rounded up to a billionth: never less than was spent.
    pub fn cost(self, tokens: Tokens) -> Amount {
        const PER: u128 = 1_000_000;
        let of = |price: Amount, count: u64| {
            u128::from(price.nanos().unsigned_abs()) * u128::from(count)
        };
        let total = of(self.prompt, tokens.prompt) + of(self.completion, tokens.completion);
        Amount::from_nanos(i64::try_from(total.div_ceil(PER)).unwrap_or(i64::MAX))
    }
}

/// One call that has ended, as the ledger keeps it.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that have nothing to do with each other"
)]
pub struct Call {
    /// Identifier.
    pub id: CallId,
    /// The workspace it was made in.
    pub workspace: WorkspaceId,
    /// The key that it was made with.
    pub key: KeyId,
    /// When it came in.
    pub created_at: Timestamp,
    /// What was asked for.
    pub operation: Operation,
    /// The model, as the caller wrote it; empty when the request names none.
    pub model: Arc<str>,
    /// Who answered; empty when nobody was asked.
    pub provider: Arc<str>,
    /// The status that the caller got; 499 when it left before the first byte.
    pub status: u16,
    /// Whether the answer was a stream.
    pub streamed: bool,
    /// Whether the answer was cut, by whomever.
    pub partial: bool,
    /// Whether the tokens are an estimate, because the provider said nothing of them.
    pub estimated: bool,
    /// Whether the answer came from the cache.
    pub cached: bool,
    /// What it took.
    pub tokens: Tokens,
    /// What it cost.
    pub cost: Amount,
    /// From the request's head to the end of the answer, in microseconds.
    pub latency_us: u64,
    /// Until the first byte of the answer, in microseconds.
    pub ttfb_us: u64,
    /// How often a provider was asked.
    pub attempts: u32,
}

/// What was set aside for a call before it went out. Given back when the call is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket {
    /// The slice of the key's budget.
    pub key_slice: Option<SliceId>,
    /// The slice of the workspace's budget.
    pub workspace_slice: Option<SliceId>,
    /// How much was set aside in each of them.
    pub reserved: Amount,
    /// Whether the call is on record already, as open.
    pub recorded: bool,
}

impl Ticket {
    /// Nothing was set aside.
    pub const NONE: Self = Self {
        key_slice: None,
        workspace_slice: None,
        reserved: Amount::ZERO,
        recorded: false,
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cost_is_exact_and_rounds_up() {
        let price = Price {
            prompt: "0.15".parse().unwrap(),
            completion: "0.60".parse().unwrap(),
        };
        let tokens = |prompt, completion| Tokens { prompt, completion };
        assert_eq!(price.cost(tokens(1_000_000, 0)).to_string(), "0.15");
        assert_eq!(price.cost(tokens(12, 9)).nanos(), 12 * 150 + 9 * 600);
        let tiny = Price {
            prompt: Amount::from_nanos(1),
            ..Price::FREE
        };
        assert_eq!(tiny.cost(tokens(1, 0)).nanos(), 1);
        assert_eq!(Price::FREE.cost(tokens(u64::MAX, u64::MAX)).nanos(), 0);
        assert_eq!(price.cost(tokens(u64::MAX, u64::MAX)).nanos(), i64::MAX);
    }
}
