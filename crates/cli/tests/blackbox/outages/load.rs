//! Clients that deploy and call through every node, and what they were told.

use super::SLACK;
use super::installation::project_name;
use crate::bucket::cluster::Node;
use crate::inference::MODEL;
use crate::support::text;
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

/// Between two requests of a client: the machine shall have time for everything else.
const PAUSE: Duration = Duration::from_millis(50);
const ECHO: &str = "estrade/echo";

/// A release that got a 201.
#[derive(Clone)]
pub(super) struct Deployed {
    pub(super) project: usize,
    pub(super) release: String,
    pub(super) page: String,
    node: usize,
    at: Instant,
}

/// A call whose response came to its end.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) id: String,
    node: usize,
    began: Instant,
    at: Instant,
    /// With a key that has no budget, to the model that costs nothing.
    is_free: bool,
}

/// What clients were told.
#[derive(Default)]
pub(super) struct Observed {
    releases: Mutex<Vec<Deployed>>,
    calls: Mutex<Vec<Call>>,
    failures: Mutex<Vec<(usize, Instant, String)>>,
    counter: AtomicU64,
}

impl Observed {
    pub(super) fn releases(&self) -> Vec<Deployed> {
        self.releases.lock().unwrap().clone()
    }

    pub(super) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }

    fn fail(&self, node: usize, began: Instant, what: String) {
        let mut failures = self.failures.lock().unwrap();
        failures.push((node, began, what));
    }

    /// The failures of requests that a node was sent since a moment.
    pub(super) fn failures(&self, node: usize, since: Instant) -> Vec<String> {
        let failures = self.failures.lock().unwrap();
        let of = failures
            .iter()
            .filter(|(of, at, _)| *of == node && *at >= since);
        of.map(|(_, _, what)| what.clone()).collect()
    }

    /// The longest time since a moment in which no free call of a node was answered.
    pub(super) fn longest_gap(&self, node: usize, since: Instant) -> Duration {
        let calls = self.calls.lock().unwrap();
        let of = calls
            .iter()
            .filter(|it| it.node == node && it.is_free && it.at >= since);
        let mut last = since;
        let mut longest = Duration::ZERO;
        for at in of.map(|call| call.at).chain([Instant::now()]) {
            longest = longest.max(at.saturating_duration_since(last));
            last = at;
        }
        longest
    }

    /// When the first request of each kind succeeded that a node was sent after a moment.
    fn first_successes(&self, node: usize, since: Instant) -> Option<[Instant; 3]> {
        let calls = self.calls.lock().unwrap();
        let call = |is_free| {
            let mut of = calls
                .iter()
                .filter(|it| it.node == node && it.began >= since);
            of.find(|it| it.is_free == is_free).map(|it| it.at)
        };
        let releases = self.releases.lock().unwrap();
        let deployed = releases.iter().find(|it| it.node == node && it.at >= since);
        Some([deployed?.at, call(true)?, call(false)?])
    }
}

/// Clients at work; they end when it is dropped.
pub(super) struct Load {
    pub(super) observed: Arc<Observed>,
    stop: Arc<AtomicBool>,
    clients: JoinSet<()>,
}

impl Load {
    /// A client that deploys and two that call, for each of these nodes.
    pub(super) fn start(all: &[Node], nodes: &[usize], free: &str, counted: &str) -> Self {
        let mut load = Self {
            observed: Arc::default(),
            stop: Arc::default(),
            clients: JoinSet::new(),
        };
        for number in nodes.iter().copied() {
            let node = &all[number];
            let client = |token: &str| Client {
                node: number,
                http: node.server().client.clone(),
                platform: node.server().platform.clone(),
                ai: node.server().ai.clone(),
                token: token.to_owned(),
                observed: Arc::clone(&load.observed),
                stop: Arc::clone(&load.stop),
            };
            let clients = [client(&node.token()), client(free), client(counted)];
            let [deployer, free, counted] = clients;
            load.clients.spawn(deployer.deploy());
            load.clients.spawn(free.call(ECHO));
            load.clients.spawn(counted.call(MODEL));
        }
        load
    }

