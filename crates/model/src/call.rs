//! Calls: what an AI key was used for, what it took and what it cost.

use crate::amount::Amount;
use crate::id::{Id, kind};
use crate::{Invalid, KeyId, Timestamp, WorkspaceId};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// Identifies a call; `x-estrade-call` carries it.
pub type CallId = Id<kind::Call>;
/// Identifies a slice of a budget that a node has leased.
pub type SliceId = Id<kind::Slice>;
/// Identifies one life of a server that may spend of budgets. Not a [`NodeId`](crate::node::NodeId): a server takes a new
/// one each time it begins to spend.
pub type LedgerNodeId = Id<kind::LedgerNode>;

/// Milliseconds of an hour: what calls are summed up by.
pub const HOUR_MS: i64 = 3_600_000;

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

impl FromStr for Operation {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|operation| operation.path() == text)
            .ok_or_else(|| Invalid::from("must be the path of an operation"))
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
    pub fn total(self) -> u64 {
        self.prompt.saturating_add(self.completion)
    }
}

/// The price of a million tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Price {
    /// Of what is sent.
    #[serde(default = "free")]
    #[schema(required = false)]
    pub prompt: Amount,
    /// Of what comes back.
    #[serde(default = "free")]
    #[schema(required = false)]
    pub completion: Amount,
}

fn free() -> Amount {
    Amount::ZERO
}

impl Default for Price {
    fn default() -> Self {
        Self::FREE
    }
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
pub struct BudgetReservation {
    /// The slice of the key's budget.
    pub key_slice: Option<SliceId>,
    /// The slice of the workspace's budget.
    pub workspace_slice: Option<SliceId>,
    /// How much was set aside in each of them.
    pub reserved: Amount,
    /// What there is of the call in the database.
    pub row_state: RowState,
}

/// What there is of a call in the database before it is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowState {
    /// Nothing.
    Absent,
    /// Perhaps a row, because somebody has waited for that, in vain or not.
    Unknown,
    /// A row, as open.
    Open,
}

impl BudgetReservation {
    /// Nothing was set aside, but the call may be on record.
    pub const UNCONFIRMED: Self = Self {
        row_state: RowState::Unknown,
        ..Self::NONE
    };

    /// Nothing was set aside.
    pub const NONE: Self = Self {
        key_slice: None,
        workspace_slice: None,
        reserved: Amount::ZERO,
        row_state: RowState::Absent,
    };
}

/// A call as the logs of a workspace show it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four facts that have nothing to do with each other"
)]
pub struct LoggedCall {
    /// Identifier; `x-estrade-call` of the answer.
    #[serde(rename = "_id")]
    pub id: CallId,
    /// When it came in.
    pub created_at: Timestamp,
    /// Identifier of the key that it was made with.
    pub key: KeyId,
    /// The model, as the caller wrote it.
    pub model: String,
    /// Who answered; empty when nobody was asked.
    pub provider: String,
    /// What was asked for: the path behind the base URL.
    #[schema(example = "chat/completions")]
    pub url: &'static str,
    /// The status that the caller got; 499 when it left before the first byte.
    pub status: u16,
    /// Whether the answer was a stream.
    pub streamed: bool,
    /// Whether the answer was cut, by whomever.
    pub partial: bool,
    /// Whether the tokens are an estimate.
    pub estimated: bool,
    /// Whether the answer came from the cache.
    pub cached: bool,
    /// Tokens of what was sent.
    pub prompt_tokens: u64,
    /// Tokens of what came back.
    pub completion_tokens: u64,
    /// What it cost.
    pub cost: Amount,
    /// From the request's head to the end of the answer.
    pub latency_ms: u64,
    /// Until the first byte of the answer.
    pub ttfb_ms: u64,
    /// How often a provider was asked.
    pub attempts: u32,
}

impl From<&Call> for LoggedCall {
    fn from(call: &Call) -> Self {
        Self {
            id: call.id,
            created_at: call.created_at,
            key: call.key,
            model: call.model.to_string(),
            provider: call.provider.to_string(),
            url: call.operation.path(),
            status: call.status,
            streamed: call.streamed,
            partial: call.partial,
            estimated: call.estimated,
            cached: call.cached,
            prompt_tokens: call.tokens.prompt,
            completion_tokens: call.tokens.completion,
            cost: call.cost,
            latency_ms: call.latency_us.div_ceil(1000),
            ttfb_ms: call.ttfb_us.div_ceil(1000),
            attempts: call.attempts,
        }
    }
}

/// A page of a workspace's calls.
#[derive(Debug, Clone, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CallLog {
    /// The calls, newest first.
    pub logs: Vec<LoggedCall>,
    /// How many match on all pages together. With `before`, how many of this page.
    pub count: u64,
    /// Whether older calls were not looked at, so that more than `count` may match.
    pub count_is_lower_bound: bool,
    /// With a lower bound: the time of the oldest call that was looked at.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub searched_until: Option<Timestamp>,
    /// `before` of the page that follows; absent when nothing can follow.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<CallId>,
}

/// By what activity is summed up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Span {
    /// The last 24 hours, by hour.
    Hour,
    /// The last 30 days.
    #[default]
    Day,
    /// The last 12 weeks; a week begins on Monday.
    Week,
    /// The last 12 months.
    Month,
}

impl FromStr for Span {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        [Self::Hour, Self::Day, Self::Week, Self::Month]
            .into_iter()
            .find(|span| span.as_str() == text)
            .ok_or_else(|| Invalid::from("must be hour, day, week or month"))
    }
}

impl Span {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Hour => "hour",
            Self::Day => "day",
            Self::Week => "week",
            Self::Month => "month",
        }
    }

    /// When the span around a moment began.
    pub fn start(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Hour => {
                let at = at.millis();
                Timestamp::from_millis(at - at.rem_euclid(HOUR_MS))
            }
            Self::Day => at.start_of_day(),
            Self::Week => at.start_of_week(),
            Self::Month => at.start_of_month(0),
        }
    }

    /// When the first of the spans that are shown began.
    pub fn first(self, now: Timestamp) -> Timestamp {
        let earlier = |hours| self.start(now).before(Duration::from_hours(hours));
        match self {
            Self::Hour => earlier(23),
            Self::Day => earlier(29 * 24),
            Self::Week => earlier(11 * 7 * 24),
            Self::Month => now.start_of_month(-11),
        }
    }
}

/// What was used in an hour, day, week or month.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Activity {
    /// When it began.
    pub date: Timestamp,
    /// By model.
    pub data: Vec<ModelActivity>,
}

/// What was used of a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct ModelActivity {
    /// The model; empty for calls that were refused before any was asked.
    pub model: String,
    /// What the calls took, both ways.
    pub total_tokens: u64,
    /// What they cost.
    pub total_cost: Amount,
    /// How many there were.
    pub request_count: u64,
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
