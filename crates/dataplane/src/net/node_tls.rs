//! How nodes know one another under TLS.
//!
//! What clients are shown is the operator's business: a certificate of his, or one that the node has made itself. Nodes know one
//! another by their keys: a peer that asks for `node-3.keys.settee.internal` is shown a certificate of the key, signed by nobody else.
//!
//! While some node has no key, what nodes are shown is the cluster's. Each signs a certificate for itself with the cluster's authority, for
//! a name that nothing else has and that goes by its number: `node-3.settee.internal`. The dialling node asks for that name, so the port
//! knows which certificate is meant. A node's addresses and host names may change as they like. A member is believed if the authority has
//! signed for that very node, nothing else.
//!
//! Invariants: a process that asks for a node's name is shown the cluster's certificate or none; a key made here never leaves the process.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{Arc, OnceLock},
};

use arc_swap::{ArcSwap, ArcSwapOption};
use base::NodeId;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{
    Authority, Command, Membership, Metadata, NodeInfo,
    auth::{Judgement, LoginPort, NodeKey},
};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose, PKCS_ED25519,
};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::Resumption,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime, pem::PemObject},
    server::ParsedCertificate,
    sign::CertifiedKey,
};

use crate::net::{
    node_keys::{KeyRing, change_of_key, has_lost_key},
    tls::TlsError,
};

/// What every name of a node ends with. The top-level domain is set aside for private use.
const NAMES: &str = ".settee.internal";
/// The authority's name. That of every cluster: what tells them apart is the key.
const AUTHORITY: &str = "Settee cluster authority";
/// What a node asks for at a stranger whose host name no certificate could have. It must not end with [`NAMES`]: a node answers
/// such a name with a member's certificate or with none.
const STRANGER: &str = "stranger.invalid";
/// What a node asks for that knows another one by its key.
const NAMES_BY_KEY: &str = ".keys.settee.internal";
/// What DER puts before an Ed25519 public key (RFC 8410).
const ED25519: [u8; 12] = [0x30, 0x2a, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 3, 0x21, 0];

/// What this node shows to others of its cluster, and what it expects of them.
#[derive(Default)]
pub struct NodeTls {
    known: ArcSwapOption<Known>,
    /// Its own keys; none in tests of something else.
    keys: OnceLock<Arc<KeyRing>>,
    logins: ArcSwapOption<Logins>,
    /// The certificate of the key that this node has, and the key.
    by_key: ArcSwapOption<(String, Arc<CertifiedKey>)>,
    /// The keys of the others.
    members: ArcSwap<BTreeMap<NodeId, String>>,
    /// Those of them whose word counts.
    judges: ArcSwap<Judges>,
}

/// The keys of members that may say that a node is none of the cluster's.
#[derive(Debug, Default, PartialEq, Eq)]
struct Judges {
    counted: Vec<String>,
    failed_over: Vec<String>,
}

/// What this node logs in at others with.
struct Logins {
    me: String,
    /// Absent until the cluster knows it.
    key: Option<Arc<NodeKey>>,
    /// Where that is accepted still.
    secret: Option<String>,
}

impl Logins {
    /// Nothing is signed for a node without a name.
    fn signer(&self, there: &str) -> Option<Signer> {
        let key = self.key.as_ref().filter(|_| !there.is_empty()).map(Arc::clone)?;
        Some(Signer { key, me: self.me.clone(), there: there.to_owned() })
    }
}

/// How this node logs in at another one.
pub enum NodeLogin {
    /// With the password of [`cluster::auth::INTERNAL_USER`].
    Secret(String),
    /// By its key.
    Key(Signer),
}

/// Signs for a login at one other node.
pub struct Signer {
    key: Arc<NodeKey>,
    /// The uuid of this node.
    pub me: String,
    there: String,
}

impl Signer {
    /// The answer to a challenge.
    pub fn sign(&self, port: LoginPort, challenge: &[u8]) -> Vec<u8> {
        self.key.sign(port, &self.me, &self.there, challenge)
    }
}

/// An authority and a number, and what follows from them.
struct Known {
    node: NodeId,
    authority: Authority,
    /// None if the authority cannot be used; it would be no better the next time.
    identity: Option<Identity>,
}

struct Identity {
    shown: Arc<CertifiedKey>,
    client: Arc<ClientConfig>,
}

impl fmt::Debug for NodeTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let node = self.known.load().as_ref().map(|known| known.node);
        f.debug_struct("NodeTls").field("node", &node).finish_non_exhaustive()
    }
}

