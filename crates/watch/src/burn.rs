//! Error budgets and how fast they burn.
//!
//! An objective says which share of events has to be good over a period. The rest is its budget. A burn rate of 1 uses the whole budget
//! in exactly one period. A rule holds where both of its spans burn faster than it allows. The long one says that it matters, the short
//! one that it still goes on. The pairs and rates are those of Google's workbook on service levels.

use serde::{Deserialize, Serialize};

/// Parts of a million: how targets are given.
pub const MILLION: u32 = 1_000_000;
/// A rule says nothing of a short span with fewer events: one slow answer among a few is chance.
pub const EVENTS_MIN: u64 = 100;

/// How many events there were, and how many of them were good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Good ones. Never more than `total`.
    pub good: u64,
    /// All of them.
    pub total: u64,
}

impl Counts {
    /// Both together.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self { good: self.good.saturating_add(other.good), total: self.total.saturating_add(other.total) }
    }

    /// What was counted since `before`. A counter that went back has begun anew.
    #[must_use]
    pub const fn since(self, before: Self) -> Self {
        let (bad, bad_before) =
            (self.total.saturating_sub(self.good), before.total.saturating_sub(before.good));
        if self.total < before.total || self.good < before.good || bad < bad_before {
            return self;
        }
        Self { good: self.good - before.good, total: self.total - before.total }
    }

    /// The share of bad events, from 0 to 1. None: nothing was counted.
    #[must_use]
    pub fn bad_share(self) -> Option<f64> {
        let bad = self.total.saturating_sub(self.good);
        (self.total > 0).then(|| bad as f64 / self.total as f64)
    }
}

/// A span of time that ends now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Span {
    Minutes5,
    Minutes30,
    Hour1,
    Hours2,
    Hours6,
    Day1,
    Days3,
}

impl Span {
    /// Every one, the shortest first.
    pub const ALL: [Self; 7] =
        [Self::Minutes5, Self::Minutes30, Self::Hour1, Self::Hours2, Self::Hours6, Self::Day1, Self::Days3];

    /// Its name, as Prometheus writes a duration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Minutes5 => "5m",
            Self::Minutes30 => "30m",
            Self::Hour1 => "1h",
            Self::Hours2 => "2h",
            Self::Hours6 => "6h",
            Self::Day1 => "1d",
            Self::Days3 => "3d",
        }
    }

    /// How long it is.
    #[must_use]
    pub const fn minutes(self) -> u32 {
        match self {
            Self::Minutes5 => 5,
            Self::Minutes30 => 30,
            Self::Hour1 => 60,
            Self::Hours2 => 120,
            Self::Hours6 => 360,
            Self::Day1 => 1_440,
            Self::Days3 => 4_320,
        }
    }
}

/// What was counted over every span, and over the whole period.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spans {
    /// In the order of [`Span::ALL`].
    pub spans: [Counts; 7],
    /// Over the objective's period.
    pub period: Counts,
}

impl Spans {
    /// What was counted over a span.
    #[must_use]
    pub const fn of(&self, span: Span) -> Counts {
        self.spans[span as usize]
    }

    /// The shortest span with everything that was counted over this one: nothing was counted before it.
    #[must_use]
    pub fn covered(&self, span: Span) -> Span {
        Span::ALL.into_iter().find(|one| self.of(*one) == self.of(span)).unwrap_or(span)
    }

    /// What two nodes have counted.
    #[must_use]
    pub fn plus(mut self, other: &Self) -> Self {
        for (own, others) in self.spans.iter_mut().zip(other.spans) {
            *own = own.plus(others);
        }
        Self { period: self.period.plus(other.period), ..self }
    }
}

/// How soon somebody has to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// At once.
    Page,
    /// In working hours.
    Ticket,
}

impl Severity {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Ticket => "ticket",
        }
    }
}

/// Burning faster than `burn` over both spans is worth an alert.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rule {
    /// How soon somebody has to look.
    pub severity: Severity,
    /// Says that much of the budget is gone.
    pub long: Span,
    /// Says that it still goes on.
    pub short: Span,
    /// The burn rate.
    pub burn: f64,
}

const fn rule(severity: Severity, long: Span, short: Span, burn: f64) -> Rule {
    Rule { severity, long, short, burn }
}

