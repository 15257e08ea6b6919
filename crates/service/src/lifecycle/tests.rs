//! Copies that change at random between looks, and a bucket as it is.

use base::{NodeId, Now, Seqno};
use engine::{BucketOptions, FeedOptions, FeedStep, Notifier, Topology, Waiter, Work};

use super::*;
use crate::Alarms;

const NOW: Now = Now { wall_nanos: 1 << 60, mono_millis: 0 };

/// Copies of which a test says what they are: role, term, and the branches of their history, newest first.
#[derive(Clone, Debug, Default)]
struct Fake(Vec<(VbRole, u64, Vec<VbUuid>)>);

impl Copies for Fake {
    fn count(&self) -> u16 {
        self.0.len() as u16
    }

    fn role_and_term(&self, vb: VbId) -> (VbRole, u64) {
        let copy = &self.0[usize::from(vb.get())];
        (copy.0, copy.1)
    }

    fn branches(&self, vb: VbId) -> Vec<VbUuid> {
        self.0[usize::from(vb.get())].2.clone()
    }
}

fn heard(told: &mut Told, copies: &Fake) -> Vec<(VbId, u64, Change)> {
    let mut heard = Vec::new();
    told.look(copies, |vb, term, change| heard.push((vb, term, change)));
    heard
}

/// What one copy is told to be, look by look.
fn way(steps: &[(VbRole, u64, &[u64])]) -> Vec<Vec<(u64, Change)>> {
    let mut told = Told::default();
    let look = |(role, term, branches): &(VbRole, u64, &[u64])| {
        let copies = Fake(vec![(*role, *term, branches.iter().copied().map(VbUuid).collect())]);
        heard(&mut told, &copies).into_iter().map(|(_, term, change)| (term, change)).collect()
    };
    steps.iter().map(look).collect()
}

#[test]
fn a_copy_is_told_as_what_it_becomes() {
    let told = way(&[
        (VbRole::Dead, 0, &[9]),
        (VbRole::Replica, 1, &[1]),
        (VbRole::Replica, 1, &[1]),
        (VbRole::Active, 2, &[2, 1]),
        (VbRole::Sealed, 2, &[2, 1]),
        (VbRole::Dead, 3, &[2, 1]),
        (VbRole::Dead, 4, &[8]),
    ]);
    let expected: [&[(u64, Change)]; 7] = [
        &[],
        &[(1, Change::Replica)],
        &[],
        &[(2, Change::Active)],
        &[(2, Change::Sealed)],
        &[(3, Change::Gone)],
        &[],
    ];
    assert_eq!(told, expected);
}

#[test]
fn another_history_is_told_before_the_role_that_the_copy_has_by_then() {
    let told = way(&[
        (VbRole::Active, 1, &[1]),
        // It was failed over, went back to an earlier point, and leads again, all between two looks.
        (VbRole::Active, 4, &[3, 2]),
        // The bucket was emptied.
        (VbRole::Active, 4, &[7]),
    ]);
    let expected: [&[(u64, Change)]; 3] =
        [&[(1, Change::Active)], &[(4, Change::Reset), (4, Change::Active)], &[(4, Change::Reset)]];
    assert_eq!(told, expected);
}

#[test]
fn other_histories_are_found_in_all_copies_within_a_few_looks() {
    let mut told = Told::default();
    let mut copies = Fake(vec![(VbRole::Active, 1, vec![VbUuid(1)]); 1000]);
    assert_eq!(heard(&mut told, &copies).len(), 1000);
    copies.0.iter_mut().for_each(|copy| copy.2 = vec![VbUuid(2)]);
    let looks = 1000_usize.div_ceil(LOOKS);
    let found: Vec<_> = (0..looks).flat_map(|_| heard(&mut told, &copies)).collect();
    assert_eq!(found.len(), 1000, "each once");
    assert!(found.iter().all(|(_, _, change)| *change == Change::Reset));
}

