//! Just enough of X.509 to show a certificate, and to read the names that may stand for a user. Nothing is verified here: what is
//! read of a client's certificate was verified during its handshake. What cannot be read is left out.

use base64::{Engine as _, engine::general_purpose::STANDARD};

const BOOLEAN: u8 = 0x01;
const OCTETS: u8 = 0x04;
const OBJECT_ID: u8 = 0x06;
const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The optional version in front of the serial number.
const VERSION: u8 = 0xa0;
const EXTENSIONS: u8 = 0xa3;
const EMAIL: u8 = 0x81;
const DNS_NAME: u8 = 0x82;
const URI: u8 = 0x86;
const COMMON_NAME: [u8; 3] = [0x55, 0x04, 0x03];
const SUBJECT_ALT_NAME: [u8; 3] = [0x55, 0x1d, 0x11];
const BASIC_CONSTRAINTS: [u8; 3] = [0x55, 0x1d, 0x13];

const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const END: &str = "-----END CERTIFICATE-----";

/// What is read of a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Certificate {
    /// `CN=..., O=...`.
    pub subject: String,
    /// The same of the certificate that has signed it.
    pub issuer: String,
    /// RFC 3339.
    pub not_before: String,
    /// RFC 3339.
    pub not_after: String,
    /// Whether it may sign others.
    pub is_authority: bool,
    /// The names that may stand for a user.
    pub names: Names,
}

/// Names in a certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of the subject.
    pub common: Vec<String>,
    /// Alternative names that are host names.
    pub dns: Vec<String>,
    /// Those that are URIs.
    pub uris: Vec<String>,
    /// Those that are e-mail addresses.
    pub emails: Vec<String>,
}

impl Certificate {
    /// Reads a certificate in distinguished encoding.
    #[must_use]
    pub fn read(der: &[u8]) -> Option<Self> {
        let certificate = Der(der).take(SEQUENCE)?.0;
        let mut signed = Der(certificate).take(SEQUENCE)?.0;
        if signed.first() == Some(&VERSION) {
            signed = Der(signed).next()?.2;
        }
        // Serial number and signature algorithm come first.
        for _ in 0..2 {
            signed = Der(signed).next()?.2;
        }
        let (issuer, rest) = Der(signed).take(SEQUENCE)?;
        let (validity, rest) = Der(rest).take(SEQUENCE)?;
        let (kind_before, not_before, after) = Der(validity).next()?;
        let (kind_after, not_after, _) = Der(after).next()?;
        let (subject, rest) = Der(rest).take(SEQUENCE)?;
        let mut read = Self {
            subject: name(subject)?,
            issuer: name(issuer)?,
            not_before: time(kind_before, not_before)?,
            not_after: time(kind_after, not_after)?,
            names: Names { common: attributes(subject, &COMMON_NAME)?, ..Names::default() },
            ..Self::default()
        };
        // Behind the key, and perhaps two identifiers that nobody uses.
        let mut rest = Der(rest).take(SEQUENCE)?.1;
        while !rest.is_empty() {
            let (tag, contents, behind) = Der(rest).next()?;
            if tag == EXTENSIONS {
                read.take_extensions(Der(contents).take(SEQUENCE)?.0)?;
            }
            rest = behind;
        }
        Some(read)
    }

    /// Reads the first certificate of a PEM text.
    #[must_use]
    pub fn of_pem(pem: &str) -> Option<Self> {
        Self::read(&pem_contents(pem).next()?)
    }

    /// Whether it has signed itself, by what it says.
    #[must_use]
    pub fn is_self_signed(&self) -> bool {
        self.subject == self.issuer
    }

    fn take_extensions(&mut self, mut extensions: &[u8]) -> Option<()> {
        while !extensions.is_empty() {
            let (extension, behind) = Der(extensions).take(SEQUENCE)?;
            let (id, value) = Der(extension).take(OBJECT_ID)?;
            let value = Der(value).take(BOOLEAN).map_or(value, |(_, behind)| behind);
            let value = Der(value).take(OCTETS)?.0;
            if id == SUBJECT_ALT_NAME {
                self.take_names(Der(value).take(SEQUENCE)?.0)?;
            } else if id == BASIC_CONSTRAINTS {
                let constraints = Der(value).take(SEQUENCE)?.0;
                self.is_authority = Der(constraints).take(BOOLEAN).is_some_and(|(value, _)| value == [0xff]);
            }
            extensions = behind;
        }
        Some(())
    }

    fn take_names(&mut self, mut names: &[u8]) -> Option<()> {
        while !names.is_empty() {
            let (tag, value, behind) = Der(names).next()?;
            let list = match tag {
                EMAIL => Some(&mut self.names.emails),
                DNS_NAME => Some(&mut self.names.dns),
                URI => Some(&mut self.names.uris),
                _ => None,
            };
            if let (Some(list), Ok(text)) = (list, std::str::from_utf8(value)) {
                list.push(text.to_owned());
            }
            names = behind;
        }
        Some(())
    }
}

/// The certificates of a PEM text, in distinguished encoding. What is no certificate is passed over.
pub fn pem_contents(pem: &str) -> impl Iterator<Item = Vec<u8>> + '_ {
    pem_blocks(pem).filter_map(|block| {
        let body = block.strip_prefix(BEGIN)?.strip_suffix(END)?;
        STANDARD.decode(body.split_whitespace().collect::<String>()).ok()
    })
}

/// The certificates of a PEM text, each as a text of its own.
pub fn pem_blocks(pem: &str) -> impl Iterator<Item = &str> {
    pem.match_indices(BEGIN).filter_map(|(at, _)| {
        let block = pem.get(at..)?;
        block.get(..block.find(END)? + END.len())
    })
}

