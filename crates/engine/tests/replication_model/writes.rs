//! What clients write: every kind of mutation, and locks. A document tells which attempt wrote it.

use base::{Cas, Datatype, Status};
use settee_engine::{
    Bucket, Change, Delete, DocView, Durable, Expiry, MutationSpec, Refusal, Store, StoreMode, SubdocMutated,
    SubdocMutation, ValueForm, WithMeta,
};

use super::{InProgress, KEYS, LEVELS, START_SECS, WAITER, World, key};
use crate::support::mutation;

/// Beyond the end of every run.
const FAR: u32 = START_SECS as u32 + 100_000_000;
/// The attribute that sub-document writes put their attempt into.
const MARK: &[u8] = b"user";

/// What one key has been through: attempts are numbered, and a document says which one wrote it.
#[derive(Default)]
pub(crate) struct History {
    /// Which attempts may leave nothing: deletions, and documents that expire within the run.
    pub(crate) vanishing: Vec<bool>,
    /// The last one that was acknowledged at majority.
    pub(crate) acknowledged: Option<usize>,
    /// Some attempt had a short expiry, which another one may have kept.
    was_short: bool,
}

/// What an attempt does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Attempt {
    Store(StoreMode),
    Append,
    Delete,
    Touch,
    Attribute,
    SetWithMeta,
    DeleteWithMeta,
}

const ATTEMPTS: [Attempt; 14] = [
    Attempt::Store(StoreMode::Set),
    Attempt::Store(StoreMode::Set),
    Attempt::Store(StoreMode::Set),
    Attempt::Store(StoreMode::Set),
    Attempt::Store(StoreMode::Add),
    Attempt::Store(StoreMode::Replace),
    Attempt::Append,
    Attempt::Delete,
    Attempt::Delete,
    Attempt::Delete,
    Attempt::Touch,
    Attempt::Attribute,
    Attempt::SetWithMeta,
    Attempt::DeleteWithMeta,
];

/// The last attempt that a document tells of, in its body or its attribute.
pub(crate) fn attempt_of(view: &DocView<'_>) -> usize {
    let number = |text: &[u8]| {
        let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&text[..digits]).unwrap().parse().ok()
    };
    if !view.datatype.contains(Datatype::XATTR) {
        return number(view.value).unwrap();
    }
    let (length, rest) = view.value.split_first_chunk().unwrap();
    let (pairs, body) = rest.split_at(u32::from_be_bytes(*length) as usize);
    let name = [MARK, b"\0"].concat();
    let at = pairs.windows(name.len()).position(|window| window == name).unwrap();
    number(&pairs[at + name.len()..]).max(number(body)).unwrap()
}

/// Puts a mark among the attributes.
fn upsert_of_mark(mark: &[u8]) -> MutationSpec<'_> {
    MutationSpec {
        change: Change::DictUpsert,
        path: MARK,
        value: mark,
        form: ValueForm::Plain,
        in_xattrs: true,
        create_parents: false,
    }
}

