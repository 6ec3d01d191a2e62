//! Whatever happens in whatever order, releases keep to their states and come to an end.

use crate::acting::{RunningWorker, create, deploy, finished, owner};
use crate::support::Installation;
use estrade_model::event::Event;
use estrade_model::release::{Release, ReleaseState};
use estrade_model::{ReleaseId, Timestamp};
use estrade_service::platform::events::events_after;
use estrade_service::platform::releases::{
    Claim, cancel_release, end_overdue, list_releases, rollback_release, summarize_releases,
};
use estrade_service::{Scope, platform::envs};
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::TestRunner;
use std::collections::HashMap;
use std::time::Duration;

/// Something that a person, a worker or fate does.
#[derive(Debug, Clone)]
enum Act {
    Deploy,
    UpdateEnvs,
    Cancel(Index),
    RollBack(Index),
    /// A worker looks for something to do.
    Claim,
    /// A worker tries to move on, also where no way leads.
    Advance(Index, Vec<ReleaseState>),
    /// A worker dies.
    Crash(Index),
    TimePasses(u64),
    EndOverdue,
}

fn any_act() -> impl Strategy<Value = Act> {
    use ReleaseState::{Building, Deploying, Failed, Ready, Unhealthy};
    let likely = vec![
        vec![Building],
        vec![Deploying],
        vec![Ready],
        vec![Building, Deploying, Ready],
        vec![Failed],
        vec![Deploying, Unhealthy],
    ];
    let unlikely = proptest::collection::vec(select(ReleaseState::ALL), 0..3);
    let steps = prop_oneof![4 => select(likely), 1 => unlikely];
    prop_oneof![
        3 => Just(Act::Deploy),
        1 => Just(Act::UpdateEnvs),
        1 => any::<Index>().prop_map(Act::Cancel),
        1 => any::<Index>().prop_map(Act::RollBack),
        4 => Just(Act::Claim),
        8 => (any::<Index>(), steps).prop_map(|(claim, steps)| Act::Advance(claim, steps)),
        1 => any::<Index>().prop_map(Act::Crash),
        2 => select(vec![1, 6, 130, 1000, 90_000]).prop_map(Act::TimePasses),
        1 => Just(Act::EndOverdue),
    ]
}

/// One project and everything that happens to it.
struct ProjectFixture<'w> {
    at: &'w Installation,
    ada: &'w Scope,
    project: String,
    claims: Vec<Claim>,
}

