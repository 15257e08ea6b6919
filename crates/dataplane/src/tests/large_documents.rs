//! Operations on parts of large documents: the loop parks them, and a helper answers as the loop would have.

use std::{sync::mpsc::channel, time::Duration};

use base::Status;
use protocol::{
    binary::{
        Opcode, Request,
        subdoc::{DocFlags, PathFlags, SPECS_MAX, Spec, SpecOp, encode_multi},
    },
    hello::Feature,
};

use super::{
    harness::{Client, Node, Reply, Wire, encode, options},
    waiting::wire,
};
use crate::{ListenerKind, connection::After, state::completion::Completion};

/// More than a loop looks at itself, with one path.
const PADDING_BYTES: usize = 2 << 20;

fn multi<'a>(extras: &'a [u8], value: &'a [u8], opcode: Opcode) -> Request<'a> {
    Request { key: b"large", extras, value, ..Request::new(opcode) }
}

fn padded(rest: &str) -> String {
    format!("{{\"padding\":\"{}\",{rest}}}", "x".repeat(PADDING_BYTES))
}

fn store<'a>(key: &'a [u8], value: &'a [u8]) -> Request<'a> {
    Request { key, value, extras: &[0; 8], ..Request::new(Opcode::Set) }
}

#[test]
fn a_loop_does_not_search_or_rewrite_large_documents_itself() {
    let node = Node::with_disk();
    let mut wire = wire(&node, &[Feature::UnorderedExecution]);
    let document = padded("\"n\":1");
    assert_eq!(wire.ask(&store(b"large", document.as_bytes())).status, Status::Success);
    for (op, opcode) in
        [(SpecOp::Get, Opcode::SubdocMultiLookup), (SpecOp::DictUpsert, Opcode::SubdocMultiMutation)]
    {
        let mut other = super::waiting::wire(&node, &[Feature::UnorderedExecution]);
        let new = if op == SpecOp::Get { &b""[..] } else { b"2" };
        let spec = Spec { op, flags: PathFlags::NONE, path: b"n", value: new };
        let (extras, value) = encode_multi(&[spec; SPECS_MAX], DocFlags::NONE, None).unwrap();
        assert!(
            other.feed(&encode(&multi(&extras, &value, opcode))).is_empty(),
            "{opcode:?} was done at once"
        );
        assert!(other.connection.has_parked());
        assert_eq!(other.after, After::Blocked, "one at a time for each client");
    }
    // A small document with changes that make it large is no better.
    let big = format!("\"{}\"", "x".repeat(PADDING_BYTES));
    assert_eq!(wire.ask(&store(b"large", b"{}")).status, Status::Success);
    let spec = Spec { op: SpecOp::DictUpsert, flags: PathFlags::NONE, path: b"n", value: big.as_bytes() };
    let (extras, value) = encode_multi(&[spec; 2], DocFlags::NONE, None).unwrap();
    assert!(wire.feed(&encode(&multi(&extras, &value, Opcode::SubdocMultiMutation))).is_empty());
}

/// A random object, and paths that lead somewhere in it, or nowhere.
fn object(random: &mut fastrand::Rng) -> String {
    let members: Vec<String> = (0..random.usize(1..6))
        .map(|number| {
            let value = match random.u8(..5) {
                0 => "{\"b\":{\"c\":[1,2,{\"d\":null}]},\"a\":7}".to_owned(),
                1 => "[1,[2,3],{\"a\":\"\\u0061\"}]".to_owned(),
                2 => random.u32(..).to_string(),
                3 => "\"te\\\"xt\"".to_owned(),
                _ => "true".to_owned(),
            };
            format!("\"{}\":{value}", if number == 0 { 'a' } else { random.char('a'..='d') })
        })
        .collect();
    members.join(",")
}

fn specs<'a>(random: &mut fastrand::Rng, mutates: bool) -> Vec<Spec<'a>> {
    const PATHS: [&[u8]; 9] =
        [b"a", b"a.b", b"a.b.c[0]", b"b[1]", b"b[-1].a", b"c", b"d", b"nothing", b"a.b.c[2].d"];
    const CHANGES: [(SpecOp, &[u8]); 6] = [
        (SpecOp::DictUpsert, b"{\"x\":1}"),
        (SpecOp::Replace, b"null"),
        (SpecOp::Delete, b""),
        (SpecOp::ArrayPushLast, b"9"),
        (SpecOp::ArrayAddUnique, b"2"),
        (SpecOp::Counter, b"3"),
    ];
    let lookups = [SpecOp::Get, SpecOp::Exists, SpecOp::GetCount];
    (0..random.usize(1..5))
        .map(|_| {
            let (op, value) = if mutates {
                CHANGES[random.usize(..CHANGES.len())]
            } else {
                (lookups[random.usize(..lookups.len())], &b""[..])
            };
            let path = PATHS[random.usize(..PATHS.len())];
            Spec { op, flags: PathFlags::NONE, path, value }
        })
        .collect()
}

