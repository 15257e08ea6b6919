//! The certificate a node shows to clients, and the TLS configuration of its ports. Other nodes are shown another one
//! ([`crate::net::node_tls`]).
//!
//! A given certificate chain and key are used as they are, and so are those that an operator has brought while the node ran. Without
//! them the node makes a self-signed certificate once and keeps it in its data directory, so that clients may pin it across
//! restarts.
//!
//! Invariants: a file of the node's own gets its name after its contents were synced. Every start looks at what the two files hold.
//! The node makes a new pair where they hold no certificate with its key: a crash came between the two, or the disk damaged one.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use cluster::{CertificateUse, Metadata, x509};
use http::trusted_roots;
use parking_lot::Mutex;
use rustls::{
    CertificateError, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, UnixTime, pem::PemObject},
    server::{
        ClientHello, ParsedCertificate, ResolvesServerCert, WebPkiClientVerifier, danger::ClientCertVerifier,
    },
    sign::CertifiedKey,
};
use serde::{Deserialize, Serialize};

use crate::net::node_tls::NodeTls;

const CERTIFICATE_FILE: &str = "certificate.pem";
const KEY_FILE: &str = "certificate.key";
/// Chain and key in one, so that neither is ever there without the other.
const UPLOADED_FILE: &str = "uploaded.json";

