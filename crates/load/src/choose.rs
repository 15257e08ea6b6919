//! Which record the next operation is for.
//!
//! A [`Chooser`] belongs to one thread. Threads and workers draw from generators of their own seeds. Popular tools that use one
//! sequence everywhere write a tenth of the records they claim. Where records are used one after
//! the other, each part of the run takes every n-th.

use crate::records::mix;
use serde::{Deserialize, Serialize};

/// Whose share of the run this is: part `index` of `of`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Counted from zero.
    pub index: u64,
    /// How many there are in all.
    pub of: u64,
}

impl Part {
    /// The whole run.
    pub const WHOLE: Part = Part { index: 0, of: 1 };
}

/// How records are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// Each record once, then the end.
    Each,
    /// One after the other, from the beginning again after the last.
    Sequential,
    /// All alike.
    Uniform,
    /// By a power law, popular records spread over the whole set.
    Zipf {
        /// The exponent; YCSB's is 0.99.
        theta: f64,
    },
    /// By a power law, the newest record most popular.
    Latest {
        /// The exponent.
        theta: f64,
    },
    /// Newest first, each record less popular than the next newer one by the same factor.
    Exponential {
        /// So many of a hundred operations ...
        percent: f64,
        /// ... are on this share of the records, the newest.
        share: f64,
    },
    /// A set of random records, one of which is exchanged every so many operations.
    HotSet {
        /// How many records are in it.
        size: u64,
        /// Operations between two exchanges; 0 never exchanges.
        churn_every: u64,
        /// Share of the operations that use it; the others are uniform over all.
        share: f64,
    },
}

/// Draws record numbers.
pub struct Chooser {
    choice: Choice,
    part: Part,
    /// Records that exist.
    records: u64,
    /// Next of those taken in order.
    next: u64,
    /// Records this part has added.
    inserted: u64,
    /// Ranks by power law, for the current number of records.
    zipf: Option<Zipf>,
    hot: Vec<u64>,
    draws: u64,
    /// Where validation gives every record to one part only.
    own_only: bool,
}

impl Chooser {
    /// For one part of a run over `records` records. `own_only` keeps to the records of this part.
    pub fn new(choice: Choice, records: u64, part: Part, own_only: bool, rng: &mut fastrand::Rng) -> Chooser {
        let records = records.max(1);
        let zipf = match choice {
            Choice::Zipf { theta } | Choice::Latest { theta } => Some(Zipf::new(records, theta)),
            _ => None,
        };
        let hot = match choice {
            Choice::HotSet { size, .. } => (0..size.max(1)).map(|_| rng.u64(..records)).collect(),
            _ => Vec::new(),
        };
        Chooser { choice, part, records, next: part.index, inserted: 0, zipf, hot, draws: 0, own_only }
    }

    /// The next record; `None` when each has had its turn.
    #[inline]
    pub fn next(&mut self, rng: &mut fastrand::Rng) -> Option<u64> {
        let index = match self.choice {
            Choice::Each => {
                let index = self.next;
                if index >= self.records {
                    return None;
                }
                self.next += self.part.of;
                return Some(index);
            }
            Choice::Sequential => {
                if self.next >= self.records {
                    self.next = self.part.index % self.records;
                }
                let index = self.next;
                self.next += self.part.of;
                return Some(index);
            }
            Choice::Uniform => rng.u64(..self.records),
            Choice::Zipf { .. } => mix(self.rank(rng)) % self.records,
            Choice::Latest { .. } => self.newest() - self.rank(rng).min(self.newest()),
            Choice::Exponential { percent, share } => self.exponential(percent, share, rng),
            Choice::HotSet { churn_every, share, .. } => self.hot_record(churn_every, share, rng),
        };
        Some(if self.own_only { self.own(index) } else { index })
    }

    /// A number for a record that does not exist yet.
    pub fn insert(&mut self) -> u64 {
        let index = self.records + self.inserted * self.part.of + self.part.index;
        self.inserted += 1;
        index
    }

    /// The newest record, counting that all parts insert alike.
    fn newest(&self) -> u64 {
        self.records - 1 + self.inserted * self.part.of
    }

    /// Drawn again where it falls beyond the oldest record.
    fn exponential(&self, percent: f64, share: f64, rng: &mut fastrand::Rng) -> u64 {
        let newest = self.newest();
        let scale = self.records as f64 * share / -(1.0 - percent / 100.0).ln();
        loop {
            let age = -(1.0 - rng.f64()).ln() * scale;
            if age < newest as f64 + 1.0 {
                return newest - age as u64;
            }
        }
    }

    fn rank(&self, rng: &mut fastrand::Rng) -> u64 {
        self.zipf.as_ref().map_or(0, |zipf| zipf.draw(rng))
    }

    fn hot_record(&mut self, churn_every: u64, share: f64, rng: &mut fastrand::Rng) -> u64 {
        self.draws += 1;
        if churn_every > 0 && self.draws.is_multiple_of(churn_every) {
            let place = rng.usize(..self.hot.len());
            self.hot[place] = rng.u64(..self.records);
        }
        if share < 1.0 && rng.f64() >= share {
            return rng.u64(..self.records);
        }
        self.hot[rng.usize(..self.hot.len())]
    }

    /// The record of this part nearest below, or the first one.
    fn own(&self, index: u64) -> u64 {
        let own = index - index % self.part.of + self.part.index;
        if own < self.records { own } else { self.part.index }
    }
}

/// Ranks from 0 by a power law of any exponent over any number of items: rejection-inversion after Hörmann and
/// Derflinger (1996), exact and without tables.
struct Zipf {
    items: u64,
    exponent: f64,
    integral_first: f64,
    integral_last: f64,
    shortcut: f64,
}

