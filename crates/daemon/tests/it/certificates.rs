//! Certificates while a whole node runs, with real TLS clients: what its ports show, whom clients' certificates log in, and whom they
//! turn away.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    path::Path,
    sync::Arc,
    time::Duration,
};

use base::Status;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use protocol::binary::{Decoded, Opcode, Request, decode_frame};
use rcgen::{CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, RootCertStore, SignatureScheme, StreamOwned,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
};
use serde_json::{Value, json};
use settee_daemon::{InitBucket, Node};

const LOGIN: &str = "Administrator:password";
type Tls = StreamOwned<ClientConnection, TcpStream>;

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

fn start(data_dir: &Path) -> Node {
    let bucket = InitBucket { name: "b".into(), quota_mb: 100, legacy_access: false };
    Node::start(crate::support::options(data_dir, bucket)).unwrap()
}

/// An authority that signs certificates.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { pem, issuer: Issuer::new(params, key) }
    }

    /// A certificate in that name and its key, as PEM.
    fn sign(&self, name: &str) -> (String, String) {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// A client that trusts `roots`, shows `own`, and asks for `name`.
fn try_tls(port: u16, roots: &str, own: Option<&(String, String)>, name: &str) -> Result<Tls, rustls::Error> {
    let mut trusted = RootCertStore::empty();
    trusted.add(CertificateDer::from_pem_slice(roots.as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS12])
        .unwrap()
        .with_root_certificates(trusted);
    let config = match own {
        None => config.with_no_client_auth(),
        Some((chain, key)) => {
            let chain = vec![CertificateDer::from_pem_slice(chain.as_bytes()).unwrap()];
            config
                .with_client_auth_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap())
                .unwrap()
        }
    };
    let mut tls =
        ClientConnection::new(Arc::new(config), ServerName::try_from(name.to_owned()).unwrap()).unwrap();
    let mut socket = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    // TLS 1.2 says within the handshake what becomes of the client's certificate.
    while tls.is_handshaking() {
        if let Err(error) = tls.complete_io(&mut socket) {
            let shown = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()).cloned();
            return Err(shown.unwrap_or_else(|| rustls::Error::General(error.to_string())));
        }
    }
    Ok(StreamOwned::new(tls, socket))
}

/// A client that takes whatever the port shows, as somebody does who has nothing to lose.
#[derive(Debug)]
struct Reckless(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for Reckless {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.verify_tls12_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection that asks for a name which nodes dial.
fn tls_of_node(port: u16) -> Tls {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Reckless(provider)))
        .with_no_client_auth();
    let name = ServerName::try_from("node-0.keys.settee.internal").unwrap();
    let tls = ClientConnection::new(Arc::new(config), name).unwrap();
    let socket = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    StreamOwned::new(tls, socket)
}

fn tls(port: u16, roots: &str, own: Option<&(String, String)>) -> Tls {
    try_tls(port, roots, own, "localhost").unwrap()
}

/// One request over REST: status and body.
fn rest(
    mut stream: impl Read + Write,
    method: &str,
    path: &str,
    login: Option<&str>,
    body: &str,
) -> (u16, String) {
    let login = login.map(|login| format!("Authorization: Basic {}\r\n", STANDARD.encode(login)));
    let kind = if body.starts_with(['{', '[']) { "json" } else { "x-www-form-urlencoded" };
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{}Content-Type: application/{kind}\r\n\
         Content-Length: {}\r\n\r\n{body}",
        login.unwrap_or_default(),
        body.len()
    );
    let mut answer = Vec::new();
    if stream.write_all(head.as_bytes()).is_ok() {
        let _ = stream.read_to_end(&mut answer);
    }
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    (head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0), body.to_owned())
}

/// The same as an administrator, without TLS.
fn plain(node: &Node, method: &str, path: &str, body: &str) -> (u16, String) {
    let stream = TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, node.ports().mgmt))).unwrap();
    rest(stream, method, path, Some(LOGIN), body)
}

