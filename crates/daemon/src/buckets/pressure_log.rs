//! What the log is told of a bucket under pressure: each step when the bucket comes to it, and once that it has eased.
//! Under a steady load a bucket goes up and down many times a second. It counts as eased when it has kept away from a
//! step for a while. Also that the disk stands still, when that begins and when it is over.

use std::time::{Duration, Instant};

use engine::{PaceReport, Pressure};

/// How long a bucket has to keep away from the step that was told last.
const EASED_AFTER: Duration = Duration::from_secs(5);

/// What the log knows of one bucket.
#[derive(Default)]
pub(crate) struct PressureLog {
    step: Pressure,
    /// The bucket is below that step: since when, and how far up it has been meanwhile.
    below: Option<(Instant, Pressure)>,
    is_still: bool,
}

impl PressureLog {
    /// `why` is asked for when it is to be told.
    pub(crate) fn tell(
        &mut self,
        bucket: &str,
        report: &PaceReport,
        why: impl Fn() -> Option<&'static str>,
        now: Instant,
    ) {
        let before = self.step;
        self.note(report.step, now);
        for (step, name) in Pressure::ALL {
            if step > before && step <= self.step {
                tell_step(bucket, step, name, why());
            }
        }
        if self.step < before {
            let name = Pressure::ALL.iter().find(|entry| entry.0 == self.step).map(|entry| entry.1);
            tracing::info!(bucket, step = name, "pressure has eased");
        }
        if report.still != self.is_still {
            self.is_still = report.still;
            match report.still {
                true => {
                    tracing::error!(bucket, "the disk stands still: it has not finished a write for seconds")
                }
                false => tracing::info!(bucket, "the disk goes on"),
            }
        }
    }

    fn note(&mut self, step: Pressure, now: Instant) {
        if step >= self.step {
            (self.step, self.below) = (step, None);
            return;
        }
        let (since, highest) = self.below.unwrap_or((now, step));
        self.below = Some((since, highest.max(step)));
        if now.saturating_duration_since(since) >= EASED_AFTER {
            (self.step, self.below) = (highest.max(step), None);
        }
    }
}

fn tell_step(bucket: &str, step: Pressure, name: &str, why: Option<&str>) {
    match step {
        Pressure::None => {}
        Pressure::Paging => tracing::info!(bucket, step = name, "memory is above the high watermark"),
        Pressure::Cursors => tracing::warn!(bucket, step = name, "slow streams go on from disk"),
        Pressure::Pacing => {
            tracing::warn!(bucket, step = name, why, "writers are slowed down to what the disk takes");
        }
        Pressure::Refusing => {
            tracing::error!(bucket, step = name, why, "mutations are refused until there is room again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_comes_and_goes_is_told_once_and_that_it_has_eased_once() {
        let (mut log, begin) = (PressureLog::default(), Instant::now());
        let mut told = Vec::new();
        let mut at = |millis: u64, step| {
            log.note(step, begin + Duration::from_millis(millis));
            if told.last() != Some(&log.step) {
                told.push(log.step);
            }
        };
        for round in 0..100 {
            at(round * 20, Pressure::Refusing);
            at(round * 20 + 10, Pressure::Paging);
        }
        at(5_000, Pressure::Pacing);
        at(7_000, Pressure::None);
        at(7_100, Pressure::None);
        at(12_500, Pressure::None);
        assert_eq!(told, [Pressure::Refusing, Pressure::Pacing, Pressure::None]);
    }
}