/// Changes a document that exists.
fn keeping_expiry<'a>(specs: &'a [MutationSpec<'a>], expiry: u32) -> SubdocMutation<'a> {
    SubdocMutation { expiry: Expiry::Preserve(expiry), ..mutation(specs) }
}

impl World {
    fn expiry(&mut self) -> u32 {
        match self.dice.below(6) {
            0 => 1 + self.dice.below(20) as u32,
            1 => FAR + self.dice.below(1_000) as u32,
            _ => 0,
        }
    }

    /// No CAS, the right one, or a wrong one.
    fn cas(&mut self, node: usize, number: u8) -> Cas {
        match self.dice.below(6) {
            0 => Cas(7),
            1 | 2 => {
                let rig = self.rig(node);
                let read = |view: &DocView<'_>| view.cas;
                let seen = rig.run(&key(number), |b, vb, key| b.get(vb, key, rig.now(), read));
                seen.ok().filter(|cas| *cas != Cas::LOCKED).unwrap_or_default()
            }
            _ => Cas::NONE,
        }
    }

    pub(crate) fn write(&mut self) {
        // The copy that was left behind takes writes too, which will not stay.
        let node = match self.left_behind {
            Some(node) if self.dice.below(3) == 0 => node,
            _ => self.active,
        };
        let number = self.dice.below(KEYS.into()) as u8;
        let what = ATTEMPTS[self.dice.below(ATTEMPTS.len())];
        let is_plain =
            matches!(what, Attempt::Append | Attempt::Touch | Attempt::SetWithMeta | Attempt::DeleteWithMeta);
        let level = if is_plain { LEVELS[0] } else { LEVELS[self.dice.below(4)] };
        let (expiry, cas, flags) = (self.expiry(), self.cas(node, number), self.dice.below(1_000) as u32);
        let (rev, skew) = (1 + self.dice.below(40) as u64, self.dice.below(2_000) as u64 * 1_000_000);
        let history = &self.keys[usize::from(number)];
        let attempt = history.vanishing.len();
        let value = format!("{attempt}:{}", "x".repeat(attempt % 40)).into_bytes();
        let mark = attempt.to_string().into_bytes();
        let rig = self.rig(node);
        let now = rig.now();
        let with_meta = WithMeta {
            flags,
            expiry: if expiry == 0 || expiry >= FAR { expiry } else { now.unix_secs() + expiry },
            skip_conflict_resolution: rev.is_multiple_of(3),
            ..WithMeta::new(Cas(now.wall_nanos - 1_000_000_000 + skew), rev, &value)
        };
        let deletion = WithMeta { expiry: 0, value: &[], ..with_meta };
        let specs = [upsert_of_mark(&mark)];
        let mutation = SubdocMutation { cas, durability: level, ..keeping_expiry(&specs, expiry) };
        let store =
            Store { flags, expiry: Expiry::Wire(expiry), cas, durability: level, ..Store::set(&value) };
        let written = rig.run(&key(number), |bucket: &Bucket, vb, key| match what {
            Attempt::Store(StoreMode::Add) => {
                bucket.store(vb, key, &Store { mode: StoreMode::Add, cas: Cas::NONE, ..store }, now)
            }
            Attempt::Store(mode) => bucket.store(vb, key, &Store { mode, ..store }, now),
            Attempt::Append => {
                let store = Store { mode: StoreMode::Append, value: b"+", ..store };
                bucket.store(vb, key, &store, now)
            }
            Attempt::Delete => bucket.delete(vb, key, &Delete { cas, durability: level }, now),
            Attempt::Touch => bucket.touch(vb, key, expiry, now, |_| ()).map(|done| done.1),
            Attempt::Attribute => match bucket.subdoc_mutate(vb, key, &mutation, now)? {
                SubdocMutated::Done { mutated, .. } => Ok(mutated),
                SubdocMutated::Failed(_, status) => Err(Refusal::Status(status)),
            },
            Attempt::SetWithMeta => bucket.set_with_meta(vb, key, &with_meta, now),
            Attempt::DeleteWithMeta => bucket.delete_with_meta(vb, key, &deletion, now),
        });
        let mutated = match written {
            Ok(mutated) => mutated,
            Err(status) => return self.refused(status, what, cas, level != LEVELS[0]),
        };
        self.written += 1;
        let is_short = expiry != 0 && expiry < FAR;
        let history = &mut self.keys[usize::from(number)];
        history.was_short |= is_short;
        history.vanishing.push(match what {
            Attempt::Delete | Attempt::DeleteWithMeta => true,
            Attempt::Store(_) | Attempt::SetWithMeta => is_short,
            Attempt::Append | Attempt::Touch | Attempt::Attribute => history.was_short,
        });
        if level != LEVELS[0] {
            assert!(mutated.wait, "of three copies one is no majority");
            self.in_progress.push(InProgress { key: number, attempt, mutated, asked: node });
        }
    }

    /// Whether there was a reason.
    fn refused(&self, status: Status, what: Attempt, cas: Cas, is_durable: bool) {
        let is_reason = match status {
            Status::KeyNotFound | Status::SyncWriteInProgress | Status::TemporaryFailure | Status::Locked => {
                true
            }
            Status::NotStored => what == Attempt::Append,
            Status::KeyExists => {
                let may_exist =
                    [Attempt::Store(StoreMode::Add), Attempt::SetWithMeta, Attempt::DeleteWithMeta];
                cas != Cas::NONE || may_exist.contains(&what)
            }
            Status::NotMyVbucket => self.is_draining && is_durable,
            _ => false,
        };
        assert!(is_reason, "{status:?} for {what:?} with {cas:?}");
    }

    /// Somebody locks a document for a few seconds, or gives the lock back at once.
    pub(crate) fn lock(&mut self) {
        let number = self.dice.below(KEYS.into()) as u8;
        let (secs, gives_back) = (1 + self.dice.below(15) as u32, self.dice.below(2) == 0);
        let rig = self.rig(self.active);
        let read = |view: &DocView<'_>| view.cas;
        let locked = rig.run(&key(number), |b, vb, key| b.lock(vb, key, secs, rig.now(), read));
        match locked {
            Ok(cas) if gives_back => {
                rig.run(&key(number), |b, vb, key| b.unlock(vb, key, cas, rig.now())).unwrap();
            }
            Ok(_)
            | Err(
                Status::KeyNotFound | Status::Locked | Status::SyncWriteInProgress | Status::TemporaryFailure,
            ) => {}
            Err(status) => panic!("{status:?}"),
        }
    }

    /// Clients ask what became of their durable writes.
    pub(crate) fn ask(&mut self) {
        let waiting = std::mem::take(&mut self.in_progress);
        for write in waiting {
            let rig = self.rig(write.asked);
            match rig.complete(&key(write.key), &write.mutated, WAITER) {
                Ok(Durable::Parked) => self.in_progress.push(write),
                Ok(Durable::Committed(_)) => {
                    let history = &mut self.keys[usize::from(write.key)];
                    history.acknowledged = history.acknowledged.max(Some(write.attempt));
                    self.acknowledged += 1;
                }
                Err(Status::SyncWriteAmbiguous | Status::NotMyVbucket) => {}
                Err(status) => panic!("{status:?}"),
            }
        }
    }
}
