//! The load: many keep-alive connections on one thread, each with one request at a time.
//!
//! Our own instead of a tool from a package, because it has to send bodies that differ, check every
//! response, and take little of the machine that it measures: one thread, one `poll` for all sockets,
//! two system calls per request.

use crate::cores::Cores;
use crate::{http, stats};
use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Connections at once.
const CONNECTIONS: usize = 64;
/// Before a window is measured: connections are made and caches are warm.
const WARM_UP: Duration = Duration::from_millis(300);
/// How long the last responses may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// What is sent, and what must come back.
pub(crate) trait Traffic {
    /// Appends the next request; false when there is none left.
    fn request(&mut self, out: &mut Vec<u8>) -> bool;
    /// The largest response, head and all.
    fn largest(&self) -> usize {
        64 * 1024
    }
    /// Looks at a response.
    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()>;
}

/// What was measured in one window.
#[derive(Clone, Copy)]
pub(crate) struct Sample {
    /// Requests answered.
    pub(crate) answered: f64,
    /// Seconds that the window took.
    pub(crate) seconds: f64,
    /// CPU seconds that the server used in it.
    pub(crate) cpu: f64,
    /// Milliseconds within which half of the requests were answered.
    pub(crate) p50: f64,
    /// Milliseconds within which 99 of 100 were.
    pub(crate) p99: f64,
}

impl Sample {
    /// Requests per second.
    pub(crate) fn rate(&self) -> f64 {
        self.answered / self.seconds
    }

    /// Requests per second of the server's CPU time.
    pub(crate) fn per_cpu(&self) -> f64 {
        self.answered / self.cpu.max(1e-9)
    }
}

