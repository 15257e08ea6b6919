//! When targets are probed, and what is made of the answers.

use std::collections::BTreeMap;

use settee_watch::{
    Counts,
    probe::{AT_ONCE_MAX, Ended, Probes, ROUNDS_PER_SEC, TARGETS_MAX, TIMEOUT_MICROS, Tried, Try},
};

const PERIOD: u64 = 10_000;

fn answered(micros: u32) -> Tried {
    Tried { what: Try::Get, ended: Ended::Answered, micros }
}

/// Runs for so long, each round taking `takes`; the moments at which each target's rounds began.
fn run(probes: &mut Probes<u32>, millis: u64, takes: u64) -> BTreeMap<u32, Vec<u64>> {
    let mut began: BTreeMap<u32, Vec<u64>> = BTreeMap::new();
    let mut running: Vec<(u64, u32)> = Vec::new();
    for now in (0..millis).step_by(50) {
        running.retain(|(until, target)| {
            if *until <= now {
                probes.end(now, target, &[answered(100)]);
            }
            *until > now
        });
        for target in probes.begin(now, PERIOD) {
            assert!(running.iter().all(|(_, other)| *other != target), "twice at once");
            running.push((now + takes, target));
            began.entry(target).or_default().push(now);
        }
        assert!(running.len() <= AT_ONCE_MAX);
    }
    began
}

#[test]
fn each_target_is_probed_once_a_period_and_they_are_spread() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, 0..20);
    let began = run(&mut probes, 60_000, 5);
    assert_eq!(began.len(), 20);
    for (target, moments) in &began {
        assert!((5..=6).contains(&moments.len()), "{target}: {moments:?}");
        assert!(
            moments.windows(2).all(|two| (two[1] - two[0]).abs_diff(PERIOD) <= 50),
            "{target}: {moments:?}"
        );
    }
    let mut first: Vec<u64> = began.values().map(|moments| moments[0] / 1_000).collect();
    first.sort_unstable();
    first.dedup();
    assert!(first.len() >= 8, "the rounds are spread over the seconds: {first:?}");
}

#[test]
fn more_targets_than_the_rate_allows_are_probed_more_rarely_and_fairly() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, 0..2_000);
    assert_eq!(probes.len(), TARGETS_MAX);
    let began = run(&mut probes, 100_000, 5);
    let rounds: usize = began.values().map(Vec::len).sum();
    assert!(rounds as u64 <= 101 * ROUNDS_PER_SEC, "{rounds}");
    assert!(rounds as u64 >= 90 * ROUNDS_PER_SEC, "{rounds}");
    let counts: Vec<usize> = began.values().map(Vec::len).collect();
    assert_eq!(counts.len(), TARGETS_MAX);
    assert!(counts.iter().max().unwrap() - counts.iter().min().unwrap() <= 1, "{counts:?}");
}

#[test]
fn slow_rounds_do_not_pile_up_and_hold_nobody_else_up_for_long() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, 0..100);
    // Every round takes the timeout three times over.
    let began = run(&mut probes, 120_000, 7_500);
    assert_eq!(began.len(), 100, "everyone has a turn");
}

#[test]
fn what_is_not_answered_counts_with_the_timeout_and_makes_a_target_silent() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, [1, 2]);
    let both = [Tried::unanswered(Try::Get), Tried::unanswered(Try::Set)];
    for round in 0..2 {
        probes.end(round, &1, &both);
        probes.end(round, &2, &[answered(300), Tried { what: Try::Set, ended: Ended::Refused, micros: 50 }]);
    }
    let silent: Vec<(u32, u32)> = probes.known().map(|(name, _, silent)| (*name, silent)).collect();
    assert_eq!(silent, [(1, 2), (2, 0)]);
    let known: BTreeMap<_, _> = probes.known().map(|(name, known, _)| (*name, known.clone())).collect();
    let get = &known[&1][&Try::Get];
    assert_eq!((get.ended, get.quantile(1, 0.5)), ([0, 0, 2], Some(TIMEOUT_MICROS)));
    assert_eq!(get.steps(), [(1 << 22, 2)], "2.5 s is between 2^21 and 2^22 us");
    assert_eq!(known[&2][&Try::Get].steps(), [(512, 2)]);
    assert_eq!(known[&2][&Try::Set].ended, [0, 2, 0]);
    probes.end(5, &1, &[answered(1)]);
    assert!(probes.known().all(|(_, _, silent)| silent == 0));
    // An objective counts what was answered in time, and nothing else, as good.
    assert_eq!(both[0].counts(u32::MAX), Counts { good: 0, total: 1 });
    let refused = Tried { what: Try::Set, ended: Ended::Refused, micros: 50 };
    assert_eq!(refused.counts(1_000), Counts { good: 0, total: 1 });
    assert_eq!((answered(300).counts(300).good, answered(301).counts(300).good), (1, 0));
}

#[test]
fn quantiles_are_those_of_the_last_minute() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, [1]);
    for second in 0..100_u32 {
        probes.end(u64::from(second) * 1_000, &1, &[answered(if second < 30 { 9_000 } else { second })]);
    }
    let get = probes.known().next().unwrap().1[&Try::Get].clone();
    assert_eq!(get.quantile(99_000, 0.5), Some(69));
    assert_eq!(get.quantile(99_000, 1.0), Some(99));
    assert_eq!(get.quantile(99_000 + 60_001, 0.5), None, "nothing is fresh");
    assert_eq!(get.ended, [100, 0, 0]);
}

#[test]
fn a_target_that_goes_is_forgotten_and_one_that_stays_keeps_its_turn() {
    let mut probes = Probes::default();
    probes.want(0, PERIOD, [1, 2]);
    assert_eq!(probes.begin(0, PERIOD), Vec::<u32>::new(), "the rate allows nothing in the first moment");
    assert_eq!(probes.begin(1_000, PERIOD), [1]);
    probes.want(1_100, PERIOD, [1, 3]);
    probes.end(1_200, &1, &[answered(5)]);
    probes.end(1_200, &2, &[answered(5)]);
    assert_eq!(
        probes.known().map(|(name, known, _)| (*name, known.len())).collect::<Vec<_>>(),
        [(1, 1), (3, 0)]
    );
    // A shorter period counts at once.
    probes.want(1_300, 1_000, [1]);
    assert_eq!(probes.begin(2_300, 1_000), [1]);
}

#[test]
fn the_next_round_begins_when_it_is_said_to_and_not_before() {
    let mut probes = Probes::default();
    assert_eq!(probes.next(), None);
    probes.want(0, PERIOD, 0..AT_ONCE_MAX as u32 + 8);
    let mut before = 0;
    for round in 0..AT_ONCE_MAX * 3 {
        let at = probes.next().unwrap();
        assert!(at >= before, "{round}: {at}");
        if let Some(early) = at.checked_sub(1) {
            assert!(probes.begin(early, PERIOD).is_empty(), "{round}: {at}");
        }
        let begun = probes.begin(at, PERIOD);
        assert!(!begun.is_empty(), "{round}: {at}");
        begun.iter().for_each(|target| probes.end(at, target, &[answered(100)]));
        before = at;
    }
    // The most rounds that are allowed are under way: the probe begins none until one of them ends.
    let mut running = 0;
    while let Some(at) = probes.next() {
        running += probes.begin(at, PERIOD).len();
    }
    assert_eq!(running, AT_ONCE_MAX);
    assert!(probes.begin(u64::MAX / 2, PERIOD).is_empty());
}
