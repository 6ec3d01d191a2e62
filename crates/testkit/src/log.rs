//! Everything that the servers of this process have logged, at the finest level.

use estrade_model::sync::MutexExt;
use std::io;
use std::sync::{Mutex, MutexGuard, Once};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

static LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<u8>> {
    LINES.lock_ignoring_poison()
}

/// Starts to listen, as the program does; libraries are heard when something is wrong.
pub(crate) fn capture() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let subscriber = tracing_subscriber::fmt()
            .with_env_filter(EnvFilter::new("warn,estrade=trace"))
            .json()
            .flatten_event(true)
            .with_writer(Lines);
        subscriber.try_init().expect("one log per process");
    });
}

/// What was logged so far.
pub(crate) fn read() -> String {
    String::from_utf8_lossy(&lines()).into_owned()
}

struct Lines;

impl io::Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        lines().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'w> MakeWriter<'w> for Lines {
    type Writer = Self;

    fn make_writer(&'w self) -> Self {
        Self
    }
}
