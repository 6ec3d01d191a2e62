//! Connections to instances: kept, shared, and what happens when they fail.

use crate::backend::{App, always, nowhere, ok};
use crate::stage::Stage;
use estrade_fixtures::eventually;
use estrade_listener::UpstreamBudget;
use estrade_mock_upstream::{Action, MockUpstream};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;

#[tokio::test]
async fn one_connection_serves_many_requests_of_many_visitors() {
    let stage = Stage::start().await;
    let app = App::echo().await;
    stage.serve(&[app.address]).await;
    for _ in 0..5 {
        let mut visitor = stage.visitor().await;
        for _ in 0..5 {
            assert_eq!(visitor.get("/").await.status, 200);
        }
        let posted = visitor.request("POST", "/", &[], b"hello").await.unwrap();
        assert_eq!(posted.text(), "hello");
        // From here on hyper serves the visitor.
        assert_eq!(visitor.get("/").await.status, 200);
    }
    assert_eq!(app.connections(), 1);
    stage.finish().await;
}

#[tokio::test]
async fn idle_connections_are_closed_after_a_while_and_when_their_instance_leaves() {
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.keep_alive = Duration::from_millis(300);
    })
    .await;
    let app = always(vec![ok("x")]).await;
    let release = stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    visitor.get("/").await;
    assert_eq!(app.open(), 1);
    assert!(app.wait_for_open(0).await);
    stage.finish().await;

    // Longer than the test waits: it is not this timeout that closes.
    let stage = Stage::start_with(|setup| {
        setup.edge.proxy.keep_alive = Duration::from_hours(1);
    })
    .await;
    assert_eq!(stage.serve(&[app.address]).await, release);
    let mut visitor = stage.visitor().await;
    visitor.get("/").await;
    assert_eq!(app.open(), 1);
    stage.publish(release, &[]);
    assert!(app.wait_for_open(0).await);
    stage.finish().await;
}

#[tokio::test]
async fn no_more_connections_wait_than_may() {
    let stage = Stage::start_with(|setup| setup.edge.proxy.max_idle = 2).await;
    let go = Arc::new(Notify::new());
    let app = always(vec![Action::Wait(Arc::clone(&go)), ok("x")]).await;
    stage.serve(&[app.address]).await;
    let mut visitors = JoinSet::new();
    for _ in 0..5 {
        let mut visitor = stage.visitor().await;
        visitors.spawn(async move { visitor.get("/").await.status });
    }
    eventually("all are asked", || async { app.count() == 5 }).await;
    assert_eq!(app.open(), 5);
    go.notify_waiters();
    assert_eq!(visitors.join_all().await, [200; 5]);
    assert!(app.wait_for_open(2).await);
    stage.finish().await;
}

#[tokio::test]
async fn connections_to_instances_have_a_limit_and_idle_ones_make_room() {
    let stage = Stage::start_with(|setup| {
        // Of which a project may have three while nobody else has any.
        setup.edge.proxy.upstreams = UpstreamBudget::new(4, None);
    })
    .await;
    let go = Arc::new(Notify::new());
    let waits = Arc::clone(&go);
    let app = MockUpstream::with_script(move |_, request| {
        if request.head.contains(" /wait ") {
            vec![Action::Wait(Arc::clone(&waits)), ok("x")]
        } else {
            vec![ok("x")]
        }
    })
    .await;
    let release = stage.serve(&[app.address]).await;
    let mut visitors = JoinSet::new();
    for _ in 0..3 {
        let mut visitor = stage.visitor().await;
        visitors.spawn(async move { visitor.get("/wait").await.status });
    }
    eventually("all are asked", || async { app.count() == 3 }).await;
    let refused = stage.visitor().await.get("/").await;
    assert_eq!(
        (refused.status, refused.header("retry-after")),
        (503, Some("5"))
    );
    let refused = stage.visitor().await.request("POST", "/", &[], b"x").await;
    assert_eq!(refused.unwrap().status, 503);
    let upstreams = stage.edge.upstreams();
    assert_eq!((upstreams.open(), upstreams.refused()), (3, 2));
    go.notify_waiters();
    assert_eq!(visitors.join_all().await, [200; 3]);
    // Idle ones are not searched for again right after none was found.
    tokio::time::sleep(Duration::from_millis(100)).await;
    // All are kept, and one of them makes room for a connection to the other instance.
    let other = always(vec![ok("y")]).await;
    stage.publish(release, &[app.address, other.address]);
    let mut visitor = stage.visitor().await;
    for _ in 0..6 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    assert!(other.count() > 0);
    assert_eq!((upstreams.open(), upstreams.refused()), (3, 2));
    stage.finish().await;
}