impl NodeTls {
    /// This node has that number in the cluster, from now on.
    pub fn know(&self, me: NodeId, metadata: &Metadata) {
        self.logins.store(self.logins_of(me, metadata).map(Arc::new));
        self.know_keys(metadata);
        self.know_judges(me, metadata);
        let Some(authority) = &metadata.authority else { return self.known.store(None) };
        let is_known = |known: &Arc<Known>| known.node == me && known.authority == *authority;
        if self.known.load().as_ref().is_some_and(is_known) {
            return;
        }
        let identity = Identity::new(me, authority).inspect_err(
            |error| tracing::error!(%error, "the cluster's certificate authority cannot be used"),
        );
        let known = Known { node: me, authority: authority.clone(), identity: identity.ok() };
        self.known.store(Some(Arc::new(known)));
    }

    fn logins_of(&self, me: NodeId, metadata: &Metadata) -> Option<Logins> {
        // One that was removed has to say so much yet that the others let it go.
        let parted = || metadata.parted.iter().find(|parted| parted.node == me);
        let (uuid, told) = match metadata.node_by_id(me) {
            Some(node) => (&node.uuid, node.key.as_ref()),
            None => parted().map(|parted| (&parted.uuid, Some(&parted.key)))?,
        };
        let key = self.keys.get().and_then(|keys| keys.known(uuid));
        Some(Logins {
            me: uuid.clone(),
            key: key.filter(|key| told.is_some_and(|told| told == key.public())),
            secret: metadata.accepts_secret().then(|| metadata.secret.clone()),
        })
    }

    /// Whom this node believes from now on, and what it shows to those that know it by its key.
    fn know_keys(&self, metadata: &Metadata) {
        let members = metadata.nodes.iter().filter_map(|node| Some((node.id, node.key.clone()?)));
        let parted = metadata.parted.iter().map(|parted| (parted.node, parted.key.clone()));
        let members: BTreeMap<_, _> = parted.chain(members).collect();
        if **self.members.load() != members {
            self.members.store(Arc::new(members));
        }
        let uuid = self.uuid();
        let key = self.keys.get().zip(uuid).and_then(|(keys, uuid)| keys.known(&uuid));
        let Some(key) = key else { return self.by_key.store(None) };
        if self.by_key.load().as_ref().is_some_and(|shown| shown.0 == key.public()) {
            return;
        }
        let made = certificate_of(&key).inspect_err(
            |error| tracing::error!(%error, "this node cannot show its key to others under TLS"),
        );
        self.by_key.store(made.ok().map(|made| Arc::new((key.public().to_owned(), made))));
    }

    fn know_judges(&self, me: NodeId, metadata: &Metadata) {
        let is_failed = |node: &&NodeInfo| node.membership == Membership::InactiveFailed;
        let others = metadata.nodes.iter().filter(|node| node.id != me);
        let (failed, counted): (Vec<_>, Vec<_>) = others.partition(is_failed);
        let keys = |nodes: Vec<&NodeInfo>| nodes.into_iter().filter_map(|node| node.key.clone()).collect();
        let judges = Judges { counted: keys(counted), failed_over: keys(failed) };
        if **self.judges.load() != judges {
            self.judges.store(Arc::new(judges));
        }
    }

    /// Signs what this node says of another one, once the cluster knows its key.
    pub fn sign_verdict(&self, said: &Judgement<'_>) -> Option<Vec<u8>> {
        Some(said.sign(self.logins.load().as_ref()?.key.as_ref()?))
    }

    /// Whether this node believes that of itself. `is_grave`: it would give up its documents, so a member that was failed over is not
    /// believed.
    pub fn believes(&self, said: &Judgement<'_>, signature: &[u8], is_grave: bool) -> bool {
        let judges = self.judges.load();
        let failed_over = judges.failed_over.iter().filter(|_| !is_grave);
        let mut keys = judges.counted.iter().chain(failed_over);
        self.believes_unsigned() || keys.any(|key| said.is_signed_by(key, signature))
    }

    /// Whether some member has no key that it could sign with.
    pub fn believes_unsigned(&self) -> bool {
        self.logins.load().as_ref().is_some_and(|logins| logins.secret.is_some())
    }

    /// This node has these keys.
    pub fn use_keys(&self, keys: Arc<KeyRing>) {
        // Set once, before the first connection.
        let _ = self.keys.set(keys);
    }

    /// What the cluster has yet to hear of this node's key.
    pub fn change_of_key(&self, metadata: &Metadata, uuid: &str) -> Option<Command> {
        change_of_key(metadata, uuid, self.keys.get()?)
    }

