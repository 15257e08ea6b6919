//! The certificates of this node while it runs: which one its TLS ports show to clients, and whose certificates of clients they take.
//!
//! A node shows the certificate that it was started with. Else it shows the one that an operator has brought by way of the inbox, or the one that the node has made itself. A change holds for handshakes to come; connections that are open stay.
//!
//! ```text
//! DIR/inbox/chain.pem   the chain that an operator brings, the node's own certificate first
//! DIR/inbox/pkey.key    its key
//! DIR/inbox/CA/         authorities for the whole cluster to trust, PEM files of any name
//! DIR/tls/uploaded.json chain and key, once they were taken from the inbox
//! ```

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::{Arc, OnceLock},
};

use admin::{Certificates, InboxFile, Regenerate};
use arc_swap::ArcSwap;
use cluster::{Metadata, x509};
use dataplane::{
    node_tls::NodeTls,
    tls::{Certificate, PortTls, TlsError},
};
use http::BoxFuture;
use parking_lot::Mutex;
use rustls::ServerConfig;

use crate::{files::data_dir::DataDir, setup::options::ServeOptions};

/// Longest file that is read from the inbox.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Files of authorities that are read at once.
const FILES_MAX: usize = 1000;

/// Has other nodes do the same; those that have not are told by name.
pub(crate) type AskOthers = Box<dyn Fn(Regenerate) -> BoxFuture<'static, Vec<String>> + Send + Sync>;

/// See the module.
pub(crate) struct NodeCertificates {
    given: Option<(PathBuf, PathBuf)>,
    tls: PathBuf,
    inbox: PathBuf,
    hosts: Vec<String>,
    ports: PortTls,
    /// Held while files change.
    changing: Mutex<()>,
    /// Asks the other nodes; which have not done it. Not before the node can.
    others: OnceLock<AskOthers>,
}

impl NodeCertificates {
    /// What the node shows from its start on.
    ///
    /// # Errors
    /// When it cannot be read or made.
    pub(crate) fn at_start(options: &ServeOptions, data_dir: &DataDir) -> Result<Certificate, TlsError> {
        let folder = data_dir.tls();
        match &options.tls {
            Some((chain, key)) => Certificate::load(chain, key),
            None => match Certificate::uploaded(&folder)? {
                Some(uploaded) => Ok(uploaded),
                None => Certificate::self_signed(&folder, &hosts(options)),
            },
        }
    }

    /// Of a node that shows `certificate`; `now` is what its ports look at.
    ///
    /// # Errors
    /// When it is not a certificate with its key.
    pub(crate) fn new(
        options: &ServeOptions,
        data_dir: &DataDir,
        certificate: &Certificate,
        to_nodes: &Arc<NodeTls>,
        now: Arc<ArcSwap<ServerConfig>>,
    ) -> Result<Self, TlsError> {
        Ok(Self {
            given: options.tls.clone(),
            tls: data_dir.tls(),
            inbox: data_dir.inbox(),
            hosts: hosts(options),
            ports: PortTls::new(certificate, to_nodes, now)?,
            changing: Mutex::default(),
            others: OnceLock::new(),
        })
    }

    /// The TLS ports go by these metadata from now on.
    pub(crate) fn obey(&self, metadata: &Metadata) {
        self.ports.obey(metadata);
    }

    /// What a handshake that begins now goes by.
    pub(crate) fn now(&self) -> Arc<ServerConfig> {
        self.ports.now()
    }

    /// A chain and key that an operator has brought, checked.
    fn brought(&self, metadata: &Metadata) -> Result<Certificate, String> {
        let (chain, key) = (self.inbox.join("chain.pem"), self.inbox.join("pkey.key"));
        let chain_pem = read(&chain)
            .map_err(|why| format!("Unable to read certificate chain file {}. {why}", chain.display()))?;
        let key_pem =
            read(&key).map_err(|why| format!("Unable to read private key file {}. {why}", key.display()))?;
        if key_pem.contains("ENCRYPTED") {
            return Err("Encrypted private keys are not supported.".into());
        }
        let authorities: Vec<_> = metadata.trusted_cas().into_iter().map(|ca| ca.pem).collect();
        let brought = Certificate::brought(chain_pem, key_pem, chain);
        brought.check(&authorities)?;
        Ok(brought)
    }