/// The values of an attribute in a name. Values in character sets other than UTF-8 and its subsets are left out.
fn attributes(mut name: &[u8], wanted: &[u8]) -> Option<Vec<String>> {
    let mut values = Vec::new();
    while !name.is_empty() {
        let (mut set, rest) = Der(name).take(SET)?;
        while !set.is_empty() {
            let (pair, behind) = Der(set).take(SEQUENCE)?;
            let (id, value) = Der(pair).take(OBJECT_ID)?;
            let (tag, value, _) = Der(value).next()?;
            // UTF8String, PrintableString, IA5String.
            if id == wanted && matches!(tag, 0x0c | 0x13 | 0x16) {
                values.extend(std::str::from_utf8(value).ok().map(str::to_owned));
            }
            set = behind;
        }
        name = rest;
    }
    Some(values)
}

fn name(mut name: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !name.is_empty() {
        let (set, rest) = Der(name).take(SET)?;
        let (pair, _) = Der(set).take(SEQUENCE)?;
        let (id, value) = Der(pair).take(OBJECT_ID)?;
        let (_, value, _) = Der(value).next()?;
        let label = match id {
            [0x55, 0x04, 0x03] => "CN",
            [0x55, 0x04, 0x06] => "C",
            [0x55, 0x04, 0x07] => "L",
            [0x55, 0x04, 0x08] => "ST",
            [0x55, 0x04, 0x0a] => "O",
            [0x55, 0x04, 0x0b] => "OU",
            _ => "other",
        };
        parts.push(format!("{label}={}", String::from_utf8_lossy(value)));
        name = rest;
    }
    Some(parts.join(", "))
}

/// `YYMMDDHHMMSSZ` or `YYYYMMDDHHMMSSZ`; two-digit years up to 49 are of this century (RFC 5280).
fn time(kind: u8, bytes: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(bytes).ok()?.strip_suffix('Z')?;
    let full = match kind {
        UTC_TIME => format!("{}{text}", if text.get(..2)? < "50" { "20" } else { "19" }),
        GENERALIZED_TIME => text.to_owned(),
        _ => return None,
    };
    let part =
        |from: usize, to: usize| full.get(from..to).filter(|part| part.bytes().all(|b| b.is_ascii_digit()));
    Some(format!(
        "{}-{}-{}T{}:{}:{}.000Z",
        part(0, 4)?,
        part(4, 6)?,
        part(6, 8)?,
        part(8, 10)?,
        part(10, 12)?,
        part(12, 14)?
    ))
}

/// Bytes in distinguished encoding.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// The first element: its tag, its contents, what follows it.
    fn next(&self) -> Option<(u8, &'a [u8], &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let (digits, rest) =
                rest.split_at_checked(usize::from(first & 0x7f)).filter(|(d, _)| d.len() <= 4)?;
            (digits.iter().fold(0, |length, digit| length << 8 | usize::from(*digit)), rest)
        };
        let (contents, rest) = rest.split_at_checked(length)?;
        Some((tag, contents, rest))
    }

    /// As [`Der::next`] for an element that must have this tag: contents and what follows.
    fn take(&self, tag: u8) -> Option<(&'a [u8], &'a [u8])> {
        self.next().filter(|(found, ..)| *found == tag).map(|(_, contents, rest)| (contents, rest))
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, DnType, IsCa, KeyPair, SanType};

    use super::*;

    fn certificate() -> rcgen::Certificate {
        let mut params = CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_before = rcgen::date_time_ymd(2011, 2, 3);
        params.not_after = rcgen::date_time_ymd(2052, 3, 4);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "settee");
        params.distinguished_name.push(DnType::OrganizationName, "o");
        params.subject_alt_names.push(SanType::URI("https://example/ann".try_into().unwrap()));
        params.subject_alt_names.push(SanType::Rfc822Name("ann@example".try_into().unwrap()));
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap()
    }

    #[test]
    fn names_and_times_are_read() {
        let found = Certificate::of_pem(&certificate().pem()).unwrap();
        assert_eq!(found.not_before, "2011-02-03T00:00:00.000Z");
        assert_eq!(found.not_after, "2052-03-04T00:00:00.000Z");
        assert_eq!(found.subject, "CN=settee, O=o");
        assert!(found.is_self_signed() && found.is_authority);
        let names = Names {
            common: vec!["settee".into()],
            dns: vec!["localhost".into()],
            uris: vec!["https://example/ann".into()],
            emails: vec!["ann@example".into()],
        };
        assert_eq!(found.names, names);
    }

    #[test]
    fn the_certificates_of_a_text_are_told_apart() {
        let (one, other) = (certificate().pem(), certificate().pem());
        let text = format!("a comment\n{one}{other}-----BEGIN CERTIFICATE-----\n");
        assert_eq!(pem_blocks(&text).collect::<Vec<_>>(), [one.trim(), other.trim()]);
        assert_eq!(pem_contents(&text).count(), 2);
    }

    #[test]
    fn damaged_certificates_show_nothing_and_harm_nothing() {
        let der = certificate().der().to_vec();
        for at in 0..der.len() {
            for bytes in [&der[..at], &[&der[..at], &[0xff], &der[at + 1..]].concat()] {
                // Reading must end without a panic; any answer is right.
                let _ = Certificate::read(bytes);
            }
        }
        assert_eq!(Certificate::of_pem(""), None);
        assert_eq!(Certificate::of_pem("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"), None);
    }
}
