//! Histograms that the server keeps of itself (statistics groups `timings` and `phases`), between two moments.

use std::collections::BTreeMap;

/// Steps in microseconds (from, up to) and how many fell into them, ascending.
pub(super) type Steps = BTreeMap<(u64, u64), u64>;

/// Histograms by name, and the sums in microseconds that are given with some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histograms {
    steps: BTreeMap<String, Steps>,
    micros: BTreeMap<String, u64>,
}

impl Histograms {
    /// Reads pairs such as `get_0,128` and `7`, or `fetch_micros` and `99`; whatever looks otherwise is left out.
    #[must_use]
    pub fn read(pairs: &[(String, String)]) -> Histograms {
        let mut out = Histograms::default();
        for (key, number) in pairs {
            let (Some((name, what)), Ok(number)) = (key.rsplit_once('_'), number.parse::<u64>()) else {
                continue;
            };
            if what == "micros" {
                out.micros.insert(name.to_owned(), number);
            } else if let Some(step) = step(what) {
                *out.steps.entry(name.to_owned()).or_default().entry(step).or_default() += number;
            }
        }
        out
    }

    /// Adds what another node has counted.
    pub fn add(&mut self, other: &Histograms) {
        for (name, steps) in &other.steps {
            let own = self.steps.entry(name.clone()).or_default();
            for (step, count) in steps {
                *own.entry(*step).or_default() += count;
            }
        }
        for (name, micros) in &other.micros {
            *self.micros.entry(name.clone()).or_default() += micros;
        }
    }

    /// What happened since `before`; nothing is left of histograms that have not grown.
    #[must_use]
    pub fn since(&self, before: &Histograms) -> Histograms {
        let mut out = Histograms::default();
        for (name, steps) in &self.steps {
            let then = before.steps.get(name);
            let grown = steps.iter().map(|(step, count)| {
                let then = then.and_then(|then| then.get(step)).copied().unwrap_or(0);
                (*step, count.saturating_sub(then))
            });
            let grown: Steps = grown.filter(|(_, count)| *count > 0).collect();
            if !grown.is_empty() {
                out.steps.insert(name.clone(), grown);
            }
        }
        for (name, micros) in &self.micros {
            let then = before.micros.get(name).copied().unwrap_or(0);
            out.micros.insert(name.clone(), micros.saturating_sub(then));
        }
        out
    }

    /// Every histogram with its name.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Steps)> {
        self.steps.iter().map(|(name, steps)| (name.as_str(), steps))
    }

    /// One of them.
    pub(super) fn get(&self, name: &str) -> Option<&Steps> {
        self.steps.get(name)
    }

    /// The sum given with one of them.
    pub(super) fn micros(&self, name: &str) -> u64 {
        self.micros.get(name).copied().unwrap_or(0)
    }

    /// All of them in one.
    pub(super) fn merged(&self) -> Steps {
        let mut all = Steps::new();
        for (step, count) in self.steps.values().flatten() {
            *all.entry(*step).or_default() += count;
        }
        all
    }
}

fn step(text: &str) -> Option<(u64, u64)> {
    let (from, to) = text.split_once(',')?;
    Some((from.parse().ok()?, to.parse().ok()?))
}

/// How many there are.
pub(super) fn count(steps: &Steps) -> u64 {
    steps.values().sum()
}

/// The upper bound of the step that holds this share.
pub(super) fn bound(steps: &Steps, share: f64) -> u64 {
    let total = count(steps) as f64;
    let mut sum = 0;
    let reached = steps.iter().find(|(_, count)| {
        sum += **count;
        sum as f64 >= share * total
    });
    reached.map_or(0, |((_, to), _)| *to)
}

/// What this share did not exceed. Within a step all places are taken to be as likely.
pub(super) fn quantile(steps: &Steps, share: f64) -> f64 {
    let Some((from, to, into)) = place(steps, share) else { return 0.0 };
    from as f64 + into * to.saturating_sub(from) as f64
}

/// The step that has what this share did not exceed, and how far into the step that is.
pub(super) fn place(steps: &Steps, share: f64) -> Option<(u64, u64, f64)> {
    let mut left = share * count(steps) as f64;
    for ((from, to), count) in steps {
        let count = *count as f64;
        if left <= count {
            return Some((*from, *to, (left / count).clamp(0.0, 1.0)));
        }
        left -= count;
    }
    steps.keys().next_back().map(|(from, to)| (*from, *to, 1.0))
}

/// What the longest `wanted` took together, or all if there are fewer; each counts as the middle of its step.
pub(super) fn longest(steps: &Steps, wanted: u64) -> f64 {
    let mut left = wanted;
    let mut sum = 0.0;
    for ((from, to), count) in steps.iter().rev() {
        let taken = left.min(*count);
        sum += taken as f64 * (from + to) as f64 / 2.0;
        left -= taken;
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histograms(pairs: &[(&str, &str)]) -> Histograms {
        let owned: Vec<_> =
            pairs.iter().map(|(name, count)| ((*name).to_owned(), (*count).to_owned())).collect();
        Histograms::read(&owned)
    }

    #[test]
    fn what_has_grown_is_told() {
        let before = histograms(&[("get_0,2", "100"), ("get_2,4", "5"), ("odd", "1"), ("set_0,2", "7")]);
        let after = histograms(&[
            ("get_0,2", "160"),
            ("get_2,4", "43"),
            ("get_4,8", "2"),
            ("get_4,x", "9"),
            ("set_0,2", "7"),
            ("get_micros", "77"),
        ]);
        let grown = after.since(&before);
        assert_eq!(grown.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["get"]);
        let get = grown.get("get").unwrap();
        assert_eq!((count(get), bound(get, 0.5), bound(get, 0.99)), (100, 2, 8));
        assert_eq!((grown.micros("get"), grown.micros("set")), (77, 0));
        assert!(after.since(&after).merged().is_empty());
    }

    #[test]
    fn what_several_nodes_have_counted_is_added_up() {
        let mut all = histograms(&[("get_0,2", "3"), ("get_micros", "4")]);
        all.add(&histograms(&[("get_0,2", "1"), ("get_2,4", "4"), ("set_0,2", "1"), ("get_micros", "6")]));
        let get = all.get("get").unwrap();
        assert_eq!((count(get), all.micros("get"), all.get("set").map(count)), (8, 10, Some(1)));
        assert_eq!((quantile(get, 0.5), quantile(get, 0.75), quantile(get, 1.0)), (2.0, 3.0, 4.0));
        assert_eq!(quantile(&Steps::new(), 0.5), 0.0);
    }

    #[test]
    fn the_longest_are_taken_from_the_end() {
        let steps = Steps::from([((0, 2), 10), ((100, 120), 3)]);
        assert_eq!(longest(&steps, 2), 220.0);
        assert_eq!(longest(&steps, 4), 331.0);
        assert_eq!(longest(&steps, 99), 340.0);
    }
}
