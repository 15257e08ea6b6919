//! When bits of what lies on a disk may be others than were written. A write replaces such a document as a whole: nobody can read its
//! attributes any more. At all other times a write leaves them as they are.

use super::histories::Moment;

/// See the module.
#[derive(Default)]
pub(crate) struct Damage {
    is_there: bool,
    /// The last moment at which it was.
    until: Option<Moment>,
}

impl Damage {
    /// Takes note whether a disk is rotten at the moment.
    pub(crate) fn note(&mut self, is_there: bool, now: Moment) {
        self.is_there = is_there;
        if is_there {
            self.until = Some(now);
        }
    }

    /// Whether an operation may have met it. One without an answer may have happened at any time after its call.
    pub(crate) fn may_be_met(&self, (called, returned): (Moment, Option<Moment>)) -> bool {
        self.is_there || self.until.is_some_and(|until| returned.is_none() || called <= until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_who_was_under_way_meanwhile_may_have_met_it() {
        let mut damage = Damage::default();
        assert!(!damage.may_be_met((1, Some(2))), "nothing was rotten yet");
        damage.note(true, 3);
        assert!(damage.may_be_met((1, Some(4))));
        damage.note(true, 5);
        damage.note(false, 7);
        assert!(damage.may_be_met((5, Some(8))), "called while it was");
        assert!(!damage.may_be_met((6, Some(8))), "called when it was over");
        assert!(damage.may_be_met((6, None)), "it may come late, and so did another before it");
    }
}