    /// See [`has_lost_key`].
    pub fn has_lost_key(&self, metadata: &Metadata, uuid: &str) -> bool {
        self.keys.get().is_some_and(|keys| has_lost_key(metadata, uuid, keys))
    }

    /// The uuid of this node, as its cluster knows it.
    pub(crate) fn uuid(&self) -> Option<String> {
        self.logins.load().as_ref().map(|logins| logins.me.clone())
    }

    /// How to log in at the member with the uuid `there`: by the key, where the cluster knows it. `by_secret`: that node has not
    /// heard of the key yet, and the secret is accepted still.
    ///
    /// # Errors
    /// While the cluster does not know this node.
    pub fn login_at(&self, there: &str, by_secret: bool) -> io::Result<NodeLogin> {
        let unknown = || io::Error::other("the cluster does not know this node");
        let logins = self.logins.load();
        let logins = logins.as_ref().ok_or_else(unknown)?;
        match (logins.signer(there), &logins.secret) {
            (None, Some(secret)) => Ok(NodeLogin::Secret(secret.clone())),
            (Some(_), Some(secret)) if by_secret => Ok(NodeLogin::Secret(secret.clone())),
            (Some(signer), _) => Ok(NodeLogin::Key(signer)),
            (None, None) => Err(io::Error::other("the cluster knows no key of this node")),
        }
    }

    /// Signs for a login at the member with the uuid `there`, once the cluster knows this node's key.
    pub(crate) fn signer(&self, there: &str) -> Option<Signer> {
        self.logins.load().as_ref()?.signer(there)
    }

    /// The certificate for a process that asks for `name`, if that is a node's; then there may be none.
    pub(crate) fn shown_as(&self, name: &str) -> Option<Option<Arc<CertifiedKey>>> {
        if name.ends_with(NAMES_BY_KEY) {
            return Some(self.by_key.load().as_ref().map(|shown| Arc::clone(&shown.1)));
        }
        let shown = || Some(Arc::clone(&self.known.load().as_ref()?.identity.as_ref()?.shown));
        name.ends_with(NAMES).then(shown)
    }

    /// How to speak to a member: believed is the process that has that member's key. While the cluster does not know the key, that is a
    /// process with a certificate of the authority with the name of that node.
    ///
    /// # Errors
    /// While the cluster knows neither a key of the member nor an authority that can be used.
    pub fn to_member(&self, node: NodeId) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
        if let Some(key) = self.members.load().get(&node) {
            let name = format!("node-{}{NAMES_BY_KEY}", node.get());
            return Ok((pinned(key)?, ServerName::try_from(name).map_err(io::Error::other)?));
        }
        let known = self.known.load();
        let missing = || io::Error::other("the cluster has no certificate authority that can be used");
        let identity = known.as_ref().and_then(|known| known.identity.as_ref()).ok_or_else(missing)?;
        let name = ServerName::try_from(name(node)).map_err(io::Error::other)?;
        Ok((Arc::clone(&identity.client), name))
    }
}

/// How to speak to a node that is no member yet. The process that answers is believed, since nobody has vouched for the node so
/// far; only that process can read what this node says. It does not look at the name. Resolvers know names that no
/// certificate could have (`127.0.7967` is an address): this node sends another name for these.
///
/// # Errors
/// When no TLS configuration can be made.
pub fn to_stranger(host: &str) -> io::Result<(Arc<ClientConfig>, ServerName<'static>)> {
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Holder { expected: None, provider }))
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned())
        .or_else(|_| ServerName::try_from(STRANGER))
        .map_err(io::Error::other)?;
    Ok((Arc::new(config), name))
}

/// What a node shows to those that know it by its key: a certificate of the key, signed by nobody else.
fn certificate_of(key: &NodeKey) -> Result<Arc<CertifiedKey>, TlsError> {
    let der = PrivatePkcs8KeyDer::from(key.pkcs8().to_vec());
    let pair = KeyPair::from_pkcs8_der_and_sign_algo(&der, &PKCS_ED25519)?;
    let own = CertificateParams::new(vec![format!("node{NAMES_BY_KEY}")])?.self_signed(&pair)?;
    let provider = ring::default_provider();
    Ok(Arc::new(CertifiedKey::from_der(vec![own.der().clone()], der.into(), &provider)?))
}

/// How to speak to the process that has that key.
fn pinned(key: &str) -> io::Result<Arc<ClientConfig>> {
    let provider = Arc::new(ring::default_provider());
    let key = [&ED25519[..], &STANDARD.decode(key).map_err(io::Error::other)?].concat();
    let mut config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Holder { expected: Some(key), provider }))
        .with_no_client_auth();
    // A connection that resumes another one shows no key.
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

