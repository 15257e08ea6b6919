//! Which of the nodes that see the same alert sends it. Seeds are fixed: failures name theirs.

use std::collections::BTreeMap;

use settee_watch::{
    alerts::{Change, Firing, PROBE_SILENT, QUEUE_GROWS},
    silences::Outbox,
    turns::{Told, Turns},
};

/// From the beginning of a round to that of the next, and the longest that one takes, in milliseconds.
const EVERY: u64 = 2_000;
const TAKES_MAX: u64 = 1_500;

fn silent(since_secs: u64) -> Firing {
    Firing { about: &PROBE_SILENT, subject: "c:8091".into(), text: "text".into(), since_secs }
}

/// A node that sees the alert from a moment to another one.
struct Node {
    turns: Turns,
    outbox: Outbox,
    sees: std::ops::Range<u64>,
    /// A round that is under way: when each node is asked, when it ends, and what was answered.
    asks: Vec<(u64, usize)>,
    ends: u64,
    answers: BTreeMap<usize, Vec<Told>>,
}

impl Node {
    fn look(&mut self, now: u64) -> Vec<Change> {
        let firing = self.sees.contains(&now).then(|| silent(self.sees.start));
        self.outbox.look(self.turns.look(firing.into_iter().collect()), |_| false)
    }
}

/// Everything that nodes send, with when. A node that dies does so at that moment.
fn sent(random: &mut fastrand::Rng, count: usize, dies: Option<(usize, u64)>) -> Vec<(u64, usize, Change)> {
    let starts: Vec<u64> = (0..count).map(|_| random.u64(0..EVERY)).collect();
    let mut nodes: Vec<Node> = (0..count)
        .map(|_| Node {
            turns: Turns::default(),
            outbox: Outbox::default(),
            sees: random.u64(0..2_000)..random.u64(40_000..50_000),
            asks: Vec::new(),
            ends: 0,
            answers: BTreeMap::new(),
        })
        .collect();
    let mut sent = Vec::new();
    for now in (0..60_000).step_by(50) {
        for this in 0..count {
            if dies.is_some_and(|(node, at)| node == this && now >= at) {
                nodes[this].turns.forget();
                continue;
            }
            let changes = nodes[this].look(now);
            sent.extend(changes.into_iter().map(|change| (now, this, change)));
            if now % EVERY == starts[this] / 50 * 50 && !nodes[this].turns.is_empty() {
                let others = (0..count).filter(|other| *other != this);
                nodes[this].asks =
                    others.map(|other| (now + random.u64(0..TAKES_MAX) * random.u64(0..2), other)).collect();
                // The slowest answer is late: what the others said may be old by then.
                nodes[this].ends = now + TAKES_MAX;
            }
            let (due, later) =
                std::mem::take(&mut nodes[this].asks).into_iter().partition(|(at, _)| *at <= now);
            nodes[this].asks = later;
            let due: Vec<(u64, usize)> = due;
            for (_, other) in due {
                let told = nodes[other].turns.told();
                nodes[this].answers.insert(other, told);
            }
            if nodes[this].ends > 0 && nodes[this].ends <= now {
                let answers = std::mem::take(&mut nodes[this].answers);
                nodes[this].turns.round(this, &answers, |_, _| false);
                nodes[this].ends = 0;
            }
        }
    }
    sent
}

fn has_fired(change: &Change) -> bool {
    matches!(change, Change::Fired(_))
}

#[test]
fn one_node_sends_what_several_see_and_its_end_once_none_sees_it() {
    for seed in 0..100 {
        let mut random = fastrand::Rng::with_seed(seed);
        let count = random.usize(1..=4);
        let sent = sent(&mut random, count, None);
        let [(fired, by, first), (ended, ender, last)] = &*sent else {
            panic!("seed {seed}: {count} nodes, {sent:?}")
        };
        assert!(has_fired(first) && !has_fired(last) && by == ender, "seed {seed}: {sent:?}");
        assert!(*fired < 20_000 && *ended >= 40_000, "seed {seed}: {sent:?}");
    }
}

#[test]
fn another_node_sends_it_where_the_one_that_did_is_gone() {
    for seed in 0..20 {
        let mut random = fastrand::Rng::with_seed(seed);
        let by = sent(&mut random.clone(), 4, None)[0].1;
        let sent = sent(&mut random, 4, Some((by, 30_000)));
        let told: Vec<_> = sent.iter().map(|(_, node, change)| (*node == by, has_fired(change))).collect();
        assert_eq!(told, [(true, true), (false, true), (false, false)], "seed {seed}: {sent:?}");
    }
}

#[test]
fn what_is_about_the_node_itself_is_its_own_and_a_silenced_node_leaves_it_to_others() {
    let mut turns = Turns::default();
    let own = Firing { about: &QUEUE_GROWS, ..silent(1) };
    assert_eq!(turns.look(vec![own.clone()]), vec![own.clone()]);
    assert!(turns.is_empty() && turns.is_settled());
    assert_eq!(turns.look(vec![silent(1), own.clone()]), vec![own]);
    let told =
        [Told { alert: PROBE_SILENT.name.into(), subject: "c:8091".into(), fires: true, sends: false }];
    let answers = BTreeMap::from([(2, told.to_vec())]);
    let rounds = |turns: &mut Turns, silenced: u32| {
        for _ in 0..3 {
            turns.round(1, &answers, |_, node| node == silenced);
        }
        turns.look(vec![silent(1)])
    };
    assert_eq!(rounds(&mut turns, 1), [], "the other node tells it too, and is not silenced");
    assert!(!turns.is_settled());
    assert_eq!(rounds(&mut turns, 2), [silent(1)]);
    assert!(turns.is_settled());
}
