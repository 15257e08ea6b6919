//! Text commands, and the replies to them.

use super::{Case, check, readable};
use base::{Cas, Status};
use protocol::text::{Command, Keys, Parsed, StoreVerb, parse, reply};
use std::fmt::Write;

const VALUE_BYTES_MAX: usize = 1024;

/// What the parser makes of a stream, one line per step.
fn describe(stream: &[u8]) -> String {
    let mut out = String::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let parsed = parse(rest, VALUE_BYTES_MAX);
        let used = match parsed {
            Parsed::Command { command, length } => {
                writeln!(out, "{}", describe_command(&command)).unwrap();
                length
            }
            Parsed::Refused { reply, length, skip } => {
                let reply = reply.map_or("nothing".to_owned(), readable);
                writeln!(out, "refused with {reply}, {skip} bytes skipped").unwrap();
                length + skip as usize
            }
            Parsed::Incomplete { .. } | Parsed::Close { .. } => {
                writeln!(out, "{parsed:?}").unwrap();
                break;
            }
        };
        rest = rest.get(used..).unwrap_or_default();
    }
    out
}

fn describe_command(command: &Command<'_>) -> String {
    match *command {
        Command::Get { keys, with_cas } => format!("Get {}, with_cas {with_cas}", list(keys)),
        Command::GetAndTouch { keys, with_cas, expiry } => {
            format!("GetAndTouch {}, expiry {expiry}, with_cas {with_cas}", list(keys))
        }
        Command::Store { verb, key, flags, expiry, cas, value, noreply } => {
            let (key, value) = (readable(key), readable(value));
            format!(
                "{verb:?} {key} = {value:?}, flags {flags}, expiry {expiry}, cas {cas}, noreply {noreply}"
            )
        }
        Command::Delete { key, noreply } => format!("Delete {}, noreply {noreply}", readable(key)),
        Command::Counter { key, delta, decrement, noreply } => {
            format!("Counter {} by {delta}, decrement {decrement}, noreply {noreply}", readable(key))
        }
        Command::Touch { key, expiry, noreply } => {
            format!("Touch {}, expiry {expiry}, noreply {noreply}", readable(key))
        }
        Command::Stats { group } => format!("Stats {}", readable(group)),
        Command::FlushAll { .. } | Command::Version | Command::Verbosity { .. } | Command::Quit => {
            format!("{command:?}")
        }
    }
}

fn list(keys: Keys<'_>) -> String {
    keys.iter().map(readable).collect::<Vec<_>>().join(" and ")
}

fn stream(title: &'static str, stream: &[u8]) -> Case {
    Case { title, bytes: stream.to_vec(), readable: describe(stream) }
}

fn written(title: &'static str, write: impl FnOnce(&mut Vec<u8>)) -> Case {
    let mut bytes = Vec::new();
    write(&mut bytes);
    let readable = readable(&bytes);
    Case { title, bytes, readable }
}

#[test]
fn text() {
    check(
        "text.txt",
        &[
            stream("retrieval", b"get a bb\r\ngets a\ngat 60 a\r\n"),
            stream("storage", b"set k 7 -1 5\r\nvalue\r\ncas k 0 0 0 42 noreply\r\n\r\n"),
            stream("half a block", b"append k 0 0 5\r\nval"),
            stream("a block that is too long", b"set k 0 0 1\r\nxyz\r\nversion\r\n"),
            stream("a block above the limit", b"set k 0 0 1025\r\n"),
            stream(
                "the rest",
                b"delete k\r\nincr n 5\r\ntouch k 0 noreply\r\nflush_all 10\r\nstats items\r\nquit\r\n",
            ),
            stream("mistakes", b"get\r\nset k x 0 1\r\nx\r\nincr n x\r\nmg k v\r\n"),
            stream("a browser", b"POST / HTTP/1.1\r\nHost: x\r\n"),
            written("two values, one with its CAS", |out| {
                reply::append_value_line(out, b"a", 7, 3, None);
                out.extend_from_slice(b"one");
                out.extend_from_slice(reply::VALUE_END);
                reply::append_value_line(out, b"bb", 0, 0, Some(Cas(42)));
                out.extend_from_slice(reply::VALUE_END);
                out.extend_from_slice(reply::END);
            }),
            written("outcomes", |out| {
                reply::append_store_outcome(out, StoreVerb::Set, Status::Success);
                reply::append_store_outcome(out, StoreVerb::Add, Status::KeyExists);
                reply::append_store_outcome(out, StoreVerb::Cas, Status::KeyExists);
                reply::append_store_outcome(out, StoreVerb::Set, Status::TemporaryFailure);
                reply::append_outcome(out, reply::TOUCHED, Status::Success);
                reply::append_outcome(out, reply::DELETED, Status::KeyNotFound);
                reply::append_counter(out, u64::MAX);
                reply::append_stat(out, "curr_items", "3");
                reply::append_version(out, "7.6.0");
            }),
        ],
    );
}
