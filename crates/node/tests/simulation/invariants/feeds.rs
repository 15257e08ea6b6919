//! Every feed is complete. A snapshot that claims a range of seqnos leaves out nothing that its reader has to hear of. At its end the
//! reader holds the newest version of each key up to there. A key's deletion is missed only where it was purged, and only by a reader
//! that does not hold the key. A deletion may be purged before anybody but the reader has seen it. So a document may be missing as well,
//! unless it was seen to live after all that is purged.
//!
//! What a reader should hold comes from all that anybody has seen: versions on active copies and on replicas, and those that feeds told.
//! A branch of a vBucket's history has one version at a seqno. So two readers that are told of the same place are told the same.

use std::{collections::BTreeMap, fmt};

use base::{BucketUuid, Cas, Seqno, VbId, VbUuid};

/// Branches with the seqno that each began at, newest first.
pub(crate) type Log = [(VbUuid, Seqno)];

/// A version of a key. Flags and expiry are those of documents: a deletion tells none.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version {
    pub(crate) seqno: Seqno,
    pub(crate) deleted: bool,
    pub(crate) cas: Cas,
    pub(crate) rev: u64,
    pub(crate) flags: u32,
    pub(crate) expiry: u32,
    /// Of the value, where that is known.
    pub(crate) hash: Option<u64>,
}

/// A reader of a vBucket, at the end of a snapshot.
pub(crate) struct Reader<'a> {
    pub(crate) name: &'a dyn fmt::Display,
    pub(crate) log: &'a Log,
    /// It has everything up to here.
    pub(crate) at: Seqno,
    /// The seqno of what it holds for a key, if it holds anything.
    pub(crate) holds: &'a dyn Fn(&[u8]) -> Option<Seqno>,
    /// It is shown documents that live, and neither tombstones nor what may have expired.
    pub(crate) sees_living: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Feeds {
    known: Vec<Known>,
    /// Where each vBucket is among those.
    places: BTreeMap<(BucketUuid, VbId), usize>,
    /// Looks at readers.
    pub(crate) checked: u64,
}

/// What is known of a vBucket.
#[derive(Default)]
struct Known {
    keys: BTreeMap<Vec<u8>, BTreeMap<(Seqno, VbUuid), Seen>>,
    places: BTreeMap<(Seqno, VbUuid), Vec<u8>>,
    /// Tombstones up to here may be gone, from some copy.
    purged: Seqno,
}

/// A version that somebody has seen.
struct Seen {
    version: Version,
    /// The last place, and the branch that it lies on, of which it is known that nothing newer lies before it.
    newest_at: (Seqno, VbUuid),
}

impl Version {
    /// Two that were seen at one place have to be alike. A lock hides the CAS.
    fn is_like(&self, other: &Self) -> bool {
        let is_hidden = [self.cas, other.cas].contains(&Cas::LOCKED);
        let hashes = self.hash.zip(other.hash);
        let is_same = self.deleted == other.deleted && self.rev == other.rev;
        let is_same_document = (self.flags, self.expiry) == (other.flags, other.expiry);
        is_same
            && (is_hidden || self.cas == other.cas)
            && (self.deleted || is_same_document)
            && hashes.is_none_or(|(one, other)| one == other)
    }
}

/// The branch that a seqno lies on; none where that is forgotten.
fn branch_of(log: &Log, seqno: Seqno) -> Option<VbUuid> {
    log.iter().find(|(_, began)| *began < seqno).map(|(uuid, _)| *uuid)
}

impl Feeds {
    fn of(&mut self, vb: &(BucketUuid, VbId)) -> &mut Known {
        // Most are known, and an entry would want a copy of the name each time.
        let known = self.places.get(vb).copied();
        let at = known.unwrap_or_else(|| {
            self.known.push(Known::default());
            self.places.insert(vb.clone(), self.known.len() - 1);
            self.known.len() - 1
        });
        &mut self.known[at]
    }

