//! What holds of every past, by random ones: `MODEL_SEED` is the first seed, `MODEL_SEEDS` how many there are.

use settee_watch::{Counts, Judgement, RULES, Ring, Span, Spans, burn::EVENTS_MIN, judge, stored};

const BEGIN: u64 = 1_700_000_000;

fn seeds() -> std::ops::Range<u64> {
    let number = |name| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let first = number("MODEL_SEED").unwrap_or(1);
    let count = number("MODEL_SEEDS").unwrap_or(if number("MODEL_SEED").is_some() { 1 } else { 60 });
    first..first + count
}

/// Events in order of time, over some days, with gaps.
fn events(random: &mut fastrand::Rng) -> Vec<(u64, Counts)> {
    let mut at = BEGIN + random.u64(..100_000);
    let longest = [5, 120, 4_000, 40_000][random.usize(..4)];
    (0..random.usize(..600))
        .map(|_| {
            at += random.u64(..longest);
            let total = random.u64(..500);
            (at, Counts { good: random.u64(..=total), total })
        })
        .collect()
}

/// What a list of all events says of a span whose slots have so many seconds.
fn listed(events: &[(u64, Counts)], now: u64, slot: u64, slots: u64) -> Counts {
    let within = events.iter().filter(|(at, _)| at / slot <= now / slot && now / slot - at / slot < slots);
    within.fold(Counts::default(), |sum, (_, counts)| sum.plus(*counts))
}

fn ring_of(events: &[(u64, Counts)]) -> Ring {
    let mut ring = Ring::default();
    events.iter().for_each(|(at, counts)| ring.add(*at, *counts));
    ring
}

#[test]
fn a_ring_counts_what_a_list_of_all_events_does() {
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let events = events(&mut random);
        let ring = ring_of(&events);
        let now = events.last().map_or(BEGIN, |(at, _)| *at) + random.u64(..200_000);
        let days = random.u16(1..=90);
        let spans = ring.spans(now, days);
        for span in Span::ALL {
            let minutes = u64::from(span.minutes());
            let expected = if minutes <= 360 {
                listed(&events, now, 60, minutes)
            } else {
                listed(&events, now, 3_600, minutes / 60)
            };
            assert_eq!(spans.of(span), expected, "seed {seed}, {}", span.name());
        }
        assert_eq!(spans.period, listed(&events, now, 3_600, u64::from(days) * 24), "seed {seed}");
    }
}

#[test]
fn what_nodes_count_apart_adds_up() {
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let events = events(&mut random);
        let now = events.last().map_or(BEGIN, |(at, _)| *at);
        let (one, other): (Vec<_>, Vec<_>) = events.iter().partition(|_| random.bool());
        let together = ring_of(&one).spans(now, 28).plus(&ring_of(&other).spans(now, 28));
        assert_eq!(together, ring_of(&events).spans(now, 28), "seed {seed}");
    }
}

#[test]
fn a_clock_that_jumps_leaves_nothing_that_is_counted_twice() {
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut ring = Ring::default();
        let mut total = 0;
        let mut now = BEGIN;
        for _ in 0..300 {
            now =
                if random.u8(..20) == 0 { BEGIN + random.u64(..40_000_000) } else { now + random.u64(..90) };
            ring.add(now, Counts { good: 1, total: 2 });
            total += 2;
            let spans = ring.spans(now, 90);
            assert!(spans.of(Span::Minutes5).total >= 2, "seed {seed}: what was just counted counts");
            let all = spans.spans.iter().chain([&spans.period]);
            assert!(
                all.into_iter().all(|counts| counts.total <= total && counts.good <= counts.total),
                "seed {seed}"
            );
        }
    }
}

fn judged(target: u32, spans: &Spans) -> Judgement {
    judge(target, spans)
}

#[test]
fn more_bad_events_never_look_better_and_a_rule_never_holds_below_its_rate() {
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let target = random.u32(500_000..=999_999);
        let counts = |random: &mut fastrand::Rng| {
            let total = random.u64(..10_000);
            Counts { good: total - random.u64(..=total / 20), total }
        };
        let mut spans = Spans { period: counts(&mut random), ..Spans::default() };
        spans.spans.iter_mut().for_each(|span| *span = counts(&mut random));
        let before = judged(target, &spans);
        let mut worse = spans;
        let add = |one: &mut Counts| one.total += 10;
        worse.spans.iter_mut().for_each(add);
        add(&mut worse.period);
        let after = judged(target, &worse);
        assert!(after.budget_left <= before.budget_left.or(after.budget_left), "seed {seed}");
        for (rule, (held, holds)) in RULES.iter().zip(before.holds.into_iter().zip(after.holds)) {
            assert!(!held || holds, "seed {seed}: {rule:?}");
            let burn = |span: Span| before.burn[span as usize].unwrap_or_default();
            if held {
                assert!(burn(rule.long) > rule.burn && burn(rule.short) > rule.burn, "seed {seed}: {rule:?}");
                assert!(spans.of(rule.short).total >= EVENTS_MIN, "seed {seed}");
            }
        }
    }
}

#[test]
fn rings_come_back_from_a_file_as_they_were_and_damage_is_refused() {
    for seed in seeds() {
        let mut random = fastrand::Rng::with_seed(seed);
        let rings: Vec<_> =
            (0..random.usize(..4)).map(|at| (format!("b {at}"), ring_of(&events(&mut random)))).collect();
        let bytes = stored::encode(rings.iter().map(|(name, ring)| (name.as_str(), ring)));
        let back: Vec<_> = stored::decode(&bytes).expect("what was written is read").into_iter().collect();
        let now = BEGIN + 3_000_000;
        for ((name, ring), (name_back, ring_back)) in rings.iter().zip(&back) {
            assert_eq!((name, ring.spans(now, 90)), (name_back, ring_back.spans(now, 90)), "seed {seed}");
        }
        assert_eq!(rings.len(), back.len());
        let mut damaged = bytes.clone();
        let at = random.usize(..damaged.len());
        damaged[at] ^= 1 << random.u8(..8);
        assert_eq!(stored::decode(&damaged), None, "seed {seed}: bit flipped in byte {at}");
        assert_eq!(stored::decode(&bytes[..random.usize(..bytes.len())]), None, "seed {seed}: cut short");
    }
}
