//! Flow control from the consumer's side: a window of bytes, reopened as messages are dealt with.
//!
//! The window bounds what a producer may have under way, in its socket, in ours and in between. The consumer
//! acknowledges in portions, so that a window costs a handful of packets. A producer is never held up by that, since
//! the part that is not acknowledged yet is always less than the window.

use protocol::binary::{Opcode, Request, extras::NumberExtras};

/// Bytes that may be under way on a link.
pub const WINDOW_BYTES: u32 = 10 << 20;

/// Dealt with and not told yet, at most: far less than what a producer has under way of history alone.
const UNTOLD_BYTES_MAX: u32 = WINDOW_BYTES / 40;

/// See the module header.
#[derive(Debug, Default)]
pub(super) struct Window {
    untold: u32,
}

impl Window {
    /// A message of so many bytes has been dealt with.
    pub(super) fn took(&mut self, bytes: usize, out: &mut Vec<u8>) {
        self.untold = self.untold.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        if self.untold < UNTOLD_BYTES_MAX {
            return;
        }
        let extras = NumberExtras { number: std::mem::take(&mut self.untold) }.encode();
        super::asks::append(
            &Request { extras: &extras, ..Request::new(Opcode::DcpBufferAcknowledgement) },
            out,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_dealt_with_is_told_in_portions_and_all_of_it() {
        let (mut window, mut out) = (Window::default(), Vec::new());
        let mut told = 0;
        for _ in 0..1_000 {
            window.took(20_000, &mut out);
            if let protocol::binary::Decoded::Frame(frame) = protocol::binary::decode_frame(&out) {
                told += u64::from(NumberExtras::decode(frame.extras).unwrap().number);
                assert!(u64::from(window.untold) < u64::from(WINDOW_BYTES));
                out.clear();
            }
        }
        assert_eq!(told + u64::from(window.untold), 20_000_000);
        assert!(told > 17_000_000);
    }
}
