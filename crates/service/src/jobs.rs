//! When the background jobs of this process ran last and how they failed, for the status page of administrators.
//!
//! In memory: one entry per job, the last error cut to a bounded length.

use estrade_model::Timestamp;
use estrade_model::sync::MutexExt;
use std::sync::Mutex;

/// How much is kept of an error, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// A job that a server repeats by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Job {
    /// Expired rows of every table are removed.
    RemoveExpired,
    /// Calls beyond their retention are removed, old usage is merged, audit logs that are too long are cut.
    PruneCalls,
    /// Contents that no release needs are removed.
    CollectBlobs,
    /// Images, layers, networks and volumes that nothing needs are removed from the engine.
    CollectImages,
    /// Certificates that are missing or about to end are ordered.
    OrderCertificates,
    /// DNS records of pending domains are looked up.
    CheckDomains,
}

impl Job {
    pub const ALL: [Self; 6] = [
        Self::RemoveExpired,
        Self::PruneCalls,
        Self::CollectBlobs,
        Self::CollectImages,
        Self::OrderCertificates,
        Self::CheckDomains,
    ];
}

/// What is known of a job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobReport {
    pub job: Job,
    /// When it last ended, well or not; none when it did not run yet.
    pub last_run: Option<Timestamp>,
    /// When it last failed, and why.
    pub last_error: Option<(Timestamp, String)>,
    /// Whether the run that ended last failed, or the one that is under way has.
    pub is_failing: bool,
    /// Whether something failed since a run ended last.
    has_new_error: bool,
}

/// What the jobs of this process report.
pub struct Jobs(Mutex<[JobReport; Job::ALL.len()]>);

impl Default for Jobs {
    fn default() -> Self {
        let report = |job| JobReport {
            job,
            last_run: None,
            last_error: None,
            is_failing: false,
            has_new_error: false,
        };
        Self(Mutex::new(Job::ALL.map(report)))
    }
}

impl Jobs {
    /// A run has ended.
    pub(crate) fn finish(&self, job: Job, now: Timestamp) {
        self.change(job, |report| {
            report.last_run = Some(now);
            report.is_failing = std::mem::take(&mut report.has_new_error);
        });
    }

    /// A run, or a part of one, has failed.
    pub(crate) fn fail(&self, job: Job, now: Timestamp, mut error: String) {
        if let Some((end, _)) = error.char_indices().nth(MAX_ERROR_CHARS) {
            error.truncate(end);
        }
        self.change(job, |report| {
            report.last_error = Some((now, error));
            (report.is_failing, report.has_new_error) = (true, true);
        });
    }

    pub fn list(&self) -> Vec<JobReport> {
        self.0.lock_ignoring_poison().to_vec()
    }

    fn change(&self, job: Job, change: impl FnOnce(&mut JobReport)) {
        let mut reports = self.0.lock_ignoring_poison();
        if let Some(report) = reports.iter_mut().find(|report| report.job == job) {
            change(report);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_and_the_last_error_stay() {
        let jobs = Jobs::default();
        assert_eq!(jobs.list().len(), Job::ALL.len());
        let at = Timestamp::from_millis;
        jobs.fail(Job::PruneCalls, at(1), "é".repeat(MAX_ERROR_CHARS + 1));
        jobs.finish(Job::PruneCalls, at(1));
        jobs.finish(Job::PruneCalls, at(2));
        for report in jobs.list() {
            let is_the_one = report.job == Job::PruneCalls;
            assert_eq!(report.last_run, is_the_one.then_some(at(2)));
            let error = is_the_one.then(|| (at(1), "é".repeat(MAX_ERROR_CHARS)));
            assert_eq!(report.last_error, error);
        }
    }

    #[test]
    fn a_run_that_ends_after_its_error_has_failed_and_the_next_has_not() {
        let jobs = Jobs::default();
        let is_failing = || {
            let reports = jobs.list().into_iter();
            let failing = reports.filter(|report| report.is_failing);
            failing.map(|report| report.job).collect::<Vec<_>>()
        };
        let at = Timestamp::from_millis;
        jobs.finish(Job::CollectImages, at(1));
        assert_eq!(is_failing(), []);
        jobs.fail(Job::CollectImages, at(2), "no".to_owned());
        assert_eq!(is_failing(), [Job::CollectImages]);
        jobs.finish(Job::CollectImages, at(3));
        assert_eq!(is_failing(), [Job::CollectImages]);
        jobs.finish(Job::CollectImages, at(4));
        assert_eq!(is_failing(), []);
    }
}
