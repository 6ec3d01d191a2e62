//! Clients that hang up on providers that bill all that they generate: a budget pays for it.

use crate::support::{TestGateway, chat, chat_response, provider_at, until, with_short_timeouts};
use estrade_mock_upstream::{
    Action, MockUpstream, chunk, done, event, json, send, stream_head, usage_event,
};
use estrade_model::amount::Amount;
use estrade_model::call::Price;
use estrade_model::provider::OnDisconnect;
use estrade_model::secret::Secret;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Notify;

const STREAM: &str = r#","stream":true,"max_tokens":900"#;
const WHOLE: &str = r#","max_tokens":900"#;

/// What so many tokens cost at the provider of the tests.
fn cost(prompt: u64, completion: u64) -> Amount {
    let price = Price {
        prompt: "1".parse().unwrap(),
        completion: "2".parse().unwrap(),
    };
    price.cost(estrade_model::call::Tokens { prompt, completion })
}

/// A gateway whose calls are paid from a budget, and read on for so long.
async fn with_budget(provider: &MockUpstream, timeout: Duration) -> TestGateway {
    let gateway = TestGateway::with(&[provider_at("acme", provider.address)], |options| {
        options.detached_timeout = timeout;
    })
    .await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    gateway
}

/// Hangs up as soon as a request has arrived, before anything came back.
async fn hang_up_early(gateway: &TestGateway, provider: &MockUpstream, body: &str) {
    let (caller, before) = (gateway.caller(), provider.count());
    let stream = caller.raw(&caller.raw_chat(body)).await;
    until("it is asked", || provider.count() > before).await;
    reset(stream);
}

/// Closes a connection so that the other end knows that nobody is left.
fn reset(stream: TcpStream) {
    stream.set_zero_linger().unwrap();
    drop(stream);
}

/// Reads a little of a stream and hangs up.
async fn hang_up_within(gateway: &TestGateway, body: &str) {
    let caller = gateway.caller();
    let stream = caller.raw(&caller.raw_chat(body)).await;
    let mut read = vec![0; 8192];
    let mut text = String::new();
    while !text.contains("data:") {
        stream.readable().await.unwrap();
        if let Ok(count) = stream.try_read(&mut read) {
            assert!(count > 0, "{text}");
            text += std::str::from_utf8(&read[..count]).unwrap();
        }
    }
    reset(stream);
}

#[tokio::test]
async fn who_hangs_up_before_the_first_byte_pays_what_was_generated() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let provider = MockUpstream::new(move |_| {
        let mut acts = vec![Action::Wait(Arc::clone(&wait))];
        acts.extend(json(200, &chat_response(3, 400)));
        acts
    })
    .await;
    for budget in [true, false] {
        let gateway = with_budget(&provider, Duration::from_secs(30)).await;
        gateway.ledger.budgets.store(budget, Ordering::Relaxed);
        hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert!(gateway.ledger.rows().is_empty(), "its usage is not known");
        go.notify_one();
        let call = gateway.ledger.only().await;
        assert_eq!((call.tokens.prompt, call.tokens.completion), (3, 400));
        assert_eq!((call.cost, call.estimated), (cost(3, 400), false));
        assert_eq!((call.status, call.partial), (499, true));
    }
}

#[tokio::test]
async fn who_hangs_up_within_a_stream_pays_what_was_generated() {
    let provider = MockUpstream::new(|_| {
        vec![
            stream_head(),
            event("a"),
            Action::Sleep(Duration::from_millis(50)),
            event("b"),
            event("c"),
            Action::Sleep(Duration::from_millis(50)),
            usage_event(3, 400),
            done(),
        ]
    })
    .await;
    let gateway = with_budget(&provider, Duration::from_secs(30)).await;
    hang_up_within(&gateway, &chat(STREAM)).await;
    let call = gateway.ledger.only().await;
    assert_eq!((call.cost, call.estimated), (cost(3, 400), false));
    assert_eq!((call.status, call.partial), (200, true));
}

