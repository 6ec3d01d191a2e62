//! Memory of a server that has nothing to do.

use crate::http;
use crate::installation::Site;
use crate::load;
use crate::report::{Row, Target, Unit};
use crate::suite::Bench;
use anyhow::ensure;
use std::thread::sleep;
use std::time::Duration;

/// What a server may still do after it is ready.
const SETTLE_DELAY: Duration = Duration::from_secs(3);
const REQUESTS: usize = 1000;

pub(super) fn run(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let site = Site::new(bench, "idle")?;
    let server = site.serve_everywhere(bench)?;
    sleep(SETTLE_DELAY);
    let target = Target::AtMost(25.0);
    let mebibytes = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let idle = mebibytes(server.child.memory()?);
    bench
        .report
        .add(Row::judged("memory, idle", idle, Unit::Mebibytes, target));

    let request = http::request("GET", "/v1/projects", Some(&server.token), None);
    let mut reads = Counted {
        request,
        left: REQUESTS,
    };
    load::send_all(server.platform, &mut reads)?;
    server.create_keys(REQUESTS)?;
    sleep(SETTLE_DELAY);
    let after = mebibytes(server.child.memory()?);
    let row = Row::judged(
        "… after 1,000 reads and 1,000 writes",
        after,
        Unit::Mebibytes,
        target,
    );
    bench
        .report
        .add(row.note("64 connections at once, closed again"));
    server.child.stop()
}

struct Counted {
    request: String,
    left: usize,
}

impl load::Traffic for Counted {
    fn request(&mut self, out: &mut Vec<u8>) -> bool {
        let more = self.left > 0;
        self.left = self.left.saturating_sub(1);
        if more {
            out.extend_from_slice(self.request.as_bytes());
        }
        more
    }

    fn response(&mut self, status: u16, _: &[u8]) -> anyhow::Result<()> {
        ensure!(status == 200, "status {status} instead of 200");
        Ok(())
    }
}
