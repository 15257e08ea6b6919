//! Whether copies have what their actives had at a moment: what was acknowledged until then is on other nodes.

use crate::TortureError;
use client::{KvConnection, Login};
use protocol::binary::extras::{NumberExtras, VbStateFilter};
use protocol::binary::observe::decode_vb_seqnos;
use protocol::binary::{Opcode, Request};
use std::collections::BTreeMap;
use std::time::Duration;

/// A node that does not answer by then is asked again.
const PATIENCE: Duration = Duration::from_secs(5);

/// Per vBucket, the seqnos that nodes have.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seqnos(BTreeMap<u16, Vec<u64>>);

impl Seqnos {
    /// What is active, or a replica, on these nodes.
    ///
    /// # Errors
    /// One of them cannot be asked.
    pub fn of(addresses: &[String], login: &Login, role: VbStateFilter) -> Result<Seqnos, TortureError> {
        let mut all = Seqnos::default();
        // A client that knows no collections is told the last seqno of the default one as far as it is known, not the vBucket's.
        let login = Login { collections: true, ..login.clone() };
        for address in addresses {
            let mut node = KvConnection::open_within(address, &login, PATIENCE)?;
            let extras = NumberExtras { number: role as u32 }.encode();
            let request = Request { extras: &extras, ..Request::new(Opcode::GetAllVbSeqnos) };
            let answer = node.call(&request)?.success("seqnos of vBuckets")?;
            let seqnos = decode_vb_seqnos(&answer.value);
            let seqnos = seqnos.ok_or_else(|| TortureError::Node(format!("{address}: no seqnos")))?;
            for (vb, seqno) in seqnos {
                all.0.entry(vb.get()).or_default().push(seqno.get());
            }
        }
        Ok(all)
    }

    /// How many vBuckets have fewer than `copies` in `others` that are as far as here.
    #[must_use]
    pub fn behind(&self, others: &Seqnos, copies: usize) -> usize {
        let lacks = |(vb, seqnos): &(&u16, &Vec<u64>)| {
            let wanted = seqnos.iter().max().copied().unwrap_or(0);
            let held = others.0.get(*vb).into_iter().flatten().filter(|seqno| **seqno >= wanted);
            held.count() < copies
        };
        self.0.iter().filter(lacks).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vbucket_is_behind_until_enough_copies_have_all() {
        let of =
            |rows: &[(u16, &[u64])]| Seqnos(rows.iter().map(|(vb, seqnos)| (*vb, seqnos.to_vec())).collect());
        let actives = of(&[(0, &[7]), (1, &[0]), (2, &[5])]);
        let replicas = of(&[(0, &[7, 9]), (1, &[0, 0]), (2, &[5, 4])]);
        assert_eq!(actives.behind(&replicas, 1), 0);
        assert_eq!(actives.behind(&replicas, 2), 1, "one copy lacks the last of vBucket 2");
        assert_eq!(actives.behind(&of(&[(0, &[7])]), 1), 2, "others have no copy at all");
    }
}