/// Why there is no TLS.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file could not be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{path}: {reason}")]
    Pem {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The self-signed certificate could not be made.
    #[error("cannot make a certificate: {0}")]
    Generate(#[from] rcgen::Error),
    /// Certificate and key do not belong together, or cannot be used.
    #[error("cannot use the certificate: {0}")]
    Use(#[from] rustls::Error),
    /// No client could show a certificate.
    #[error("cannot ask clients for certificates: {0}")]
    Clients(#[from] rustls::server::VerifierBuilderError),
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The chain, the node's own certificate first.
    pub chain_pem: String,
    key_pem: String,
    path: PathBuf,
}

/// A certificate as an operator's is kept.
#[derive(Serialize, Deserialize)]
struct Uploaded {
    chain: String,
    key: String,
}

impl Certificate {
    /// Reads a chain and its key.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn load(chain: &Path, key: &Path) -> Result<Self, TlsError> {
        Ok(Self { chain_pem: read(chain)?, key_pem: read(key)?, path: chain.to_owned() })
    }

    /// The self-signed certificate kept in `directory`, made for these host names and addresses if there is none.
    ///
    /// # Errors
    /// When it cannot be made, written or read.
    pub fn self_signed(directory: &Path, hosts: &[String]) -> Result<Self, TlsError> {
        let (chain, key) = (directory.join(CERTIFICATE_FILE), directory.join(KEY_FILE));
        if let Some(kept) = Self::kept(&chain, &key)? {
            return Ok(kept);
        }
        let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
        names.extend(hosts.iter().filter(|host| !names.contains(host)).cloned().collect::<Vec<_>>());
        let made = rcgen::generate_simple_self_signed(names)?;
        replace(directory, &key, &made.signing_key.serialize_pem(), 0o600)?;
        replace(directory, &chain, &made.cert.pem(), 0o644)?;
        Self::load(&chain, &key)
    }

    /// The pair in these files, if they hold one. A file that cannot be read may be whole: the next start may read it.
    fn kept(chain: &Path, key: &Path) -> Result<Option<Self>, TlsError> {
        let unusable = match Self::load(chain, key) {
            Ok(kept) => match kept.server_config(Arc::default()) {
                Ok(_) => return Ok(Some(kept)),
                Err(error) => error,
            },
            Err(TlsError::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(None);
            }
            Err(error @ TlsError::File { .. }) if !is_damaged(&error) => return Err(error),
            Err(error) => error,
        };
        tracing::warn!(error = %unusable, "the node's own certificate is damaged; the node makes a new one");
        Ok(None)
    }

    /// Of an operator, who had it at `path`.
    pub fn brought(chain_pem: String, key_pem: String, path: PathBuf) -> Self {
        Self { chain_pem, key_pem, path }
    }

    /// The one that an operator brought earlier, if there is one in `directory`.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn uploaded(directory: &Path) -> Result<Option<Self>, TlsError> {
        let path = directory.join(UPLOADED_FILE);
        if !path.exists() {
            return Ok(None);
        }
        let kept: Uploaded = serde_json::from_str(&read(&path)?)
            .map_err(|error| TlsError::Pem { path: path.clone(), reason: error.to_string() })?;
        Ok(Some(Self { chain_pem: kept.chain, key_pem: kept.key, path }))
    }

    /// Keeps it in `directory` as that of an operator.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_as_uploaded(&self, directory: &Path) -> Result<(), TlsError> {
        let path = directory.join(UPLOADED_FILE);
        let kept = Uploaded { chain: self.chain_pem.clone(), key: self.key_pem.clone() };
        let text = serde_json::to_string(&kept)
            .map_err(|error| TlsError::File { path: path.clone(), source: error.into() })?;
        replace(directory, &path, &text, 0o600)
    }

    /// Gives up the one that an operator brought.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget_uploaded(directory: &Path) -> Result<(), TlsError> {
        remove(&directory.join(UPLOADED_FILE))
    }

    /// Gives up the one that the node made.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub fn forget_self_signed(directory: &Path) -> Result<(), TlsError> {
        // Without the chain a new pair is made, whatever becomes of the key.
        remove(&directory.join(CERTIFICATE_FILE))?;
        remove(&directory.join(KEY_FILE))
    }

    /// Whether chain and key belong together, and one of these authorities vouches for them today.
    ///
    /// # Errors
    /// Why not, in the words that Couchbase has for it.
    pub fn check(&self, authorities: &[String]) -> Result<(), String> {
        let provider = rustls::crypto::ring::default_provider();
        self.certified(&provider).map_err(|error| match error {
            TlsError::Use(rustls::Error::InconsistentKeys(_)) => {
                "Provided certificate doesn't match provided private key".to_owned()
            }
            TlsError::Pem { path, reason } => {
                format!("Malformed certificate or key in {}: {reason}", path.display())
            }
            other => format!("Malformed certificate or key: {other}"),
        })?;
        let chain: Vec<_> = x509::pem_contents(&self.chain_pem).map(CertificateDer::from).collect();
        let (own, between) = chain.split_first().ok_or("Malformed certificate")?;
        let wrong =
            |error: &dyn std::fmt::Display| format!("Incorrectly configured certificate chain. {error}");
        let parsed = ParsedCertificate::try_from(own).map_err(|error| wrong(&error))?;
        let algorithms = provider.signature_verification_algorithms.all;
        let (roots, now) = (roots(authorities), UnixTime::now());
        match verify_server_cert_signed_by_trust_anchor(&parsed, &roots, between, now, algorithms) {
            Ok(()) => Ok(()),
            Err(rustls::Error::InvalidCertificate(CertificateError::UnknownIssuer)) => {
                Err("CA certificate for this chain is not found in the list of trusted CA's".into())
            }
            Err(error) => Err(wrong(&error)),
        }
    }

    fn certified(&self, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
        let pem = |error: rustls::pki_types::pem::Error| TlsError::Pem {
            path: self.path.clone(),
            reason: error.to_string(),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.chain_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(pem)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(pem)?;
        Ok(CertifiedKey::from_der(chain, key, provider)?)
    }

    /// The server's side of TLS 1.2 and 1.3 with this certificate, and `to_nodes` for other nodes; clients need none.
    ///
    /// # Errors
    /// When it is not a certificate with its key.
    pub fn server_config(&self, to_nodes: Arc<NodeTls>) -> Result<Arc<ServerConfig>, TlsError> {
        self.server_config_by(to_nodes, &Rules::default())
    }

    fn server_config_by(&self, to_nodes: Arc<NodeTls>, rules: &Rules) -> Result<Arc<ServerConfig>, TlsError> {
        let versions: &[&'static SupportedProtocolVersion] =
            if rules.only_1_3 { &[&rustls::version::TLS13] } else { rustls::ALL_VERSIONS };
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let to_clients = Arc::new(self.certified(&provider)?);
        let config = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)?
            .with_client_cert_verifier(rules.verifier(provider)?)
            .with_cert_resolver(Arc::new(Shown { to_clients, to_nodes }));
        Ok(Arc::new(config))
    }
}

