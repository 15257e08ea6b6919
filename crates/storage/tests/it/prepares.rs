//! Prepares and aborts: an order of their own beside the versions of a key, until the marks have passed them.

use std::path::PathBuf;

use base::{Seqno, VbId, bucket::DurabilityLevel};
use settee_storage::{
    BackfillOptions, CompactBudget, KvStore, Marks, Record,
    RecordKind::{self, Abort},
    StoreError, ValueRule, VbBatch, VbState,
};

use crate::support::{Amnesia, Place, Version, document, drain, lookup, prepared, same, state, tombstone};

const VB: VbId = VbId(6);
const PREPARE: RecordKind = RecordKind::Prepare(DurabilityLevel::MajorityAndPersistActive);
const DELETION: RecordKind = RecordKind::PreparedDeletion(DurabilityLevel::PersistToMajority);
const WITH_PREPARES: BackfillOptions =
    BackfillOptions { unordered: false, keys_only: false, values_of: None, prepares: true };

fn marks(prepared: u64, completed: u64, visible: u64) -> Marks {
    Marks { prepared: Seqno(prepared), completed: Seqno(completed), visible: Seqno(visible) }
}

/// Commits one part, synced.
pub(crate) fn commit_marked(store: &dyn KvStore, versions: &[Version], marks: Marks) -> VbState {
    let records: Vec<Record<'_>> = versions
        .iter()
        .map(|version| Record {
            meta: version.meta,
            key: &version.key,
            hash: base::hash::key_hash(&version.key),
            value: &version.value,
            replaces: version.replaces,
        })
        .collect();
    let last = records.last().unwrap();
    let state = VbState { marks, ..state(last.meta.seqno.get()) };
    let vb = versions[0].vb;
    store.commit(&[VbBatch { vb, state: &state, records: &records }], &mut Vec::new()).unwrap();
    store.sync().unwrap();
    state
}

fn of(kind: RecordKind, key: &str, seqno: u64) -> Version {
    prepared(VB.get(), kind, key, seqno, "prepared")
}

/// Flips a bit of the first prepare that [`of`] made.
fn damage_prepared(place: &Place) {
    let disk = place.fault.as_ref().unwrap();
    let damaged = (0..20).any(|number| {
        let file = PathBuf::from(format!("/shard/{number:08}.seg"));
        let content = disk.contents(&file).unwrap_or_default();
        let at = content.windows(8).position(|window| window == b"prepared");
        at.is_some_and(|at| disk.flip_bit(&file, at as u64, 1))
    });
    assert!(damaged);
}

fn version(key: &str, seqno: u64) -> Version {
    document(VB.get(), key, seqno, "committed")
}

#[test]
fn a_prepare_is_no_version_of_its_key() {
    for place in Place::each() {
        let store = place.open();
        let all = [version("a", 1), of(PREPARE, "a", 2), of(DELETION, "b", 3)];
        let written = commit_marked(&store, &all, marks(3, 0, 1));
        for _ in 0..2 {
            assert!(same(&lookup(&store, VB.get(), "a").unwrap().unwrap(), &all[0]));
            assert!(lookup(&store, VB.get(), "b").unwrap().is_none());
            store.close().unwrap();
        }
        let store = {
            place.kill(store);
            place.open()
        };
        assert_eq!(store.vb_states(), [(VB, written)]);
        let mut found = Vec::new();
        store
            .scan(Some(VB), Seqno(2), true, &mut |_, record, at| {
                assert_eq!(store.get_at(at).unwrap().meta, record.meta);
                found.push((record.meta.kind, record.meta.seqno, record.value.to_vec()));
                true
            })
            .unwrap();
        found.sort_by_key(|found| found.1);
        let value = || b"prepared".to_vec();
        assert_eq!(found, [(PREPARE, Seqno(2), value()), (DELETION, Seqno(3), value())]);
    }
}

#[test]
fn a_backfill_shows_prepares_to_a_reader_that_asks_as_long_as_they_are_open() {
    for place in Place::each() {
        let store = place.open();
        let first = [version("a", 1), of(PREPARE, "a", 2), of(PREPARE, "b", 3), of(PREPARE, "c", 4)];
        commit_marked(&store, &first, marks(4, 0, 1));
        let read =
            |from, options| drain(store.backfill(VB, Seqno(from), options).unwrap(), VB.get(), 100).unwrap();
        assert_eq!(read(0, BackfillOptions::default()), first[..1]);
        assert_eq!(read(0, WITH_PREPARES), first);
        assert_eq!(read(2, WITH_PREPARES), first[2..]);
        let second = [version("a", 5), of(Abort, "b", 6)];
        commit_marked(&store, &second, marks(4, 3, 5));
        let opened = store.backfill(VB, Seqno(0), WITH_PREPARES).unwrap();
        assert_eq!((opened.end(), opened.marks()), (Seqno(6), marks(4, 3, 5)));
        let open = [first[3].clone(), second[0].clone(), second[1].clone()];
        assert_eq!(drain(opened, VB.get(), 100).unwrap(), open);
        let values_of: Option<ValueRule> = Some(|kind, _| kind == Abort);
        let aborts_alone = BackfillOptions { keys_only: true, values_of, ..WITH_PREPARES };
        let bare = |version: &Version| Version { value: Vec::new(), ..version.clone() };
        assert_eq!(read(0, aborts_alone), [bare(&open[0]), bare(&open[1]), open[2].clone()]);
        assert_eq!(read(0, BackfillOptions::default()), second[..1]);
    }
}

