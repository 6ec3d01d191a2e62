//! Workers that die, are slow, or meet each other.

use crate::acting::{RunningWorker, create, deploy, finished, owner, read};
use crate::support::{Installation, on_both_backends};
use ReleaseState::{Building, Canceled, Deploying, Failed, Pending, Ready, TimedOut};
use estrade_model::ReleaseId;
use estrade_model::release::ReleaseState;
use estrade_service::platform::releases::{Claim, cancel_release, end_overdue};
use estrade_service::{Core, Settings};
use std::sync::Arc;
use std::time::Duration;

on_both_backends! {
    a_claim_is_exclusive_until_its_lease_runs_out
    what_a_dead_worker_left_is_taken_over
    who_lost_the_claim_moves_nothing
    a_canceled_release_stops_its_worker
    only_the_oldest_of_a_project_is_claimed
    states_have_deadlines
    waiting_in_the_queue_is_not_being_worked_on
    many_releases_on_two_servers_all_become_ready
    a_worker_that_is_dropped_leaves_nothing_stuck
}

const LEASE: Duration = Duration::from_secs(6);

async fn claim_one(core: &Arc<Core>) -> Claim {
    let mut claims = Claim::take(core, 8).await.unwrap();
    assert_eq!(claims.len(), 1);
    claims.remove(0)
}

async fn a_claim_is_exclusive_until_its_lease_runs_out(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let claim = claim_one(core).await;
    assert_eq!((claim.release(), claim.state()), (id, Pending));
    assert!(Claim::take(core, 8).await.unwrap().is_empty());
    core.clock.advance(LEASE);
    assert_eq!(claim_one(core).await.release(), id);
}

async fn what_a_dead_worker_left_is_taken_over(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    for (name, states) in [
        ("one", &[][..]),
        ("two", &[Building]),
        ("three", &[Building, Deploying]),
    ] {
        create(core, &ada, name).await;
        let id = deploy(core, &ada, name, &[("a", b"1")]).await;
        let mut claim = claim_one(core).await;
        for state in states {
            assert!(claim.advance(&[*state], None).await.unwrap());
        }
        drop(claim);
        core.clock.advance(LEASE);
        let worker = RunningWorker::start(core);
        assert_eq!(finished(core, &ada, id).await.state, Ready);
        worker.stop().await;
    }
}

async fn who_lost_the_claim_moves_nothing(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let mut slow = claim_one(core).await;
    core.clock.advance(LEASE);
    let mut quick = claim_one(core).await;
    assert!(!slow.advance(&[Building], None).await.unwrap());
    assert!(quick.advance(&[Building], None).await.unwrap());
    assert!(
        !slow
            .advance(&[Building, Deploying, Ready], None)
            .await
            .unwrap()
    );
    assert_eq!(read(core, &ada, id).await.state, Building);
    // A way that does not exist is refused, not tried.
    assert!(quick.advance(&[Ready], None).await.is_err());
    assert!(quick.advance(&[], None).await.is_err());
    assert!(quick.advance(&[Deploying, Ready], None).await.unwrap());
    assert_eq!(read(core, &ada, id).await.state, Ready);
}

async fn a_canceled_release_stops_its_worker(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let mut claim = claim_one(core).await;
    assert!(claim.advance(&[Building], None).await.unwrap());
    cancel_release(core, &ada, id).await.unwrap();
    assert!(!claim.advance(&[Deploying], None).await.unwrap());
    assert_eq!(read(core, &ada, id).await.state, Canceled);
}

async fn only_the_oldest_of_a_project_is_claimed(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    create(core, &ada, "other").await;
    let first = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    let second = deploy(core, &ada, "shop", &[("a", b"2")]).await;
    let other = deploy(core, &ada, "other", &[("a", b"3")]).await;
    let mut claims = Claim::take(core, 8).await.unwrap();
    let claimed: Vec<ReleaseId> = claims.iter().map(Claim::release).collect();
    assert_eq!(claimed, [first, other]);
    assert!(
        claims[0]
            .advance(&[Building, Deploying, Ready], None)
            .await
            .unwrap()
    );
    assert_eq!(claim_one(core).await.release(), second);
}

async fn states_have_deadlines(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    for (name, states, minutes, end) in [
        ("one", &[][..], 15, Failed),
        ("two", &[Building], 16, TimedOut),
        ("three", &[Building, Deploying], 2, TimedOut),
    ] {
        create(core, &ada, name).await;
        let id = deploy(core, &ada, name, &[("a", b"1")]).await;
        let mut claim = claim_one(core).await;
        for state in states {
            assert!(claim.advance(&[*state], None).await.unwrap());
        }
        core.clock.advance(Duration::from_secs(minutes * 60 - 10));
        end_overdue(core).await.unwrap();
        assert!(!read(core, &ada, id).await.state.is_terminal());
        core.clock.advance(Duration::from_secs(10));
        end_overdue(core).await.unwrap();
        let ended = read(core, &ada, id).await;
        assert_eq!(
            (ended.state, ended.fail_reason.as_deref()),
            (end, Some("timeout"))
        );
        assert!(ended.fail_message.unwrap().contains("minutes"));
        assert!(!claim.advance(&[Building], None).await.unwrap_or(false));
    }
}

async fn waiting_in_the_queue_is_not_being_worked_on(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let id = deploy(core, &ada, "shop", &[("a", b"1")]).await;
    // There was no slot for it: that is no fault of its own.
    core.clock.advance(Duration::from_hours(23));
    end_overdue(core).await.unwrap();
    assert_eq!(read(core, &ada, id).await.state, Pending);
    core.clock.advance(Duration::from_hours(1));
    end_overdue(core).await.unwrap();
    let ended = read(core, &ada, id).await;
    assert_eq!(ended.state, Failed);
    let message = ended.fail_message.unwrap();
    assert!(
        message.contains("queue for more than 24 hours"),
        "{message}"
    );
}

async fn many_releases_on_two_servers_all_become_ready(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    // On SQLite there is one server; there the second worker is a test of the rules all the same.
    let second = if core.db.is_sqlite() {
        Arc::clone(core)
    } else {
        at.another_core(Settings::default()).await
    };
    let workers = [RunningWorker::start(core), RunningWorker::start(&second)];
    let mut made = Vec::new();
    for number in 0..6 {
        let name = format!("site-{number}");
        create(core, &ada, &name).await;
        for round in 0..4_u8 {
            made.push(deploy(core, &ada, &name, &[("a", &[round])]).await);
        }
    }
    for (index, id) in made.iter().enumerate() {
        let release = finished(core, &ada, *id).await;
        assert_eq!(
            (release.state, release.current),
            (Ready, index % 4 == 3 || release.current)
        );
    }
    for id in made.iter().skip(3).step_by(4) {
        assert!(read(core, &ada, *id).await.current);
    }
    for worker in workers {
        worker.stop().await;
    }
}

async fn a_worker_that_is_dropped_leaves_nothing_stuck(at: &Installation) {
    let (core, ada) = (&at.core, owner(at, "ada").await);
    create(core, &ada, "shop").await;
    let mut made = Vec::new();
    for round in 0..10_u8 {
        made.push(deploy(core, &ada, "shop", &[("a", &[round])]).await);
        let worker = RunningWorker::start(core);
        tokio::time::sleep(Duration::from_millis(u64::from(round))).await;
        drop(worker);
        core.clock.advance(LEASE);
    }
    let worker = RunningWorker::start(core);
    for id in made {
        assert_eq!(finished(core, &ada, id).await.state, Ready);
    }
    worker.stop().await;
}
