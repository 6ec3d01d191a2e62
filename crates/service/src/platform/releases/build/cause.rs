//! Why a build failed, and the output that says so.

use super::engine::broken;
use crate::Error;
use crate::platform::releases::step_error::StepError;
use crate::platform::releases::transition::Failure;
use estrade_buildpacks::{BuildPlan, FailedBuild, PlanError, readable_step};
use estrade_model::release::ReleaseState;
use estrade_runtime::BuildError;
use std::collections::VecDeque;
use std::time::Duration;

/// Lines of the step that failed that are looked at.
const MAX_LINES: usize = 200;
/// How much of them, in bytes.
const MAX_BYTES: usize = 64 * 1024;
/// How much of one of them.
const MAX_LINE_BYTES: usize = 2000;

/// Why there is no plan for these sources.
pub(super) fn refused(error: PlanError) -> StepError {
    match error {
        PlanError::Refused { .. } => StepError::Failed(Failure {
            reason: "build_refused",
            message: error.to_string(),
        }),
        PlanError::Unreadable { .. } => StepError::Broken(Error::internal(error)),
    }
}

/// The end of the present step's output.
#[derive(Debug, Default)]
pub(super) struct StepOutput {
    step: Option<String>,
    lines: VecDeque<String>,
    bytes: usize,
}

impl StepOutput {
    pub(super) fn add(&mut self, line: &str) {
        let end = line.floor_char_boundary(MAX_LINE_BYTES);
        let line = line.get(..end).unwrap_or_default();
        if line.starts_with("Step ") && line.contains(" : ") {
            *self = Self {
                step: Some(line.to_owned()),
                ..Self::default()
            };
            return;
        }
        self.bytes += line.len();
        self.lines.push_back(line.to_owned());
        while self.lines.len() > MAX_LINES || self.bytes > MAX_BYTES {
            let Some(gone) = self.lines.pop_front() else {
                return;
            };
            self.bytes -= gone.len();
        }
    }

    /// The step, as a person would write it.
    fn step(&self) -> Option<String> {
        let step = self.step.as_ref()?;
        Some(readable_step(step).unwrap_or_else(|| step.clone()))
    }
}

/// What the end of a build means for its release. `memory` is that of a step, in bytes.
pub(super) fn explain(
    plan: &BuildPlan,
    output: &StepOutput,
    memory: u64,
    error: BuildError,
) -> StepError {
    match error {
        BuildError::Failed {
            step,
            code,
            message,
        } => {
            let failed = FailedBuild {
                outcome: &plan.outcome,
                step: step.as_deref(),
                code,
                message: &message,
                output: output.lines.iter().map(String::as_str).collect(),
                memory: memory >> 20,
            };
            StepError::Failed(Failure {
                reason: "build_failed",
                message: failed.explain(),
            })
        }
        BuildError::TimedOut(limit) => StepError::Ended(
            ReleaseState::TimedOut,
            Failure {
                reason: "timeout",
                message: timed_out(limit, output),
            },
        ),
        BuildError::Context(_) => StepError::Broken(Error::internal(error)),
        BuildError::Engine(error) => broken(error),
    }
}

fn timed_out(limit: Duration, output: &StepOutput) -> String {
    let seconds = limit.as_secs();
    let limit = if seconds.is_multiple_of(60) {
        format!("{} minutes", seconds / 60)
    } else {
        format!("{seconds} seconds")
    };
    let step = output.step().map(|step| format!("\n{step}"));
    format!(
        "the build took longer than {limit} and was stopped; make its last step quicker, or raise docker.build_minutes{}",
        step.unwrap_or_default()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_end_of_the_present_step_is_kept() {
        let mut output = StepOutput::default();
        output.add("Step 1/9 : RUN before");
        output.add("Error: of another step");
        output.add("Step 2/9 : RUN [\"make\",\"all\"]");
        assert!(output.lines.is_empty());
        for number in 0..1000 {
            output.add(&format!("{number} é{}", "x".repeat(5000)));
        }
        assert!(output.bytes <= MAX_BYTES, "{}", output.bytes);
        assert_eq!(
            output.bytes,
            output.lines.iter().map(String::len).sum::<usize>()
        );
        assert!(output.lines.back().unwrap().starts_with("999 é"));
        for _ in 0..1000 {
            output.add("x");
        }
        assert_eq!(output.lines.len(), MAX_LINES);
        let told = timed_out(Duration::from_mins(15), &output);
        assert_eq!(
            told,
            "the build took longer than 15 minutes and was stopped; make its last step quicker, or raise docker.build_minutes\nStep 2/9 : RUN make all"
        );
    }
}