    /// From now on the other nodes are asked as well.
    pub(crate) fn ask_others_by(&self, ask: AskOthers) {
        // Set once, at the start.
        let _ = self.others.set(ask);
    }

    /// Has this node show another certificate.
    ///
    /// # Errors
    /// In words for an administrator.
    pub(crate) fn regenerate_here(&self, what: Regenerate) -> Result<(), String> {
        if self.given.is_some() {
            return Err(
                "The node was started with --tls-cert: it shows that certificate and no other.".into()
            );
        }
        let _turn = self.changing.lock();
        let said = |error: TlsError| error.to_string();
        if what.made {
            Certificate::forget_self_signed(&self.tls).map_err(said)?;
        }
        if what.brought {
            Certificate::forget_uploaded(&self.tls).map_err(said)?;
        }
        let shown = match Certificate::uploaded(&self.tls).map_err(said)? {
            Some(uploaded) => uploaded,
            None => Certificate::self_signed(&self.tls, &self.hosts).map_err(said)?,
        };
        self.ports.show(shown).map_err(said)
    }
}

impl Certificates for NodeCertificates {
    fn chain_pem(&self) -> Option<String> {
        Some(self.ports.shown().chain_pem)
    }

    fn inbox_authorities(&self) -> Result<Vec<InboxFile>, String> {
        let folder = self.inbox.join("CA");
        let failed =
            |path: &Path, why: &str| format!("Couldn't load CA certificate from {}. {why}", path.display());
        let listed = fs::read_dir(&folder).map_err(|error| failed(&folder, &reason(error.kind())))?;
        let mut paths: Vec<PathBuf> = listed
            .filter_map(|entry| Some(entry.ok()?.path()))
            .filter(|path| {
                path.file_name().and_then(|name| name.to_str()).is_some_and(|name| !name.starts_with('.'))
            })
            .take(FILES_MAX)
            .collect();
        paths.sort();
        if paths.is_empty() {
            return Err(format!("Directory {} is empty", folder.display()));
        }
        let mut found = Vec::new();
        for path in paths {
            let text = read(&path).map_err(|why| failed(&path, &why))?;
            let before = found.len();
            for pem in x509::pem_blocks(&text) {
                if x509::Certificate::of_pem(pem).is_none() {
                    return Err(failed(&path, "Malformed certificate"));
                }
                found.push(InboxFile { path: path.display().to_string(), pem: format!("{pem}\n") });
            }
            if found.len() == before {
                return Err(failed(&path, "Malformed certificate"));
            }
        }
        Ok(found)
    }

    fn take_from_inbox(&self, metadata: &Metadata) -> Result<(), String> {
        let _turn = self.changing.lock();
        let said = |error: TlsError| error.to_string();
        if let Some((chain, key)) = &self.given {
            // An operator has changed the files that the node was started with.
            let again = Certificate::load(chain, key).map_err(said)?;
            return self.ports.show(again).map_err(said);
        }
        let brought = self.brought(metadata)?;
        brought.keep_as_uploaded(&self.tls).map_err(said)?;
        self.ports.show(brought).map_err(said)
    }

    fn regenerate(&self, what: Regenerate) -> BoxFuture<'_, Result<Vec<String>, String>> {
        Box::pin(async move {
            self.regenerate_here(what)?;
            let Some(ask) = self.others.get() else { return Ok(Vec::new()) };
            Ok(ask(what).await)
        })
    }
}

fn hosts(options: &ServeOptions) -> Vec<String> {
    vec![options.listen.to_string(), "localhost".into(), "127.0.0.1".into()]
}

/// A file of the inbox as text.
fn read(path: &Path) -> Result<String, String> {
    let found = fs::metadata(path).map_err(|error| reason(error.kind()))?;
    if !found.is_file() {
        return Err("It is not a file.".into());
    }
    if found.len() > FILE_BYTES_MAX {
        return Err("The file is too large.".into());
    }
    fs::read_to_string(path).map_err(|error| reason(error.kind()))
}

/// Couchbase's words where it has some.
fn reason(kind: ErrorKind) -> String {
    match kind {
        ErrorKind::NotFound => "The file does not exist.".into(),
        ErrorKind::PermissionDenied => {
            "Missing permission for reading the file, or for searching one of the parent directories.".into()
        }
        ErrorKind::NotADirectory => "A component of the file name is not a directory.".into(),
        other => other.to_string(),
    }
}
