//! Random operations on documents, their parts, attributes and tombstones, over flushes, crashes, restarts, expiry and
//! ejection. A naive model runs beside them: after each operation, what can be looked up is what the model says. `PARTS_SEED` and `PARTS_SEEDS`
//! choose other seeds.

use std::collections::BTreeMap;

use crate::support::{Rig, options, seeds_of};
use base::{
    Cas, Datatype, Status,
    bucket::{BucketKind, DurabilityLevel},
};
use fastrand::Rng;
use serde_json::{Map, Value, json};
use settee_engine::{
    BucketChange, BucketOptions, Budget, Change, Delete, Expiry, Look, Lookup, LookupSpec, MutationSpec,
    Precondition, Store, SubdocMutated, SubdocMutation, ValueCodec, ValueForm, XattrRights, json::is_json,
};

const KEYS: [&[u8]; 4] = [b"\0a", b"\0b", b"\0c", b"\0d"];
const XATTRS: [&str; 4] = ["user", "other", "_sys", "_more"];
const QUOTA_BYTES: u64 = 64 << 20;
const SEEDS: (&str, &str) = ("PARTS_SEED", "PARTS_SEEDS");

type Xattrs = BTreeMap<&'static str, Value>;

/// What the model knows of a key.
#[derive(Clone, Debug, Default, PartialEq)]
enum State {
    #[default]
    Nothing,
    Live {
        /// None where a tombstone was revived without one.
        body: Option<Value>,
        xattrs: Xattrs,
        expires: Option<u64>,
    },
    Tombstone(Xattrs),
}

impl State {
    fn delete(&mut self) {
        if let State::Live { xattrs, .. } = self {
            xattrs.retain(|key, _| key.starts_with('_'));
            *self = State::Tombstone(std::mem::take(xattrs));
        }
    }
}

struct World {
    rig: Rig,
    kind: BucketKind,
    model: BTreeMap<&'static [u8], State>,
    dice: Rng,
}

fn codec() -> ValueCodec {
    ValueCodec {
        recheck: |value| if is_json(value) { Datatype::JSON } else { Datatype::RAW },
        inflate: |_, _| false,
        inflated_len: <[u8]>::len,
    }
}

/// One change of a random mutation, in the engine's words and in the model's.
#[derive(Clone, Debug)]
enum Step {
    SetXattr(&'static str, u32),
    RemoveXattr(&'static str),
    SetField(u32),
    Count,
    SetBody(u32),
    DeleteDocument,
    BodyFrom(&'static str),
}

impl Step {
    fn spec<'a>(&self, text: &'a mut String) -> MutationSpec<'a> {
        let (change, path, value, in_xattrs) = match self {
            Step::SetXattr(key, n) => (Change::DictUpsert, *key, format!("{{\"n\":{n}}}"), true),
            Step::RemoveXattr(key) => (Change::Delete, *key, String::new(), true),
            Step::SetField(n) => (Change::DictUpsert, "field", n.to_string(), false),
            Step::Count => (Change::Counter, "count", "2".to_owned(), false),
            Step::SetBody(n) => (Change::SetBody, "", format!("{{\"set\":{n}}}"), false),
            Step::DeleteDocument => (Change::DeleteDocument, "", String::new(), false),
            Step::BodyFrom(key) => (Change::BodyFromXattr, *key, String::new(), true),
        };
        *text = value;
        let (path, value) = (path.as_bytes(), text.as_bytes());
        MutationSpec { change, path, value, form: ValueForm::Plain, in_xattrs, create_parents: false }
    }

    fn apply(&self, body: &mut Option<Value>, xattrs: &mut Xattrs) -> Result<(), Status> {
        match self {
            Step::SetXattr(key, n) => drop(xattrs.insert(key, json!({ "n": n }))),
            Step::RemoveXattr(key) => drop(xattrs.remove(key).ok_or(Status::SubdocPathNotFound)?),
            Step::BodyFrom(key) => *body = Some(xattrs.get(key).ok_or(Status::SubdocPathNotFound)?.clone()),
            Step::SetBody(n) => *body = Some(json!({ "set": n })),
            Step::DeleteDocument => {
                xattrs.retain(|key, _| key.starts_with('_'));
                *body = None;
            }
            Step::SetField(n) => {
                let body = body.as_mut().ok_or(Status::SubdocDocNotJson)?;
                drop(body.as_object_mut().unwrap().insert("field".into(), json!(n)));
            }
            Step::Count => {
                let body = body.as_mut().ok_or(Status::SubdocDocNotJson)?;
                let before = body.get("count").map_or(0, |count| count.as_i64().unwrap());
                drop(body.as_object_mut().unwrap().insert("count".into(), json!(before + 2)));
            }
        }
        Ok(())
    }
}

impl World {
    fn new(kind: BucketKind, seed: u64) -> Self {
        let options = BucketOptions { codec: codec(), ..options(kind) };
        Self { rig: Rig::new(options), kind, model: BTreeMap::new(), dice: Rng::with_seed(seed) }
    }

