//! Which alerts fire on this node.

use cluster::x509::Certificate;
use parking_lot::Mutex;
use watch::{
    alerts::{Board, Firing},
    touch::Touch,
    turns::Turns,
};

use crate::statistics::{FiringFacts, of_alert};

/// The alerts of this node.
#[derive(Default)]
pub(crate) struct Alerting {
    pub(crate) board: Mutex<Board>,
    pub(crate) touch: Mutex<Touch>,
    pub(crate) turns: Mutex<Turns>,
    certificate: Mutex<CertificateEnd>,
}

/// Until when a certificate is good. It is read anew only where it is another one.
#[derive(Default)]
struct CertificateEnd {
    pem: String,
    end: Option<String>,
}

impl Alerting {
    /// Until when a chain's first certificate is good, as text of RFC 3339. None where it cannot be read.
    pub(crate) fn certificate_end(&self, pem: String) -> Option<String> {
        let mut known = self.certificate.lock();
        if known.pem != pem {
            let end = Certificate::of_pem(&pem).map(|certificate| certificate.not_after);
            *known = CertificateEnd { pem, end };
        }
        known.end.clone()
    }

    /// What fires now, the gravest first.
    pub(crate) fn firing(&self) -> Vec<Firing> {
        self.board.lock().firing().into_iter().cloned().collect()
    }

    /// The same as statistics.
    pub(crate) fn readings(&self) -> Vec<stats::Reading> {
        let firing = self.firing();
        firing.iter().flat_map(|one| of_alert(&FiringFacts { level: one.about.level }, one)).collect()
    }
}
