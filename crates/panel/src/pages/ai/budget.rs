//! Budgets of keys and workspaces: as forms write them, and as bars that show what is spent.

use crate::format::money;
use estrade_model::amount::Amount;
use estrade_model::key::{Budget, Period};
use estrade_model::serde_rules::Patch;
use estrade_model::{Id, Invalid};
use estrade_server::app::App;
use estrade_service::Error;
use estrade_service::ai::usage;
use std::collections::HashMap;
use std::num::NonZeroU32;

/// From this share on a bar warns, in percent.
const WARN_PERCENT: u64 = 80;

/// What is spent of a budget.
#[derive(Debug, Clone)]
pub(super) struct BudgetBar {
    pub(super) percent: u64,
    pub(super) class: &'static str,
    pub(super) spent: String,
    pub(super) limit: String,
    pub(super) period: &'static str,
}

impl BudgetBar {
    fn new(budget: &Budget, spent: Amount) -> Self {
        let (limit, used) = (budget.amount.nanos().max(1), spent.nanos());
        let percent = i128::from(used) * 100 / i128::from(limit);
        let percent = u64::try_from(percent).unwrap_or(100).min(999);
        Self {
            percent,
            class: match percent {
                100.. => "bad",
                WARN_PERCENT.. => "warn",
                _ => "",
            },
            spent: money(spent),
            limit: money(budget.amount),
            period: period_text(budget.period),
        }
    }
}

/// What is spent of the budgets of keys or workspaces: two statements for a page of them.
pub(super) async fn bars<T: 'static>(
    app: &App,
    budgets: impl IntoIterator<Item = (Id<T>, Option<Budget>)>,
) -> Result<HashMap<Id<T>, BudgetBar>, Error> {
    let budgets: Vec<_> = budgets
        .into_iter()
        .filter_map(|(id, budget)| Some((id, budget?)))
        .collect();
    let spent = usage::spent_of(&app.core, &app.ledger, &budgets).await?;
    let bar =
        |((id, budget), spent): (&(Id<T>, Budget), Amount)| (*id, BudgetBar::new(budget, spent));
    Ok(budgets.iter().zip(spent).map(bar).collect())
}

/// The period in a sentence.
pub(super) fn period_text(period: Period) -> &'static str {
    match period {
        Period::Daily => "a day",
        Period::Monthly => "a month",
        Period::Total => "in total",
    }
}

/// A budget as a form sends it; without an amount there is none.
pub(super) fn parse_budget(amount: &str, period: &str) -> Result<Patch<Budget>, Error> {
    if amount.trim().is_empty() {
        return Ok(Patch::Clear);
    }
    let amount = amount
        .trim()
        .parse()
        .map_err(|_| refused("Budget", "must be an amount such as 12.50"))?;
    let period = if period.is_empty() { "monthly" } else { period };
    let period = period
        .parse()
        .map_err(|Invalid(reason)| refused("Budget", &reason))?;
    Ok(Patch::Set(Budget { amount, period }))
}

/// A limit per minute as a form sends it; an empty field is no limit.
pub(super) fn parse_rate(label: &str, text: &str) -> Result<Patch<NonZeroU32>, Error> {
    if text.trim().is_empty() {
        return Ok(Patch::Clear);
    }
    let rate = text
        .trim()
        .parse()
        .map_err(|_| refused(label, "must be a whole number from 1 on"))?;
    Ok(Patch::Set(rate))
}

/// A field that has to be corrected.
pub(super) fn refused(label: &str, reason: &str) -> Error {
    Error::invalid(format!("{label}: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_warns_before_the_budget_is_spent() {
        let budget = Budget {
            amount: "50".parse().unwrap(),
            period: Period::Monthly,
        };
        let bar = |spent: &str| {
            let bar = BudgetBar::new(&budget, spent.parse().unwrap());
            (bar.percent, bar.class)
        };
        assert_eq!(bar("0"), (0, ""));
        assert_eq!(bar("39.99"), (79, ""));
        assert_eq!(bar("40"), (80, "warn"));
        assert_eq!(bar("50"), (100, "bad"));
        assert_eq!(bar("999999999"), (999, "bad"));
    }

    #[test]
    fn forms_say_what_is_wrong() {
        assert_eq!(parse_budget(" ", "daily").unwrap(), Patch::Clear);
        assert!(parse_budget("5", "weekly").is_err());
        assert!(parse_budget("-5", "daily").is_err());
        assert_eq!(parse_rate("x", "").unwrap(), Patch::Clear);
        for bad in ["0", "-1", "1.5", "abc", "4294967296"] {
            assert!(parse_rate("Requests", bad).is_err(), "{bad}");
        }
    }
}
