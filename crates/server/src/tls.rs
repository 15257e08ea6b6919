//! The certificate a node shows to clients, and the TLS configuration of its ports. Other nodes are shown another one
//! ([`crate::node_tls`]).
//!
//! A given certificate chain and key are used as they are. Without them the node makes a self-signed certificate
//! once and keeps it in its data directory, so that clients may pin it across restarts.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use arc_swap::ArcSwap;
use cluster::Metadata;
use rustls::{
    ServerConfig, SupportedProtocolVersion,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};

use crate::node_tls::NodeTls;

const CERTIFICATE_FILE: &str = "certificate.pem";
const KEY_FILE: &str = "certificate.key";

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
}

/// A certificate with its key, as PEM.
#[derive(Clone)]
pub struct Certificate {
    /// The chain, the node's own certificate first.
    pub chain_pem: String,
    key_pem: String,
    path: PathBuf,
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
        if !(chain.exists() && key.exists()) {
            let mut names = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
            names.extend(hosts.iter().filter(|host| !names.contains(host)).cloned().collect::<Vec<_>>());
            let made = rcgen::generate_simple_self_signed(names)?;
            // The key first: a certificate without its key would be taken for complete by nobody.
            write(&key, &made.signing_key.serialize_pem(), 0o600)?;
            write(&chain, &made.cert.pem(), 0o644)?;
        }
        Self::load(&chain, &key)
    }

    /// The server's side of TLS 1.2 and 1.3 with this certificate, and `to_nodes` for other nodes; clients need none.
    ///
    /// # Errors
    /// When it is not a certificate with its key.
    pub(crate) fn server_config(&self, to_nodes: Arc<NodeTls>) -> Result<Arc<ServerConfig>, TlsError> {
        self.server_config_of(to_nodes, rustls::ALL_VERSIONS)
    }

    fn server_config_of(
        &self,
        to_nodes: Arc<NodeTls>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let pem = |error: rustls::pki_types::pem::Error| TlsError::Pem {
            path: self.path.clone(),
            reason: error.to_string(),
        };
        let chain: Vec<_> = CertificateDer::pem_slice_iter(self.chain_pem.as_bytes())
            .collect::<Result<_, _>>()
            .map_err(pem)?;
        let key = PrivateKeyDer::from_pem_slice(self.key_pem.as_bytes()).map_err(pem)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let to_clients = Arc::new(CertifiedKey::from_der(chain, key, &provider)?);
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(Shown { to_clients, to_nodes }));
        Ok(Arc::new(config))
    }
}

/// What all TLS ports of a node go by, as the cluster's settings say. A change holds for handshakes to come; connections that
/// are open stay.
pub(crate) struct PortTls {
    now: Arc<ArcSwap<ServerConfig>>,
    from_1_2: Arc<ServerConfig>,
    from_1_3: Arc<ServerConfig>,
}

impl PortTls {
    /// `now` is what the ports look at.
    ///
    /// # Errors
    /// When it is not a certificate with its key.
    pub(crate) fn new(
        certificate: &Certificate,
        to_nodes: &Arc<NodeTls>,
        now: Arc<ArcSwap<ServerConfig>>,
    ) -> Result<Self, TlsError> {
        let from_1_2 = certificate.server_config(Arc::clone(to_nodes))?;
        let from_1_3 = certificate.server_config_of(Arc::clone(to_nodes), &[&rustls::version::TLS13])?;
        Ok(Self { now, from_1_2, from_1_3 })
    }

    /// From now on the ports go by these metadata.
    pub(crate) fn obey(&self, metadata: &Metadata) {
        let wanted = if metadata.requires_tls_1_3() { &self.from_1_3 } else { &self.from_1_2 };
        self.now.store(Arc::clone(wanted));
    }

    /// What a handshake that begins now goes by.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
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

fn write(path: &Path, contents: &str, mode: u32) -> Result<(), TlsError> {
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(path);
    file.and_then(|mut file| file.write_all(contents.as_bytes()).and_then(|()| file.sync_all()))
        .map_err(|source| TlsError::File { path: path.to_owned(), source })
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

    #[test]
    fn what_is_not_a_certificate_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("x.pem");
        fs::write(&file, "nonsense").unwrap();
        let error = Certificate::load(&file, &file).unwrap().server_config(Arc::default()).unwrap_err();
        assert!(error.to_string().contains("x.pem"), "{error}");
    }
}
