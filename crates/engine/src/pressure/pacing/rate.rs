//! How fast something is done, measured by what was done: what the disk takes of what is dirty, what compaction reclaims.
//!
//! A disk that was given little has shown little. So a sample counts in full only when something was left waiting.
//! Otherwise it counts only if it is better than what is known. Batches end in jerks, so samples are smoothed over a
//! second.

/// Samples are no shorter.
const SAMPLE_MILLIS_MIN: u64 = 50;
/// What happened this long ago counts about a third.
const MEMORY_MILLIS: f64 = 1_000.0;

/// What was seen last.
#[derive(Clone, Copy, Debug)]
struct Seen {
    at: u64,
    done: u64,
    backlog: u64,
}

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct MeasuredRate {
    /// Nothing until something was done.
    bytes_per_sec: Option<f64>,
    seen: Option<Seen>,
}

impl MeasuredRate {
    /// Takes note: it is through with `done` bytes, ever, and `backlog` wait for it.
    pub(super) fn observe(&mut self, now_millis: u64, done: u64, backlog: u64) {
        let now = Seen { at: now_millis, done, backlog };
        let Some(before) = self.seen else {
            self.seen = Some(now);
            return;
        };
        let millis = now_millis.saturating_sub(before.at);
        if millis < SAMPLE_MILLIS_MIN {
            return;
        }
        self.seen = Some(now);
        let bytes = done.saturating_sub(before.done);
        let sample = bytes as f64 * 1e3 / millis as f64;
        let was_busy = before.backlog > bytes;
        match &mut self.bytes_per_sec {
            None if bytes > 0 => self.bytes_per_sec = Some(sample),
            Some(known) if was_busy || sample > *known => {
                *known += (sample - *known) * (1.0 - (-(millis as f64) / MEMORY_MILLIS).exp());
            }
            _ => {}
        }
    }

    /// Bytes per second; `None` before anything was done.
    pub(super) fn known(&self) -> Option<f64> {
        self.bytes_per_sec
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that takes `rate` bytes per second in jerks of a quarter of a second.
    fn run(drain: &mut MeasuredRate, from: u64, seconds: u64, rate: u64, backlog: u64, drained: &mut u64) {
        for step in 1..=seconds * 10 {
            if step % 5 == 0 {
                *drained += rate / 2;
            }
            drain.observe(from + step * 100, *drained, backlog);
        }
    }

    #[test]
    fn a_busy_disk_is_known_within_seconds() {
        let (mut drain, mut drained) = (MeasuredRate::default(), 0);
        run(&mut drain, 0, 5, 10_000_000, 100_000_000, &mut drained);
        let known = drain.known().unwrap();
        assert!((6e6..14e6).contains(&known), "{known}");
        run(&mut drain, 5_000, 5, 1_000_000, 100_000_000, &mut drained);
        let known = drain.known().unwrap();
        assert!((0.6e6..1.5e6).contains(&known), "slower now: {known}");
    }

    #[test]
    fn an_idle_disk_has_not_become_slow() {
        let (mut drain, mut drained) = (MeasuredRate::default(), 0);
        run(&mut drain, 0, 5, 10_000_000, 100_000_000, &mut drained);
        let before = drain.known().unwrap();
        run(&mut drain, 5_000, 60, 0, 0, &mut drained);
        run(&mut drain, 65_000, 60, 1_000, 0, &mut drained);
        // The first sample still belongs to what was waiting before.
        assert!(drain.known().unwrap() > before * 0.85, "{before} {}", drain.known().unwrap());
    }
}