/// What the cluster's settings say about TLS ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rules {
    only_1_3: bool,
    /// Clients are asked for certificates that one of these has signed. A client may still show none: other nodes have none to
    /// show, and which clients need one is for `crate::net::client_certificate` to say.
    clients: Vec<String>,
}

impl Rules {
    fn of(metadata: &Metadata) -> Self {
        let asks = metadata.client_cert_auth().used != CertificateUse::Disabled;
        let clients = || metadata.trusted_cas().into_iter().map(|ca| ca.pem).collect();
        Self { only_1_3: metadata.requires_tls_1_3(), clients: if asks { clients() } else { Vec::new() } }
    }

    fn verifier(&self, provider: Arc<CryptoProvider>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let roots = roots(&self.clients);
        if roots.is_empty() {
            return Ok(WebPkiClientVerifier::no_client_auth());
        }
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
        Ok(verifier.allow_unauthenticated().build()?)
    }
}

fn roots(pems: &[String]) -> RootCertStore {
    trusted_roots(pems.iter().map(String::as_str))
}

/// What all TLS ports of a node go by: the certificate that they show, and the cluster's settings. A change holds for handshakes to
/// come. Connections that are open stay, but for what a client's certificate stands for ([`http::ClientChain`]).
pub struct PortTls {
    now: Arc<ArcSwap<ServerConfig>>,
    to_nodes: Arc<NodeTls>,
    made_of: Mutex<(Certificate, Rules)>,
}

impl PortTls {
    /// `now` is what the ports look at.
    ///
    /// # Errors
    /// When it is not a certificate with its key.
    pub fn new(
        certificate: &Certificate,
        to_nodes: &Arc<NodeTls>,
        now: Arc<ArcSwap<ServerConfig>>,
    ) -> Result<Self, TlsError> {
        now.store(certificate.server_config(Arc::clone(to_nodes))?);
        let made_of = Mutex::new((certificate.clone(), Rules::default()));
        Ok(Self { now, to_nodes: Arc::clone(to_nodes), made_of })
    }

    /// From now on the ports go by these metadata.
    pub fn obey(&self, metadata: &Metadata) {
        let rules = Rules::of(metadata);
        let mut made_of = self.made_of.lock();
        if made_of.1 == rules {
            return;
        }
        match made_of.0.server_config_by(Arc::clone(&self.to_nodes), &rules) {
            Ok(config) => {
                self.now.store(config);
                made_of.1 = rules;
            }
            Err(error) => tracing::error!(%error, "the TLS ports do not follow the cluster's settings"),
        }
    }

    /// From now on the ports show this certificate.
    ///
    /// # Errors
    /// When it is not a certificate with its key; the ports show what they did before.
    pub fn show(&self, certificate: Certificate) -> Result<(), TlsError> {
        let mut made_of = self.made_of.lock();
        self.now.store(certificate.server_config_by(Arc::clone(&self.to_nodes), &made_of.1)?);
        made_of.0 = certificate;
        Ok(())
    }

    /// What the ports show.
    pub fn shown(&self) -> Certificate {
        self.made_of.lock().0.clone()
    }

    /// What a handshake that begins now goes by.
    pub fn now(&self) -> Arc<ServerConfig> {
        self.now.load_full()
    }
}

/// What is shown to whom, by the name that is asked for.
#[derive(Debug)]
struct Shown {
    to_clients: Arc<CertifiedKey>,
    to_nodes: Arc<NodeTls>,
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let to_node = hello.server_name().and_then(|name| self.to_nodes.shown_as(name));
        to_node.unwrap_or_else(|| Some(Arc::clone(&self.to_clients)))
    }
}

