//! `kill -9` of the server.

use super::{Driver, check_converged, delete_all, docker_of, home_on, repeats, start};
use crate::support::random;
use estrade_testkit::{Docker, free_port};
use std::time::Duration;
use tokio::task::JoinSet;

/// Kills of the server in a full run.
const KILLS: usize = 50;
const PROJECTS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_shall_run_runs_after_a_kill_of_the_server_at_any_moment() {
    let socket = Docker::socket();
    let home = home_on(&socket);
    let edge = free_port();
    let mut server = start(&home, edge);
    let docker = docker_of(&home, &socket);
    for round in 0..repeats(KILLS) {
        let mut work = JoinSet::new();
        for project in 0..PROJECTS {
            let driver = Driver::of(&server);
            work.spawn(driver.change(format!("app-{project}")));
        }
        let moment = 200 + random() % 4000;
        tokio::time::sleep(Duration::from_millis(moment)).await;
        server.kill();
        work.join_all().await;
        server = start(&home, edge);
        check_converged(&server, edge, &docker).await;
        eprintln!("kill {round} after {moment} ms: settled");
    }
    delete_all(&server, &docker).await;
    server.stop();
}