/// What the client sees of an answer, whichever document it is about.
fn seen(reply: &Reply) -> (Status, Vec<u8>) {
    (reply.status, reply.value.clone())
}

#[test]
fn helpers_answer_as_a_loop_does() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let mut helped = Client::connect(address);
    let mut plain = node.connect(ListenerKind::Kv);
    let mut random = fastrand::Rng::with_seed(19);
    let (mut failures, mut successes) = (0, 0);
    for round in 0..40 {
        let small = object(&mut random);
        let (large, small) = (padded(&small), format!("{{{small}}}"));
        assert_eq!(helped.ask(&store(b"large", large.as_bytes())).status, Status::Success);
        assert_eq!(plain.ask(&store(b"small", small.as_bytes())).status, Status::Success);
        for mutates in [false, true] {
            let specs = specs(&mut random, mutates);
            let opcode = if mutates { Opcode::SubdocMultiMutation } else { Opcode::SubdocMultiLookup };
            let (extras, value) = encode_multi(&specs, DocFlags::NONE, None).unwrap();
            let request = multi(&extras, &value, opcode);
            let expected = plain.ask(&Request { key: b"small", ..request });
            assert_eq!(seen(&helped.ask(&request)), seen(&expected), "round {round}: {specs:?} of {small}");
            if expected.status == Status::Success { successes += 1 } else { failures += 1 }
        }
        let get = |key| Request { key, ..Request::new(Opcode::Get) };
        let after = plain.ask(&get(b"small")).text();
        let wanted = padded(after.trim_start_matches('{').trim_end_matches('}'));
        // An object that lost its last member keeps no comma.
        let wanted = wanted.replace("\",}", "\"}");
        let same = helped.ask(&get(b"large")).text() == wanted;
        assert!(same || after.ends_with("}}"), "round {round}: changed as {after}");
    }
    assert!(failures > 10 && successes > 10, "{failures} failures, {successes} successes");
    workers.stop(std::time::Duration::from_secs(5));
}

#[test]
fn a_large_part_of_a_large_document_comes_whole_and_others_are_served_meanwhile() {
    let node = Node::new();
    let (workers, address) = node.serve(ListenerKind::Kv, &options());
    let (mut client, mut other) = (Client::connect(address), Client::connect(address));
    let document = padded("\"n\":1");
    assert_eq!(client.ask(&store(b"large", document.as_bytes())).status, Status::Success);
    let get = |path: &'static [u8]| Spec { op: SpecOp::Get, flags: PathFlags::NONE, path, value: b"" };
    let (extras, value) = encode_multi(&[get(b"padding"), get(b"n")], DocFlags::NONE, None).unwrap();
    let search = encode(&multi(&extras, &value, Opcode::SubdocMultiLookup));
    client.send(&search.repeat(3));
    assert_eq!(other.ask(&Request::new(Opcode::Noop)).status, Status::Success);
    for _ in 0..3 {
        let reply = client.receive();
        assert_eq!(reply.status, Status::Success);
        // Two results, each with a status and a length before it.
        assert_eq!(reply.value.len(), 6 + PADDING_BYTES + 2 + 6 + 1);
        assert!(reply.value.ends_with(b"1"));
    }
    let miss = Request { key: b"nobody", ..multi(&extras, &value, Opcode::SubdocMultiLookup) };
    assert_eq!(client.ask(&miss).status, Status::KeyNotFound);
    workers.stop(std::time::Duration::from_secs(5));
}

/// Its user may be gone, or may have written something else over another connection.
#[test]
fn a_change_that_waits_for_a_helper_is_not_made_when_its_connection_is_closed_meanwhile() {
    let node = Node::with_disk();
    let document = padded("\"n\":1");
    let (mut reader, mut writer) = (wire(&node, &[]), wire(&node, &[]));
    assert_eq!(writer.ask(&store(b"large", document.as_bytes())).status, Status::Success);
    let waiter = writer.context.waiter(7);
    let (go_on, waits) = channel::<()>();
    let first = move || {
        let _ = waits.recv();
        Completion::Done(Ok(()))
    };
    writer.context.helper.submit_document(waiter, 0, first).unwrap();
    let spec = Spec { op: SpecOp::DictUpsert, flags: PathFlags::NONE, path: b"n", value: b"2" };
    let (extras, value) = encode_multi(&[spec], DocFlags::NONE, None).unwrap();
    assert!(writer.feed(&encode(&multi(&extras, &value, Opcode::SubdocMultiMutation))).is_empty());
    let Wire { connection, context, .. } = writer;
    drop(connection);
    let (done, is_done) = channel();
    let last = move || {
        done.send(()).unwrap();
        Completion::Done(Ok(()))
    };
    context.helper.submit_document(waiter, 0, last).unwrap();
    drop(go_on);
    is_done.recv_timeout(Duration::from_secs(20)).unwrap();
    let get = Request { key: b"large", ..Request::new(Opcode::Get) };
    assert_eq!(reader.ask(&get).text(), document);
}
