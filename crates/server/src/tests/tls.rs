//! TLS: the same requests, encrypted; and clients that never finish their handshake.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use base::Status;
use protocol::binary::{Opcode, Request};
use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, ServerName, pem::PemObject},
};

use super::harness::{Node, encode, options, replies};
use crate::{ListenerKind, WorkerOptions, tls::Certificate};

pub(super) fn certificate() -> Certificate {
    let directory = tempfile::tempdir().unwrap();
    Certificate::self_signed(directory.path(), &[]).unwrap()
}

pub(super) fn connect(
    address: std::net::SocketAddr,
    certificate: &Certificate,
) -> StreamOwned<ClientConnection, TcpStream> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(certificate.chain_pem.as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let tls = ClientConnection::new(Arc::new(config), ServerName::try_from("localhost").unwrap()).unwrap();
    let socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    StreamOwned::new(tls, socket)
}

#[test]
fn documents_of_every_size_go_both_ways_under_tls() {
    let node = Node::new();
    let certificate = certificate();
    let options =
        WorkerOptions { tls: Some(certificate.server_config(Arc::default()).unwrap()), ..options() };
    let (workers, address) = node.serve(ListenerKind::KvTls, &options);
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
    let options =
        WorkerOptions { tls: Some(certificate.server_config(Arc::default()).unwrap()), ..options() };
    let (workers, address) = node.serve(ListenerKind::KvTls, &options);
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
fn whoever_does_not_speak_tls_is_closed_and_whoever_hesitates_disturbs_nobody() {
    let node = Node::new();
    let certificate = certificate();
    let options =
        WorkerOptions { tls: Some(certificate.server_config(Arc::default()).unwrap()), ..options() };
    let (workers, address) = node.serve(ListenerKind::KvTls, &options);
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

#[test]
fn a_tls_listener_needs_a_certificate() {
    let node = Node::new();
    let workers = crate::Workers::start(&options(), Arc::clone(&node.shared)).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    assert!(workers.add_listener(listener, ListenerKind::KvTls).is_err());
    workers.stop(Duration::from_secs(1));
}