    /// Waits until these nodes have taken a deploy and answered a call of each kind that began from now on; how long
    /// it took until the last did.
    pub(super) async fn await_successes(&self, nodes: &[usize]) -> Duration {
        let began = Instant::now();
        loop {
            let first = nodes
                .iter()
                .map(|node| self.observed.first_successes(*node, began));
            if let Some(all) = first.collect::<Option<Vec<_>>>() {
                let last = all.into_iter().flatten().max();
                return last.unwrap_or(began).saturating_duration_since(began);
            }
            let failures: Vec<_> = nodes
                .iter()
                .flat_map(|node| {
                    self.observed
                        .failures(*node, began)
                        .into_iter()
                        .rev()
                        .take(3)
                })
                .collect();
            assert!(
                began.elapsed() < SLACK * 2,
                "not every node works: {failures:#?}"
            );
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Lets the clients end their requests.
    pub(super) async fn stop(mut self) -> Arc<Observed> {
        self.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.clients.join_next().await {
            ended.unwrap();
        }
        let releases = self.observed.releases.lock().unwrap().len();
        let failures = self.observed.failures.lock().unwrap().len();
        eprintln!("{releases} releases acknowledged, {failures} requests failed");
        Arc::clone(&self.observed)
    }
}

struct Client {
    node: usize,
    http: reqwest::Client,
    platform: String,
    ai: String,
    token: String,
    observed: Arc<Observed>,
    stop: Arc<AtomicBool>,
}

impl Client {
    async fn deploy(self) {
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            let number = self.observed.counter.fetch_add(1, Ordering::Relaxed);
            let page = format!("<h1>{number}</h1>");
            let project = usize::try_from(number).unwrap() % super::installation::PROJECTS;
            let url = format!(
                "{}/v2/projects/{}/releases",
                self.platform,
                project_name(project)
            );
            let body = json!({"files": [{"path": "index.html", "data": page}]});
            match self.send(&url, &body, 201).await {
                Ok((_, response)) => {
                    let made: Value = serde_json::from_str(&response).unwrap();
                    self.observed.releases.lock().unwrap().push(Deployed {
                        project,
                        release: text(&made["releaseID"]),
                        page,
                        node: self.node,
                        at: Instant::now(),
                    });
                }
                Err(why) => self
                    .observed
                    .fail(self.node, began, format!("deploy: {why}")),
            }
            tokio::time::sleep(PAUSE * 4).await;
        }
    }

    async fn call(self, model: &str) {
        let url = format!("{}/v1/chat/completions", self.ai);
        let message = json!({"role": "user", "content": "hi"});
        let body = json!({"model": model, "messages": [message], "max_tokens": 1});
        while !self.stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            match self.send(&url, &body, 200).await {
                Ok((id, _)) => self.observed.calls.lock().unwrap().push(Call {
                    id,
                    node: self.node,
                    began,
                    at: Instant::now(),
                    is_free: model == ECHO,
                }),
                Err(why) => self
                    .observed
                    .fail(self.node, began, format!("{model}: {why}")),
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// The id of the call and the body; why there is none.
    async fn send(
        &self,
        url: &str,
        body: &Value,
        expected: u16,
    ) -> Result<(String, String), String> {
        let request = self.http.post(url).bearer_auth(&self.token).json(body);
        let response = request.send().await.map_err(|error| format!("{error:?}"))?;
        let status = response.status().as_u16();
        let id = response.headers().get("x-estrade-call");
        let id = id.map_or_else(String::new, |id| id.to_str().unwrap().to_owned());
        let text = response
            .text()
            .await
            .map_err(|error| format!("{error:?}"))?;
        // Whatever is away, a request is refused and not broken.
        assert!(status == expected || status >= 429, "{status} {text}");
        assert_ne!(status, 500, "{text}");
        if status == expected {
            Ok((id, text))
        } else {
            Err(format!("{status} {text}"))
        }
    }
}
