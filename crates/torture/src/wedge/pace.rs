//! Writes that are accepted, second by second: what says that loaders are served.

use crate::loaders::Crew;
use base::Status;
use std::fmt;
use std::time::Instant;

/// Since a moment.
pub(super) struct Pace {
    began: Instant,
    first: u64,
    last: u64,
    /// In the worst second; as high as can be before the first is over.
    pub(super) worst: u64,
}

impl Pace {
    pub(super) fn begin(crew: &Crew) -> Pace {
        let accepted = crew.tally().count(Status::Success);
        Pace { began: Instant::now(), first: accepted, last: accepted, worst: u64::MAX }
    }

    /// A second is over; how many were accepted in it.
    pub(super) fn note(&mut self, crew: &Crew) -> u64 {
        let accepted = crew.tally().count(Status::Success);
        let new = accepted - self.last;
        self.last = accepted;
        self.worst = self.worst.min(new);
        new
    }

    pub(super) fn accepted(&self) -> u64 {
        self.last - self.first
    }
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.began.elapsed().as_secs_f64();
        let rate = self.accepted() as f64 / seconds.max(f64::MIN_POSITIVE);
        write!(f, "{rate:.0} writes/s in {seconds:.0} s")?;
        if self.worst == u64::MAX { Ok(()) } else { write!(f, ", {} in the worst second", self.worst) }
    }
}
