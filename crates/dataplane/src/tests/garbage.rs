//! The state machine fed with what no client should send: in single bytes, mutated, and made up. It may refuse, it
//! may hang up; it may not panic, loop, or answer something that is no packet. Seeds are printed on failure.

use base::{Cas, Datatype};
use protocol::{
    binary::{Opcode, Request},
    hello::Feature,
};

use super::harness::{Node, Wire, encode, replies};
use crate::{ListenerKind, connection::After};

fn conversation() -> Vec<u8> {
    let key = b"some key";
    let mut bytes = encode(&Request { value: &[0, 4, 0, 7, 0, 0x0b], ..Request::new(Opcode::Hello) });
    let store = Request { key, value: b"{\"a\":[1,2]}", extras: &[0; 8], ..Request::new(Opcode::Set) };
    for request in [
        Request::new(Opcode::SaslListMechs),
        Request { key: b"PLAIN", value: b"x", ..Request::new(Opcode::SaslAuth) },
        store,
        Request { key, ..Request::new(Opcode::Get) },
        Request { cas: Cas(1), ..store },
        Request { opcode: Opcode::Append, extras: &[], value: b"tail", ..store },
        Request { key, extras: &[0; 4], ..Request::new(Opcode::Gat) },
        Request { key, extras: &[0; 20], ..Request::new(Opcode::Increment) },
        Request { key, extras: &[2], ..Request::new(Opcode::GetMeta) },
        Request {
            value: &[0, 0, 0, 8, b's', b'o', b'm', b'e', b' ', b'k', b'e', b'y'],
            ..Request::new(Opcode::Observe)
        },
        Request { key: b"vbucket-seqno 3", ..Request::new(Opcode::Stat) },
        Request { extras: &[0; 24], value: b"v", key, ..Request::new(Opcode::SetWithMeta) },
        Request { datatype: Datatype::SNAPPY, ..store },
        Request { value: &[0, 2], ..Request::new(Opcode::GetErrorMap) },
        Request::new(Opcode::GetClusterConfig),
    ] {
        bytes.extend(encode(&request));
    }
    bytes
}

#[test]
fn packets_in_single_bytes_are_the_same_packets() {
    let node = Node::new();
    let bytes = conversation();
    let statuses =
        |answer: &[u8]| replies(answer).iter().map(|reply| (reply.opcode, reply.status)).collect::<Vec<_>>();
    let mut whole = node.connect(ListenerKind::Kv);
    let expected = statuses(&whole.feed(&bytes));
    assert!(expected.len() > 15);
    let mut single = Node::new().connect(ListenerKind::Kv);
    let answer: Vec<u8> = bytes.iter().flat_map(|byte| single.feed(&[*byte])).collect();
    assert_eq!(statuses(&answer), expected);
}

fn feed_in_pieces(wire: &mut Wire, bytes: &[u8], random: &mut fastrand::Rng) {
    let mut rest = bytes;
    while !rest.is_empty() && !matches!(wire.after, After::Close | After::Blocked) {
        let (piece, tail) = rest.split_at(random.usize(1..=rest.len()));
        let answer = wire.feed(piece);
        // Every answer is made of whole packets.
        replies(&answer);
        rest = tail;
    }
}

#[test]
fn mutated_conversations_are_survived() {
    let node = Node::new();
    let original = conversation();
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = original.clone();
        for _ in 0..random.usize(1..12) {
            let at = random.usize(0..bytes.len());
            match random.u8(0..4) {
                0 => bytes[at] = random.u8(..),
                1 => bytes[at] ^= 1 << random.u8(0..8),
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, random.u8(..)),
            }
        }
        let kind = if seed % 3 == 0 { ListenerKind::Memcached } else { ListenerKind::Kv };
        let mut wire = node.connect(kind);
        if seed % 2 == 0 && kind == ListenerKind::Kv {
            wire.hello(&[
                Feature::Collections,
                Feature::Xerror,
                Feature::Json,
                Feature::Tracing,
                Feature::AltRequest,
            ]);
        }
        println!("seed {seed}");
        if kind == ListenerKind::Kv {
            feed_in_pieces(&mut wire, &bytes, &mut random);
        } else {
            wire.feed(&bytes);
        }
    }
}

#[test]
fn made_up_packets_of_every_opcode_are_survived() {
    let node = Node::new();
    for seed in 0..40 {
        let mut random = fastrand::Rng::with_seed(seed);
        for opcode in 0..=u8::MAX {
            let mut wire = node.connect(ListenerKind::Kv);
            if seed % 2 == 0 {
                wire.hello(&[
                    Feature::Collections,
                    Feature::Xerror,
                    Feature::Json,
                    Feature::Snappy,
                    Feature::Duplex,
                ]);
            }
            let framing = if seed % 3 == 0 { random.u8(0..5) } else { 0 };
            let (extras, key, value) = (random.u8(0..33), random.u8(0..20), random.u8(0..40));
            let body = usize::from(framing) + usize::from(extras) + usize::from(key) + usize::from(value);
            let mut bytes = vec![if framing > 0 { 0x08 } else { 0x80 }, opcode, framing, key, extras];
            bytes.push(random.u8(0..8));
            bytes.extend([0, random.u8(0..70)]);
            bytes.extend((body as u32).to_be_bytes());
            bytes.extend([0; 4]);
            bytes.extend(if random.bool() { [0; 8] } else { [1; 8] });
            bytes.extend((0..body).map(|_| if random.bool() { 0 } else { random.u8(..) }));
            println!("seed {seed} opcode {opcode:#x}");
            feed_in_pieces(&mut wire, &bytes, &mut random);
            if !matches!(wire.after, After::Close | After::Blocked)
                && wire.connection.session.attached().is_some()
            {
                let noop = wire.ask(&Request { opaque: 7.into(), ..Request::new(Opcode::Noop) });
                assert_eq!(noop.opaque, 7, "the stream goes on behind it");
            }
        }
    }
}

#[test]
fn text_garbage_is_survived() {
    let node = Node::new();
    let words: [&[u8]; 20] = [
        b"get",
        b"set",
        b"cas",
        b"gat",
        b"incr",
        b"delete",
        b"stats",
        b"flush_all",
        b"k",
        b"0",
        b"-1",
        b"5",
        b"noreply",
        b"\r\n",
        b"\n",
        b"hello",
        b"\x80",
        b"99999999999999999999",
        b"mg",
        b"\0",
    ];
    for seed in 0..600 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut wire = node.connect(ListenerKind::Memcached);
        println!("seed {seed}");
        let mut bytes = b"version\r\n".to_vec();
        for _ in 0..random.usize(1..60) {
            bytes.extend_from_slice(words[random.usize(0..words.len())]);
            bytes.push(b' ');
        }
        wire.feed(&bytes);
    }
}
