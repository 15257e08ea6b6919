//! The client against a server of the test's own. It says what a real one says rarely: pushes between replies,
//! "temporary failure", a map that changes.

use protocol::binary::{Decoded, Frame, Opcode, Request, decode_frame};
use settee_client::{Client, ClientError, KvConnection, Login, WriteOptions};
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

#[derive(Default)]
struct State {
    documents: HashMap<Vec<u8>, Vec<u8>>,
    /// This many mutations are refused first, each with this status.
    refuse: Vec<u8>,
    /// Configurations that were given out.
    configs: u32,
}

fn reply(opcode: u8, status: u8, opaque: [u8; 4], extras: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0x81, opcode, 0, 0, extras.len() as u8, 0, 0, status];
    bytes.extend_from_slice(&((extras.len() + value.len()) as u32).to_be_bytes());
    bytes.extend_from_slice(&opaque);
    bytes.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 9]);
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(value);
    bytes
}

fn answer(state: &Mutex<State>, frame: &Frame<'_>, port: u16) -> Vec<u8> {
    let mut state = state.lock().expect("the state");
    let (opcode, opaque) = (frame.header.opcode, frame.header.opaque.0);
    match Opcode::from_wire(opcode) {
        Some(Opcode::Hello) => reply(opcode, 0, opaque, &[], &[0, 7, 0, 4]),
        Some(Opcode::SelectBucket) => {
            reply(opcode, if frame.key == b"default" { 0 } else { 0x24 }, opaque, &[], b"")
        }
        Some(Opcode::GetClusterConfig) => {
            state.configs += 1;
            let config = format!(
                r#"{{"rev":{},"nodes":[{{}}],"nodesExt":[{{"services":{{"kv":{port}}}}}],
                   "vBucketServerMap":{{"vBucketMap":[[0],[0]]}}}}"#,
                state.configs
            );
            reply(opcode, 0, opaque, &[], config.as_bytes())
        }
        Some(Opcode::Get) => match state.documents.get(frame.key) {
            Some(value) => reply(opcode, 0, opaque, &[0, 0, 0, 5], value),
            None => reply(opcode, 1, opaque, &[], b"Not found"),
        },
        Some(Opcode::Set) => match state.refuse.pop() {
            Some(status) => reply(opcode, status, opaque, &[], b"Temporary failure"),
            None => {
                state.documents.insert(frame.key.to_vec(), frame.value.to_vec());
                reply(opcode, 0, opaque, &[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2], b"")
            }
        },
        _ => reply(opcode, 0x81, opaque, &[], b"Unknown command"),
    }
}

fn serve_one(mut stream: TcpStream, state: &Mutex<State>, port: u16) {
    let (mut input, mut chunk) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = stream.read(&mut chunk) {
        input.extend_from_slice(&chunk[..read]);
        while let Decoded::Frame(frame) = decode_frame(&input) {
            // A push of a new map in front of every reply, which the client has to step over.
            let mut bytes = vec![0x82, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0];
            bytes.extend_from_slice(&[0; 8]);
            bytes.extend_from_slice(b"{}");
            bytes.extend(answer(state, &frame, port));
            let used = frame.packet_len();
            input.drain(..used);
            if stream.write_all(&bytes).is_err() {
                return;
            }
        }
    }
}

fn serve(refuse: &[u8]) -> (String, Arc<Mutex<State>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let state = Arc::new(Mutex::new(State { refuse: refuse.to_vec(), ..State::default() }));
    let shared = state.clone();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let state = shared.clone();
            std::thread::spawn(move || serve_one(stream, &state, address.port()));
        }
    });
    (address.to_string(), state)
}

fn login() -> Login {
    Login { bucket: Some("default".to_owned()), ..Login::default() }
}

#[test]
fn documents_go_and_come_back() {
    let (address, _) = serve(&[]);
    let mut client = Client::connect(&address, &login()).expect("a client");
    assert_eq!(client.map().vbuckets(), 2);
    assert_eq!(client.get(b"k").expect("an answer"), None);
    let mutation = client.set(b"k", b"value").expect("stored");
    assert_eq!(
        (mutation.cas.get(), mutation.token.map(|(uuid, seqno)| (uuid.get(), seqno.get()))),
        (9, Some((1, 2)))
    );
    let document = client.get(b"k").expect("an answer").expect("a document");
    assert_eq!((&document.value[..], document.flags), (&b"value"[..], 5));
}

#[test]
fn temporary_failures_and_moved_vbuckets_are_ridden_out() {
    // Answered from the end: temporary failure, not my vBucket, temporary failure.
    let (address, state) = serve(&[0x86, 0x07, 0x86]);
    let mut client = Client::connect(&address, &login()).expect("a client");
    let before = client.map().version;
    client.set(b"k", b"v").expect("stored in the end");
    assert!(client.map().version > before, "the map was read again");
    assert!(state.lock().expect("the state").refuse.is_empty());
}

#[test]
fn patience_ends() {
    let (address, _) = serve(&[0x86; 1000]);
    let mut client = Client::connect(&address, &login()).expect("a client");
    client.patience = std::time::Duration::from_millis(20);
    let error = client.set(b"k", b"v").expect_err("no end of refusals");
    assert!(matches!(error, ClientError::GaveUp { .. }), "{error}");
    assert!(error.to_string().contains("Temporary failure"), "{error}");
}

#[test]
fn refusals_are_errors_with_their_reason() {
    let (address, _) = serve(&[0x24]);
    let mut client = Client::connect(&address, &login()).expect("a client");
    let error = client.store(Opcode::Set, b"k", b"v", &WriteOptions::default()).expect_err("refused");
    assert_eq!(error.status(), Some(base::Status::NoAccess));
    let other = Login { bucket: Some("other".to_owned()), ..Login::default() };
    assert_eq!(
        Client::connect(&address, &other).err().and_then(|e| e.status()),
        Some(base::Status::NoAccess)
    );
}

#[test]
fn pipelined_replies_come_in_order() {
    let (address, _) = serve(&[]);
    let mut connection = KvConnection::open(&address, &login()).expect("a connection");
    let keys: Vec<String> = (0..50).map(|i| format!("k{i}")).collect();
    let mut opaques = Vec::new();
    for key in &keys {
        let set = Request { key: key.as_bytes(), extras: &[0; 8], value: b"v", ..Request::new(Opcode::Set) };
        opaques.push(connection.queue(&set).expect("queued"));
    }
    connection.send().expect("sent");
    for opaque in opaques {
        assert_eq!(connection.receive().expect("a reply").header.opaque, opaque);
    }
}

#[test]
fn nobody_listening_says_what_to_check() {
    let error = KvConnection::connect("127.0.0.1:1").err().expect("refused");
    assert!(error.to_string().contains("is the server running"), "{error}");
}