    fn state(&mut self, key: &'static [u8]) -> State {
        let millis = self.rig.clock.0;
        let state = self.model.entry(key).or_default();
        if matches!(state, State::Live { expires: Some(at), .. } if *at < millis / 1_000 * 1_000) {
            state.delete();
        }
        state.clone()
    }

    fn steps(&mut self) -> Vec<Step> {
        let xattr = XATTRS[self.dice.usize(..XATTRS.len())];
        let n = self.dice.u32(..100);
        let mut steps = match self.dice.u8(..5) {
            0 => vec![Step::RemoveXattr(xattr)],
            1 => vec![Step::BodyFrom(xattr)],
            2 => vec![],
            _ => vec![Step::SetXattr(xattr, n)],
        };
        match self.dice.u8(..8) {
            0 => steps.push(Step::DeleteDocument),
            1 => steps.push(Step::SetBody(n)),
            2 => steps.extend([Step::SetField(n), Step::Count]),
            3 => steps.push(Step::Count),
            _ if steps.is_empty() => steps.push(Step::SetField(n)),
            _ => {}
        }
        steps
    }

    /// A random mutation of parts, and what has to come of it.
    fn mutate(&mut self, key: &'static [u8]) {
        let steps = self.steps();
        let mut texts = vec![String::new(); steps.len()];
        let specs: Vec<_> = steps.iter().zip(&mut texts).map(|(step, text)| step.spec(text)).collect();
        let precondition =
            *self.dice.choice(&[Precondition::Exists, Precondition::Any, Precondition::Absent]).unwrap();
        let creates = precondition != Precondition::Exists;
        let in_xattrs_only = specs.iter().all(|spec| spec.in_xattrs);
        let expiry_secs = if self.dice.u8(..4) == 0 { self.dice.u32(1..4) } else { 0 };
        let is_durable = self.kind == BucketKind::Couchbase && self.dice.u8(..4) == 0;
        let mutation = SubdocMutation {
            specs: &specs,
            precondition,
            access_deleted: self.dice.bool(),
            create_as_deleted: creates && in_xattrs_only && self.dice.bool(),
            revive: !creates && self.dice.u8(..4) == 0,
            expiry: Expiry::Wire(expiry_secs),
            flags: None,
            cas: Cas::NONE,
            durability: if is_durable { DurabilityLevel::PersistToMajority } else { DurabilityLevel::None },
            rights: XattrRights::default(),
        };
        let before = self.state(key);
        let expires = (expiry_secs > 0).then(|| expires_at(self.rig.clock.0, expiry_secs));
        let expected = expect(&before, &mutation, &steps, expires);
        let now = self.rig.now();
        let outcome = self.rig.run(key, |bucket, vb, key| bucket.subdoc_mutate(vb, key, &mutation, now));
        let outcome = match outcome {
            Ok(SubdocMutated::Done { .. }) => Ok(()),
            Ok(SubdocMutated::Failed(_, status)) | Err(status) => Err(status),
        };
        assert_eq!(outcome, expected.as_ref().map(drop).map_err(|status| *status), "{before:?} {mutation:?}");
        if let Ok(after) = expected {
            if is_durable {
                // Not to be seen yet. A request that does not care about tombstones leaves the one on disk where it is. So the
                // tombstone stays out of sight until the write is done.
                if mutation.access_deleted || !matches!(before, State::Tombstone(_)) {
                    self.check(key);
                }
                self.rig.flush();
            }
            self.model.insert(key, after);
        }
    }

    fn set(&mut self, key: &'static [u8]) {
        let body = json!({ "whole": self.dice.u32(..100) });
        let text = body.to_string();
        let store = Store { datatype: Datatype::JSON, ..Store::set(text.as_bytes()) };
        let now = self.rig.now();
        self.rig.run(key, |bucket, vb, key| bucket.store(vb, key, &store, now)).unwrap();
        let xattrs = if let State::Live { xattrs, .. } = self.state(key) { xattrs } else { Xattrs::new() };
        self.model.insert(key, State::Live { body: Some(body), xattrs, expires: None });
    }

    fn delete(&mut self, key: &'static [u8]) {
        let is_live = matches!(self.state(key), State::Live { .. });
        let now = self.rig.now();
        let deleted = self.rig.run(key, |bucket, vb, key| bucket.delete(vb, key, &Delete::default(), now));
        assert_eq!(deleted.is_ok(), is_live, "{deleted:?}");
        self.model.get_mut(key).unwrap().delete();
    }

    fn housekeeping(mut self) -> Self {
        match self.dice.u8(..8) {
            0 | 1 => self.rig.flush(),
            2 => self.rig.clock.advance_secs(self.dice.u64(1..3)),
            3 => {
                self.rig.bucket.expire(self.rig.now(), Budget::default());
                for shard in 0..self.rig.bucket.shards() {
                    self.rig.bucket.run_fetches(shard, 16, self.rig.now());
                }
            }
            4 if self.kind == BucketKind::Couchbase => {
                let quota = |bytes| BucketChange { quota_bytes: Some(bytes), ..BucketChange::default() };
                self.rig.bucket.reconfigure(quota(1));
                let budget = Budget { items: 200, ..Budget::default() };
                while self.rig.bucket.page(self.rig.now(), budget).items > 0 {}
                self.rig.bucket.reconfigure(quota(QUOTA_BYTES));
            }
            5 if self.kind == BucketKind::Couchbase => {
                self.rig.flush();
                self.rig = if self.dice.bool() { self.rig.crash() } else { self.rig.restart() };
            }
            6 if self.kind == BucketKind::Couchbase && !self.rig.bucket.is_warm() => self.rig.warm_up(),
            _ => {}
        }
        self
    }