/// One request of the console: the whole answer. `cookie`: that of its session.
fn console(mut stream: impl Read + Write, request: &str, cookie: &str, body: &str) -> String {
    let head = format!(
        "{request} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nns-server-ui: yes\r\nCookie: {cookie}\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

/// One request over the binary protocol: the status of its answer, and its value; none once the connection has ended.
fn ask(stream: &mut Tls, request: &Request<'_>) -> Option<(Status, String)> {
    let mut bytes = Vec::new();
    request.encode(&mut bytes).unwrap();
    stream.write_all(&bytes).ok()?;
    let mut answer = Vec::new();
    loop {
        if let Decoded::Frame(frame) = decode_frame(&answer) {
            let status = Status::from_wire(frame.header.vbucket_or_status).unwrap();
            return Some((status, String::from_utf8_lossy(frame.value).into_owned()));
        }
        let mut more = [0; 1024];
        match stream.read(&mut more) {
            Ok(0) | Err(_) => return None,
            Ok(count) => answer.extend_from_slice(&more[..count]),
        }
    }
}

fn status(stream: &mut Tls, request: &Request<'_>) -> Option<Status> {
    ask(stream, request).map(|(status, _)| status)
}

fn noop() -> Request<'static> {
    Request::new(Opcode::Noop)
}

fn select() -> Request<'static> {
    Request { key: b"b", ..Request::new(Opcode::SelectBucket) }
}

fn password<'a>() -> Request<'a> {
    Request { key: b"PLAIN", value: b"\0Administrator\0password", ..Request::new(Opcode::SaslAuth) }
}

fn bring_authority(dir: &Path, node: &Node, authority: &Authority) -> Value {
    fs::write(dir.join("inbox/CA/ca.pem"), &authority.pem).unwrap();
    let (status, body) = plain(node, "POST", "/node/controller/loadTrustedCAs", "");
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

fn bring(dir: &Path, (chain, key): &(String, String)) {
    fs::write(dir.join("inbox/chain.pem"), chain).unwrap();
    fs::write(dir.join("inbox/pkey.key"), key).unwrap();
}

#[test]
fn certificates_change_while_the_node_serves() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (_, made) = plain(&node, "GET", "/pools/default/certificate", "");
    let mut open = tls(ports.kv_tls, &made, None);
    assert_eq!(status(&mut open, &noop()), Some(Status::Success));

    let reload = || plain(&node, "POST", "/node/controller/reloadCertificate", "{}");
    let refused = |word: &str| {
        let (status, body) = reload();
        assert_eq!(status, 400, "{body}");
        assert!(body.contains(word), "{body}");
    };
    let (status_code, body) = plain(&node, "POST", "/node/controller/loadTrustedCAs", "");
    assert!(status_code == 400 && body.contains("is empty"), "{body}");
    refused("Unable to read certificate chain file");
    let (authority, other) = (Authority::new("authority"), Authority::new("other"));
    let loaded = bring_authority(dir.path(), &node, &authority);
    let (mine, theirs) = (authority.sign("node"), other.sign("node"));
    bring(dir.path(), &(mine.0.clone(), theirs.1.clone()));
    refused("doesn't match provided private key");
    bring(dir.path(), &theirs);
    refused("is not found in the list of trusted CA's");
    bring(dir.path(), &("no certificate".into(), mine.1.clone()));
    refused("Malformed");
    tls(ports.kv_tls, &made, None);

    bring(dir.path(), &mine);
    assert_eq!(reload(), (200, "{\"warnings\":[]}".into()));
    for port in [ports.kv_tls, ports.mgmt_tls] {
        tls(port, &authority.pem, None);
        assert!(try_tls(port, &made, None, "localhost").is_err(), "another one is shown by now");
    }
    assert_eq!(status(&mut open, &noop()), Some(Status::Success), "open connections stay");
    let (_, shown) = plain(&node, "GET", "/pools/default/certificates", "");
    assert_eq!(serde_json::from_str::<Value>(&shown).unwrap()[0]["type"], "uploaded", "{shown}");
    let path = format!("/pools/default/trustedCAs/{}", loaded[0]["id"]);
    let (in_use, body) = plain(&node, "DELETE", &path, "");
    assert!(in_use == 400 && body.contains("in use by the following nodes"), "{body}");

    drop(open);
    node.stop().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    tls(ports.kv_tls, &authority.pem, None);
    let (done, fresh) = plain(&node, "POST", "/controller/regenerateCertificate", "");
    assert!(done == 200 && fresh.contains("BEGIN CERTIFICATE") && fresh != made, "{fresh}");
    tls(ports.kv_tls, &fresh, None);
    tls(ports.mgmt_tls, &fresh, None);
    assert_eq!(plain(&node, "DELETE", &path, "").0, 204);
    node.stop().unwrap();
}

