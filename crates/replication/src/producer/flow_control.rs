//! How much may be on its way to a consumer that has not said it has dealt with it.
//!
//! Whole messages count, header included; only what belongs to streams does. A message goes out whenever there is any
//! room at all, so the window may be overshot by one message. Without a window nothing is counted.
//!
//! Messages are dealt with in the order in which they are sent. What is read from disk for a copy that is being made, *history*, can
//! be sent far faster than it is written there. Whatever is new would wait behind all of it. So of history no more than a share of
//! the window is under way at a time.

use std::collections::VecDeque;

/// History may take this part of the window.
const HISTORY_SHARE: u64 = 8;

/// See the module header.
#[derive(Debug, Default)]
pub struct FlowControl {
    /// 0: switched off.
    window: u64,
    /// Bytes since it was switched on: sent, and of those dealt with.
    sent: u64,
    dealt: u64,
    acknowledged: u64,
    /// What is history of the bytes under way, and of the first run's also what has been dealt with.
    history: VecDeque<Run>,
    history_bytes: u64,
}

/// Messages of history, one behind the other.
#[derive(Clone, Copy, Debug)]
struct Run {
    bytes: u64,
    /// Bytes sent by its end.
    ends_at: u64,
}

impl FlowControl {
    /// Sets the window; 0 switches flow control off and forgets what was counted.
    pub fn set_window(&mut self, bytes: u32) {
        self.window = u64::from(bytes);
        if bytes == 0 {
            *self = Self::default();
        }
    }

    /// The window; 0 if there is none.
    #[must_use]
    pub const fn window(&self) -> u64 {
        self.window
    }

    /// Whether another message may go out.
    #[inline]
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.window == 0 || self.unacknowledged() < self.window
    }

    /// Counts a message.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        if self.window > 0 {
            self.sent += bytes as u64;
        }
    }

    /// So many of the last bytes sent were history.
    pub fn note_history(&mut self, bytes: u64) {
        if self.window == 0 || bytes == 0 {
            return;
        }
        self.history_bytes += bytes;
        match self.history.back_mut().filter(|run| run.ends_at + bytes == self.sent) {
            Some(run) => (run.bytes, run.ends_at) = (run.bytes + bytes, self.sent),
            None => self.history.push_back(Run { bytes, ends_at: self.sent }),
        }
    }

    /// Whether more history may go out.
    #[must_use]
    pub fn has_room_for_history(&self) -> bool {
        self.window == 0 || self.history() < self.window / HISTORY_SHARE
    }

    /// Bytes of history on their way.
    fn history(&self) -> u64 {
        let dealt = self.history.front().map_or(0, |run| run.bytes.saturating_sub(run.ends_at - self.dealt));
        self.history_bytes - dealt
    }

    /// The consumer has dealt with so many bytes. More than were sent count as all.
    pub fn acknowledge(&mut self, bytes: u32) {
        if self.window > 0 {
            self.dealt = (self.dealt + u64::from(bytes)).min(self.sent);
            self.acknowledged += u64::from(bytes);
            while let Some(run) = self.history.pop_front_if(|run| run.ends_at <= self.dealt) {
                self.history_bytes -= run.bytes;
            }
        }
    }

    /// Bytes on their way.
    #[must_use]
    pub const fn unacknowledged(&self) -> u64 {
        self.sent - self.dealt
    }

    /// Bytes dealt with, ever.
    #[must_use]
    pub const fn acknowledged(&self) -> u64 {
        self.acknowledged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_overshot_by_one_message_and_reopens_with_what_is_acknowledged() {
        let mut flow = FlowControl::default();
        flow.sent(1 << 40);
        assert!(flow.has_room() && flow.unacknowledged() == 0);
        flow.set_window(100);
        flow.sent(99);
        assert!(flow.has_room());
        flow.sent(500);
        assert!(!flow.has_room());
        flow.acknowledge(499);
        assert!(!flow.has_room());
        flow.acknowledge(1);
        assert!(flow.has_room());
        flow.acknowledge(u32::MAX);
        assert_eq!(flow.unacknowledged(), 0);
    }

    #[test]
    fn history_takes_a_share_of_the_window() {
        let mut flow = FlowControl::default();
        flow.note_history(1 << 40);
        assert!(flow.has_room_for_history(), "nothing is counted without a window");
        flow.set_window(800);
        let send = |flow: &mut FlowControl, bytes: usize, is_history: bool| {
            flow.sent(bytes);
            flow.note_history(if is_history { bytes as u64 } else { 0 });
        };
        send(&mut flow, 60, true);
        send(&mut flow, 39, true);
        assert!(flow.has_room_for_history());
        send(&mut flow, 200, false);
        send(&mut flow, 1, true);
        assert!(!flow.has_room_for_history() && flow.has_room());
        // What is dealt with counts at once, also of what was sent in one go.
        flow.acknowledge(10);
        assert!(flow.has_room_for_history() && flow.history() == 90);
        send(&mut flow, 10, true);
        assert!(!flow.has_room_for_history());
        flow.acknowledge(89 + 200);
        assert_eq!(flow.history(), 11);
        flow.acknowledge(u32::MAX);
        assert_eq!((flow.history(), flow.unacknowledged()), (0, 0));
    }

    #[test]
    fn switching_it_off_opens_the_window() {
        let mut flow = FlowControl::default();
        flow.set_window(1);
        flow.sent(10);
        assert!(!flow.has_room());
        flow.set_window(0);
        assert!(flow.has_room());
        flow.set_window(5);
        assert_eq!(flow.unacknowledged(), 0);
    }
}
