//! The other end of a link that a test makes up: it answers what the test wants.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use base::Status;
use protocol::binary::{Decoded, Frame, Response, decode_frame, write_response};

/// Extras and value of a successful answer.
pub(super) type Answer = (Vec<u8>, Vec<u8>);

/// Hears each request of a link until that is closed, and sends what `answer` makes of it. A request for which it makes nothing is never
/// answered.
pub(super) fn answer_each(mut socket: TcpStream, mut answer: impl FnMut(&Frame<'_>) -> Option<Answer>) {
    let (mut bytes, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = socket.read(&mut chunk) {
        bytes.extend_from_slice(&chunk[..read]);
        let mut at = 0;
        while let Decoded::Frame(frame) = decode_frame(&bytes[at..]) {
            at += frame.packet_len();
            let Some((extras, value)) = answer(&frame) else { continue };
            let (mut packet, success) = (Vec::new(), Response::new(Status::Success));
            write_response(&mut packet, &frame.header, false, &success, &extras, &[], &value);
            socket.write_all(&packet).unwrap();
        }
        bytes.drain(..at);
    }
}