/// A node that trusts an authority, with a user `ann` whom certificates of `cert-ann` stand for; and what its ports show.
fn with_clients(dir: &Path, node: &Node, state: &str) -> (Authority, String) {
    let (_, shown) = plain(node, "GET", "/pools/default/certificate", "");
    let authority = Authority::new("clients");
    bring_authority(dir, node, &authority);
    let user = "password=password1&roles=data_reader[b],ro_admin";
    assert_eq!(plain(node, "PUT", "/settings/rbac/users/local/ann", user).0, 200);
    use_certificates(node, state);
    (authority, shown)
}

fn use_certificates(node: &Node, state: &str) {
    let prefix = json!([{ "path": "subject.cn", "prefix": "cert-", "delimiter": "." }]);
    let settings = json!({ "state": state, "prefixes": prefix }).to_string();
    assert_eq!(plain(node, "POST", "/settings/clientCertAuth", &settings).0, 202);
}

#[test]
fn a_certificate_logs_its_user_in_and_others_may_use_passwords() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (authority, shown) = with_clients(dir.path(), &node, "enable");
    let ann = authority.sign("cert-ann.lee");
    let mut stream = tls(ports.kv_tls, &shown, Some(&ann));
    assert_eq!(status(&mut stream, &select()), Some(Status::Success));
    let (_, mechanisms) = ask(&mut stream, &Request::new(Opcode::SaslListMechs)).unwrap();
    assert!(mechanisms.starts_with("EXTERNAL "), "{mechanisms}");
    let external = Request { key: b"EXTERNAL", ..Request::new(Opcode::SaslAuth) };
    assert_eq!(status(&mut stream, &external), Some(Status::Success));
    assert_eq!(status(&mut stream, &select()), Some(Status::Success));
    let (ok, who) = rest(tls(ports.mgmt_tls, &shown, Some(&ann)), "GET", "/whoami", None, "");
    assert!(ok == 200 && who.contains("\"ann\""), "{who}");

    // A certificate that stands for nobody, or none: as before, with a password.
    for own in [Some(authority.sign("cert-nobody")), Some(authority.sign("ann")), None] {
        let mut stream = tls(ports.kv_tls, &shown, own.as_ref());
        assert_eq!(status(&mut stream, &external), Some(Status::AuthError));
        assert_ne!(status(&mut stream, &select()), Some(Status::Success));
        assert_eq!(status(&mut stream, &password()), Some(Status::Success));
        let (ok, _) =
            rest(tls(ports.mgmt_tls, &shown, own.as_ref()), "GET", "/pools/default", Some(LOGIN), "");
        assert_eq!(ok, 200);
        let (refused, _) = rest(tls(ports.mgmt_tls, &shown, own.as_ref()), "GET", "/nodes/self", None, "");
        assert_eq!(refused, 401);
    }
    // One that nobody trusted vouches for.
    let strange = Authority::new("strange").sign("cert-ann");
    for port in [ports.kv_tls, ports.mgmt_tls] {
        assert!(try_tls(port, &shown, Some(&strange), "localhost").is_err());
    }
    // What a user may do ends with the user.
    assert_eq!(plain(&node, "DELETE", "/settings/rbac/users/local/ann", "").0, 200);
    assert_ne!(status(&mut stream, &select()), Some(Status::Success));
    node.stop().unwrap();
}