impl Zipf {
    fn new(items: u64, exponent: f64) -> Zipf {
        let mut zipf = Zipf { items, exponent, integral_first: 0.0, integral_last: 0.0, shortcut: 0.0 };
        zipf.integral_first = zipf.integral(1.5) - 1.0;
        zipf.integral_last = zipf.integral(items as f64 + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.density(2.0));
        zipf
    }

    fn draw(&self, rng: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.integral_last + rng.f64() * (self.integral_first - self.integral_last);
            let x = self.inverse(u);
            let rank = (x + 0.5).clamp(1.0, self.items as f64).floor();
            if rank - x <= self.shortcut || u >= self.integral(rank + 0.5) - self.density(rank) {
                return rank as u64 - 1;
            }
        }
    }

    fn density(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// The integral of the density; written so that exponents near one lose no digits.
    fn integral(&self, x: f64) -> f64 {
        let (log, power) = (x.ln(), (1.0 - self.exponent) * x.ln());
        log * if power.abs() > 1e-8 { power.exp_m1() / power } else { 1.0 + power / 2.0 }
    }

    fn inverse(&self, y: f64) -> f64 {
        let power = (y * (1.0 - self.exponent)).max(-1.0);
        (y * if power.abs() > 1e-8 { power.ln_1p() / power } else { 1.0 - power / 2.0 }).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chooser(choice: Choice, records: u64, part: Part) -> (Chooser, fastrand::Rng) {
        let mut rng = fastrand::Rng::with_seed(5);
        (Chooser::new(choice, records, part, false, &mut rng), rng)
    }

    #[test]
    fn parts_share_the_records_without_overlap() {
        let mut seen = vec![0; 1000];
        for index in 0..3 {
            let (mut chooser, mut rng) = chooser(Choice::Each, 1000, Part { index, of: 3 });
            while let Some(record) = chooser.next(&mut rng) {
                seen[record as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
    }

    #[test]
    fn own_records_belong_to_one_part() {
        for index in 0..4 {
            let mut rng = fastrand::Rng::with_seed(5);
            let mut chooser = Chooser::new(Choice::Uniform, 10, Part { index, of: 4 }, true, &mut rng);
            for _ in 0..1000 {
                let record = chooser.next(&mut rng).expect("endless");
                assert!(record < 10 && record % 4 == index, "{record} of part {index}");
            }
        }
    }

    #[test]
    fn the_power_law_has_its_frequencies() {
        for theta in [0.5, 0.99, 1.0, 1.5] {
            let (zipf, mut rng) = (Zipf::new(1000, theta), fastrand::Rng::with_seed(9));
            let mut counts = vec![0u32; 1000];
            let draws = 400_000;
            for _ in 0..draws {
                counts[zipf.draw(&mut rng) as usize] += 1;
            }
            let total: f64 = (1..=1000).map(|k| f64::from(k).powf(-theta)).sum();
            for rank in [1usize, 2, 3, 10, 100] {
                let expected = f64::from(draws) * (rank as f64).powf(-theta) / total;
                let seen = f64::from(counts[rank - 1]);
                // Six standard deviations of a binomial count.
                assert!(
                    (seen - expected).abs() < 6.0 * expected.sqrt(),
                    "{theta} {rank}: {seen} of {expected}"
                );
            }
        }
    }

    #[test]
    fn latest_prefers_what_was_inserted() {
        let (mut chooser, mut rng) = chooser(Choice::Latest { theta: 0.99 }, 1000, Part::WHOLE);
        assert_eq!((chooser.insert(), chooser.insert()), (1000, 1001));
        let draws: Vec<u64> = (0..1000).filter_map(|_| chooser.next(&mut rng)).collect();
        assert!(draws.iter().all(|&record| record <= 1001));
        assert!(draws.iter().filter(|&&record| record >= 990).count() > 250);
    }

    #[test]
    fn exponential_puts_its_share_on_the_newest() {
        let choice = Choice::Exponential { percent: 95.0, share: 0.5 };
        let (mut chooser, mut rng) = chooser(choice, 1000, Part::WHOLE);
        let draws: Vec<u64> = (0..100_000).filter_map(|_| chooser.next(&mut rng)).collect();
        assert!(draws.iter().all(|&record| record < 1000));
        // Of what would fall on all ages, 1 - 0.05^(1/share) falls on those that exist.
        let expected = 1e5 * 0.95 / (1.0 - 0.05f64.powi(2));
        let newest = draws.iter().filter(|&&record| record >= 500).count() as f64;
        assert!((newest - expected).abs() < 6.0 * 1e5f64.sqrt(), "{newest} of {expected}");
        assert_eq!(chooser.insert(), 1000);
        assert!((0..10_000).filter_map(|_| chooser.next(&mut rng)).any(|record| record == 1000));
    }

    #[test]
    fn a_hot_set_is_small_and_changes_one_record_at_a_time() {
        let still = Choice::HotSet { size: 10, churn_every: 0, share: 1.0 };
        let (mut chooser, mut rng) = chooser(still, 1_000_000, Part::WHOLE);
        let seen: std::collections::HashSet<_> = (0..5000).filter_map(|_| chooser.next(&mut rng)).collect();
        assert_eq!(seen.len(), 10);
        chooser.choice = Choice::HotSet { size: 10, churn_every: 100, share: 1.0 };
        let seen: std::collections::HashSet<_> = (0..10_000).filter_map(|_| chooser.next(&mut rng)).collect();
        assert!((60..=111).contains(&seen.len()), "{}", seen.len());
    }
}