/// Every rule, the most urgent first.
pub const RULES: [Rule; 4] = [
    rule(Severity::Page, Span::Hour1, Span::Minutes5, 14.4),
    rule(Severity::Page, Span::Hours6, Span::Minutes30, 6.0),
    rule(Severity::Ticket, Span::Day1, Span::Hours2, 3.0),
    rule(Severity::Ticket, Span::Days3, Span::Hours6, 1.0),
];

/// What is to be said of an objective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Share of good events over the period, from 0 to 1. None: nothing was counted.
    pub attained: Option<f64>,
    /// What is left of the budget, 1 being all of it; below 0 where more was used. None: nothing was counted.
    pub budget_left: Option<f64>,
    /// Burn rates over the spans, in the order of [`Span::ALL`]. None: nothing was counted.
    pub burn: [Option<f64>; 7],
    /// Which of [`RULES`] hold.
    pub holds: [bool; 4],
}

impl Judgement {
    /// The most urgent rule that holds.
    #[must_use]
    pub fn worst(&self) -> Option<&'static Rule> {
        RULES.iter().zip(self.holds).find(|(_, holds)| *holds).map(|(rule, _)| rule)
    }

    /// Every word that [`Self::word`] has.
    pub const WORDS: [&'static str; 4] = ["met", "burning", "exhausted", "no data"];

    /// One word for all of it, of [`Self::WORDS`].
    #[must_use]
    pub fn word(&self) -> &'static str {
        match self.budget_left {
            None => "no data",
            Some(left) if left < 0.0 => "exhausted",
            Some(_) if self.holds.contains(&true) => "burning",
            Some(_) => "met",
        }
    }
}

/// When an error budget is used up.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BudgetEnd {
    /// `notEnoughData`, `reached`, `dated` or `notInSight`.
    pub outlook: &'static str,
    /// In how many seconds, at the pace of the last three days.
    pub likely_secs: Option<u64>,
    /// In how many seconds at the fastest pace of the last six hours, day and three days.
    pub early_secs: Option<u64>,
    /// Percent of the budget that a day takes, at the pace of the last three.
    pub per_day: Option<f64>,
}

impl Judgement {
    /// When the budget is used up at the pace of late. A pace that the period makes up for uses up nothing.
    #[must_use]
    pub fn budget_ends(&self, period_days: u16) -> BudgetEnd {
        let (days, pace) = (f64::from(period_days.max(1)), |span: Span| self.burn[span as usize]);
        let per_day = pace(Span::Days3).map(|burn| burn / days * 100.0);
        let end = |outlook, likely_secs, early_secs| BudgetEnd { outlook, likely_secs, early_secs, per_day };
        let Some(left) = self.budget_left else { return end("notEnoughData", None, None) };
        if left <= 0.0 {
            return end("reached", None, None);
        }
        let secs = |burn: f64| (burn > 1.0).then(|| (left / burn * days * 86_400.0) as u64);
        let early =
            [Span::Hours6, Span::Day1, Span::Days3].into_iter().filter_map(pace).filter_map(secs).min();
        match pace(Span::Days3).and_then(secs) {
            Some(likely) => end("dated", Some(likely), early),
            None => end("notInSight", None, early),
        }
    }
}

