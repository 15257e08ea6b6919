//! Whether a node has lost touch with its cluster. A node that has just started or joined has no lease, since no report of its new life was
//! answered yet. That is no loss until it has lasted.

/// How long a node may wait for the first answer of its life.
pub const FIRST_ANSWER_SECS: u64 = 15;

/// See the module.
#[derive(Debug, Default)]
pub struct Touch {
    /// Since when the node waits for the first answer.
    waits_since: Option<u64>,
}

impl Touch {
    /// Whether touch is lost. `may_not_serve`: the node's lease has run out, or it has none. `was_answered`: a report of its present life
    /// was. `now_secs` may go back: that makes nothing wait longer than it has to.
    pub fn is_lost(&mut self, may_not_serve: bool, was_answered: bool, now_secs: u64) -> bool {
        if !may_not_serve || was_answered {
            self.waits_since = None;
            return may_not_serve;
        }
        let since = self.waits_since.map_or(now_secs, |since| since.min(now_secs));
        self.waits_since = Some(since);
        now_secs - since >= FIRST_ANSWER_SECS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_waits_for_its_first_answer_has_lost_nothing_until_that_has_lasted() {
        let mut touch = Touch::default();
        assert!(!touch.is_lost(true, false, 100) && !touch.is_lost(true, false, 114));
        assert!(touch.is_lost(true, false, 115), "nobody answers");
        assert!(!touch.is_lost(false, true, 116), "it serves");
        assert!(touch.is_lost(true, true, 117), "it was heard before, and is not any more");
        assert!(!touch.is_lost(true, false, 118), "another life");
        assert!(!touch.is_lost(true, false, 50) && !touch.is_lost(true, false, 64), "the clock went back");
        assert!(touch.is_lost(true, false, 65));
    }
}