#[tokio::test]
async fn the_least_busy_instance_is_asked() {
    let stage = Stage::start().await;
    let go = Arc::new(Notify::new());
    let acts = || vec![Action::Wait(Arc::clone(&go)), ok("x")];
    let apps = [
        always(acts()).await,
        always(acts()).await,
        always(acts()).await,
    ];
    let release = stage.serve(&apps.each_ref().map(|app| app.address)).await;
    let mut visitors = JoinSet::new();
    for _ in 0..9 {
        let mut visitor = stage.visitor().await;
        visitors.spawn(async move { visitor.get("/").await.status });
    }
    eventually("all are asked", || async {
        apps.iter().map(MockUpstream::count).sum::<usize>() == 9
    })
    .await;
    assert_eq!(apps.each_ref().map(MockUpstream::count), [3, 3, 3]);
    let instances = stage.edge.routes().endpoints();
    let instances = instances.instances(stage.project, release).unwrap();
    assert_eq!(instances.in_flight(), 9);
    go.notify_waiters();
    assert_eq!(visitors.join_all().await, [200; 9]);
    eventually("nothing is in flight", || async {
        instances.in_flight() == 0
    })
    .await;
    stage.finish().await;
}

#[tokio::test]
async fn one_that_is_stuck_gets_nothing_else_while_others_are_free() {
    let stage = Stage::start().await;
    let go = Arc::new(Notify::new());
    let stuck = always(vec![Action::Wait(Arc::clone(&go)), ok("stuck")]).await;
    let quick = always(vec![ok("quick")]).await;
    stage.serve(&[stuck.address, quick.address]).await;
    let mut visitors = JoinSet::new();
    while stuck.count() == 0 {
        let mut visitor = stage.visitor().await;
        visitors.spawn(async move { visitor.get("/").await.status });
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let mut visitor = stage.visitor().await;
    for _ in 0..10 {
        assert_eq!(visitor.get("/").await.text(), "quick");
    }
    assert_eq!(stuck.count(), 1);
    go.notify_waiters();
    assert!(
        visitors
            .join_all()
            .await
            .iter()
            .all(|status| *status == 200)
    );
    stage.finish().await;
}

#[tokio::test]
async fn an_instance_that_accepts_nobody_costs_no_request() {
    let stage = Stage::start().await;
    let app = App::echo().await;
    let gone = nowhere().await;
    stage.serve(&[gone, app.address]).await;
    let mut visitor = stage.visitor().await;
    for _ in 0..10 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    for _ in 0..10 {
        // Nothing of it was sent to the one that is gone.
        let posted = visitor.request("POST", "/", &[], b"hello").await.unwrap();
        assert_eq!((posted.status, posted.text()), (200, "hello"));
    }
    stage.finish().await;
}

/// Answers the first request of each connection, and closes at the second one without a word.
async fn forgetful() -> MockUpstream {
    MockUpstream::new(|number| match number {
        1 => vec![Action::Close],
        _ => vec![ok("x")],
    })
    .await
}

#[tokio::test]
async fn a_request_that_met_a_closed_connection_is_repeated() {
    for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"] {
        let stage = Stage::start().await;
        let app = forgetful().await;
        stage.serve(&[app.address]).await;
        let mut visitor = stage.visitor().await;
        assert_eq!(visitor.get("/").await.status, 200);
        let again = visitor.request(method, "/", &[], b"").await.unwrap();
        assert_eq!(again.status, 200, "{method}");
        assert_eq!((app.count(), app.connections()), (3, 2), "{method}");
        stage.finish().await;
    }
}

