use super::*;

const MAX: usize = 1024;

/// Feeds a stream to the parser as a connection would and collects what would be answered: `ok` stands for a
/// command that is carried out.
fn answers(stream: &[u8]) -> Vec<String> {
    let mut answers = Vec::new();
    let mut at = 0;
    while at < stream.len() {
        match parse(&stream[at..], MAX) {
            Parsed::Incomplete { need } => {
                assert!(need > stream.len() - at, "asked for bytes that are there");
                answers.push(format!("needs {}", need - (stream.len() - at)));
                break;
            }
            Parsed::Command { length, .. } => {
                answers.push("ok".into());
                at += length;
            }
            Parsed::Refused { reply, length, skip } => {
                answers.push(reply.map_or("silence".into(), text));
                at += length + skip as usize;
            }
            Parsed::Close { reply } => {
                answers.push(reply.map_or("closed".into(), |reply| text(reply) + ", closed"));
                break;
            }
        }
    }
    answers
}

fn text(reply: &[u8]) -> String {
    String::from_utf8(reply.strip_suffix(b"\r\n").unwrap().to_vec()).unwrap()
}

fn answer(stream: &str) -> String {
    answers(stream.as_bytes()).join(" | ")
}

fn command(stream: &[u8]) -> Command<'_> {
    match parse(stream, MAX) {
        Parsed::Command { command, length } => {
            assert_eq!(length, stream.len());
            command
        }
        other => panic!("{other:?}"),
    }
}

const BAD_LINE: &str = "CLIENT_ERROR bad command line format";

#[test]
fn retrieval() {
    let Command::Get { keys, with_cas: false } = command(b" get  a  b \r\n") else { panic!() };
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
    assert!(matches!(command(b"gets noreply\n"), Command::Get { with_cas: true, .. }));
    assert!(matches!(command(b"gat -1 a\r\n"), Command::GetAndTouch { expiry: -1, with_cas: false, .. }));
    assert!(matches!(command(b"gats 0 a b\r\n"), Command::GetAndTouch { with_cas: true, .. }));
    assert_eq!(
        answer("get\r\nget \r\ngat\r\ngat x a\r\ngat 0\r\n"),
        "ERROR | ERROR | ERROR | CLIENT_ERROR invalid exptime argument | ok"
    );
    let long = "k".repeat(251);
    assert_eq!(
        answer(&format!("get a {long}\r\ngat 0 {long}\r\nget {}\r\n", &long[1..])),
        format!("{BAD_LINE} | {BAD_LINE} | ok")
    );
}

#[test]
fn storage_carries_its_data_block() {
    let expected = Command::Store {
        verb: StoreVerb::Cas,
        key: b"k",
        flags: u32::MAX,
        expiry: -1,
        cas: u64::MAX,
        value: b"a\r\nb",
        noreply: true,
    };
    let bytes = b"cas k 4294967295 -1 4 18446744073709551615 noreply\r\na\r\nb\r\n";
    assert_eq!(command(bytes), expected);
    for verb in ["set", "add", "replace", "append", "prepend"] {
        let bytes = format!("{verb} k 007 +0 00\r\n\r\n");
        assert!(matches!(
            command(bytes.as_bytes()),
            Command::Store { flags: 7, value: b"", noreply: false, .. }
        ));
    }
    assert_eq!(answer("set k 0 0 1\nx\r\n"), "ok");
}

#[test]
fn storage_waits_for_exactly_its_block() {
    let bytes = b"set k 0 0 5\r\nvalue\r\nget k\r\n";
    for length in 1..13 {
        assert_eq!(parse(&bytes[..length], MAX), Parsed::Incomplete { need: length + 1 });
    }
    for length in 13..20 {
        assert_eq!(parse(&bytes[..length], MAX), Parsed::Incomplete { need: 20 });
    }
    assert_eq!(answers(bytes), ["ok", "ok"]);
}

/// Observed on memcached 1.6.18: the announced length is consumed and the rest is taken for commands.
#[test]
fn a_block_of_another_length_is_refused() {
    assert_eq!(answer("set a 0 0 1\r\nxyz\r\n"), "CLIENT_ERROR bad data chunk | ERROR");
    assert_eq!(answer("set a 0 0 4\r\nxyz\r\nget a\r\n"), "CLIENT_ERROR bad data chunk | ERROR");
    assert_eq!(answer("set a 0 0 3 noreply\r\nxyzabc\r\nget a\r\n"), "silence | ERROR | ok");
    assert_eq!(answer("set a 0 0 1\r\nx\n\nget a\r\n"), "CLIENT_ERROR bad data chunk | ok");
}

