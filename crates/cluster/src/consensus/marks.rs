//! Hashes of the replicated state at some places of the log, by which members find out that they differ ([`crate::orchestrator::divergence`]).
//!
//! Equal logs have to give equal states. They do not where a version carries a change out in another way, or where memory or a disk
//! has turned a bit. A member hashes its state at every [`EVERY`]th place, and where the log has rested for a while. So members have
//! places in common whatever the pace.
//!
//! The hash is over the bytes that a snapshot of the state has. A version must not write there what another one at the same level of
//! the metadata would not. Numbers with a fraction are rounded for it: reading one back may change its last bit.
//!
//! How proposals have ended is a part of the state. Of a refusal the hash is over its kind alone. Its words are for people, and the
//! next version may word it in another way. A hash over the words would fence the first nodes of a rolling upgrade for that. All
//! nodes have made the same of the log all the same. Below level 13 the words count, as they do for older versions.

use std::{collections::VecDeque, io};

use serde::{Deserialize, Serialize};
use serde_json::ser::Formatter;
use sha2::{Digest as _, Sha256};

use super::{Epoch, state::State};

/// Places between two hashes.
const EVERY: u64 = 64;
/// Ticks without a change after which the last place is one as well.
const REST_TICKS: u32 = 10;
/// The last ones are told.
const KEPT: usize = 8;

/// What a member's state was at a place of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMark {
    /// The place.
    pub index: u64,
    /// Of the state after it.
    pub hash: u64,
}

/// The last ones of a member.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StateMarks {
    /// The life of the group that they belong to.
    pub epoch: Epoch,
    /// In order.
    pub marks: Vec<StateMark>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Marks {
    last: VecDeque<StateMark>,
    /// Ticks since the last change.
    rest_ticks: u32,
}

impl Marks {
    /// Something was applied, up to that place.
    pub(super) fn applied(&mut self, state: &State, index: u64) {
        self.rest_ticks = 0;
        if index.is_multiple_of(EVERY) {
            self.mark(state, index);
        }
    }

    /// A tick in which nothing was applied behind that place.
    pub(super) fn rested(&mut self, state: &State, index: u64) {
        self.rest_ticks = self.rest_ticks.saturating_add(1);
        if self.rest_ticks == REST_TICKS {
            self.mark(state, index);
        }
    }

    /// As they are told.
    pub(super) fn told(&self, epoch: Epoch) -> StateMarks {
        StateMarks { epoch, marks: self.last.iter().copied().collect() }
    }

    fn mark(&mut self, state: &State, index: u64) {
        let metadata = &state.metadata;
        // Before a member has heard anything of a group that was formed anew, it goes by what it knew: others knew something else.
        let is_compared = metadata.tells_states() && metadata.nodes.len() > 1 && index > 0;
        if !is_compared || self.last.back().is_some_and(|last| last.index >= index) {
            return;
        }
        let Some(hash) = hash(state) else { return };
        if self.last.len() == KEPT {
            self.last.pop_front();
        }
        self.last.push_back(StateMark { index, hash });
    }
}

/// `None` where the state cannot be written.
fn hash(state: &State) -> Option<u64> {
    if state.metadata.tells_states_without_words() { hash_of(&state.without_words()) } else { hash_of(state) }
}

fn hash_of(state: &State) -> Option<u64> {
    let mut out = Hashed(Sha256::new());
    state.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Rounded)).ok()?;
    out.0.finalize().first_chunk().map(|first| u64::from_le_bytes(*first))
}

struct Hashed(Sha256);

impl io::Write for Hashed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

struct Rounded;

impl Formatter for Rounded {
    fn write_f64<W: ?Sized + io::Write>(&mut self, out: &mut W, value: f64) -> io::Result<()> {
        write!(out, "{value:.9e}")
    }
}