#[test]
fn compaction_keeps_prepares_until_they_are_completed_and_their_bytes_count_as_obsolete() {
    let budget = CompactBudget { purge_before: 0, space_ratio: 1.0, ..CompactBudget::default() };
    for place in Place::each() {
        let store = place.open();
        let open = [of(PREPARE, "a", 1), of(PREPARE, "b", 2), of(Abort, "b", 3), of(PREPARE, "c", 4)];
        commit_marked(&store, &open, marks(4, 0, 0));
        assert_eq!(store.stats().bytes_live, 0);
        store.close().unwrap();
        let kinds = |store: &dyn KvStore| {
            let mut kinds = Vec::new();
            let mut visit = |_, record: &Record<'_>, _| {
                kinds.push((record.meta.seqno.get(), record.meta.kind));
                true
            };
            store.scan(None, Seqno(0), true, &mut visit).unwrap();
            kinds.sort_by_key(|kind| kind.0);
            kinds
        };
        store.compact(&Amnesia, budget).unwrap();
        assert_eq!(kinds(&store), [(1, PREPARE), (2, PREPARE), (3, Abort), (4, PREPARE)]);
        assert!(lookup(&store, VB.get(), "a").unwrap().is_none());

        // The tombstone is what says that the prepare before it is committed.
        let commits = [tombstone(VB.get(), "a", 5, 1), version("c", 6)];
        commit_marked(&store, &commits, marks(4, 2, 6));
        store.close().unwrap();
        store.sync().unwrap();
        let purging = CompactBudget { purge_before: 100, ..budget };
        for _ in 0..4 {
            store.compact(&Amnesia, purging).unwrap();
        }
        let left = kinds(&store);
        assert!(!left.contains(&(1, PREPARE)) && !left.contains(&(2, PREPARE)), "{left:?}");
        assert!(left.contains(&(4, PREPARE)) && left.contains(&(6, RecordKind::Document)), "{left:?}");
        place.kill(store);
        let store = place.open();
        assert!(same(&lookup(&store, VB.get(), "c").unwrap().unwrap(), &commits[1]));
        let read = store.backfill(VB, Seqno(0), WITH_PREPARES).unwrap();
        let shown = drain(read, VB.get(), 100).unwrap();
        assert!(shown.iter().all(|shown| shown.meta.kind != PREPARE), "{shown:?}");
    }
}

#[test]
fn a_key_whose_open_prepare_is_damaged_is_unreadable_until_it_is_known_what_became_of_it() {
    let place = Place::fault(7);
    let store = place.open();
    let all = [version("a", 1), version("b", 2), of(PREPARE, "a", 3)];
    commit_marked(&store, &all, marks(3, 0, 2));
    damage_prepared(&place);
    for _ in 0..2 {
        let read = lookup(&store, VB.get(), "a");
        assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
        assert!(same(&lookup(&store, VB.get(), "b").unwrap().unwrap(), &all[1]), "nobody else is concerned");
        store.close().unwrap();
    }
    let newer = version("a", 4);
    commit_marked(&store, std::slice::from_ref(&newer), marks(3, 0, 4));
    assert!(
        same(&lookup(&store, VB.get(), "a").unwrap().unwrap(), &newer),
        "which its commit or another write tells"
    );
}

#[test]
fn a_prepare_of_a_history_that_has_ended_says_nothing_of_one_that_is_damaged() {
    let place = Place::fault(8);
    let store = place.open();
    let ended = [version("a", 8), prepared(VB.get(), PREPARE, "a", 9, "of the history before")];
    commit_marked(&store, &ended, marks(9, 0, 8));
    store.reset_vbs(&[(VB, state(0))]).unwrap();
    commit_marked(&store, &[version("a", 1), version("b", 2), of(PREPARE, "a", 3)], marks(3, 0, 2));
    damage_prepared(&place);
    let read = lookup(&store, VB.get(), "a");
    assert!(matches!(read, Err(StoreError::Corrupt { .. })), "{read:?}");
    assert_eq!(lookup(&store, VB.get(), "b").unwrap().unwrap().meta.seqno, Seqno(2));
}
