//! Compaction that is told to stop, at every place where it asks; and what memory it may take.

use std::sync::atomic::{AtomicU64, Ordering};

use base::VbId;
use settee_storage::{CompactBudget, KvStore, Liveness, Locator, Options, Record, Verdict};

use crate::support::{Place, Version, commit, document, lookup, options, same};

/// Lets compaction ask so often before it says no.
struct Patience(AtomicU64);

impl Liveness for Patience {
    fn verdict(&self, _vb: VbId, _record: &Record<'_>, _at: Locator) -> Verdict {
        Verdict::Unknown
    }

    fn relocate(&self, _: VbId, _: &Record<'_>, _: Locator, _: Locator) -> bool {
        false
    }

    fn go_on(&self, _memory_bytes: u64) -> bool {
        self.0.try_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[test]
fn a_step_that_is_given_up_leaves_no_trace() {
    let place = Place::fault(21);
    let options = Options { segment_bytes: 1 << 20, segment_bytes_min: 1 << 20, ..options() };
    let store = place.open_with(options).unwrap();
    let version = |n: u64, seqno: u64| document(3, &format!("k{n}"), seqno, vec![seqno as u8; 4000]);
    let mut written: Vec<Version> = (1..=400).map(|n| version(n, n)).collect();
    let first = commit(&store, &written).unwrap();
    store.sync().unwrap();
    let overwritten: Vec<Version> =
        (1..=300).map(|n| Version { replaces: first[n as usize - 1], ..version(n, 400 + n) }).collect();
    commit(&store, &overwritten).unwrap();
    overwritten.into_iter().enumerate().for_each(|(index, version)| written[index] = version);
    store.sync().unwrap();
    // Settled segments are those that memory knows the places of.
    store.sync().unwrap();
    let files = |place: &Place| {
        let names = place.fs.list(&place.dir).unwrap();
        names.into_iter().filter(|name| name.ends_with(".seg")).count()
    };
    let before = files(&place);
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    let mut given_up = 0;
    for patience in 0.. {
        let report = store.compact(&Patience(AtomicU64::new(patience)), budget).unwrap();
        for wanted in &written {
            let key = std::str::from_utf8(&wanted.key[1..]).unwrap();
            assert!(same(&lookup(&store, 3, key).unwrap().unwrap(), wanted), "{key} after {patience}");
        }
        if report.segments_removed > 0 {
            break;
        }
        given_up += 1;
        assert!(report.more, "there is still something to do");
        assert_eq!(files(&place), before, "no output is left behind after {patience} slices");
    }
    assert!(given_up > 5, "it asked {given_up} times");
}

/// Remembers the most memory that a step said it had.
#[derive(Default)]
struct Accountant(AtomicU64);

impl Liveness for Accountant {
    fn verdict(&self, _vb: VbId, _record: &Record<'_>, _at: Locator) -> Verdict {
        Verdict::Unknown
    }

    fn relocate(&self, _: VbId, _: &Record<'_>, _: Locator, _: Locator) -> bool {
        false
    }

    fn go_on(&self, memory_bytes: u64) -> bool {
        self.0.fetch_max(memory_bytes, Ordering::Relaxed);
        true
    }
}

#[test]
fn a_step_takes_as_many_segments_as_its_memory_allows() {
    let place = Place::fault(22);
    let store = place.open();
    let version = |n: u64, seqno: u64| document(3, &format!("k{n}"), seqno, vec![seqno as u8; 100]);
    let write = |versions: Vec<Version>| -> Vec<Locator> {
        versions.chunks(100).flat_map(|chunk| commit(&store, chunk).unwrap()).collect()
    };
    let first = write((1..=8_000).map(|n| version(n, n)).collect());
    // Of each segment one record in ten stays alive.
    let overwritten = (1..=8_000).filter(|n| n % 10 > 0);
    write(
        overwritten.map(|n| Version { replaces: first[n as usize - 1], ..version(n, 8_000 + n) }).collect(),
    );
    (0..3).for_each(|_| store.sync().unwrap());
    let budget = CompactBudget { space_ratio: 1.0, ..CompactBudget::default() };
    let frugal = CompactBudget { memory_bytes_max: 1, ..budget };
    let accountant = Accountant::default();
    let report = store.compact(&accountant, frugal).unwrap();
    assert_eq!(report.segments_removed, 1, "one is always allowed");
    let little = accountant.0.into_inner();
    let accountant = Accountant::default();
    let report = store.compact(&accountant, budget).unwrap();
    assert!(report.segments_removed > 5, "{report:?}");
    let more = accountant.0.into_inner();
    // What is kept by the first is less than a slice's work: it may not have been asked at all.
    assert!(little < more && more > report.records_kept * 40, "{little} {more} {report:?}");
}
