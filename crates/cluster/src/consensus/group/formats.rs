//! What entries and snapshots hold, as bytes.

use raft::eraftpb::Snapshot;

use crate::{
    changes::Command,
    consensus::{LogError, Member, entry::Proposal, state::State},
    metadata::{Metadata, level::PROPOSALS_PLACED, strict},
};

/// The metadata of a member that has none yet.
pub(super) fn unknown_cluster(member: &Member) -> Metadata {
    let mut metadata = Metadata { level: 0, ..Metadata::new(member.cluster_uuid.clone(), 0) };
    metadata.secret.clone_from(&member.secret);
    metadata.nodes.clone_from(&member.peers);
    metadata.authority.clone_from(&member.authority);
    metadata
}

pub(super) fn read_state(snapshot: &Snapshot, highest: u32) -> Result<State, String> {
    let read = strict::read::<State>(&snapshot.data).map_err(|error| error.to_string());
    let known = read.and_then(|state| match state.metadata.admits_level(highest) {
        Ok(()) => Ok(state),
        Err(_) => Err(of_level(state.metadata.level)),
    });
    known.map_err(|error| made_by_newer("a snapshot", &error))
}

/// The metadata that a member goes by until the group that was formed anew has told it everything.
pub(super) fn read_known(data: &[u8], highest: u32) -> Result<Metadata, String> {
    let read = strict::read::<Metadata>(data).map_err(|error| error.to_string());
    let known = read.and_then(|metadata| match metadata.admits_level(highest) {
        Ok(()) => Ok(metadata),
        Err(_) => Err(of_level(metadata.level)),
    });
    known.map_err(|error| made_by_newer("what was last known", &error))
}

/// Why a member cannot go on, and what to do.
pub(super) fn made_by_newer(what: &str, error: &str) -> String {
    format!(
        "{what} of the metadata was made by a newer version ({error}); start this node with that version or a later one"
    )
}

/// What an entry asks for, as far as a version knows that understands metadata up to the level `highest`. Every version understands a
/// change that raises the level: see [`raised`].
pub(super) fn read_proposal(data: &[u8], highest: u32) -> Result<Proposal, String> {
    let proposal = strict::read::<Proposal>(data).map_err(|error| error.to_string())?;
    let level = proposal.command.level().max(if proposal.place.is_some() { PROPOSALS_PLACED } else { 0 });
    if level > highest { Err(of_level(level)) } else { Ok(proposal) }
}

/// Why a version that understands metadata up to the level `highest` cannot carry out a change that raises the level. One that is refused
/// changes nothing: a node of an older version may have been added at the same time.
pub(super) fn raised(command: &Command, metadata: &Metadata, highest: u32) -> Option<String> {
    let Command::RaiseLevel { level, nodes } = command else { return None };
    (*level > highest && metadata.may_raise(*level, nodes).is_ok()).then(|| of_level(*level))
}

pub(super) fn of_level(level: u32) -> String {
    format!("it is of level {level}")
}

pub(super) fn state_bytes(state: &State) -> Result<Vec<u8>, LogError> {
    serde_json::to_vec(state).map_err(unreadable)
}

pub(super) fn member_bytes(member: &Member) -> Result<Vec<u8>, LogError> {
    serde_json::to_vec(member).map_err(unreadable)
}

pub(super) fn unreadable(error: impl std::fmt::Display) -> LogError {
    LogError::Unreadable(error.to_string())
}
