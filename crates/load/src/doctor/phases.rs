//! What a server says of the time that requests spent inside it, in sentences: by operation, and by what they waited for.

use super::histograms::{Histograms, bound, count, longest};

/// The phases of a request: as a statistic, and in a list. Phases within the time that the server gives for an operation are also shown
/// as parts of it.
const PHASES: [(&str, &str, Option<&str>); 7] = [
    ("queue", "until the request's turn came", None),
    ("execute", "executing", Some("executing")),
    ("fetch", "waiting for values on disk", Some("waits for values on disk")),
    ("durability", "waiting for durable writes", Some("waits for durable writes to be complete")),
    ("persistence", "waiting for seqnos to be on disk", Some("waits for seqnos to be on disk")),
    ("other_wait", "waiting for slow work such as password hashes", Some("waits for slow work elsewhere")),
    ("reply", "until the socket had taken the reply", None),
];

/// The phase that makes up this much of the slowest operations is named.
const MOST: f64 = 0.5;

/// A sentence per operation.
#[must_use]
pub fn by_operation(timings: &Histograms) -> Vec<String> {
    let sentence = |(op, steps)| {
        let (total, half, most) = (count(steps), bound(steps, 0.5), bound(steps, 0.99));
        format!(
            "The server's own histogram of {op}: half of {total} within {half} us, 99 % within {most} us."
        )
    };
    timings.iter().map(sentence).collect()
}

/// What an operation spent its time on in the server, on average and in the slowest percent.
#[must_use]
pub fn by_phase(timings: &Histograms, phases: &Histograms) -> Vec<String> {
    let all = timings.merged();
    let operations = count(&all);
    if operations == 0 {
        return Vec::new();
    }
    let mut out = Vec::new();
    let parts = PHASES.iter().filter_map(|(name, words, _)| {
        let micros = phases.get(name).map(|_| phases.micros(name))?;
        Some(format!("{:.1} us {words}", micros as f64 / operations as f64))
    });
    let parts: Vec<_> = parts.collect();
    if !parts.is_empty() {
        out.push(format!(
            "By its own account, the server spent on an operation, on average: {}.",
            parts.join(", ")
        ));
    }
    // Percentiles of parts do not add up, but nothing of a phase can be longer than its longest.
    let slowest = operations.div_ceil(100);
    let each = longest(&all, slowest) / slowest as f64;
    for (name, _, part) in PHASES {
        let (Some(part), Some(steps)) = (part, phases.get(name)) else { continue };
        let most = (longest(steps, slowest) / slowest as f64).min(each);
        if most >= MOST * each {
            out.push(format!(
                "Of the {each:.0} us that the server spent on each of its slowest percent of operations, up to \
                 {most:.0} us were {part}."
            ));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn histograms(pairs: &[(&str, u64)]) -> Histograms {
        let owned: Vec<_> =
            pairs.iter().map(|(name, number)| ((*name).to_owned(), number.to_string())).collect();
        Histograms::read(&owned)
    }

    #[test]
    fn operations_are_told_one_by_one() {
        let timings = histograms(&[("get_0,2", 60), ("get_2,4", 38), ("get_4,8", 2)]);
        let expected = "The server's own histogram of get: half of 100 within 2 us, 99 % within 8 us.";
        assert_eq!(by_operation(&timings), [expected]);
    }

    #[test]
    fn waits_that_make_the_slowest_percent_are_named() {
        let timings = histograms(&[("get_0,2", 990), ("get_800,824", 10), ("set_0,2", 1000)]);
        let phases = histograms(&[
            ("queue_2,4", 2000),
            ("queue_micros", 5000),
            ("execute_0,1", 2010),
            ("execute_micros", 1000),
            ("fetch_780,800", 10),
            ("fetch_micros", 7900),
            ("durability_micros", 0),
        ]);
        let told = by_phase(&timings, &phases);
        let mean = "By its own account, the server spent on an operation, on average: 2.5 us until the request's turn \
                    came, 0.5 us executing, 4.0 us waiting for values on disk.";
        let slowest = "Of the 406 us that the server spent on each of its slowest percent of operations, up to 395 us \
                       were waits for values on disk.";
        assert_eq!(told, [mean, slowest]);
    }

    #[test]
    fn a_server_without_phases_is_not_guessed_at() {
        assert!(by_phase(&histograms(&[("get_0,2", 5)]), &Histograms::default()).is_empty());
        assert!(by_phase(&Histograms::default(), &histograms(&[("queue_0,1", 5)])).is_empty());
    }
}