    /// Somebody whose history has these branches has seen a version, as the newest one up to `at` at least.
    pub(crate) fn saw(
        &mut self,
        vb: &(BucketUuid, VbId),
        (log, at): (&Log, Seqno),
        key: &[u8],
        version: Version,
    ) {
        let Some(branch) = branch_of(log, version.seqno) else { return };
        let place = (version.seqno, branch);
        let known = self.of(vb);
        let other = known.places.entry(place).or_insert_with(|| key.to_vec());
        assert_eq!(*other, key, "two keys at {place:?} of {vb:?}");
        #[allow(
            clippy::map_entry,
            reason = "most are known, and an entry would want a copy of the key each time"
        )]
        if !known.keys.contains_key(key) {
            known.keys.insert(key.to_vec(), BTreeMap::new());
        }
        let versions = known.keys.get_mut(key).expect("it is there by now");
        let seen = versions.entry(place).or_insert(Seen { version, newest_at: place });
        let before = &mut seen.version;
        assert!(before.is_like(&version), "{key:?} at {place:?} of {vb:?} is {before:?}, and {version:?}");
        before.hash = before.hash.or(version.hash);
        if at > seen.newest_at.0
            && let Some(branch) = branch_of(log, at)
        {
            seen.newest_at = (at, branch);
        }
    }

    /// A copy may have forgotten tombstones up to there.
    pub(crate) fn purged(&mut self, vb: &(BucketUuid, VbId), up_to: Seqno) {
        let known = self.of(vb);
        known.purged = known.purged.max(up_to);
    }

    /// Checks that a reader has missed nothing. `counts`: the keys that it has to hear of.
    pub(crate) fn check(
        &mut self,
        vb: &(BucketUuid, VbId),
        reader: &Reader<'_>,
        counts: &dyn Fn(&[u8]) -> bool,
    ) {
        self.checked += 1;
        let known = self.of(vb);
        for (key, versions) in known.keys.iter().filter(|(key, _)| counts(key)) {
            let before = versions.range(..=(reader.at, VbUuid(u64::MAX))).rev();
            let mut shared =
                before.filter(|((seqno, branch), _)| branch_of(reader.log, *seqno) == Some(*branch));
            let Some((_, seen)) = shared.next() else { continue };
            let (newest, held) = (&seen.version, (reader.holds)(key));
            let may_be_hidden = reader.sees_living && (newest.deleted || newest.expiry != 0);
            let (at, branch) = seen.newest_at;
            let lived_until = if branch_of(reader.log, at) == Some(branch) { at } else { newest.seqno };
            // Its deletion, where nobody has seen it before it went.
            let is_unseen = !newest.deleted && lived_until < known.purged.min(reader.at);
            let may_be_purged = is_unseen || (newest.deleted && newest.seqno <= known.purged);
            let may_lack = held.is_none() && (may_be_hidden || may_be_purged);
            assert!(
                held == Some(newest.seqno) || may_lack,
                "{} at {} of {vb:?} holds {held:?} of {:?}, which is {newest:?} by then (purged: {}, branches: {:?})",
                reader.name,
                reader.at,
                String::from_utf8_lossy(key),
                known.purged,
                reader.log,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &Log = &[(VbUuid(2), Seqno(5)), (VbUuid(1), Seqno(0))];

    fn version(seqno: u64, deleted: bool) -> Version {
        Version { seqno: Seqno(seqno), deleted, cas: Cas(seqno), rev: 1, flags: 0, expiry: 0, hash: None }
    }

    fn vb() -> (BucketUuid, VbId) {
        (BucketUuid("b".into()), VbId(0))
    }

    /// Whether a reader passes that holds one version of the key, or none.
    fn passes(feeds: &mut Feeds, log: &Log, at: u64, held: Option<u64>) -> bool {
        let holds = |_: &[u8]| held.map(Seqno);
        let reader = Reader { name: &"reader", log, at: Seqno(at), holds: &holds, sees_living: false };
        let check = std::panic::AssertUnwindSafe(|| feeds.check(&vb(), &reader, &|_| true));
        std::panic::catch_unwind(check).is_ok()
    }

    #[test]
    fn a_reader_holds_the_newest_version_up_to_its_place() {
        let mut feeds = Feeds::default();
        [2, 4]
            .into_iter()
            .for_each(|seqno| feeds.saw(&vb(), (LOG, Seqno(seqno)), b"k", version(seqno, false)));
        assert!(passes(&mut feeds, LOG, 1, None));
        assert!(passes(&mut feeds, LOG, 3, Some(2)));
        assert!(!passes(&mut feeds, LOG, 4, Some(2)), "a version was left out");
        assert!(!passes(&mut feeds, LOG, 4, None), "a document was left out");
    }

    #[test]
    fn what_lies_on_a_branch_that_ended_before_it_is_none_of_the_readers() {
        let mut feeds = Feeds::default();
        feeds.saw(&vb(), (&LOG[1..], Seqno(7)), b"k", version(7, false));
        feeds.saw(&vb(), (LOG, Seqno(6)), b"k", version(6, false));
        assert!(passes(&mut feeds, LOG, 8, Some(6)));
        assert!(!passes(&mut feeds, LOG, 8, Some(7)));
        assert!(passes(&mut feeds, &LOG[1..], 8, Some(7)));
    }

    #[test]
    fn a_purged_deletion_is_missed_only_by_a_reader_without_the_key() {
        let mut feeds = Feeds::default();
        feeds.saw(&vb(), (LOG, Seqno(2)), b"k", version(2, false));
        feeds.saw(&vb(), (LOG, Seqno(3)), b"k", version(3, true));
        assert!(!passes(&mut feeds, LOG, 4, None), "nothing is purged");
        feeds.purged(&vb(), Seqno(3));
        assert!(passes(&mut feeds, LOG, 4, None));
        assert!(!passes(&mut feeds, LOG, 4, Some(2)), "it holds the document for ever");
    }

    #[test]
    fn a_document_is_missed_where_its_deletion_may_have_been_purged_unseen() {
        let mut feeds = Feeds::default();
        feeds.saw(&vb(), (LOG, Seqno(2)), b"k", version(2, false));
        feeds.purged(&vb(), Seqno(3));
        assert!(passes(&mut feeds, LOG, 4, None), "it was deleted at 3, perhaps");
        assert!(!passes(&mut feeds, LOG, 2, None), "not before");
        assert!(!passes(&mut feeds, LOG, 4, Some(1)));
        feeds.saw(&vb(), (LOG, Seqno(3)), b"k", version(2, false));
        assert!(!passes(&mut feeds, LOG, 4, None), "it lived at 3");
    }

    #[test]
    #[should_panic(expected = "is Version")]
    fn one_place_has_one_version() {
        let mut feeds = Feeds::default();
        feeds.saw(&vb(), (LOG, Seqno(3)), b"k", version(3, true));
        feeds.saw(&vb(), (LOG, Seqno(3)), b"k", version(3, false));
    }
}