/// An authority for a new cluster.
///
/// # Errors
/// When there is no randomness to be had.
pub fn new_authority() -> Result<Authority, TlsError> {
    let key = KeyPair::generate()?;
    let certificate = authority_params().self_signed(&key)?;
    Ok(Authority { certificate: certificate.pem(), key: key.serialize_pem() })
}

fn authority_params() -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, AUTHORITY);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params
}

fn name(node: NodeId) -> String {
    format!("node-{}{NAMES}", node.get())
}

impl Identity {
    fn new(node: NodeId, authority: &Authority) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let unreadable = |error: rustls::pki_types::pem::Error| TlsError::Pem {
            path: AUTHORITY.into(),
            reason: error.to_string(),
        };
        let root = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).map_err(unreadable)?;
        let issuer = Issuer::new(authority_params(), KeyPair::from_pem(&authority.key)?);
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(vec![name(node)])?;
        params.distinguished_name.push(DnType::CommonName, name(node));
        let own = params.signed_by(&key, &issuer)?;
        let key = PrivatePkcs8KeyDer::from(key.serialize_der());
        let shown = CertifiedKey::from_der(vec![own.der().clone()], key.into(), &provider)?;
        let mut roots = RootCertStore::empty();
        roots.add(root)?;
        let client = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self { shown: Arc::new(shown), client: Arc::new(client) })
    }
}