/// The end of what has come may be the beginning of the provider's key, and is held back. When the client leaves
/// just then, the usage goes right through it.
#[tokio::test]
async fn what_is_held_back_when_the_client_hangs_up_is_part_of_what_is_read() {
    let go = Arc::new(Notify::new());
    let wait = Arc::clone(&go);
    let provider = MockUpstream::new(move |_| {
        vec![
            stream_head(),
            event("a"),
            chunk("data: {\"choices\":[],\"usage"),
            Action::Wait(Arc::clone(&wait)),
            chunk("\":{\"prompt_tokens\":3,\"completion_tokens\":400}}\n\n"),
            done(),
        ]
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.api_key = Some(Secret("usage-0123456789".to_owned()));
    let gateway = TestGateway::new(&[acme]).await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    hang_up_within(&gateway, &chat(STREAM)).await;
    tokio::time::sleep(Duration::from_millis(50)).await;
    assert!(gateway.ledger.rows().is_empty(), "its usage is not known");
    go.notify_one();
    let call = gateway.ledger.only().await;
    assert_eq!((call.cost, call.estimated), (cost(3, 400), false));
}

#[tokio::test]
async fn who_hangs_up_within_a_json_response_pays_what_was_generated() {
    let provider = MockUpstream::new(|_| {
        let body = chat_response(3, 400);
        let (one, two) = body.split_at(50);
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
        let pause = Action::Sleep(Duration::from_millis(100));
        vec![send(head + one), pause.clone(), pause, send(two)]
    })
    .await;
    let gateway = with_budget(&provider, Duration::from_secs(30)).await;
    let coming = gateway.caller().stream(&chat(WHOLE)).await;
    drop(coming);
    let call = gateway.ledger.only().await;
    assert_eq!((call.cost, call.estimated), (cost(3, 400), false));
}

#[tokio::test]
async fn what_does_not_end_in_time_costs_what_was_reserved() {
    let provider = MockUpstream::new(|number| match number % 4 {
        0 | 1 => vec![Action::AwaitClose],
        2 => vec![stream_head(), event("a"), Action::AwaitClose],
        _ => {
            let Action::Send(event) = event(&"x".repeat(1000)) else {
                return Vec::new();
            };
            vec![stream_head(), Action::Flood(event, 1_000_000), done()]
        }
    })
    .await;
    let gateway = with_budget(&provider, Duration::from_millis(200)).await;
    hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
    hang_up_early(&gateway, &provider, &chat(STREAM)).await;
    for _ in 0..2 {
        hang_up_within(&gateway, &chat(STREAM)).await;
    }
    for (reservation, call) in gateway.ledger.wait(4).await {
        assert!(call.cost >= reservation.reserved, "{call:?}");
        assert!(reservation.reserved > cost(0, 900), "{reservation:?}");
        assert!(call.partial && call.estimated);
    }
    assert!(provider.wait_for_open(0).await, "it is let go");
    // Nothing was reserved without a budget: then it is an estimate.
    gateway.ledger.budgets.store(false, Ordering::Relaxed);
    hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
    let call = gateway.ledger.wait(5).await.remove(4).1;
    assert!(call.cost < gateway.ledger.max_cost() && call.cost > Amount::ZERO);
}

#[tokio::test]
async fn a_provider_can_be_cancelled_at_once() {
    let provider = MockUpstream::new(|number| {
        if number == 0 {
            return vec![Action::AwaitClose];
        }
        // A client that is gone is noticed when something is sent.
        let mut acts = vec![stream_head()];
        for _ in 0..50 {
            acts.extend([event("a"), Action::Sleep(Duration::from_millis(20))]);
        }
        acts.push(Action::AwaitClose);
        acts
    })
    .await;
    let mut acme = provider_at("acme", provider.address);
    acme.on_disconnect = OnDisconnect::CancelAndChargeReserved;
    let gateway = TestGateway::with(&[acme], |options| {
        // Longer than the test waits: it is not this timeout that closes.
        options.detached_timeout = Duration::from_hours(1);
    })
    .await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
    hang_up_within(&gateway, &chat(STREAM)).await;
    for (reservation, call) in gateway.ledger.wait(2).await {
        assert_eq!(call.cost, reservation.reserved, "{call:?}");
    }
    assert!(provider.wait_for_open(0).await);
}

#[tokio::test]
async fn a_provider_that_refuses_whom_nobody_waits_for_is_owed_nothing() {
    let provider = MockUpstream::new(|number| {
        let mut acts = vec![Action::Sleep(Duration::from_millis(50))];
        acts.extend(json([400, 401, 429, 500][number], "{}"));
        acts
    })
    .await;
    let gateway = with_budget(&provider, Duration::from_secs(30)).await;
    for number in 0..4 {
        hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
        let (_, call) = gateway.ledger.wait(number + 1).await.remove(number);
        assert_eq!((call.status, call.cost), (499, Amount::ZERO));
    }
}

#[tokio::test]
async fn what_is_read_on_ends_with_its_worker() {
    let provider = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let gateway = with_budget(&provider, Duration::from_mins(10)).await;
    hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(gateway.ledger.rows().is_empty());
    gateway.relay.shutdown().await;
    let call = gateway.ledger.only().await;
    assert_eq!(call.cost, gateway.ledger.max_cost());
    assert!(provider.wait_for_open(0).await);
    // A client that leaves from now on is charged at once.
    hang_up_early(&gateway, &provider, &chat(WHOLE)).await;
    let call = gateway.ledger.wait(2).await.remove(1).1;
    assert_eq!(call.cost, gateway.ledger.max_cost());
}

#[tokio::test]
async fn an_owner_has_only_so_many_responses_read_on() {
    let provider = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let gateway = with_budget(&provider, Duration::from_mins(10)).await;
    let caller = gateway.caller();
    let mut clients = Vec::new();
    for _ in 0..70 {
        clients.push(caller.raw(&caller.raw_chat(&chat(WHOLE))).await);
    }
    until("all are asked", || provider.count() == 70).await;
    clients.into_iter().for_each(reset);
    for (_, call) in gateway.ledger.wait(6).await {
        assert_eq!(call.cost, gateway.ledger.max_cost());
    }
    assert!(provider.wait_for_open(64).await);
    gateway.relay.shutdown().await;
    assert_eq!(gateway.ledger.wait(70).await.len(), 70);
    // All of them can be used again.
    assert!(provider.wait_for_open(0).await);
}

#[tokio::test]
async fn a_provider_that_breaks_off_may_bill_the_rest() {
    let provider = MockUpstream::new(|number| match number {
        0 => vec![stream_head(), event("a"), Action::Close],
        1 => vec![
            stream_head(),
            event("a"),
            usage_event(3, 400),
            Action::Close,
        ],
        _ => vec![Action::Sleep(Duration::from_millis(400)), Action::Close],
    })
    .await;
    let other = MockUpstream::new(|_| json(200, &chat_response(1, 1))).await;
    let providers = [
        provider_at("acme", provider.address),
        provider_at("other", other.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    gateway.caller().stream(&chat(STREAM)).await.rest().await;
    gateway.caller().stream(&chat(STREAM)).await.rest().await;
    // Nothing is reserved for a second provider.
    let response = gateway.caller().chat(&chat(WHOLE)).await;
    assert_eq!((response.status.as_u16(), other.count()), (502, 0));
    let rows = gateway.ledger.wait(3).await;
    let costs: Vec<_> = rows.into_iter().map(|(_, call)| call.cost).collect();
    assert_eq!(costs[1], cost(3, 400), "all is known of this one");
    assert!(costs[0] > cost(0, 800) && costs[2] == gateway.ledger.max_cost());
}

#[tokio::test]
async fn a_provider_that_times_out_may_bill_all_of_it() {
    let provider = MockUpstream::new(|_| vec![Action::AwaitClose]).await;
    let gateway =
        TestGateway::new(&[with_short_timeouts(provider_at("acme", provider.address))]).await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    let response = gateway.caller().chat(&chat(WHOLE)).await;
    assert_eq!(response.status.as_u16(), 504);
    let call = gateway.ledger.only().await;
    assert_eq!(
        (call.cost, provider.count()),
        (gateway.ledger.max_cost(), 1)
    );
}

/// One that costs nothing.
fn free(mut provider: estrade_model::provider::Provider) -> estrade_model::provider::Provider {
    provider.models[0].price = Price::FREE;
    provider
}

#[tokio::test]
async fn a_provider_that_costs_nothing_bills_nothing() {
    let local = MockUpstream::new(|number| match number {
        0 => vec![Action::AwaitClose],
        _ => vec![Action::Sleep(Duration::from_millis(400)), Action::Close],
    })
    .await;
    let dear = MockUpstream::new(|_| json(200, &chat_response(3, 4))).await;
    let providers = [
        free(provider_at("local", local.address)),
        provider_at("dear", dear.address),
    ];
    let gateway = TestGateway::new(&providers).await;
    gateway.ledger.budgets.store(true, Ordering::Relaxed);
    hang_up_early(&gateway, &local, &chat(WHOLE)).await;
    let call = gateway.ledger.only().await;
    assert_eq!((call.status, call.cost), (499, Amount::ZERO));
    // What was reserved is still there for the next one.
    let response = gateway.caller().chat(&chat(WHOLE)).await;
    assert_eq!((response.status.as_u16(), dear.count()), (200, 1));
    let call = gateway.ledger.wait(2).await.remove(1).1;
    assert_eq!(call.cost, cost(3, 4));
}
