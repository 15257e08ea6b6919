//! The certificate that a client has shown under TLS, for as long as its connection lasts.
//!
//! Invariant: it stands for its user for as long as one of the authorities that are trusted then vouches for it. The handshake went by
//! those of its time.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use cluster::{
    CertificateUse, Metadata, TrustedCa,
    auth::{Identity, certified},
    x509,
};
use serde_json::Value;
use tokio_rustls::rustls::{
    RootCertStore, ServerConnection,
    crypto::ring,
    pki_types::{CertificateDer, UnixTime},
    server::{WebPkiClientVerifier, danger::ClientCertVerifier},
};

/// See the module.
#[derive(Clone)]
pub struct ClientChain(Arc<Chain>);

struct Chain {
    own: CertificateDer<'static>,
    between: Vec<CertificateDer<'static>>,
    names: x509::Names,
    /// What it was judged by last. Requests come often, and authorities seldom: they are read when they have changed.
    judged: Mutex<Option<Judged>>,
}

struct Judged {
    /// The setting with the authorities.
    by: Option<Value>,
    is_vouched_for: bool,
}

impl fmt::Debug for ClientChain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ClientChain").field(&self.0.names).finish()
    }
}

impl ClientChain {
    /// What the client of a finished handshake has shown, if it can be read.
    #[must_use]
    pub fn of(tls: &ServerConnection) -> Option<Self> {
        let (own, between) = tls.peer_certificates()?.split_first()?;
        let names = x509::Certificate::read(own)?.names;
        let between = between.iter().map(|certificate| certificate.clone().into_owned()).collect();
        let (own, judged) = (own.clone().into_owned(), Mutex::default());
        Some(Self(Arc::new(Chain { own, between, names, judged })))
    }

    /// The user whom it stands for now, who exists and is not locked.
    #[must_use]
    pub fn user(&self, meta: &Metadata) -> Option<Identity> {
        let rules = meta.client_cert_auth();
        if rules.used == CertificateUse::Disabled {
            return None;
        }
        let user = certified(meta, rules.user(&self.0.names)?)?;
        self.is_vouched_for(meta).then_some(user)
    }

    /// Whether an authority that is trusted vouches for it.
    #[must_use]
    pub fn is_vouched_for(&self, meta: &Metadata) -> bool {
        let by = meta.trusted_cas_unread();
        let mut judged = self.0.judged.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(judged) = &*judged
            && judged.by.as_ref() == by
        {
            return judged.is_vouched_for;
        }
        let is_vouched_for = self.0.verify(&meta.trusted_cas());
        *judged = Some(Judged { by: by.cloned(), is_vouched_for });
        is_vouched_for
    }
}

impl Chain {
    fn verify(&self, trusted: &[TrustedCa]) -> bool {
        let roots = trusted_roots(trusted.iter().map(|ca| &*ca.pem));
        let provider = Arc::new(ring::default_provider());
        // There is no verifier without authorities.
        let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build();
        let verify = |verifier: Arc<dyn ClientCertVerifier>| {
            verifier.verify_client_cert(&self.own, &self.between, UnixTime::now()).is_ok()
        };
        verifier.is_ok_and(verify)
    }
}

/// The authorities that can be used.
pub fn trusted_roots<'a>(pems: impl Iterator<Item = &'a str>) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    for der in pems.flat_map(x509::pem_contents) {
        if let Err(error) = roots.add(der.into()) {
            tracing::warn!(%error, "a trusted certificate cannot vouch for anybody");
        }
    }
    roots
}
