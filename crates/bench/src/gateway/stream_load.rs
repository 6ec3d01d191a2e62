//! Many streams at once, on one thread: how soon they begin, and how many events come.

use crate::cores::Cores;
use anyhow::{Context, bail, ensure};
use mio::net::TcpStream;
use mio::{Events, Interest, Poll, Token};
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// What ends a stream: the last event, the end of its chunk, the last chunk.
const END: &[u8] = b"data: [DONE]\n\n\r\n0\r\n\r\n";

/// How long streams run before anything is counted: a server that has just started has other things to do as well.
const WARM_UP: Duration = Duration::from_secs(1);

/// What was measured.
#[derive(Clone, Copy)]
pub(super) struct Streamed {
    /// Events that came.
    pub(super) events: f64,
    /// CPU seconds that the server used.
    pub(super) cpu: f64,
    /// Median milliseconds until the first byte of the first event.
    pub(super) first: f64,
}

struct Reader {
    stream: TcpStream,
    sent_at: Instant,
    begun: bool,
    /// The last bytes that came, as many as [`END`] has.
    tail: Vec<u8>,
}

/// Streams on many connections.
pub(super) struct StreamLoad {
    poll: Poll,
    readers: Vec<Reader>,
    request: Vec<u8>,
    events: u64,
    firsts: Vec<f64>,
    begun: usize,
}

impl StreamLoad {
    /// Opens connections and asks for a stream on each, evenly within `spread`.
    pub(super) fn open(
        address: SocketAddr,
        request: &str,
        count: usize,
        spread: Duration,
    ) -> anyhow::Result<Self> {
        let mut load = Self {
            poll: Poll::new()?,
            readers: Vec::with_capacity(count),
            request: request.as_bytes().to_vec(),
            events: 0,
            firsts: Vec::new(),
            begun: 0,
        };
        let began = Instant::now();
        for index in 0..count {
            let due = began + spread.mul_f64(index as f64 / count as f64);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            let stream = std::net::TcpStream::connect(address).context("cannot connect")?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            let registry = load.poll.registry();
            registry.register(&mut stream, Token(index), Interest::READABLE)?;
            load.readers.push(Reader {
                stream,
                sent_at: Instant::now(),
                begun: false,
                tail: Vec::new(),
            });
            load.send(index)?;
        }
        Ok(load)
    }

    /// Reads for so long; a stream that has ended is asked for again.
    pub(super) fn work(&mut self, span: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + span;
        while Instant::now() < end {
            self.turn()?;
        }
        Ok(())
    }

    /// Reads until every stream has begun.
    pub(super) fn wait_until_all_begun(&mut self, patience: Duration) -> anyhow::Result<()> {
        let end = Instant::now() + patience;
        while self.begun < self.readers.len() {
            self.turn()?;
            ensure!(Instant::now() < end, "only {} streams began", self.begun);
        }
        Ok(())
    }

    fn turn(&mut self) -> anyhow::Result<()> {
        let mut events = Events::with_capacity(1024);
        match self.poll.poll(&mut events, Some(Duration::from_millis(1))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(()),
            other => other?,
        }
        for event in &events {
            let Token(index) = event.token();
            if self.receive(index)? {
                self.send(index)?;
            }
        }
        Ok(())
    }

    fn send(&mut self, index: usize) -> anyhow::Result<()> {
        let reader = &mut self.readers[index];
        (reader.sent_at, reader.begun) = (Instant::now(), false);
        reader.tail.clear();
        let sent = reader.stream.write(&self.request)?;
        ensure!(sent == self.request.len(), "a request did not fit");
        Ok(())
    }

    /// Reads what came; true when the stream has ended.
    fn receive(&mut self, index: usize) -> anyhow::Result<bool> {
        let reader = &mut self.readers[index];
        let mut chunk = [0; 16 * 1024];
        loop {
            let read = match reader.stream.read(&mut chunk) {
                Ok(0) => bail!("the server closed a stream"),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error.into()),
            };
            let came = &chunk[..read];
            let events = came.windows(6).filter(|it| it == b"data: ").count();
            self.events += events as u64;
            if !reader.begun && events > 0 {
                reader.begun = true;
                self.begun += 1;
                self.firsts
                    .push(reader.sent_at.elapsed().as_secs_f64() * 1000.0);
            }
            ensure!(
                reader.begun || came.starts_with(b"HTTP/1.1 200"),
                "{}",
                String::from_utf8_lossy(came)
            );
            reader.tail.extend_from_slice(came);
            let surplus = reader.tail.len().saturating_sub(END.len());
            reader.tail.drain(..surplus);
            if reader.tail == END {
                return Ok(true);
            }
        }
    }
}

/// Measures a window of `span` with so many streams at once, which begin within a time.
pub(super) fn measure(
    cores: &Cores,
    address: SocketAddr,
    request: &str,
    (count, spread): (usize, Duration),
    span: Duration,
    cpu: &dyn Fn() -> anyhow::Result<Duration>,
) -> anyhow::Result<Streamed> {
    cores.as_load(|| {
        let mut load = StreamLoad::open(address, request, count, spread)?;
        load.work(WARM_UP)?;
        (load.events, load.firsts) = (0, Vec::new());
        let before = cpu()?;
        load.work(span)?;
        let after = cpu()?;
        Ok(Streamed {
            events: load.events as f64,
            cpu: after.saturating_sub(before).as_secs_f64(),
            first: crate::stats::median(load.firsts),
        })
    })
}
