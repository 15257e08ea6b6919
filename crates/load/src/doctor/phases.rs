//! The server's own histograms of how long operations took inside it (statistics group `timings`), between two moments.

use std::collections::BTreeMap;

/// Counts by operation and upper bound of the step, in microseconds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Phases(BTreeMap<String, BTreeMap<u64, u64>>);

impl Phases {
    /// Reads pairs such as `get_0,128` and `7`; whatever looks otherwise is left out.
    #[must_use]
    pub fn read(pairs: &[(String, String)]) -> Phases {
        let mut phases = Phases::default();
        for (name, count) in pairs {
            let parts = name.rsplit_once('_').and_then(|(op, step)| Some((op, step.split_once(',')?.1)));
            let numbers = parts.and_then(|(op, to)| Some((op, to.parse().ok()?, count.parse::<u64>().ok()?)));
            if let Some((op, to, count)) = numbers {
                *phases.0.entry(op.to_owned()).or_default().entry(to).or_default() += count;
            }
        }
        phases
    }

    /// What happened since `before`, in a sentence per operation.
    #[must_use]
    pub fn since(&self, before: &Phases) -> Vec<String> {
        let mut out = Vec::new();
        for (op, steps) in &self.0 {
            let then = |to: &u64| before.0.get(op).and_then(|steps| steps.get(to)).copied().unwrap_or(0);
            let grown: Vec<(u64, u64)> =
                steps.iter().map(|(to, count)| (*to, count.saturating_sub(then(to)))).collect();
            let total: u64 = grown.iter().map(|(_, count)| count).sum();
            if total > 0 {
                let (half, most) = (bound(&grown, total, 0.5), bound(&grown, total, 0.99));
                out.push(format!(
                    "The server's own histogram of {op}: half of {total} within {half} us, 99 % within {most} us."
                ));
            }
        }
        out
    }
}

/// The upper bound of the step that holds this share.
fn bound(steps: &[(u64, u64)], total: u64, share: f64) -> u64 {
    let mut sum = 0;
    let reached = steps.iter().find(|(_, count)| {
        sum += count;
        sum as f64 >= share * total as f64
    });
    reached.map_or(0, |(to, _)| *to)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phases(pairs: &[(&str, &str)]) -> Phases {
        let owned: Vec<_> =
            pairs.iter().map(|(name, count)| ((*name).to_owned(), (*count).to_owned())).collect();
        Phases::read(&owned)
    }

    #[test]
    fn what_has_grown_is_told() {
        let before = phases(&[("get_0,2", "100"), ("get_2,4", "5"), ("odd", "1"), ("set_0,2", "7")]);
        let after = phases(&[("get_0,2", "160"), ("get_2,4", "43"), ("get_4,8", "2"), ("set_0,2", "7")]);
        let expected = "The server's own histogram of get: half of 100 within 2 us, 99 % within 8 us.";
        assert_eq!(after.since(&before), [expected]);
        assert!(after.since(&after).is_empty());
    }
}