    fn check(&mut self, key: &'static [u8]) {
        let state = self.state(key);
        let mut specs: Vec<_> = XATTRS
            .iter()
            .map(|path| LookupSpec {
                what: Look::Get,
                path: path.as_bytes(),
                in_xattrs: true,
                is_binary: false,
            })
            .collect();
        specs.push(LookupSpec { what: Look::Body, path: b"", in_xattrs: false, is_binary: false });
        let lookup = Lookup {
            specs: &specs,
            access_deleted: true,
            from_replica: false,
            cas: Cas::NONE,
            rights: XattrRights::default(),
        };
        let now = self.rig.now();
        let found = self.rig.run(key, |bucket, vb, key| {
            let mut answers: Vec<Option<Value>> = Vec::new();
            let looked_up = bucket.subdoc_lookup(vb, key, &lookup, now, |status, value| {
                answers.push((status == Status::Success).then(|| serde_json::from_slice(value).unwrap()));
            })?;
            Ok((looked_up.deleted, answers))
        });
        let answers = |body: Option<Value>, xattrs: &Xattrs| -> Vec<Option<Value>> {
            XATTRS.iter().map(|key| xattrs.get(key).cloned()).chain([body]).collect()
        };
        let expected = match &state {
            State::Nothing => Err(Status::KeyNotFound),
            State::Live { body, xattrs, .. } => Ok((false, answers(body.clone(), xattrs))),
            State::Tombstone(xattrs) => Ok((true, answers(None, xattrs))),
        };
        assert_eq!(found, expected, "{state:?}");
    }
}

/// Expiry counts whole seconds of the wall clock.
fn expires_at(millis: u64, secs: u32) -> u64 {
    (millis / 1_000 + u64::from(secs)) * 1_000
}

fn expect(
    before: &State,
    mutation: &SubdocMutation<'_>,
    steps: &[Step],
    expires: Option<u64>,
) -> Result<State, Status> {
    let (mut body, mut xattrs, was_deleted) = match before {
        State::Live { .. } if mutation.precondition == Precondition::Absent => return Err(Status::KeyExists),
        State::Live { .. } if mutation.revive => return Err(Status::SubdocCanOnlyReviveDeletedDocuments),
        State::Live { body, xattrs, .. } => (body.clone(), xattrs.clone(), false),
        State::Tombstone(_) if mutation.access_deleted && mutation.precondition == Precondition::Absent => {
            return Err(Status::KeyExists);
        }
        State::Tombstone(xattrs) if mutation.access_deleted => (None, xattrs.clone(), true),
        _ if mutation.precondition == Precondition::Exists => return Err(Status::KeyNotFound),
        State::Tombstone(_) if mutation.create_as_deleted => return Err(Status::KeyExists),
        _ if mutation.create_as_deleted => (None, Xattrs::new(), true),
        _ => {
            let edits =
                |step: &Step| !matches!(step, Step::SetBody(_) | Step::DeleteDocument | Step::BodyFrom(_));
            (steps.iter().any(edits).then(|| Value::Object(Map::new())), Xattrs::new(), false)
        }
    };
    let has_tombstone = matches!(before, State::Tombstone(_)) && mutation.access_deleted;
    for step in steps {
        step.apply(&mut body, &mut xattrs)?;
    }
    let deletes = steps.iter().any(|step| matches!(step, Step::DeleteDocument));
    let deleted = deletes || (was_deleted && !mutation.revive);
    if deleted && body.is_some() {
        return Err(Status::SubdocDeletedDocumentCantHaveValue);
    }
    if deletes && (has_tombstone || was_deleted) && xattrs.is_empty() {
        return Err(Status::KeyNotFound);
    }
    Ok(if deleted { State::Tombstone(xattrs) } else { State::Live { body, xattrs, expires } })
}

fn play(kind: BucketKind, seed: u64, rounds: usize) {
    let mut world = World::new(kind, seed);
    for _ in 0..rounds {
        let key = KEYS[world.dice.usize(..KEYS.len())];
        match world.dice.u8(..8) {
            0 => world.set(key),
            1 => world.delete(key),
            2 => world = world.housekeeping(),
            _ => world.mutate(key),
        }
        world.check(key);
    }
}

#[test]
fn persistent_buckets_keep_what_the_model_keeps() {
    for seed in seeds_of(SEEDS, 0..100) {
        eprintln!("seed {seed}");
        play(BucketKind::Couchbase, seed, 300);
    }
}

#[test]
fn memory_only_buckets_keep_what_the_model_keeps() {
    for seed in seeds_of(SEEDS, 1_000..1_080) {
        eprintln!("seed {seed}");
        play(BucketKind::Ephemeral, seed, 300);
    }
}