#[tokio::test]
async fn a_request_that_may_have_been_carried_out_is_not_repeated() {
    for (method, body) in [
        ("POST", ""),
        ("POST", "body"),
        ("PATCH", "body"),
        ("PUT", "body"),
    ] {
        let stage = Stage::start().await;
        let app = forgetful().await;
        stage.serve(&[app.address]).await;
        let mut visitor = stage.visitor().await;
        assert_eq!(visitor.get("/").await.status, 200);
        let page = visitor.request(method, "/", &[], body.as_bytes()).await;
        assert_eq!(page.unwrap().status, 502, "{method} {body}");
        assert_eq!((app.count(), app.connections()), (2, 1), "{method} {body}");
        stage.finish().await;
    }
}

#[tokio::test]
async fn a_request_that_got_an_interim_response_is_not_repeated() {
    let stage = Stage::start().await;
    let app = MockUpstream::new(|number| match number {
        1 => vec![
            estrade_mock_upstream::send("HTTP/1.1 103 Early Hints\r\n\r\n"),
            Action::Close,
        ],
        _ => vec![ok("x")],
    })
    .await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    assert_eq!(visitor.get("/").await.status, 200);
    assert_eq!(visitor.get("/").await.status, 502);
    assert_eq!((app.count(), app.connections()), (2, 1));
    stage.finish().await;
}

#[tokio::test]
async fn one_that_hangs_up_is_made_up_for_by_another() {
    let stage = Stage::start().await;
    let (rude, polite) = (
        always(vec![Action::Close]).await,
        always(vec![ok("x")]).await,
    );
    let release = stage.serve(&[rude.address, polite.address]).await;
    let mut visitor = stage.visitor().await;
    for _ in 0..6 {
        assert_eq!(visitor.get("/").await.status, 200);
    }
    assert!(rude.count() > 0);
    stage.publish(release, &[rude.address]);
    let before = rude.count();
    assert_eq!(visitor.get("/").await.status, 502);
    assert_eq!(rude.count(), before + 1);
    stage.finish().await;
}

#[tokio::test]
async fn what_cannot_be_repeated_does_not_go_out_on_an_old_connection() {
    let stage = Stage::start().await;
    let app = always(vec![ok("x")]).await;
    stage.serve(&[app.address]).await;
    let mut visitor = stage.visitor().await;
    visitor.get("/").await;
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let posted = visitor.request("POST", "/", &[], b"x").await.unwrap();
    assert_eq!((posted.status, app.connections()), (200, 2));
    stage.finish().await;
}

#[tokio::test]
async fn when_the_visitor_goes_so_does_the_connection_to_the_instance() {
    let stage = Stage::start().await;
    let app = always(vec![Action::AwaitClose]).await;
    let release = stage.serve(&[app.address]).await;
    for method in ["GET", "POST"] {
        let mut visitor = stage.visitor().await;
        visitor.send(method, "/", &[], b"").await;
        assert!(app.wait_for_open(1).await);
        drop(visitor);
        assert!(app.wait_for_open(0).await, "{method}");
    }
    // The same when the response has begun.
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n";
    let slow = always(vec![estrade_mock_upstream::send(head), Action::AwaitClose]).await;
    stage.publish(release, &[slow.address]);
    for method in ["GET", "POST"] {
        let mut visitor = stage.visitor().await;
        visitor.send(method, "/", &[], b"").await;
        visitor.head().await.unwrap();
        assert_eq!(visitor.chunk().await.unwrap().unwrap(), b"x");
        drop(visitor);
        assert!(slow.wait_for_open(0).await, "{method}");
    }
    let instances = stage.edge.routes().endpoints();
    let instances = instances.instances(stage.project, release).unwrap();
    // No wake-up tells of it as long as they do not leave, so it is looked at again and again.
    let mut looks = 50;
    while !instances.drained(Duration::from_millis(100)).await {
        looks -= 1;
        assert!(looks > 0, "somebody is still counted");
    }
    stage.finish().await;
}
