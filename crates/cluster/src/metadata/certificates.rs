//! Certificates that the cluster trusts, and what a client's certificate says about who the client is.
//!
//! Both are settings objects of the metadata: `trustedCAs`, which REST shows in its own way, and `clientCertAuth`, as REST has it. A
//! value that makes no sense, as a later version may have set it, lets nobody in.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::metadata::{Metadata, x509::Names};

/// The settings object with the certificates that are trusted.
pub const TRUSTED: &str = "trustedCAs";
/// The settings object that says what clients' certificates are for.
pub const CLIENTS: &str = "clientCertAuth";

/// A certificate that an administrator has had loaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TrustedCa {
    /// By which it is deleted.
    pub id: u64,
    /// The certificate.
    pub pem: String,
    /// The node that read it, and from which file.
    pub load_host: String,
    /// See `load_host`.
    pub load_file: String,
    /// Unix seconds.
    pub loaded_at: u64,
}

/// Whether clients may, or have to, show certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CertificateUse {
    /// None is asked for.
    #[default]
    Disabled,
    /// A client without one may log in by a password.
    Optional,
    /// A client without one is turned away.
    Mandatory,
}

/// What clients' certificates are for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientCertAuth {
    /// Whether clients may, or have to, show them.
    pub used: CertificateUse,
    /// Where the name of a user is looked for, the first that fits counts.
    pub mappings: Vec<Mapping>,
}

/// One place where a certificate may name a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// Which names are looked at.
    pub path: NamePath,
    /// What a name has to begin with. It is no part of the user's name.
    pub prefix: String,
    /// Characters of which the first ends the user's name.
    pub delimiters: String,
}

/// Which names of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "names say it")]
pub enum NamePath {
    CommonName,
    Uri,
    DnsName,
    Email,
}

impl NamePath {
    /// As REST spells it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "subject.cn" => Some(Self::CommonName),
            "san.uri" => Some(Self::Uri),
            "san.dnsname" => Some(Self::DnsName),
            "san.email" => Some(Self::Email),
            _ => None,
        }
    }

    fn of(self, names: &Names) -> &[String] {
        match self {
            Self::CommonName => &names.common,
            Self::Uri => &names.uris,
            Self::DnsName => &names.dns,
            Self::Email => &names.emails,
        }
    }
}

impl CertificateUse {
    /// As REST spells it.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        match name {
            "disable" => Some(Self::Disabled),
            "enable" => Some(Self::Optional),
            "mandatory" => Some(Self::Mandatory),
            _ => None,
        }
    }
}

impl ClientCertAuth {
    /// The user that a certificate names.
    #[must_use]
    pub fn user<'n>(&self, names: &'n Names) -> Option<&'n str> {
        self.mappings.iter().find_map(|mapping| {
            let rest = mapping.path.of(names).iter().find_map(|name| name.strip_prefix(&*mapping.prefix))?;
            let user = rest.split(|character: char| mapping.delimiters.contains(character)).next()?;
            (!user.is_empty()).then_some(user)
        })
    }

    fn of(value: &Value) -> Option<Self> {
        let used = CertificateUse::from_name(value.get("state")?.as_str()?)?;
        let mapping = |entry: &Value| {
            let text = |name: &str| Some(entry.get(name)?.as_str()?.to_owned());
            let path = NamePath::from_name(&text("path")?)?;
            Some(Mapping { path, prefix: text("prefix")?, delimiters: text("delimiter")? })
        };
        let mappings = value.get("prefixes")?.as_array()?.iter().map(mapping).collect::<Option<_>>()?;
        Some(Self { used, mappings })
    }
}

/// Whether a TLS port is asked for a name that nodes have among themselves, as other nodes ask.
#[must_use]
pub fn is_name_of_node(name: &str) -> bool {
    name.ends_with(".settee.internal")
}

impl Metadata {
    /// What clients' certificates are for.
    #[must_use]
    pub fn client_cert_auth(&self) -> ClientCertAuth {
        self.settings.get(CLIENTS).and_then(ClientCertAuth::of).unwrap_or_default()
    }

    /// The setting that [`Self::trusted_cas`] reads, by which it can be seen whether they are others.
    #[must_use]
    pub fn trusted_cas_unread(&self) -> Option<&Value> {
        self.settings.get(TRUSTED)
    }

