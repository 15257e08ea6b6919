//! Which alerts fire on this node.

use cluster::{Metadata, x509::Certificate};
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
    authorities: Mutex<Authorities>,
}

/// Names of the authorities that the cluster trusts, and until when they are good. They are read anew only where they are others.
#[derive(Default)]
struct Authorities {
    unread: Option<serde_json::Value>,
    ends: Vec<(String, String)>,
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

    /// The names of authorities that the cluster trusts, and until when each is good.
    pub(crate) fn authorities(&self, metadata: &Metadata) -> Vec<(String, String)> {
        let mut known = self.authorities.lock();
        if known.unread.as_ref() != metadata.trusted_cas_unread() {
            known.unread = metadata.trusted_cas_unread().cloned();
            let read = metadata.trusted_cas().into_iter().filter_map(|ca| Certificate::of_pem(&ca.pem));
            known.ends = read.map(|certificate| (certificate.subject, certificate.not_after)).collect();
        }
        known.ends.clone()
    }

    /// What fires now, the gravest first.
    pub(crate) fn firing(&self) -> Vec<Firing> {
        self.board.lock().firing()
    }

    /// The same as statistics.
    pub(crate) fn readings(&self) -> Vec<stats::Reading> {
        let firing = self.firing();
        firing.iter().flat_map(|one| of_alert(&FiringFacts { level: one.about.level }, one)).collect()
    }
}

#[cfg(test)]
mod tests {
    use cluster::{Command, TrustedCa};

    use super::*;

    /// PEM of an authority that ends on the first day of a year.
    fn authority(name: &str, year: i32) -> TrustedCa {
        let mut params = rcgen::CertificateParams::default();
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.not_after = rcgen::date_time_ymd(year, 1, 1);
        let certificate = params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap();
        let (load_host, load_file) = Default::default();
        TrustedCa { id: 0, pem: certificate.pem(), load_host, load_file, loaded_at: 0 }
    }

    fn trusting(cas: Vec<TrustedCa>) -> Metadata {
        let metadata = Metadata::new("c".into(), 1024);
        let value = metadata.with_trusted_cas(Vec::new(), cas);
        metadata.apply(&Command::PutSetting { path: cluster::TRUSTED_CA_SETTINGS.into(), value }).unwrap().0
    }

    #[test]
    fn authorities_are_those_that_the_cluster_trusts_now() {
        let alerting = Alerting::default();
        assert_eq!(alerting.authorities(&Metadata::new("c".into(), 1024)), []);
        let ends = |metadata: &Metadata| {
            let known = alerting.authorities(metadata).into_iter();
            known.map(|(name, ends)| (name.contains("CN=old"), ends)).collect::<Vec<_>>()
        };
        let both = trusting(vec![authority("old", 2031), authority("new", 2041)]);
        let [old, new] = [(true, "2031-01-01T00:00:00.000Z"), (false, "2041-01-01T00:00:00.000Z")];
        let texts = ends(&both);
        assert_eq!(
            texts.iter().map(|(is_old, ends)| (*is_old, ends.as_str())).collect::<Vec<_>>(),
            [old, new]
        );
        assert_eq!(ends(&trusting(vec![authority("new", 2041)])).len(), 1, "the old one was removed");
    }
}