/// Users that are kept elsewhere have no password here. A certificate logs them in.
#[test]
fn a_user_that_is_kept_elsewhere_does_not_raise_its_own_rights() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (authority, shown) = with_clients(dir.path(), &node, "enable");
    assert_eq!(plain(&node, "PUT", "/settings/rbac/groups/team", "roles=views_reader[b]").0, 200);
    let own = "/settings/rbac/users/external/carl";
    assert_eq!(plain(&node, "PUT", own, "roles=security_admin&groups=team").0, 200);
    let carl = authority.sign("cert-carl");
    let asks = |path: &str| {
        let stream = tls(ports.mgmt_tls, &shown, Some(&carl));
        rest(stream, "PUT", path, None, "roles=data_reader[b]").0
    };
    assert_eq!(asks("/settings/rbac/users/external/dora"), 200, "another user");
    assert_eq!(asks("/settings/rbac/groups/others"), 200, "a group of others");
    assert_eq!(asks("/settings/rbac/groups/team"), 403, "its own group");
    assert_eq!(asks(own), 403);
    // A namesake with a password. Without it the same certificate logs in as the user that is kept elsewhere.
    let namesake = "/settings/rbac/users/local/carl";
    let rights = "roles=security_admin,views_reader[b]&password=password";
    assert_eq!(plain(&node, "PUT", namesake, rights).0, 200);
    assert_eq!(asks(own), 403, "a user with a password and its namesake");
    assert_eq!(asks("/settings/rbac/groups/team"), 403, "a namesake's group");
    assert_eq!(plain(&node, "DELETE", namesake, "").0, 200);
    assert_eq!(asks(namesake), 403, "a user that is kept elsewhere and its namesake");
    assert_eq!(asks("/settings/rbac/users/local/dora"), 400, "another user needs a password");
    node.stop().unwrap();
}

#[test]
fn a_user_that_is_kept_elsewhere_is_out_when_it_is_locked_and_is_no_administrator_by_its_name() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (authority, shown) = with_clients(dir.path(), &node, "enable");
    let change = |name: &str, form: &str| {
        assert_eq!(plain(&node, "PUT", &format!("/settings/rbac/users/external/{name}"), form).0, 200);
    };
    let who = |name: &str| {
        let own = authority.sign(&format!("cert-{name}"));
        // It answers strangers, too.
        rest(tls(ports.mgmt_tls, &shown, Some(&own)), "GET", "/whoami", None, "").1
    };
    change("carl", "roles=data_reader[b]");
    let mut open = tls(ports.kv_tls, &shown, Some(&authority.sign("cert-carl")));
    assert_eq!(status(&mut open, &select()), Some(Status::Success));
    assert!(who("carl").contains("\"carl\""));
    change("carl", "roles=data_reader[b]&locked=true");
    assert!(!who("carl").contains("\"carl\""));
    assert_ne!(status(&mut open, &select()), Some(Status::Success), "what it has opened");
    change("Administrator", "roles=ro_admin");
    let said = who("Administrator");
    assert!(said.contains("\"admin\""), "{said}");
    node.stop().unwrap();
}

#[test]
fn what_a_certificate_has_opened_ends_with_its_authority() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (authority, shown) = with_clients(dir.path(), &node, "enable");
    let another = Authority::new("another");
    bring_authority(dir.path(), &node, &another);
    let open = |authority: &Authority| {
        let own = authority.sign("cert-ann");
        let mut kv = tls(ports.kv_tls, &shown, Some(&own));
        assert_eq!(status(&mut kv, &select()), Some(Status::Success));
        let mut kept = tls(ports.mgmt_tls, &shown, Some(&own));
        assert_eq!(asks_again(&mut kept), 200);
        (kv, kept)
    };
    let (mut kv, mut kept) = open(&authority);
    let (mut other_kv, mut other_kept) = open(&another);

    let trusted = plain(&node, "GET", "/pools/default/trustedCAs", "").1;
    let trusted: Vec<Value> = serde_json::from_str(&trusted).unwrap();
    let pem = authority.pem.trim();
    let ca = trusted.iter().find(|ca| ca["pem"].as_str().is_some_and(|shown| shown.trim() == pem)).unwrap();
    let path = format!("/pools/default/trustedCAs/{}", ca["id"]);
    assert_eq!(plain(&node, "DELETE", &path, "").0, 204);
    assert_ne!(status(&mut kv, &select()), Some(Status::Success));
    assert_eq!(asks_again(&mut kept), 401);
    assert_eq!(status(&mut other_kv, &select()), Some(Status::Success), "another one vouches for it");
    assert_eq!(asks_again(&mut other_kept), 200);
    node.stop().unwrap();
}