    /// The certificates that administrators have had loaded.
    #[must_use]
    pub fn trusted_cas(&self) -> Vec<TrustedCa> {
        let stored = self.settings.get(TRUSTED).and_then(|stored| stored.get("loaded")).cloned();
        stored.and_then(|stored| serde_json::from_value(stored).ok()).unwrap_or_default()
    }

    /// The settings object with other certificates in it, each new one under a number that none has had before.
    #[must_use]
    pub fn with_trusted_cas(&self, kept: Vec<TrustedCa>, new: Vec<TrustedCa>) -> Value {
        let stored = self.settings.get(TRUSTED).and_then(|stored| stored.get("next")).and_then(Value::as_u64);
        let mut next = stored.unwrap_or(FIRST_ID);
        let mut all = kept;
        for ca in new {
            all.push(TrustedCa { id: next, ..ca });
            next = next.saturating_add(1);
        }
        json!({ "next": next, "loaded": all })
    }
}

/// Numbers below are those of nodes, whose own certificates are listed beside these.
const FIRST_ID: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::changes::Command;

    fn with(value: Value) -> ClientCertAuth {
        let metadata = Metadata::new("c".into(), 256);
        let put = Command::PutSetting { path: CLIENTS.into(), value };
        metadata.apply(&put).unwrap().0.client_cert_auth()
    }

    fn names() -> Names {
        Names {
            common: vec!["www.ann-lee.example".into()],
            dns: vec!["bob.example".into()],
            uris: vec!["urn:other".into(), "urn:user:cid?x".into()],
            emails: vec!["dora@example".into()],
        }
    }

    #[test]
    fn the_first_mapping_that_fits_names_the_user() {
        let entry = |path: &str, prefix: &str, delimiter: &str| json!({ "path": path, "prefix": prefix, "delimiter": delimiter });
        for (entries, user) in [
            (vec![entry("subject.cn", "www.", ".-")], Some("ann")),
            (vec![entry("subject.cn", "www.", "")], Some("ann-lee.example")),
            (vec![entry("san.dnsname", "", ".")], Some("bob")),
            (vec![entry("san.uri", "urn:user:", "?")], Some("cid")),
            (vec![entry("san.email", "", "@")], Some("dora")),
            (vec![entry("san.email", "x", "@"), entry("san.dnsname", "", ".")], Some("bob")),
            (vec![entry("san.dnsname", "bob", ".")], None),
            (vec![entry("subject.cn", "WWW.", ".")], None),
            (vec![], None),
        ] {
            let auth = with(json!({ "state": "enable", "prefixes": entries }));
            assert_eq!(auth.used, CertificateUse::Optional);
            assert_eq!(auth.user(&names()), user, "{entries:?}");
        }
    }

    #[test]
    fn what_makes_no_sense_lets_nobody_in() {
        for value in [
            json!({}),
            json!({ "state": "hybrid", "prefixes": [] }),
            json!({ "state": "enable", "prefixes": [{ "path": "san.other", "prefix": "", "delimiter": "" }] }),
            json!({ "state": "enable", "prefixes": "x" }),
        ] {
            assert_eq!(with(value), ClientCertAuth::default());
        }
    }

    #[test]
    fn numbers_are_not_given_twice() {
        let ca = |pem: &str| TrustedCa {
            id: 0,
            pem: pem.into(),
            load_host: "h".into(),
            load_file: "f".into(),
            loaded_at: 1,
        };
        let put = |metadata: &Metadata, value| {
            metadata.apply(&Command::PutSetting { path: TRUSTED.into(), value }).unwrap().0
        };
        let mut metadata = Metadata::new("c".into(), 256);
        assert_eq!(metadata.trusted_cas(), []);
        metadata = put(&metadata, metadata.with_trusted_cas(Vec::new(), vec![ca("a"), ca("b")]));
        let ids = |metadata: &Metadata| metadata.trusted_cas().iter().map(|ca| ca.id).collect::<Vec<_>>();
        assert_eq!(ids(&metadata), [1000, 1001]);
        let kept = metadata.trusted_cas().into_iter().filter(|ca| ca.pem == "a").collect();
        metadata = put(&metadata, metadata.with_trusted_cas(kept, vec![ca("c")]));
        assert_eq!(ids(&metadata), [1000, 1002]);
    }
}
