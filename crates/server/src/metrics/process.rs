//! Metrics of the process, read from `/proc` at each scrape; none on other systems than Linux.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;
use std::fs;

/// The kernel counts a process's time in hundredths of a second, on every Linux.
const TICKS_PER_SECOND: f64 = 100.0;

/// Reads the numbers anew for each scrape.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut gauge = |name, help, value: Option<f64>| match value {
            Some(value) => {
                let metric = ConstGauge::new(value);
                metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
            }
            None => Ok(()),
        };
        gauge(
            "process_resident_memory_bytes",
            "Memory in use",
            resident_bytes(),
        )?;
        gauge("process_open_fds", "Open file descriptors", open_files())?;
        let stat = Stat::read();
        let started = stat.as_ref().and_then(Stat::start_time);
        gauge(
            "process_start_time_seconds",
            "When the process started",
            started,
        )?;
        if let Some(stat) = stat {
            let metric = ConstCounter::new(stat.cpu_seconds);
            metric.encode(encoder.encode_descriptor(
                "process_cpu_seconds",
                "Processor time used",
                None,
                metric.metric_type(),
            )?)?;
        }
        Ok(())
    }
}

fn resident_bytes() -> Option<f64> {
    let kibibytes = proc_field("/proc/self/status", "VmRSS:")?;
    Some(kibibytes * 1024.0)
}

fn open_files() -> Option<f64> {
    let count = fs::read_dir("/proc/self/fd").ok()?.count();
    // One of them is the directory that is being read.
    u32::try_from(count.saturating_sub(1)).ok().map(f64::from)
}

/// The number after a name in a file of names and numbers.
fn proc_field(path: &str, name: &str) -> Option<f64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The times in `/proc/self/stat`.
struct Stat {
    cpu_seconds: f64,
    /// Seconds between the machine's start and the process's.
    started_after_boot: f64,
}

impl Stat {
    fn read() -> Option<Self> {
        let text = fs::read_to_string("/proc/self/stat").ok()?;
        // The name in parentheses may hold anything; the fields after it start with the third.
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_whitespace().collect();
        let seconds =
            |field: usize| Some(fields.get(field - 3)?.parse::<f64>().ok()? / TICKS_PER_SECOND);
        Some(Self {
            cpu_seconds: seconds(14)? + seconds(15)?,
            started_after_boot: seconds(22)?,
        })
    }

    fn start_time(&self) -> Option<f64> {
        Some(proc_field("/proc/stat", "btime")? + self.started_after_boot)
    }
}
