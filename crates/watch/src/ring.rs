//! What was counted in the past: by the minute for six hours, by the hour for ninety days.
//!
//! A slot says which minute or hour it is of. So a clock that is set forth or back leaves nothing that is taken for something else.
//! A span is the slots of so many minutes or hours, the one under way among them.

use crate::burn::{Counts, Span, Spans};

/// Minutes that are kept: as many as the longest span that is counted by the minute.
pub const MINUTES: usize = Span::Hours6.minutes() as usize;
/// The longest period of an objective, in days.
pub const PERIOD_DAYS_MAX: u16 = 90;
/// Hours that are kept.
pub const HOURS: usize = PERIOD_DAYS_MAX as usize * 24;

/// What was counted in a minute or an hour.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot {
    /// Minutes or hours since 1970. 0: never used.
    pub(crate) at: u32,
    pub(crate) counts: Counts,
}

/// Slots of one length, each in the place of its time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Tier(Box<[Slot]>);

impl Tier {
    fn new(slots: usize) -> Self {
        Self(vec![Slot::default(); slots].into())
    }

    pub(crate) fn add(&mut self, at: u32, counts: Counts) {
        let place = at as usize % self.0.len().max(1);
        let Some(slot) = self.0.get_mut(place) else { return };
        if slot.at != at {
            *slot = Slot { at, counts: Counts::default() };
        }
        slot.counts = slot.counts.plus(counts);
    }

    /// The newest `slots` ones. Alerts ask for all spans of all objectives each second, so only these are looked at.
    fn sum(&self, now: u32, slots: u32) -> Counts {
        let places = self.0.len().max(1);
        let of = |at: u32| self.0.get(at as usize % places).filter(|slot| slot.at == at);
        let newest =
            (0..slots.min(u32::try_from(places).unwrap_or(u32::MAX))).map_while(|ago| now.checked_sub(ago));
        newest.filter_map(of).fold(Counts::default(), |sum, slot| sum.plus(slot.counts))
    }

    /// Those in which something was counted.
    pub(crate) fn used(&self) -> impl Iterator<Item = &Slot> {
        self.0.iter().filter(|slot| slot.counts.total > 0)
    }
}

/// The past of one objective on one node. It takes [`Ring::BYTES`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    pub(crate) minutes: Tier,
    pub(crate) hours: Tier,
}

impl Default for Ring {
    fn default() -> Self {
        Self { minutes: Tier::new(MINUTES), hours: Tier::new(HOURS) }
    }
}

impl Ring {
    /// What one takes in memory: 60 KiB.
    pub const BYTES: usize = (MINUTES + HOURS) * size_of::<Slot>();

    /// Adds what was counted just now.
    pub fn add(&mut self, now_secs: u64, counts: Counts) {
        if counts.total == 0 {
            return;
        }
        self.minutes.add(minute(now_secs), counts);
        self.hours.add(minute(now_secs) / 60, counts);
    }

    /// What was counted over every span, and over a period of so many days.
    #[must_use]
    pub fn spans(&self, now_secs: u64, period_days: u16) -> Spans {
        let (now, hours) = (minute(now_secs), |hours: u32| self.hours.sum(minute(now_secs) / 60, hours));
        let spans = Span::ALL.map(|span| match span.minutes() {
            minutes if minutes as usize <= MINUTES => self.minutes.sum(now, minutes),
            minutes => hours(minutes / 60),
        });
        Spans { spans, period: hours(u32::from(period_days.min(PERIOD_DAYS_MAX)) * 24) }
    }
}

fn minute(secs: u64) -> u32 {
    u32::try_from(secs / 60).unwrap_or(u32::MAX)
}
