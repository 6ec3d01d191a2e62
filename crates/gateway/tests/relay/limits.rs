//! Rate limits and budgets, as callers meet them.

use crate::support::{TestGateway, chat, chat_response, error_code, provider_at, until};
use estrade_gateway::AdmissionError;
use estrade_gateway::auth::RateLimits;
use estrade_mock_upstream::{MockUpstream, json};
use estrade_model::Timestamp;
use estrade_model::call::BudgetReservation;
use estrade_model::key::{Budget, Period};
use serde_json::Value;
use std::num::NonZeroU32;

fn rates(rpm: u32, tpm: u32) -> RateLimits {
    RateLimits {
        rpm: NonZeroU32::new(rpm),
        tpm: NonZeroU32::new(tpm),
    }
}

#[tokio::test]
async fn requests_per_minute_are_counted_and_reported() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("slow", |key, _| key.rates = rates(2, 0));
    let caller = gateway.caller_with("slow");
    for left in ["1", "0"] {
        let response = caller.chat(&chat("")).await;
        assert_eq!(response.status, 200);
        assert_eq!(response.header("x-ratelimit-limit-requests"), "2");
        assert_eq!(response.header("x-ratelimit-remaining-requests"), left);
        assert_eq!(response.header("x-ratelimit-limit-tokens"), "");
    }
    let refused = caller.chat(&chat("")).await;
    assert_eq!(
        (refused.status.as_u16(), &*error_code(&refused.body)),
        (429, "rate_limit_requests")
    );
    assert_eq!(refused.header("x-ratelimit-remaining-requests"), "0");
    let reset = refused.header("x-ratelimit-reset-requests");
    assert!(reset == "1m0s" || reset.starts_with("59."), "{reset}");
    assert_eq!(refused.header("retry-after"), "30");
    let limit = &serde_json::from_slice::<Value>(&refused.body).unwrap()["error"]["limit"];
    assert_eq!(
        (&limit["of"], &limit["name"], &limit["value"]),
        (&"key".into(), &"requests".into(), &"2".into())
    );
    let (reservation, call) = gateway.ledger.wait(3).await.remove(2);
    assert_eq!(
        (reservation, call.status, call.cost.nanos(), call.attempts),
        (BudgetReservation::NONE, 429, 0, 0)
    );
    assert_eq!(refused.header("x-estrade-call"), call.id.to_string());
}

#[tokio::test]
async fn a_request_whose_body_does_not_come_counts() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("slow", |key, _| key.rates = rates(1, 0));
    let caller = gateway.caller_with("slow");
    let whole = caller.raw_chat(&chat(""));
    let _half = caller.raw(&whole[..whole.len() - 10]).await;
    until("it is being read", || gateway.gateway.body_bytes() > 0).await;
    let refused = caller.chat(&chat("")).await;
    assert_eq!(
        (refused.status.as_u16(), &*error_code(&refused.body)),
        (429, "rate_limit_requests")
    );
    assert!(provider.requests().is_empty());
}

#[tokio::test]
async fn tokens_per_minute_are_settled_with_what_was_used() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(10, 10))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("shared", |_, workspace| workspace.rates = rates(0, 1000));
    let caller = gateway.caller_with("shared");
    let body = chat(r#","max_tokens":900"#);
    for _ in 0..3 {
        let response = caller.chat(&body).await;
        assert_eq!(
            (
                response.status.as_u16(),
                response.header("x-ratelimit-limit-tokens")
            ),
            (200, "1000")
        );
    }
    let large = chat(r#","max_tokens":990"#);
    let refused = caller.chat(&large).await;
    assert_eq!(
        (refused.status.as_u16(), &*error_code(&refused.body)),
        (429, "rate_limit_tokens")
    );
    let limit = &serde_json::from_slice::<Value>(&refused.body).unwrap()["error"]["limit"];
    assert_eq!(limit["of"], "workspace");
}

#[tokio::test]
async fn a_spent_budget_is_reported_with_its_amount_and_reset() {
    let provider = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let gateway = TestGateway::new(&[provider_at("acme", provider.address)]).await;
    gateway.add_key("poor", |key, _| key.rates = rates(1, 0));
    gateway.ledger.refuse(AdmissionError::Budget {
        of_workspace: false,
        budget: Budget {
            amount: "12.5".parse().unwrap(),
            period: Period::Monthly,
        },
        resets_at: Some(Timestamp::from_millis(1_800_000_060_000)),
    });
    for _ in 0..3 {
        let response = gateway.caller_with("poor").chat(&chat("")).await;
        assert_eq!(
            (response.status.as_u16(), &*error_code(&response.body)),
            (402, "budget_exceeded")
        );
        assert!(
            response.text().contains("monthly") && response.text().contains("12.50"),
            "{}",
            response.text()
        );
        assert_eq!(response.header("x-ratelimit-limit-budget"), "12.50");
        assert_eq!(response.header("x-ratelimit-reset-budget"), "1m0s");
        assert_eq!(response.header("retry-after"), "60");
    }
    gateway.ledger.refuse(AdmissionError::Unavailable);
    let response = gateway.caller().chat(&chat("")).await;
    assert_eq!(
        (response.status.as_u16(), &*error_code(&response.body)),
        (503, "ledger_unavailable")
    );
    assert!(provider.requests().is_empty());
    let rows = gateway.ledger.wait(4).await;
    assert!(rows.iter().all(
        |(reservation, call)| *reservation == BudgetReservation::UNCONFIRMED
            && call.cost.nanos() == 0
    ));
}
