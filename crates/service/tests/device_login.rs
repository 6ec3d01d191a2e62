//! Logins of the command line: how many may wait, and how often their clients may ask.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

#[path = "accounts_support/mod.rs"]
mod support;

use estrade_model::device_login::StartDeviceLogin;
use estrade_service::identity::device_login::{StartedLogin, redemption, start};
use estrade_service::identity::sessions::Client;
use estrade_service::{Core, Error, Result};
use futures_util::future::join_all;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;
use support::{Installation, on_both_backends};

on_both_backends! {
    of_many_polls_at_once_one_waits_and_the_others_are_too_soon
    a_clock_that_was_ahead_stops_no_poll
    one_site_of_ipv6_leaves_room_for_others
}

async fn begin(core: &Core, address: IpAddr) -> Result<StartedLogin> {
    let client = Client {
        address,
        user_agent: "estrade/1.0".to_owned(),
    };
    start(core, StartDeviceLogin::default(), &client).await
}

fn local() -> IpAddr {
    Ipv6Addr::LOCALHOST.into()
}

async fn poll(core: &Core, login: &StartedLogin) -> &'static str {
    let answer = redemption::redeem(core, &login.device_code, local()).await;
    answer.err().map_or("ok", |error| error.code())
}

async fn of_many_polls_at_once_one_waits_and_the_others_are_too_soon(at: &Installation) {
    let core = &at.core;
    let login = begin(core, local()).await.unwrap();
    for _ in 0..3 {
        let answers = join_all((0..16).map(|_| poll(core, &login))).await;
        let count = |code: &str| answers.iter().filter(|answer| **answer == code).count();
        let counts = (count("authorization_pending"), count("slow_down"));
        assert_eq!(counts, (1, 15), "{answers:?}");
        core.clock.advance(Duration::from_secs(5));
    }
}

async fn a_clock_that_was_ahead_stops_no_poll(at: &Installation) {
    let core = &at.core;
    let login = begin(core, local()).await.unwrap();
    let ahead = at.another_core(estrade_service::Settings::default()).await;
    ahead.clock.advance(Duration::from_mins(5));
    assert_eq!(poll(&ahead, &login).await, "authorization_pending");
    assert_eq!(poll(core, &login).await, "authorization_pending");
    assert_eq!(poll(core, &login).await, "slow_down");
    ahead.db.close().unwrap();
}

/// A household or a small office has a /48: 65,536 networks.
async fn one_site_of_ipv6_leaves_room_for_others(at: &Installation) {
    let core = &at.core;
    let address = |site: u16, network: u16| -> IpAddr {
        Ipv6Addr::new(0x2001, 0xdb8, site, network, 0, 0, 0, 1).into()
    };
    let mut begun = 0;
    for network in 0..250 {
        match begin(core, address(1, network)).await {
            Ok(_) => begun += 1,
            Err(error) => assert!(matches!(error, Error::RateLimited(_)), "{error}"),
        }
    }
    assert_eq!(begun, 200);
    begin(core, address(2, 0)).await.unwrap();
    begin(core, "192.0.2.1".parse().unwrap()).await.unwrap();
}