/// Judges what was counted against a target in parts of a million.
#[must_use]
pub fn judge(target_ppm: u32, counted: &Spans) -> Judgement {
    let budget = f64::from(MILLION - target_ppm.min(MILLION - 1)) / f64::from(MILLION);
    let burn_of = |counts: Counts| counts.bad_share().map(|bad| bad / budget);
    let burn = Span::ALL.map(|span| burn_of(counted.of(span)));
    let exceeds = |span: Span, most: f64| burn[span as usize].is_some_and(|burn| burn > most);
    let holds = RULES.map(|rule| {
        counted.of(rule.short).total >= EVENTS_MIN
            && exceeds(rule.short, rule.burn)
            && exceeds(rule.long, rule.burn)
    });
    Judgement {
        attained: counted.period.bad_share().map(|bad| 1.0 - bad),
        budget_left: burn_of(counted.period).map(|burn| 1.0 - burn),
        burn,
        holds,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(good: u64, total: u64) -> Spans {
        let counts = Counts { good, total };
        Spans { spans: [counts; 7], period: counts }
    }

    #[test]
    fn a_rate_of_one_uses_the_budget_in_one_period() {
        let judged = judge(999_000, &all(99_900, 100_000));
        assert!(judged.budget_left.unwrap().abs() < 1e-9, "{judged:?}");
        assert!(judged.burn.iter().all(|burn| (burn.unwrap() - 1.0).abs() < 1e-9));
        assert_eq!((judged.holds, judged.word()), ([false; 4], "met"), "no more than it may");
        assert_eq!(judge(999_000, &all(100_000, 100_000)).budget_left, Some(1.0));
        assert_eq!(judge(999_000, &all(99_800, 100_000)).word(), "exhausted");
    }

    #[test]
    fn a_rule_needs_both_of_its_spans_and_enough_events() {
        let mut counted = all(99_000, 100_000);
        assert_eq!(judge(999_000, &counted).holds, [false, true, true, true], "10 times too fast");
        counted.spans[Span::Minutes30 as usize] = Counts { good: 5_000, total: 5_000 };
        assert_eq!(judge(999_000, &counted).holds, [false, false, true, true], "it is over");
        let few = all(90, EVENTS_MIN - 1);
        assert_eq!(judge(999_000, &few).holds, [false; 4], "chance");
        let enough = all(90, EVENTS_MIN);
        assert_eq!(judge(999_000, &enough).worst(), Some(&RULES[0]));
    }

    #[test]
    fn a_budget_ends_at_the_pace_of_late() {
        let day = 86_400;
        let mut counted = all(1_000_000, 1_000_000);
        assert_eq!(judge(999_000, &counted).budget_ends(28).outlook, "notInSight");
        // Half of the budget is left; three days use twice of what they may, and the last hours four times.
        counted.period = Counts { good: 999_500, total: 1_000_000 };
        counted.spans[Span::Days3 as usize] = Counts { good: 998_000, total: 1_000_000 };
        counted.spans[Span::Hours6 as usize] = Counts { good: 996_000, total: 1_000_000 };
        let ends = judge(999_000, &counted).budget_ends(28);
        let near = |secs: Option<u64>, days: u64| secs.unwrap().abs_diff(days * day) <= 1;
        assert!(ends.outlook == "dated" && near(ends.likely_secs, 7), "{ends:?}");
        assert_eq!(ends.early_secs.map(|secs| (secs + 1) * 2 / day), Some(7));
        assert!((ends.per_day.unwrap() - 200.0 / 28.0).abs() < 1e-6);
        counted.spans[Span::Days3 as usize] = Counts { good: 999_100, total: 1_000_000 };
        let ends = judge(999_000, &counted).budget_ends(28);
        assert!(ends.outlook == "notInSight" && ends.early_secs.is_some(), "{ends:?}");
        assert_eq!(judge(999_900, &counted).budget_ends(28).outlook, "reached");
        assert_eq!(judge(999_000, &Spans::default()).budget_ends(28).outlook, "notEnoughData");
    }

    #[test]
    fn a_span_is_covered_as_far_back_as_something_was_counted() {
        let mut counted = all(90, 100);
        assert_eq!(counted.covered(Span::Hours6), Span::Minutes5);
        counted.spans[Span::Minutes5 as usize] = Counts { good: 40, total: 50 };
        assert_eq!(counted.covered(Span::Hours6), Span::Minutes30);
        assert_eq!(counted.covered(Span::Minutes5), Span::Minutes5);
    }

    #[test]
    fn nothing_is_said_where_nothing_was_counted() {
        let judged = judge(999_000, &Spans::default());
        assert_eq!((judged.attained, judged.budget_left, judged.word()), (None, None, "no data"));
        assert_eq!(judged.burn, [None; 7]);
        // A target that leaves no budget is none; it is judged all the same.
        assert!(judge(u32::MAX, &all(1, 2)).burn[0].unwrap().is_finite());
    }

    #[test]
    fn a_counter_that_went_back_has_begun_anew() {
        let (before, now) = (Counts { good: 5, total: 9 }, Counts { good: 7, total: 12 });
        assert_eq!(now.since(before), Counts { good: 2, total: 3 });
        assert_eq!(before.since(now), before);
        // More than before, and so much better that it is another counter.
        let (before, now) = (Counts { good: 1, total: 10 }, Counts { good: 12, total: 12 });
        assert_eq!(now.since(before), now);
    }
}
