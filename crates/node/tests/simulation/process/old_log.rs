//! A node whose log of the metadata is older than what it has confirmed.

use super::Process;

impl Process {
    /// Whether it has noticed that its log lacks what it had confirmed: it takes no part any more.
    pub(crate) fn is_known_to_be_old(&self) -> bool {
        self.has_old_log && !self.log.is_lost() && self.part.group().broken().is_some()
    }

    /// What its log lacked it has heard again.
    pub(crate) fn has_what_it_lacked(&mut self) -> bool {
        self.has_old_log &= !self.caught_up;
        !self.has_old_log
    }
}
