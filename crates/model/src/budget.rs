//! What a key or a workspace may cost.

use crate::amount::Amount;
use crate::{Invalid, Timestamp};
use serde::{Deserialize, Serialize};
use std::str::FromStr;
use std::time::Duration;

/// What a key may cost in a period.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
pub struct Budget {
    /// The most it may cost.
    pub amount: Amount,
    /// Per what.
    pub period: Period,
}

/// The period of a budget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Period {
    /// Each day, UTC.
    Daily,
    /// Each calendar month, UTC.
    Monthly,
    /// For the key's whole life.
    Total,
}

impl Period {
    /// The period's name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Daily => "daily",
            Self::Monthly => "monthly",
            Self::Total => "total",
        }
    }

    /// When the period around a moment began; 0 for a total.
    pub fn start(self, at: Timestamp) -> Timestamp {
        match self {
            Self::Daily => at.start_of_day(),
            Self::Monthly => at.start_of_month(0),
            Self::Total => Timestamp::from_millis(0),
        }
    }

    /// When the next one begins; never, for a total.
    pub fn end(self, at: Timestamp) -> Option<Timestamp> {
        match self {
            Self::Daily => Some(at.start_of_day().after(Duration::from_hours(24))),
            Self::Monthly => Some(at.start_of_month(1)),
            Self::Total => None,
        }
    }
}
impl FromStr for Period {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        [Self::Daily, Self::Monthly, Self::Total]
            .into_iter()
            .find(|period| period.as_str() == text)
            .ok_or_else(|| Invalid::from("must be daily, monthly or total"))
    }
}