fn read(path: &Path) -> Result<String, TlsError> {
    fs::read_to_string(path).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

/// Whether a file was read and is no text.
fn is_damaged(error: &TlsError) -> bool {
    matches!(error, TlsError::File { source, .. } if source.kind() == io::ErrorKind::InvalidData)
}

/// Gives a file in `directory` these contents. After a crash it has the contents of before or these, whole.
fn replace(directory: &Path, path: &Path, contents: &str, mode: u32) -> Result<(), TlsError> {
    let staged = path.with_added_extension("new");
    let written = ignore_missing(fs::remove_file(&staged))
        .and_then(|()| OpenOptions::new().write(true).create_new(true).mode(mode).open(&staged))
        .and_then(|mut file| file.write_all(contents.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&staged, path))
        .and_then(|()| File::open(directory)?.sync_all());
    written.map_err(|source| TlsError::File { path: path.to_owned(), source })
}

fn ignore_missing(outcome: io::Result<()>) -> io::Result<()> {
    match outcome {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        outcome => outcome,
    }
}

fn remove(path: &Path) -> Result<(), TlsError> {
    ignore_missing(fs::remove_file(path)).map_err(|source| TlsError::File { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_keeps_the_certificate_it_made() {
        let directory = tempfile::tempdir().unwrap();
        let first = Certificate::self_signed(directory.path(), &["node1.example".into()]).unwrap();
        let second = Certificate::self_signed(directory.path(), &[]).unwrap();
        assert_eq!(first.chain_pem, second.chain_pem);
        assert!(second.server_config(Arc::default()).is_ok());
    }

    /// Versions before wrote under the final name: a crash left any part of it. A disk may damage what is whole.
    #[test]
    fn a_certificate_that_a_crash_has_cut_short_is_made_anew() {
        let directory = tempfile::tempdir().unwrap();
        let hosts = ["node1.example".to_owned()];
        let made = || Certificate::self_signed(directory.path(), &hosts).unwrap();
        for name in [CERTIFICATE_FILE, KEY_FILE] {
            let path = directory.path().join(name);
            made();
            let whole = fs::read(&path).unwrap();
            for length in [0, 1, 40, whole.len() / 2, whole.len() - 30] {
                fs::write(&path, &whole[..length]).unwrap();
                assert!(made().server_config(Arc::default()).is_ok(), "{length} bytes of {name}");
            }
            fs::write(&path, [0xff; 500]).unwrap();
            assert!(made().server_config(Arc::default()).is_ok(), "{name} is no text");
            let kept = made();
            assert_eq!(made().chain_pem, kept.chain_pem, "a pair that is whole stays");
        }
    }

    #[test]
    fn a_crash_between_key_and_certificate_leaves_no_pair_that_does_not_fit() {
        let (directory, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let before = Certificate::self_signed(directory.path(), &[]).unwrap();
        Certificate::self_signed(other.path(), &[]).unwrap();
        fs::copy(other.path().join(KEY_FILE), directory.path().join(KEY_FILE)).unwrap();
        // What a crash leaves behind while a file is being written.
        fs::write(directory.path().join(format!("{KEY_FILE}.new")), "half").unwrap();
        let after = Certificate::self_signed(directory.path(), &[]).unwrap();
        assert!(after.server_config(Arc::default()).is_ok());
        assert_ne!(after.chain_pem, before.chain_pem);
    }

    #[test]
    fn a_certificate_that_cannot_be_read_now_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        Certificate::self_signed(directory.path(), &[]).unwrap();
        let path = directory.path().join(CERTIFICATE_FILE);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        assert!(matches!(Certificate::self_signed(directory.path(), &[]), Err(TlsError::File { .. })));
        assert!(path.is_dir());
    }

    #[test]
    fn what_is_not_a_certificate_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.pem");
        fs::write(&file, "nonsense").unwrap();
        let error = Certificate::load(&file, &file).unwrap().server_config(Arc::default()).unwrap_err();
        assert!(error.to_string().contains("x.pem"), "{error}");
    }
}