/// Folds what is told; it must be what the copies are, whatever happened between the looks.
#[test]
fn what_was_told_is_what_is() {
    for seed in 0..200 {
        let mut random = fastrand::Rng::with_seed(seed);
        let roles = [VbRole::Dead, VbRole::Replica, VbRole::Active, VbRole::Sealed];
        let mut copies = Fake(vec![(VbRole::Dead, 0, vec![VbUuid(0)]); 5]);
        let (mut told, mut known) = (Told::default(), vec![(VbRole::Dead, 0_u64); 5]);
        for branch in 1..100_u64 {
            for copy in &mut copies.0 {
                if random.bool() {
                    continue;
                }
                (copy.0, copy.1) = (roles[random.usize(..4)], copy.1 + random.u64(1..3));
                match random.u8(..3) {
                    0 => copy.2.insert(0, VbUuid(branch)),
                    1 => copy.2 = vec![VbUuid(branch)],
                    _ => {}
                }
            }
            if random.bool() {
                continue;
            }
            for (vb, term, change) in heard(&mut told, &copies) {
                let known = &mut known[usize::from(vb.get())];
                assert!(term >= known.1, "seed {seed}: a term fell");
                let role = match change {
                    Change::Active => VbRole::Active,
                    Change::Sealed => VbRole::Sealed,
                    Change::Replica => VbRole::Replica,
                    Change::Reset => known.0,
                    Change::Gone => {
                        assert_ne!(known.0, VbRole::Dead, "seed {seed}: it was gone already");
                        VbRole::Dead
                    }
                };
                *known = (role, term);
            }
            let is: Vec<_> = copies.0.iter().map(|copy| copy.0).collect();
            let was_told: Vec<_> = known.iter().map(|known| known.0).collect();
            assert_eq!(was_told, is, "seed {seed}");
        }
    }
}

struct Routed(Arc<Alarms>);

impl Notifier for Routed {
    fn wake(&self, waiter: Waiter) {
        self.0.wake(waiter);
    }

    fn work(&self, _: Work) {}
}

fn bucket(kind: BucketKind, alarms: &Arc<Alarms>) -> Arc<Bucket> {
    let options =
        BucketOptions { kind, vbuckets: 2, role: VbRole::Dead, ..BucketOptions::new("b", 64 << 20) };
    let notifier = Arc::new(Routed(Arc::clone(alarms)));
    Bucket::open(options, Vec::new(), Arc::default(), notifier, NOW).unwrap()
}

/// Events as text, which is easily compared.
fn look(lifecycle: &mut Lifecycle, open: &[(&str, &Arc<Bucket>)]) -> Vec<String> {
    let open: Vec<_> =
        open.iter().map(|(uuid, bucket)| (BucketUuid((*uuid).into()), Arc::clone(bucket))).collect();
    let mut heard = Vec::new();
    lifecycle.look(&open, |event| {
        heard.push(match event {
            Event::BucketOpened { uuid, .. } => format!("{} opened", uuid.0),
            Event::Vb { bucket, vb, term, change } => format!("{} {} {term} {change:?}", bucket.0, vb.get()),
            Event::BucketClosed(uuid) => format!("{} closed", uuid.0),
        });
    });
    heard
}

#[test]
fn nothing_of_a_bucket_is_told_before_it_is_open_or_after_it_is_closed() {
    let alarms = Arc::default();
    let (first, second) = (bucket(BucketKind::Ephemeral, &alarms), bucket(BucketKind::Ephemeral, &alarms));
    let cache = bucket(BucketKind::Memcached, &alarms);
    let mut lifecycle = Lifecycle::default();
    first.make_replica(VbId(1), 3).unwrap();
    assert_eq!(look(&mut lifecycle, &[("a", &first), ("c", &cache)]), ["a opened", "a 1 3 Replica"]);
    assert_eq!(look(&mut lifecycle, &[("a", &first), ("c", &cache)]), [""; 0]);
    // The bucket was dropped and came back under its uuid.
    second.make_replica(VbId(0), 1).unwrap();
    assert_eq!(look(&mut lifecycle, &[("a", &second)]), ["a closed", "a opened", "a 0 1 Replica"]);
    assert_eq!(look(&mut lifecycle, &[]), ["a closed"]);
    assert_eq!(Arc::strong_count(&second), 1, "a closed bucket is held no longer");
}

#[test]
fn a_service_is_woken_for_the_feed_of_a_copy_that_it_heard_of() {
    let alarms = Arc::default();
    let bucket = bucket(BucketKind::Ephemeral, &alarms);
    let topology = Topology { chains: vec![vec![NodeId(0)]], copies: 1, to_disk: false };
    bucket.activate(VbId(1), 1, topology, NOW).unwrap();
    let mut lifecycle = Lifecycle::default();
    assert_eq!(look(&mut lifecycle, &[("a", &bucket)]), ["a opened", "a 1 1 Active"]);
    let alarm = alarms.alarm();
    let options = FeedOptions { from: Seqno(0), ..FeedOptions::default() };
    let mut feed = bucket.feed(VbId(1), options, alarm.waiter(1)).unwrap();
    while !matches!(feed.next(1024, NOW), Ok(FeedStep::Wait)) {}
    bucket.seal(VbId(1), 1).unwrap();
    assert!(alarm.wait(std::time::Duration::from_secs(60)).contains(&1));
    assert_eq!(look(&mut lifecycle, &[("a", &bucket)]), ["a 1 1 Sealed"]);
}