/// Measures a window of `span`; `cpu` reads how much the server has used so far.
pub(crate) fn measure(
    cores: &Cores,
    address: SocketAddr,
    span: Duration,
    traffic: &mut dyn Traffic,
    cpu: &dyn Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Sample> {
    measure_all(cores, &[address], span, traffic, cpu)
}

/// The same with connections to all of these addresses in turn.
pub(crate) fn measure_all(
    cores: &Cores,
    addresses: &[SocketAddr],
    span: Duration,
    traffic: &mut dyn Traffic,
    cpu: &dyn Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Sample> {
    cores.as_load(|| {
        let mut load = Load::open(addresses, CONNECTIONS, traffic)?;
        if cores.are_divided() {
            load.sleep = Duration::ZERO;
        }
        load.measure(span, cpu)
    })
}

/// The same with so many connections, for a server whose own upstream is on the core of the load:
/// what waits must sleep.
pub(crate) fn measure_relay(
    cores: &Cores,
    address: SocketAddr,
    connections: usize,
    span: Duration,
    traffic: &mut dyn Traffic,
    cpu: &dyn Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Sample> {
    cores.as_load(|| Load::open(&[address], connections, traffic)?.measure(span, cpu))
}
/// Sends everything that `traffic` has, without measuring.
pub(crate) fn send_all(address: SocketAddr, traffic: &mut dyn Traffic) -> anyhow::Result<()> {
    let mut load = Load::open(&[address], CONNECTIONS, traffic)?;
    load.work(None)?;
    load.finish()
}

struct Load<'t> {
    poll: Poll,
    events: Events,
    connections: Vec<Connection>,
    traffic: &'t mut dyn Traffic,
    waiting: usize,
    latencies: Vec<u64>,
    /// How long to sleep when nothing came. Not at all on a core of our own: waking a client on
    /// the same machine would be counted as work of the server, the more so the slower it is.
    sleep: Duration,
}

struct Connection {
    stream: TcpStream,
    out: Vec<u8>,
    received: Box<[u8]>,
    filled: usize,
    sent_at: Instant,
}

impl<'t> Load<'t> {
    fn open(
        addresses: &[SocketAddr],
        connections: usize,
        traffic: &'t mut dyn Traffic,
    ) -> anyhow::Result<Self> {
        let largest = traffic.largest();
        let mut load = Self {
            poll: Poll::new()?,
            events: Events::with_capacity(connections),
            connections: Vec::with_capacity(connections),
            traffic,
            waiting: 0,
            latencies: Vec::with_capacity(1 << 20),
            sleep: Duration::from_millis(20),
        };
        for (index, address) in addresses.iter().cycle().take(connections).enumerate() {
            let stream = std::net::TcpStream::connect(address).context("cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let registry = load.poll.registry();
            registry.register(&mut stream, Token(index), Interest::READABLE)?;
            load.connections.push(Connection {
                stream,
                out: Vec::with_capacity(2048),
                received: vec![0; largest].into(),
                filled: 0,
                sent_at: Instant::now(),
            });
        }
        for index in 0..connections {
            load.send(index)?;
        }
        Ok(load)
    }

    /// Measures a window of `span`, after a while to get warm.
    fn measure(
        mut self,
        span: Duration,
        cpu: &dyn Fn() -> anyhow::Result<Duration>,
    ) -> anyhow::Result<Sample> {
        self.work(Some(WARM_UP))?;
        self.latencies.clear();
        let (began, cpu_before) = (Instant::now(), cpu()?);
        self.work(Some(span))?;
        let (seconds, cpu_after) = (began.elapsed().as_secs_f64(), cpu()?);
        let mut latencies = std::mem::take(&mut self.latencies);
        self.finish()?;
        latencies.sort_unstable();
        let millis = |percent| stats::percentile(&latencies, percent) as f64 / 1e6;
        Ok(Sample {
            answered: latencies.len() as f64,
            seconds,
            cpu: cpu_after.saturating_sub(cpu_before).as_secs_f64(),
            p50: millis(50),
            p99: millis(99),
        })
    }

    /// Keeps every connection busy for `span`, or until there is nothing left to send.
    fn work(&mut self, span: Option<Duration>) -> anyhow::Result<()> {
        let end = span.map(|span| Instant::now() + span);
        while self.waiting > 0 && end.is_none_or(|end| Instant::now() < end) {
            self.turn(true)?;
        }
        Ok(())
    }

    /// Waits for the responses that are still on their way.
    fn finish(mut self) -> anyhow::Result<()> {
        let end = Instant::now() + TIMEOUT;
        while self.waiting > 0 {
            self.turn(false)?;
            ensure!(
                Instant::now() < end,
                "{} responses are missing",
                self.waiting
            );
        }
        Ok(())
    }

    fn turn(&mut self, send: bool) -> anyhow::Result<()> {
        let mut events = std::mem::replace(&mut self.events, Events::with_capacity(0));
        match self.poll.poll(&mut events, Some(self.sleep)) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            other => other?,
        }
        for event in &events {
            let Token(index) = event.token();
            if self.receive(index)? && send {
                self.send(index)?;
            }
        }
        self.events = events;
        Ok(())
    }

    fn send(&mut self, index: usize) -> anyhow::Result<()> {
        let connection = &mut self.connections[index];
        connection.out.clear();
        if !self.traffic.request(&mut connection.out) {
            return Ok(());
        }
        connection.sent_at = Instant::now();
        // The last response is here, so the last request has left: a small one always fits.
        let sent = connection.stream.write(&connection.out)?;
        ensure!(sent == connection.out.len(), "a request did not fit");
        self.waiting += 1;
        Ok(())
    }

    /// Reads what came; true when that completes a response.
    fn receive(&mut self, index: usize) -> anyhow::Result<bool> {
        let connection = &mut self.connections[index];
        loop {
            let room = &mut connection.received[connection.filled..];
            ensure!(!room.is_empty(), "a response is too large");
            match connection.stream.read(room) {
                Ok(0) => bail!("the server closed a connection"),
                Ok(read) => connection.filled += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            }
            let Some(found) = http::parse(&connection.received[..connection.filled])? else {
                continue;
            };
            let end = found.head + found.body;
            ensure!(end == connection.filled, "more bytes than announced");
            let took = connection.sent_at.elapsed().as_nanos();
            self.latencies.push(u64::try_from(took)?);
            let body = &connection.received[found.head..end];
            self.traffic.response(found.status, body)?;
            connection.filled = 0;
            self.waiting -= 1;
            return Ok(true);
        }
    }
}

/// Requests that are ready, one after the other and again from the start; all must answer 200.
pub(crate) struct Repeat {
    requests: Vec<Vec<u8>>,
    next: usize,
    length: Option<usize>,
}

impl Repeat {
    /// Every response's body must be `length` bytes long, if given.
    pub(crate) fn new(requests: impl IntoIterator<Item = String>, length: Option<usize>) -> Self {
        Self {
            requests: requests.into_iter().map(String::into_bytes).collect(),
            next: 0,
            length,
        }
    }
}

impl Traffic for Repeat {
    fn largest(&self) -> usize {
        self.length.unwrap_or_default() + 64 * 1024
    }

    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(request) = self.requests.get(self.next) else {
            return false;
        };
        out.extend_from_slice(request);
        self.next = (self.next + 1) % self.requests.len();
        true
    }

    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        ensure!(status == 200, "status {status} instead of 200");
        let expected = self.length.is_none_or(|length| length == body.len());
        ensure!(expected, "a body of {} bytes", body.len());
        Ok(())
    }
}

/// Every request once; all must answer 200.
pub(crate) struct Once {
    requests: Repeat,
    left: usize,
}

impl Once {
    /// Every response's body must be `length` bytes long.
    pub(crate) fn new(requests: impl IntoIterator<Item = String>, length: usize) -> Self {
        let requests = Repeat::new(requests, Some(length));
        Self {
            left: requests.requests.len(),
            requests,
        }
    }
}

impl Traffic for Once {
    fn largest(&self) -> usize {
        self.requests.largest()
    }

    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        more && self.requests.request(out)
    }

    fn response(&mut self, status: u16, body: &[u8]) -> anyhow::Result<()> {
        self.requests.response(status, body)
    }
}
