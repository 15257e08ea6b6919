//! What the machine has done between two moments, from `/proc`.

use std::fs;
use std::time::Instant;

/// A moment's counters; differences of two are what one looks at.
#[derive(Clone, Debug)]
pub struct Activity {
    at: Instant,
    /// Jiffies of all CPUs: everything, doing something, stolen.
    cpu: Option<(f64, f64, f64)>,
    interrupts: Option<f64>,
    switches: Option<f64>,
    /// TCP segments sent, and sent again.
    segments: Option<(f64, f64)>,
}

/// What happened between two moments; shares from 0 to 1, counts per second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Seen {
    /// Share of all CPUs' time that something ran.
    pub busy: Option<f64>,
    /// Share that the hypervisor gave to others.
    pub stolen: Option<f64>,
    /// Interrupts.
    pub interrupts: Option<f64>,
    /// Context switches.
    pub switches: Option<f64>,
    /// Share of the segments that had to be sent again.
    pub retransmitted: Option<f64>,
}

impl Activity {
    /// Reads the counters.
    #[must_use]
    pub fn now() -> Activity {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let snmp = fs::read_to_string("/proc/net/snmp").unwrap_or_default();
        Activity {
            at: Instant::now(),
            cpu: cpu(&stat),
            interrupts: first(&stat, "intr "),
            switches: first(&stat, "ctxt "),
            segments: segments(&snmp),
        }
    }

    /// What happened since `before`.
    #[must_use]
    pub fn since(&self, before: &Activity) -> Seen {
        let seconds = (self.at - before.at).as_secs_f64().max(1e-9);
        let cpu =
            self.cpu.zip(before.cpu).map(|(now, then)| (now.0 - then.0, now.1 - then.1, now.2 - then.2));
        let cpu = cpu.filter(|(all, ..)| *all > 0.0);
        let rate =
            |now: Option<f64>, then: Option<f64>| now.zip(then).map(|(now, then)| (now - then) / seconds);
        let segments = self.segments.zip(before.segments);
        Seen {
            busy: cpu.map(|(all, busy, _)| busy / all),
            stolen: cpu.map(|(all, _, stolen)| stolen / all),
            interrupts: rate(self.interrupts, before.interrupts),
            switches: rate(self.switches, before.switches),
            retransmitted: segments.map(|(now, then)| (now.1 - then.1) / (now.0 - then.0).max(1.0)),
        }
    }
}

fn cpu(stat: &str) -> Option<(f64, f64, f64)> {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let jiffies: Vec<f64> = line.split_whitespace().map_while(|word| word.parse().ok()).take(8).collect();
    let [user, nice, system, idle, iowait, irq, softirq, stolen] = jiffies[..] else { return None };
    let busy = user + nice + system + irq + softirq;
    Some((busy + idle + iowait + stolen, busy, stolen))
}

fn first(stat: &str, name: &str) -> Option<f64> {
    let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The line of names is followed by the line of numbers.
fn segments(snmp: &str) -> Option<(f64, f64)> {
    let mut lines = snmp.lines().filter_map(|line| line.strip_prefix("Tcp: "));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let of = |name: &str| {
        let place = names.split_whitespace().position(|known| known == name)?;
        numbers.split_whitespace().nth(place)?.parse().ok()
    };
    Some((of("OutSegs")?, of("RetransSegs")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let stat = "cpu  100 0 50 800 10 5 5 30 0 0\ncpu0 1 2 3\nintr 77 1 2\nctxt 99\n";
        assert_eq!(cpu(stat), Some((1000.0, 160.0, 30.0)));
        assert_eq!(
            (first(stat, "intr "), first(stat, "ctxt "), first(stat, "none ")),
            (Some(77.0), Some(99.0), None)
        );
        let snmp = "Ip: A B\nIp: 1 2\nTcp: X OutSegs RetransSegs\nTcp: 1 200 3\n";
        assert_eq!(segments(snmp), Some((200.0, 3.0)));
        assert_eq!((cpu(""), segments("")), (None, None));
    }

    #[test]
    fn differences_are_shares_and_rates() {
        let begin = Activity {
            at: Instant::now(),
            cpu: Some((0.0, 0.0, 0.0)),
            interrupts: Some(0.0),
            switches: None,
            segments: Some((0.0, 0.0)),
        };
        let end = Activity {
            at: begin.at + std::time::Duration::from_secs(2),
            cpu: Some((200.0, 50.0, 10.0)),
            interrupts: Some(3000.0),
            switches: Some(1.0),
            segments: Some((1000.0, 5.0)),
        };
        let seen = end.since(&begin);
        let expected = Seen {
            busy: Some(0.25),
            stolen: Some(0.05),
            interrupts: Some(1500.0),
            switches: None,
            retransmitted: Some(0.005),
        };
        assert_eq!(seen, expected);
    }
}
