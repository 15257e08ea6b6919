//! What a copy says of itself and lets be done with it, by what it knows: rules without a lock, a disk or a clock.
//!
//! A vBucket asks them under its lock. The model that tries every order of faults asks them of copies that are nothing but
//! these facts (`crates/node/tests/elections`). So it and the engine cannot disagree.

use base::{Seqno, VbRole};

/// What elections and streams go by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CopyFacts {
    /// What the node is to the vBucket.
    pub role: VbRole,
    /// Since which decision; 0 until the first since the start.
    pub term: u64,
    /// The last mutation that is here.
    pub high_seqno: Seqno,
    /// The snapshot that has begun and is not whole: up to where everything was whole before it, and where it will be again.
    pub open: Option<(Seqno, Seqno)>,
    /// Not even the first snapshot is whole; or, with none open, the copy is damaged.
    pub is_partial: bool,
    /// Nobody but this node has ever heard of its branch, and this one has not been the active on it.
    pub is_unheard: bool,
    /// It may have lost what it has acknowledged.
    pub may_lack: bool,
}

impl CopyFacts {
    /// What is whole of the copy: everything, or up to where the open snapshot began. What a new active goes on from.
    #[must_use]
    pub fn promotable(&self) -> Seqno {
        self.open.map_or(self.high_seqno, |open| open.0)
    }

    /// Whether nothing is known of it: it was not found on disk, and has neither been fed nor served since.
    #[must_use]
    pub fn is_blank(&self) -> bool {
        self.is_unheard && self.high_seqno == Seqno(0)
    }

    /// Whether it is a part, and no stream goes on to make it whole: it has to be begun anew.
    #[must_use]
    pub fn is_given_up(&self) -> bool {
        self.is_partial && self.open.is_none() && self.high_seqno > Seqno(0)
    }

    /// Whether it may become the active copy; `is_alone`: no other copy counts, so a part is all there is.
    #[must_use]
    pub fn may_be_activated(&self, is_alone: bool) -> bool {
        is_alone || !self.is_partial || self.high_seqno == Seqno(0)
    }

    /// Whether a stop that has synced everything may be taken for a clean one. A copy that may lack what it acknowledged would count then.
    /// One of which nothing is known stays such a one, whatever the stop. The node takes note of the loss again.
    #[must_use]
    pub fn counts_after_stop(&self) -> bool {
        !self.may_lack || self.is_blank()
    }

    /// Where it says in a stream request that it is: its last seqno, and the snapshot that lies in. One of which nothing has come is
    /// left out, since the next may end earlier.
    #[must_use]
    pub fn position(&self) -> (Seqno, (Seqno, Seqno)) {
        let begun = self.open.filter(|open| open.0 != self.high_seqno);
        (self.high_seqno, begun.unwrap_or((self.high_seqno, self.high_seqno)))
    }

    /// Whether a copy that a producer sends back to `to` has to be begun anew. Only the newest version of a key is kept, so nothing
    /// older is there to go back to. But where the copy ends no later it goes on as it is.
    #[must_use]
    pub fn begins_anew(&self, to: Seqno) -> bool {
        self.high_seqno > to || self.high_seqno == Seqno(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(high_seqno: u64) -> CopyFacts {
        CopyFacts { high_seqno: Seqno(high_seqno), ..CopyFacts::default() }
    }

    #[test]
    fn a_copy_is_whole_up_to_where_its_open_snapshot_began() {
        assert_eq!(at(7).promotable(), Seqno(7));
        let open = CopyFacts { open: Some((Seqno(5), Seqno(9))), ..at(7) };
        assert_eq!(open.promotable(), Seqno(5));
        assert_eq!(open.position(), (Seqno(7), (Seqno(5), Seqno(9))));
        let untouched = CopyFacts { open: Some((Seqno(7), Seqno(9))), ..at(7) };
        assert_eq!(untouched.position(), (Seqno(7), (Seqno(7), Seqno(7))));
    }

    #[test]
    fn a_part_serves_only_where_nobody_has_more() {
        let part = CopyFacts { is_partial: true, ..at(3) };
        assert!(part.is_given_up() && !part.may_be_activated(false) && part.may_be_activated(true));
        let growing = CopyFacts { open: Some((Seqno(0), Seqno(9))), ..part };
        assert!(!growing.is_given_up() && !growing.may_be_activated(false));
        assert!(CopyFacts { is_partial: true, ..at(0) }.may_be_activated(false), "nothing is nobody's part");
    }

    #[test]
    fn a_stop_is_clean_for_what_lacked_nothing() {
        assert!(at(3).counts_after_stop() && at(0).counts_after_stop());
        assert!(!CopyFacts { may_lack: true, ..at(3) }.counts_after_stop());
        let blank = CopyFacts { is_unheard: true, ..at(0) };
        assert!(blank.is_blank() && blank.counts_after_stop());
        assert!(CopyFacts { may_lack: true, ..blank }.counts_after_stop(), "it is found with nothing again");
        assert!(
            !CopyFacts { may_lack: true, ..at(0) }.counts_after_stop(),
            "others may have heard of its branch"
        );
    }

    #[test]
    fn a_copy_that_ends_no_later_goes_on() {
        assert!(!at(3).begins_anew(Seqno(3)) && !at(3).begins_anew(Seqno(4)));
        assert!(at(3).begins_anew(Seqno(2)) && at(0).begins_anew(Seqno(0)));
    }
}