impl ProjectFixture<'_> {
    async fn releases(&self) -> Vec<Release> {
        list_releases(&self.at.core, self.ada, &self.project, None, 1000, 0)
            .await
            .unwrap()
    }

    async fn act(&mut self, act: Act) {
        let core = &self.at.core;
        match act {
            Act::Deploy => {
                deploy(core, self.ada, &self.project, &[("a", b"1")]).await;
            }
            Act::UpdateEnvs => {
                envs::update_envs(core, self.ada, &self.project, Vec::new())
                    .await
                    .unwrap();
            }
            // Both may be refused; what they must not do is checked below.
            Act::Cancel(index) => {
                if let Some(id) = self.pick(&index).await {
                    drop(cancel_release(core, self.ada, id).await);
                }
            }
            Act::RollBack(index) => {
                if let Some(id) = self.pick(&index).await {
                    drop(rollback_release(core, self.ada, id).await);
                }
            }
            Act::Claim => self.claims.extend(Claim::take(core, 3).await.unwrap()),
            Act::Advance(index, steps) => {
                if !self.claims.is_empty() {
                    let claim = index.index(self.claims.len());
                    let claim = &mut self.claims[claim];
                    let exists = !steps.is_empty()
                        && steps
                            .iter()
                            .try_fold(claim.state(), |from, &to| from.may_become(to).then_some(to))
                            .is_some();
                    assert_eq!(claim.advance(&steps, None).await.is_ok(), exists);
                }
            }
            Act::Crash(index) => {
                if !self.claims.is_empty() {
                    drop(self.claims.swap_remove(index.index(self.claims.len())));
                }
            }
            Act::TimePasses(seconds) => core.clock.advance(Duration::from_secs(seconds)),
            Act::EndOverdue => end_overdue(core).await.unwrap(),
        }
    }

    async fn pick(&self, index: &Index) -> Option<ReleaseId> {
        let releases = self.releases().await;
        (!releases.is_empty()).then(|| releases[index.index(releases.len())].id)
    }

    /// At most one release is being worked on, and it is the oldest unfinished one.
    async fn check_order(&self) {
        let releases = self.releases().await;
        let mut unfinished = releases.iter().rev().filter(|it| !it.state.is_terminal());
        unfinished.next();
        for later in unfinished {
            assert_eq!(
                later.state,
                ReleaseState::Pending,
                "{} overtook another",
                later.tag
            );
        }
        for release in &releases {
            let finished: Option<Timestamp> = release.finished_at;
            assert_eq!(release.state.is_terminal(), finished.is_some());
        }
    }

    /// Everything ends by itself, and the events tell only ways that exist.
    async fn check_end(&mut self) {
        self.claims.clear();
        let core = &self.at.core;
        core.clock.advance(Duration::from_secs(6));
        let worker = RunningWorker::start(core);
        for release in self.releases().await {
            finished(core, self.ada, release.id).await;
        }
        worker.stop().await;

        let events = events_after(core, self.ada, &self.project, None, 10_000)
            .await
            .unwrap();
        let mut states: HashMap<ReleaseId, ReleaseState> = HashMap::new();
        let mut last_ready = None;
        for Event {
            release, status, ..
        } in &events
        {
            let Some(release) = release else { continue };
            let to: ReleaseState = status.parse().unwrap();
            match states.insert(*release, to) {
                None => assert_eq!(to, ReleaseState::Pending),
                Some(from) => assert!(from.may_become(to), "{from} became {to}"),
            }
            if to == ReleaseState::Ready {
                last_ready = Some(*release);
            }
        }
        let releases = self.releases().await;
        assert_eq!(releases.len(), states.len());
        for release in &releases {
            assert_eq!(states[&release.id], release.state);
        }
        let summary = summarize_releases(core, self.ada, &self.project)
            .await
            .unwrap();
        let ready = releases
            .iter()
            .filter(|it| it.state == ReleaseState::Ready)
            .count();
        assert_eq!((summary.ready, summary.current), (ready as u64, last_ready));
        assert_eq!(summary.total, releases.len() as u64);
    }
}

fn check_any_sequence(installation: impl Future<Output = Installation>) {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    let full = std::env::var_os("ESTRADE_TEST_FULL").is_some();
    let mut runner = TestRunner::new(ProptestConfig {
        cases: if full { 300 } else { 24 },
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    });
    let at = runtime.block_on(installation);
    let ada = runtime.block_on(owner(&at, "ada"));
    let number = std::cell::Cell::new(0);
    let outcome = runner.run(&proptest::collection::vec(any_act(), 1..40), |acts| {
        let counter = number.replace(number.get() + 1);
        runtime.block_on(async {
            let project = format!("site-{counter}");
            create(&at.core, &ada, &project).await;
            let mut fixture = ProjectFixture {
                at: &at,
                ada: &ada,
                project,
                claims: Vec::new(),
            };
            for act in acts {
                fixture.act(act).await;
                fixture.check_order().await;
            }
            fixture.check_end().await;
        });
        Ok(())
    });
    runtime.block_on(at.remove());
    outcome.unwrap();
}

#[test]
fn any_sequence_keeps_the_rules_on_sqlite() {
    check_any_sequence(Installation::on_sqlite());
}

#[test]
fn any_sequence_keeps_the_rules_on_postgres() {
    check_any_sequence(Installation::on_postgres());
}
