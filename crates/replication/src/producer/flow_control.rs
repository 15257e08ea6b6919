//! How much may be on its way to a consumer that has not said it has dealt with it.
//!
//! Whole messages count, header included; only what belongs to streams does. A message goes out whenever there is any
//! room at all, so the window may be overshot by one message. Without a window nothing is counted.

/// See the module header.
#[derive(Debug, Default)]
pub struct FlowControl {
    /// 0: switched off.
    window: u64,
    unacknowledged: u64,
    acknowledged: u64,
}

impl FlowControl {
    /// Sets the window; 0 switches flow control off and forgets what was counted.
    pub fn set_window(&mut self, bytes: u32) {
        self.window = u64::from(bytes);
        if bytes == 0 {
            (self.unacknowledged, self.acknowledged) = (0, 0);
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
        self.window == 0 || self.unacknowledged < self.window
    }

    /// Counts a message.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        if self.window > 0 {
            self.unacknowledged += bytes as u64;
        }
    }

    /// The consumer has dealt with so many bytes. More than were sent count as all.
    pub fn acknowledge(&mut self, bytes: u32) {
        if self.window > 0 {
            self.unacknowledged = self.unacknowledged.saturating_sub(u64::from(bytes));
            self.acknowledged += u64::from(bytes);
        }
    }

    /// Bytes on their way.
    #[must_use]
    pub const fn unacknowledged(&self) -> u64 {
        self.unacknowledged
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
