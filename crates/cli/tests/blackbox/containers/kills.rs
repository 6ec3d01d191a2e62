//! `kill -9` of the server.

use super::{Driver, check_converged, delete_all, docker_of, home_on, repeats};
use crate::support::{Server, random};
use estrade_testkit::Docker;
use std::time::Duration;
use tokio::task::JoinSet;

/// Kills of the server in a full run.
const KILLS: usize = 50;
const PROJECTS: usize = 3;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_shall_run_runs_after_a_kill_of_the_server_at_any_moment() {
    let socket = Docker::socket();
    let home = home_on(&socket);
    let mut server = Server::start(&home);
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
        server = Server::start(&home);
        check_converged(&server, &docker).await;
        eprintln!("kill {round} after {moment} ms: settled");
    }
    delete_all(&server, &docker).await;
    server.stop();
}
