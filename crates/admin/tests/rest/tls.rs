//! TLS in front of a surface.

use std::{
    io::{Read, Write},
    net::{SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use ::http::{
    BoxFuture, Connection, Limits, Surface,
    reply::{self, Reply},
    serve,
};
use axum::http::{StatusCode, request::Parts};
use hyper::body::Incoming;
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};
use tokio_rustls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
};

struct Teapot;

impl Surface for Teapot {
    fn answer(self: Arc<Self>, _: Parts, _: Incoming, _: Connection) -> BoxFuture<'static, Reply> {
        Box::pin(async { reply::text(StatusCode::IM_A_TEAPOT, "short and stout") })
    }
}

struct Served {
    address: SocketAddr,
    certificate: CertificateDer<'static>,
    _stop: watch::Sender<bool>,
    _runtime: Runtime,
}

fn served(limits: Limits) -> Served {
    let key = rcgen::KeyPair::generate().unwrap();
    let certificate =
        rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap().self_signed(&key).unwrap();
    let certificate = certificate.der().clone();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config =
        ServerConfig::builder().with_no_client_auth().with_single_cert(vec![certificate.clone()], key);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopping) = watch::channel(false);
    let config = Arc::new(config.unwrap());
    let now = Arc::new(move || Arc::clone(&config));
    runtime.spawn(serve(listener, Some(now), Arc::new(Teapot), limits, stopping));
    Served { address, certificate, _stop: stop, _runtime: runtime }
}

#[test]
fn a_surface_answers_under_tls() {
    let server = served(Limits::default());
    let mut roots = RootCertStore::empty();
    roots.add(server.certificate.clone()).unwrap();
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(Arc::new(config), name).unwrap();
    let mut stream = StreamOwned::new(connection, TcpStream::connect(server.address).unwrap());
    stream.write_all(b"GET /b/_design/d HTTP/1.1\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 418"), "{answer}");
    assert!(answer.ends_with("short and stout"), "{answer}");
}

#[test]
fn a_handshake_that_does_not_come_to_an_end_is_cut() {
    let server = served(Limits { handshake: Duration::from_millis(200), ..Limits::default() });
    for start in [&b""[..], b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.write_all(start).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("the server closes the connection");
        assert!(!answer.starts_with(b"HTTP"));
    }
}