/// Believes a process that has the key to the certificate it shows. Where one key is expected, it believes no other.
#[derive(Debug)]
struct Holder {
    /// As certificates have it.
    expected: Option<Vec<u8>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for Holder {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let shown = ParsedCertificate::try_from(shown)?;
        match &self.expected {
            Some(key) if *shown.subject_public_key_info() != **key => {
                Err(CertificateError::ApplicationVerificationFailure.into())
            }
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, shown, signed, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, shown, signed, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Ports, consensus::Epoch};
    use rustls::{ClientConnection, ServerConnection};

    use super::*;
    use crate::net::tls::Certificate;

    fn known_as(node: u16, authority: &Authority) -> Arc<NodeTls> {
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.authority = Some(authority.clone());
        let tls = Arc::new(NodeTls::default());
        tls.know(NodeId(node), &metadata);
        tls
    }

    /// What becomes of a handshake with a port of `shows`, as that of a node of this number.
    fn dial(dials: &NodeTls, node: u16, shows: &Arc<NodeTls>) -> Result<(), rustls::Error> {
        handshake(dials.to_member(NodeId(node)).unwrap(), shows)
    }

    fn handshake(
        (config, name): (Arc<ClientConfig>, ServerName<'static>),
        shows: &Arc<NodeTls>,
    ) -> Result<(), rustls::Error> {
        let mut client = ClientConnection::new(config, name).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let to_clients = Certificate::self_signed(directory.path(), &[]).unwrap();
        let port = to_clients.server_config(Arc::clone(shows)).unwrap();
        let mut server = ServerConnection::new(port).unwrap();
        let mut bytes = Vec::new();
        while client.is_handshaking() || server.is_handshaking() {
            while client.wants_write() {
                client.write_tls(&mut bytes).unwrap();
            }
            server.read_tls(&mut std::mem::take(&mut bytes).as_slice()).unwrap();
            server.process_new_packets()?;
            while server.wants_write() {
                server.write_tls(&mut bytes).unwrap();
            }
            client.read_tls(&mut std::mem::take(&mut bytes).as_slice()).unwrap();
            client.process_new_packets()?;
        }
        Ok(())
    }

    #[test]
    fn a_stranger_is_spoken_to_whatever_its_name() {
        let alone: Arc<NodeTls> = Arc::default();
        for host in ["127.0.0.1", "::1", "db.example", "127.0.7967", "under_score", ""] {
            handshake(to_stranger(host).unwrap(), &alone).unwrap_or_else(|error| panic!("{host:?}: {error}"));
        }
    }

    #[test]
    fn a_member_is_believed_and_nobody_else() {
        let authority = new_authority().unwrap();
        let (first, second) = (known_as(0, &authority), known_as(1, &authority));
        dial(&first, 1, &second).unwrap();
        dial(&second, 0, &first).unwrap();

        let not_that_node = dial(&first, 2, &second).unwrap_err();
        assert!(matches!(not_that_node, rustls::Error::InvalidCertificate(_)), "{not_that_node}");
        let other = new_authority().unwrap();
        let of_another_cluster = dial(&first, 1, &known_as(1, &other)).unwrap_err();
        assert!(matches!(of_another_cluster, rustls::Error::InvalidCertificate(_)), "{of_another_cluster}");
        // A node that knows no authority yet shows nothing to a process that asks for a node.
        assert!(dial(&first, 1, &Arc::default()).is_err());
    }

    fn of_two(keys: [u8; 2]) -> Metadata {
        let key = |seed: u8| NodeKey::from_seed(&[seed; 32]).unwrap().public().to_owned();
        let node = |id: u16| NodeInfo {
            id: NodeId(id),
            key: Some(key(keys[usize::from(id)])),
            ..NodeInfo::first(id.to_string(), "h".into(), Ports::default())
        };
        Metadata { nodes: vec![node(0), node(1)], ..Metadata::new("c".into(), 256) }
    }

    #[test]
    fn that_it_was_removed_a_node_believes_members_that_count() {
        let [node, _] = by_key([1, 2], [1, 2]);
        let key = |seed: u8| NodeKey::from_seed(&[seed; 32]).unwrap();
        let said = Judgement { verdict: "removed", cluster: "c", node: NodeId(0), epoch: Epoch::default() };
        let believes = |seed: u8, is_grave| node.believes(&said, &said.sign(&key(seed)), is_grave);
        assert!(believes(2, true));
        assert!(!believes(3, true), "no member");
        assert!(!believes(1, true), "somebody has a copy of its own key");
        assert!(!node.believes(&said, &[], false));
        let mut metadata = of_two([1, 2]);
        metadata.nodes[1].membership = Membership::InactiveFailed;
        node.know(NodeId(0), &metadata);
        assert_eq!([believes(2, true), believes(2, false)], [false, true], "it was failed over");
        metadata.secret = "known to all".into();
        metadata.nodes[1].key = None;
        node.know(NodeId(0), &metadata);
        assert!(node.believes(&said, &[], true), "the member has no key yet");
    }

    /// Nodes of one cluster with the keys that it knows of them, and the key that each of them has.
    fn by_key(told: [u8; 2], has: [u8; 2]) -> [Arc<NodeTls>; 2] {
        let metadata = of_two(told);
        [0, 1].map(|id| {
            let dir = tempfile::tempdir().unwrap();
            let file = dir.path().join(format!("{id}.key"));
            std::fs::write(file, STANDARD.encode([has[usize::from(id)]; 32])).unwrap();
            let keys = KeyRing::new(dir.path().to_path_buf());
            keys.of(&id.to_string()).unwrap();
            let tls = Arc::new(NodeTls::default());
            tls.use_keys(Arc::new(keys));
            tls.know(NodeId(id), &metadata);
            tls
        })
    }

    #[test]
    fn a_member_with_a_key_is_believed_by_that_and_by_nothing_else() {
        let [first, second] = by_key([1, 2], [1, 2]);
        dial(&first, 1, &second).unwrap();
        dial(&second, 0, &first).unwrap();
        assert!(dial(&second, 1, &first).is_err(), "that is another member");
        let [first, another] = by_key([1, 2], [1, 3]);
        assert!(dial(&first, 1, &another).is_err(), "it has not the key");
        let with_authority = known_as(1, &new_authority().unwrap());
        assert!(dial(&first, 1, &with_authority).is_err());
    }

    #[test]
    fn the_identity_of_this_node_changes_with_its_cluster() {
        let authority = new_authority().unwrap();
        let node = known_as(1, &authority);
        let other = known_as(0, &authority);
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.authority = Some(authority);
        node.know(NodeId(7), &metadata);
        dial(&other, 7, &node).unwrap();
        assert!(dial(&other, 1, &node).is_err());
        metadata.authority = None;
        node.know(NodeId(7), &metadata);
        assert!(node.to_member(NodeId(0)).is_err());
    }

    #[test]
    fn an_authority_that_cannot_be_used_is_not_tried_again_and_another_one_is() {
        let authority = new_authority().unwrap();
        let broken = Authority { key: "no key".into(), ..authority.clone() };
        let mut metadata = Metadata::new("c".into(), 256);
        metadata.authority = Some(broken);
        let node = NodeTls::default();
        node.know(NodeId(1), &metadata);
        assert!(node.to_member(NodeId(0)).is_err());
        assert!(node.shown_as(&name(NodeId(1))).is_some_and(|shown| shown.is_none()));
        let before = node.known.load_full().unwrap();
        node.know(NodeId(1), &metadata);
        assert!(Arc::ptr_eq(&before, &node.known.load_full().unwrap()));
        metadata.authority = Some(authority);
        node.know(NodeId(1), &metadata);
        assert!(node.to_member(NodeId(0)).is_ok());
    }
}