/// The status of a request on a connection that goes on.
fn asks_again(stream: &mut Tls) -> u16 {
    stream.write_all(b"GET /nodes/self HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let end = loop {
        if let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        answer.push(byte[0]);
    };
    let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_ascii_lowercase();
    let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
    stream.read_exact(&mut vec![0; length.unwrap().parse().unwrap()]).unwrap();
    head.split(' ').nth(1).unwrap().parse().unwrap()
}

/// Anybody may ask for the name that nodes dial, which is asked for no certificate. Nothing but a node's own login is taken there.
fn as_a_node(node: &Node, console_shows: &mut dyn FnMut(&mut dyn ReadWrite) -> String) {
    let ports = node.ports();
    let dial = tls_of_node;
    assert_eq!(rest(dial(ports.mgmt_tls), "GET", "/pools/default", Some(LOGIN), "").0, 401);
    let begun = console(dial(ports.mgmt_tls), "POST /uilogin", "", "user=Administrator&password=password");
    assert!(!begun.starts_with("HTTP/1.1 200"), "{begun}");
    let told = console_shows(&mut dial(ports.mgmt_tls));
    assert!(told.starts_with("HTTP/1.1 401"), "a session is a password: {told}");
    assert_eq!(
        rest(dial(ports.mgmt_tls), "GET", "/_settee/challenge", None, "").0,
        200,
        "a node begins with that"
    );
    assert_eq!(status(&mut dial(ports.kv_tls), &password()), Some(Status::AuthError));
    assert_eq!(status(&mut dial(ports.kv_tls), &select()), Some(Status::NoAccess));
}

#[test]
fn where_certificates_are_mandatory_no_password_is_taken() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(dir.path());
    let ports = node.ports();
    let (authority, shown) = with_clients(dir.path(), &node, "mandatory");
    let ann = authority.sign("cert-ann");
    let mut stream = tls(ports.kv_tls, &shown, Some(&ann));
    assert_eq!(status(&mut stream, &select()), Some(Status::Success));
    assert_eq!(status(&mut stream, &password()), Some(Status::AuthError), "of another user");
    let (ok, who) = rest(tls(ports.mgmt_tls, &shown, Some(&ann)), "GET", "/whoami", None, "");
    assert!(ok == 200 && who.contains("\"ann\""), "{who}");
    for own in [Some(authority.sign("cert-nobody")), None] {
        let mut stream = tls(ports.kv_tls, &shown, own.as_ref());
        assert_eq!(status(&mut stream, &noop()), None, "turned away");
        let stream = tls(ports.mgmt_tls, &shown, own.as_ref());
        assert_eq!(rest(stream, "GET", "/pools/default", Some(LOGIN), "").0, 401);
    }
    assert_eq!(plain(&node, "GET", "/pools/default", "").0, 200, "ports without TLS ask for none");
    let open = || TcpStream::connect(SocketAddr::from((Ipv4Addr::LOCALHOST, ports.mgmt))).unwrap();
    let begun = console(open(), "POST /uilogin", "", "user=Administrator&password=password");
    let cookie = begun.to_ascii_lowercase().split("set-cookie: ").nth(1).map(str::to_owned).unwrap();
    let cookie = cookie.split(';').next().unwrap();
    let shows = |stream: &mut dyn ReadWrite| console(stream, "GET /pools/default", cookie, "");
    assert!(shows(&mut open()).starts_with("HTTP/1.1 200"), "{begun}");
    let shown_under_tls = shows(&mut tls(ports.mgmt_tls, &shown, None));
    assert!(shown_under_tls.starts_with("HTTP/1.1 401"), "a session is a password: {shown_under_tls}");
    as_a_node(&node, &mut |stream| shows(stream));
    use_certificates(&node, "disable");
    let mut stream = tls(ports.kv_tls, &shown, None);
    assert_eq!(status(&mut stream, &password()), Some(Status::Success));
    node.stop().unwrap();
}
