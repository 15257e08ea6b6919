//! Messages that no honest member has sent: spoiled ones, and those of a member that lies.

use base::NodeId;

use super::Simulation;

/// What a message begins with: version, kind, epoch and who it is for.
const ADDRESS_BYTES: usize = 26;

/// The kind that brings a snapshot.
const SNAPSHOT: u8 = 5;

/// What a forged message says. Kinds are those of the codec.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Forged {
    pub(crate) kind: u8,
    pub(crate) term: u64,
    /// Of the entry before those that it brings, and how far the log is agreed on.
    pub(crate) place: (u64, u64),
    pub(crate) reject: bool,
    pub(crate) context: &'static [u8],
}

impl Simulation {
    /// Delivers a message many times, with a few bytes changed behind version, kind and receiver.
    pub(super) fn deliver_spoiled(&mut self, node: usize, bytes: &[u8]) {
        for _ in 0..20 {
            let mut spoiled = bytes.to_vec();
            for _ in 0..self.rng.usize(0..4) {
                let at = self.rng.usize(ADDRESS_BYTES..spoiled.len());
                spoiled[at] = if self.rng.bool() { self.rng.u8(..) } else { self.rng.u8(0..8) };
            }
            let Some(running) = &mut self.nodes[node].running else { return };
            // Refused or believed: whatever it is, it goes on.
            let _ = running.group.step(None, &spoiled);
            let turn = running.group.turn();
            running.group.written(turn.number);
        }
    }

    /// A member that lies says that to another one, in the epoch of that one.
    pub(crate) fn forge(&mut self, from: NodeId, to: usize, forged: Forged) {
        let Some(running) = &self.nodes[to].running else { return };
        let epoch = running.group.epoch();
        let Forged { kind, term, place: (index, log_term), reject, context } = forged;
        let receiver = self.nodes[to].id;
        let raft_id = |node: NodeId| u64::from(node.get()) + 1;
        let mut bytes = vec![2, kind];
        let numbers = [
            epoch.number,
            epoch.lot,
            raft_id(receiver),
            raft_id(from),
            term,
            log_term,
            index,
            index,
            log_term,
            0,
            0,
        ];
        numbers.into_iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.push(u8::from(reject));
        bytes.extend((context.len() as u32).to_le_bytes());
        bytes.extend(context);
        bytes.extend([0; 4]);
        if kind == SNAPSHOT {
            [index, log_term].into_iter().for_each(|number| bytes.extend(number.to_le_bytes()));
            bytes.extend(1_u32.to_le_bytes());
            bytes.extend(raft_id(from).to_le_bytes());
            bytes.extend([0; 8]);
        }
        self.hand(from, to, &bytes);
    }

    /// A member that lies says that the group was formed anew, of those that the other one knows.
    pub(crate) fn forge_notice(&mut self, from: NodeId, to: usize) {
        let Some(running) = &self.nodes[to].running else { return };
        let epoch = running.group.epoch().next(7);
        let notice =
            serde_json::json!({ "epoch": epoch, "secret": "", "nodes": running.group.metadata().nodes });
        let notice = serde_json::to_vec(&notice).unwrap();
        let mut bytes = vec![2, 0x80];
        [epoch.number, epoch.lot].into_iter().for_each(|number| bytes.extend(number.to_le_bytes()));
        bytes.extend((notice.len() as u32).to_le_bytes());
        bytes.extend(notice);
        self.hand(from, to, &bytes);
    }

    /// Whether it is taken or not: what comes of it is to be seen.
    fn hand(&mut self, from: NodeId, to: usize, bytes: &[u8]) {
        let _ = self.with_group(to, |group| group.step(Some(from), bytes));
    }
}
