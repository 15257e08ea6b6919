//! TLS: the same requests, encrypted; and clients that never finish their handshake.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use base::Status;
use cluster::Command;
use protocol::{
    binary::{Opcode, Request},
    sasl::plain::Plain,
};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned, SupportedProtocolVersion,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use super::{
    harness::{Node, encode, options, replies},
    sockets::eventually,
};
use crate::{
    ListenerKind, WorkerOptions,
    connection::Connection,
    figures::reading::Reading,
    loops::worker::{
        READ_BYTES,
        live::{Buffers, Live, Verdict},
    },
    net::{
        output::Output,
        tls::{Certificate, PortTls},
        transport::{TlsStream, Transport},
    },
    request::context::Context,
};

pub(super) fn certificate() -> Certificate {
    let directory = tempfile::tempdir().unwrap();
    Certificate::self_signed(directory.path(), &[]).unwrap()
}

pub(super) fn connect(
    address: std::net::SocketAddr,
    certificate: &Certificate,
) -> StreamOwned<ClientConnection, TcpStream> {
    connect_by(address, certificate, rustls::ALL_VERSIONS)
}

fn connect_by(
    address: std::net::SocketAddr,
    certificate: &Certificate,
    versions: &[&'static SupportedProtocolVersion],
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.chain_pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    StreamOwned::new(tls, socket)
}

/// Serves under TLS, to clients without a certificate.
fn serve(node: &Node, certificate: &Certificate) -> (crate::Workers, std::net::SocketAddr) {
    let config = certificate.server_config(Arc::default()).unwrap();
    node.serve(ListenerKind::KvTls, &WorkerOptions { tls: Some(config), ..options() })
}

/// Whether a request is answered.
fn answers(stream: &mut StreamOwned<ClientConnection, TcpStream>) -> bool {
    let asked = stream.write_all(&encode(&Request::new(Opcode::Noop)));
    asked.and_then(|()| stream.read_exact(&mut [0; 24])).is_ok()
}

#[test]
fn the_least_version_of_tls_is_the_one_that_the_settings_say_at_the_moment() {
    let mut node = Node::new();
    let certificate = certificate();
    let config = certificate.server_config(Arc::default()).unwrap();
    let (workers, address) =
        node.serve(ListenerKind::KvTls, &WorkerOptions { tls: Some(config), ..options() });
    let ports = PortTls::new(&certificate, &Arc::default(), workers.tls().unwrap()).unwrap();
    let mut open = connect_by(address, &certificate, &[&rustls::version::TLS12]);
    assert!(answers(&mut open));
    for (least, takes_1_2) in [("tlsv1.3", false), ("tlsv1.2", true)] {
        let value = serde_json::json!({ "tlsMinVersion": least });
        node.apply(&Command::PutSetting { path: "security".into(), value });
        ports.obey(&node.shared.snapshot().metadata);
        for (version, is_taken) in [(&rustls::version::TLS12, takes_1_2), (&rustls::version::TLS13, true)] {
            let mut stream = connect_by(address, &certificate, &[version]);
            assert_eq!(answers(&mut stream), is_taken, "{version:?}, at least {least}");
        }
        assert!(answers(&mut open), "what is open stays");
    }
    workers.stop(Duration::from_secs(1));
}

/// The status of the answer.
fn ask(stream: &mut StreamOwned<ClientConnection, TcpStream>, request: &Request<'_>) -> Status {
    stream.write_all(&encode(request)).unwrap();
    let mut answer = vec![0; 24];
    stream.read_exact(&mut answer).unwrap();
    let body = u32::from_be_bytes(answer[8..12].try_into().unwrap()) as usize;
    answer.resize(24 + body, 0);
    stream.read_exact(&mut answer[24..]).unwrap();
    replies(&answer).remove(0).status
}

#[test]
fn an_open_connection_takes_passwords_by_what_the_settings_say_of_certificates_at_the_moment() {
    let mut node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let mut stream = connect(address, &certificate);
    let message = Plain::encode("reader", b"readerpw");
    let login = Request { key: b"PLAIN", value: &message, ..Request::new(Opcode::SaslAuth) };
    assert_eq!(ask(&mut stream, &login), Status::Success);
    for (state, status) in [("mandatory", Status::AuthError), ("enable", Status::Success)] {
        let prefixes = serde_json::json!([{ "path": "subject.cn", "prefix": "", "delimiter": "" }]);
        let value = serde_json::json!({ "state": state, "prefixes": prefixes });
        node.apply(&Command::PutSetting { path: "clientCertAuth".into(), value });
        assert_eq!(ask(&mut stream, &login), status, "{state}");
    }
    workers.stop(Duration::from_secs(1));
}

#[test]
fn documents_of_every_size_go_both_ways_under_tls() {
    let node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let mut stream = connect(address, &certificate);
    for size in [0_usize, 1, 100, 16_000, 16_384, 40_000, 70_000, 1_000_000, 9_000_000] {
        let value: Vec<u8> = (0..size).map(|index| (index % 241) as u8).collect();
        let set = Request { key: b"k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
        let get = Request { key: b"k", ..Request::new(Opcode::Get) };
        stream.write_all(&[encode(&set), encode(&get)].concat()).unwrap();
        let mut answer = vec![0; 24 + 24 + 4 + size];
        stream.read_exact(&mut answer).unwrap();
        let replies = replies(&answer);
        assert!(replies[0].status == Status::Success && replies[1].value == value, "{size}");
    }
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_tls_pipeline_is_answered_in_order() {
    let node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let mut stream = connect(address, &certificate);
    let noop = |opaque: u32| encode(&Request { opaque: opaque.into(), ..Request::new(Opcode::Noop) });
    let many: Vec<u8> = (0..5000).flat_map(noop).collect();
    stream.write_all(&many).unwrap();
    let mut answer = vec![0; 24 * 5000];
    stream.read_exact(&mut answer).unwrap();
    let opaques: Vec<_> = replies(&answer).iter().map(|reply| reply.opaque).collect();
    assert!(opaques == (0..5000).collect::<Vec<_>>());
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_client_that_does_not_speak_tls_is_closed_and_one_that_hesitates_disturbs_nobody() {
    let node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let hesitating: Vec<_> = (0..20).map(|_| TcpStream::connect(address).unwrap()).collect();
    let mut plain = TcpStream::connect(address).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    plain.write_all(&encode(&Request::new(Opcode::Noop))).unwrap();
    let mut answer = Vec::new();
    let _ = plain.read_to_end(&mut answer);
    assert!(answer.len() < 24, "an alert at most: {answer:?}");
    let mut stream = connect(address, &certificate);
    stream.write_all(&encode(&Request::new(Opcode::Noop))).unwrap();
    stream.read_exact(&mut [0; 24]).unwrap();
    drop(hesitating);
    workers.stop(Duration::from_secs(1));
}

/// The peer need not have logged in.
#[test]
fn what_comes_behind_the_end_that_tls_tells_holds_up_nobody() {
    let node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let mut rude = connect(address, &certificate);
    assert!(answers(&mut rude));
    rude.conn.send_close_notify();
    let mut behind = Vec::new();
    rude.conn.write_tls(&mut behind).unwrap();
    // More than TLS takes at once.
    behind.resize(64 * 1024, 0);
    // The server may close before all of it is sent.
    let _ = rude.sock.write_all(&behind);
    let mut polite = connect(address, &certificate);
    assert!(answers(&mut polite), "the loop offers TLS the same bytes for ever");
    let ended = rude.sock.read_to_end(&mut Vec::new());
    let timed_out = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
    assert!(!ended.is_err_and(|error| timed_out(&error)), "it is closed");
    workers.stop(Duration::from_secs(1));
}

#[test]
fn what_is_asked_before_the_end_that_tls_tells_is_answered() {
    let node = Node::new();
    let certificate = certificate();
    let (workers, address) = serve(&node, &certificate);
    let mut stream = connect(address, &certificate);
    stream.write_all(&encode(&Request::new(Opcode::Noop))).unwrap();
    stream.conn.send_close_notify();
    while stream.conn.wants_write() {
        stream.conn.write_tls(&mut stream.sock).unwrap();
    }
    stream.read_exact(&mut [0; 24]).unwrap();
    workers.stop(Duration::from_secs(1));
}

#[test]
fn a_tls_listener_needs_a_certificate() {
    let node = Node::new();
    let workers = crate::Workers::start(&options(), Arc::clone(&node.shared)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(workers.add_listener(listener, ListenerKind::KvTls).is_err());
    workers.stop(Duration::from_secs(1));
}

/// A connection under TLS without a loop around it: its turns come when the test says so.
struct ByHand {
    context: Context,
    live: Live,
    buffers: Buffers,
    client: ClientConnection,
    socket: TcpStream,
}

impl ByHand {
    fn new(node: &Node) -> Self {
        let certificate = certificate();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let StreamOwned { conn: mut client, sock: mut socket } =
            connect(listener.local_addr().unwrap(), &certificate);
        let accepted = listener.accept().unwrap().0;
        let config = certificate.server_config(Arc::default()).unwrap();
        let mut server = rustls::ServerConnection::new(config).unwrap();
        let shaking = std::thread::spawn(move || {
            let mut accepted = accepted;
            while server.is_handshaking() || server.wants_write() {
                server.complete_io(&mut accepted).unwrap();
            }
            (accepted, server)
        });
        while client.is_handshaking() || client.wants_write() {
            client.complete_io(&mut socket).unwrap();
        }
        let (accepted, server) = shaking.join().unwrap();
        accepted.set_nonblocking(true).unwrap();
        let stream = TlsStream::new(mio::net::TcpStream::from_std(accepted), server.into());
        let transport = Transport::Tls(Box::new(stream));
        let mut context = node.connect(ListenerKind::KvTls).context;
        context.begin_turn(Reading::now());
        let connection = Connection::new(ListenerKind::KvTls, &transport, &context);
        let buffers = Buffers { scratch: vec![0; READ_BYTES].into(), output: Output::default() };
        Self { context, live: Live::new(1, transport, connection, None), buffers, client, socket }
    }

    /// Sends, in as many records as it takes.
    fn send(&mut self, bytes: &[u8]) {
        self.client.writer().write_all(bytes).unwrap();
        while self.client.wants_write() {
            self.client.write_tls(&mut self.socket).unwrap();
        }
    }

    /// One turn, `millis` after the one before, the socket having told of something.
    fn turn(&mut self, millis: u64) -> Verdict {
        self.context.now.mono_millis += millis;
        self.live.unread = true;
        let mut slot = vec![0; READ_BYTES];
        let filled = self.live.fill(&mut slot, &mut self.buffers.scratch, &mut self.context, true);
        self.live.turn(&slot[..filled], &mut self.buffers, &mut self.context, true)
    }

    /// Waits until the socket has so many bytes of the client's.
    fn await_bytes(&self, bytes: usize) {
        let mut peeked = vec![0; bytes];
        eventually("the bytes are there", || {
            let peeked = self.live.transport.socket().peek(&mut peeked);
            peeked.is_ok_and(|count| count == bytes)
        });
    }
}

/// Else it is closed for taking nothing, however much it has taken.
#[test]
fn a_slow_reader_under_tls_makes_progress_like_any_other() {
    let node = Node::new();
    let value = vec![b'v'; 16_000_000];
    let set = Request { key: b"k", value: &value, extras: &[0; 8], ..Request::new(Opcode::Set) };
    assert_eq!(node.connect(ListenerKind::Kv).ask(&set).status, Status::Success);
    let mut by_hand = ByHand::new(&node);
    let get = encode(&Request { key: b"k", ..Request::new(Opcode::Get) });
    by_hand.send(&get);
    by_hand.await_bytes(1);
    assert!(by_hand.turn(1_000) == Verdict::Wait && by_hand.live.is_stalled());
    assert_eq!(by_hand.live.progress_at, by_hand.context.now.mono_millis);
    let mut taken = vec![0; 2_000_000];
    by_hand.socket.read_exact(&mut taken).unwrap();
    eventually("the socket takes more", || {
        by_hand.turn(1_000);
        by_hand.live.progress_at == by_hand.context.now.mono_millis
    });
    assert!(by_hand.live.is_stalled(), "there was more than that to take");
}