/// What a node that differs says of itself from then on.
pub(super) fn trouble(index: u64) -> String {
    format!(
        "this node's metadata differ from those of most nodes since change {index} (do all nodes run the same version?); remove the \
         node from its cluster and add it again"
    )
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{
        changes::Command,
        consensus::{Place, Proposal, ProposalId, state::Apply},
        metadata::{
            ClusterError, Metadata, NodeInfo, Ports,
            level::{LEVEL, STATES_WITHOUT_WORDS},
        },
    };

    fn state(value: f64) -> State {
        let nodes = ["a", "b"].map(|name| NodeInfo::first(name.into(), name.into(), Ports::default()));
        let metadata = Metadata { nodes: nodes.into(), ..Metadata::new("c".into(), 256) };
        let set = Command::PutSetting { path: "p".into(), value: serde_json::json!({ "days": value }) };
        State::new(Arc::new(metadata.apply(&set).unwrap().0))
    }

    #[test]
    fn what_a_snapshot_brings_has_the_hash_of_what_it_was_made_of() {
        for value in [0.04, 0.1 + 0.2, 1.0 / 24.0, 1e300] {
            let before = state(value);
            let read: State = crate::metadata::strict::read(&serde_json::to_vec(&before).unwrap()).unwrap();
            assert_eq!(hash(&before), hash(&read));
            assert_ne!(hash(&before), hash(&state(value * 1.01)));
        }
        let next = |value: f64| f64::from_bits(value.to_bits() + 1);
        assert_eq!(hash(&state(0.04)), hash(&state(next(0.04))), "reading it back may change the last bit");
    }

    fn refused(level: u32, text: &'static str, place: Option<Place>) -> State {
        let before = state(1.0).metadata;
        let mut state = State::new(Arc::new(Metadata { level, ..Metadata::clone(&before) }));
        let id = ProposalId { origin: 1, number: 1 };
        let proposal = Proposal { place, ..Proposal::new(id, Command::ResetAutoFailover) };
        let apply: Apply = match text {
            "" => |before, command| before.apply(command),
            "one" => |_, _| Err(ClusterError::MembersRefused("one".into())),
            "other" => |_, _| Err(ClusterError::MembersRefused("other".into())),
            _ => |_, _| Err(ClusterError::field("name", "one")),
        };
        let _ = state.apply(&proposal, apply);
        state
    }

    #[test]
    fn a_version_that_words_a_refusal_in_another_way_has_the_same_hash() {
        for place in [None, Some(Place { open: 1, seen: 0 })] {
            let hash = |level, text| hash(&refused(level, text, place)).unwrap();
            assert_eq!(hash(LEVEL, "one"), hash(LEVEL, "other"), "{place:?}");
            for differs in ["", "field"] {
                assert_ne!(hash(LEVEL, "one"), hash(LEVEL, differs), "{place:?}: how it ended counts");
            }
            // Older versions hash the words, and compare.
            assert_ne!(hash(STATES_WITHOUT_WORDS - 1, "one"), hash(STATES_WITHOUT_WORDS - 1, "other"));
        }
    }

    #[test]
    fn places_are_those_that_others_have_too() {
        let (state, mut marks) = (state(1.0), Marks::default());
        for index in 1..=130 {
            marks.applied(&state, index);
        }
        (0..REST_TICKS * 3).for_each(|_| marks.rested(&state, 130));
        let indexes: Vec<u64> = marks.told(Epoch::default()).marks.iter().map(|mark| mark.index).collect();
        assert_eq!(indexes, [64, 128, 130]);
        let mut marks = Marks::default();
        (0..REST_TICKS * 3).for_each(|_| marks.rested(&state, 0));
        assert!(
            marks.told(Epoch::default()).marks.is_empty(),
            "what was known before the log is not compared"
        );
        let older = State::new(Arc::new(Metadata { level: 2, ..Metadata::clone(&state.metadata) }));
        let mut marks = Marks::default();
        marks.applied(&older, 64);
        assert!(marks.told(Epoch::default()).marks.is_empty(), "some would not understand it");
    }
}