#[test]
fn a_refused_storage_command_takes_its_block_along() {
    let long = "k".repeat(251);
    for bad in [
        format!("set {long} 0 0 1"),
        "set a x 0 1".into(),
        "set a -1 0 1".into(),
        "set a 0 x 1".into(),
        "set a 4294967296 0 1".into(),
        "cas a 0 0 1 x".into(),
        "cas a 0 0 1 18446744073709551616".into(),
    ] {
        assert_eq!(answer(&format!("{bad}\r\nx\r\nget a\r\n")), format!("{BAD_LINE} | ok"), "{bad}");
    }
    assert_eq!(answer("set a 0 x 1 noreply\r\nx\r\n"), "silence");
    assert_eq!(answer("set a 0 0 -1\r\n"), BAD_LINE);
    assert_eq!(answer("set a 0 0 2147483646\r\n"), BAD_LINE);
    assert_eq!(
        answer("set\r\nset a 0 0\r\nset a 0 0 1 noreply x\r\ncas a 0 0 1\r\n"),
        "ERROR | ERROR | ERROR | ERROR"
    );
}

#[test]
fn a_block_above_the_limit_is_skipped_without_being_kept() {
    let head = b"set k 0 0 1025\r\n";
    let expected = Parsed::Refused { reply: Some(reply::TOO_LARGE), length: head.len(), skip: 1027 };
    assert_eq!(parse(head, MAX), expected);
    let stream = format!("set k 0 0 1025 noreply\r\n{}\r\nget k\r\n", "x".repeat(1025));
    assert_eq!(answer(&stream), "silence | ok");
    assert_eq!(answer("set k 0 0 1024\r\n"), "needs 1026");
}

#[test]
fn the_other_commands() {
    assert_eq!(command(b"delete k\r\n"), Command::Delete { key: b"k", noreply: false });
    assert_eq!(command(b"delete k 0 noreply\r\n"), Command::Delete { key: b"k", noreply: true });
    assert_eq!(command(b"delete noreply\r\n"), Command::Delete { key: b"noreply", noreply: false });
    let usage = "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]";
    assert_eq!(answer("delete\r\ndelete k 1\r\ndelete k x y\r\n"), format!("ERROR | {usage} | {usage}"));
    let counter = Command::Counter { key: b"n", delta: u64::MAX, decrement: true, noreply: true };
    assert_eq!(command(b"decr n 18446744073709551615 noreply\r\n"), counter);
    let bad_delta = "CLIENT_ERROR invalid numeric delta argument";
    assert_eq!(
        answer("incr n\r\nincr n x\r\nincr n -1\r\nincr n 1 1 1\r\n"),
        format!("ERROR | {bad_delta} | {bad_delta} | ERROR")
    );
    assert_eq!(command(b"touch k 60\r\n"), Command::Touch { key: b"k", expiry: 60, noreply: false });
    assert_eq!(answer("touch k\r\ntouch k x\r\n"), "ERROR | CLIENT_ERROR invalid exptime argument");
    assert_eq!(command(b"flush_all\r\n"), Command::FlushAll { delay: 0, noreply: false });
    assert_eq!(command(b"flush_all 9 noreply\r\n"), Command::FlushAll { delay: 9, noreply: true });
    assert_eq!(command(b"flush_all noreply\r\n"), Command::FlushAll { delay: 0, noreply: true });
    assert_eq!(answer("flush_all x\r\nflush_all 1 2 3\r\n"), "CLIENT_ERROR invalid exptime argument | ERROR");
    assert_eq!(command(b"verbosity 1 noreply\r\n"), Command::Verbosity { noreply: true });
    assert_eq!(
        answer("verbosity\r\nverbosity x\r\nverbosity noreply\r\n"),
        format!("ERROR | {BAD_LINE} | silence")
    );
    assert_eq!(command(b"stats items\r\n"), Command::Stats { group: b"items" });
    assert_eq!(command(b"stats\r\n"), Command::Stats { group: b"" });
    assert_eq!((command(b"version x\r\n"), command(b"quit\r\n")), (Command::Version, Command::Quit));
}

#[test]
fn what_is_unknown() {
    assert_eq!(
        answer("\r\n\n  \r\nGET a\r\nmn\r\nmg k v\r\n"),
        "ERROR | ERROR | ERROR | ERROR | ERROR | ERROR"
    );
    assert_eq!(answer("GET / HTTP/1.1\r\nget a\r\n"), "closed");
}

#[test]
fn a_line_without_end_closes_unless_it_retrieves() {
    let endless = |start: &str, length| answer(&(start.to_owned() + &"k".repeat(length - start.len())));
    assert_eq!(endless("set ", 2048), "needs 1");
    assert_eq!(endless("set ", 2049), "CLIENT_ERROR line too long, closed");
    assert_eq!(answer(&("a".repeat(2049) + "\r\n")), "CLIENT_ERROR line too long, closed");
    assert_eq!(answer(&("a".repeat(2048) + "\r\n")), "ERROR");
    assert_eq!(endless("get ", 5000), "needs 1");
    assert_eq!(answer(&format!("gets {}\r\n", "k ".repeat(5000))), "ok");
    assert_eq!(endless("get ", MULTIGET_LINE_BYTES_MAX + 1), "CLIENT_ERROR line too long, closed");
}
