//! Just enough of X.509 to show a certificate's subject and end of validity: `couchbase-cli` prints both. Nothing is
//! verified here, and what cannot be read is simply not shown.

use base64::{Engine as _, engine::general_purpose::STANDARD};

const SEQUENCE: u8 = 0x30;
const SET: u8 = 0x31;
const OBJECT_ID: u8 = 0x06;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
/// The optional version in front of the serial number.
const VERSION: u8 = 0xa0;

/// What is shown of a certificate.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Details {
    /// `CN=..., O=...`.
    pub(super) subject: String,
    /// RFC 3339.
    pub(super) expires: String,
}

/// Reads the first certificate of a PEM text.
pub(super) fn details(pem: &str) -> Option<Details> {
    let body = pem.split_once("-----BEGIN CERTIFICATE-----")?.1.split_once("-----END")?.0;
    let der = STANDARD.decode(body.split_whitespace().collect::<String>()).ok()?;
    let certificate = Der(&der).take(SEQUENCE)?.0;
    let mut signed = Der(certificate).take(SEQUENCE)?.0;
    if signed.first() == Some(&VERSION) {
        signed = Der(signed).next()?.2;
    }
    // Serial number, signature algorithm and issuer come before what is of interest.
    for _ in 0..3 {
        signed = Der(signed).next()?.2;
    }
    let (validity, rest) = Der(signed).take(SEQUENCE)?;
    let not_before = Der(validity).next()?;
    let (kind, not_after, _) = Der(not_before.2).next()?;
    let (subject, _) = Der(rest).take(SEQUENCE)?;
    Some(Details { subject: names(subject)?, expires: time(kind, not_after)? })
}

fn names(mut subject: &[u8]) -> Option<String> {
    let mut parts = Vec::new();
    while !subject.is_empty() {
        let (set, rest) = Der(subject).take(SET)?;
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
        subject = rest;
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
    use super::*;

    fn certificate() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::new(vec!["localhost".into()]).unwrap();
        params.not_after = rcgen::date_time_ymd(2042, 3, 4);
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, "settee");
        params.distinguished_name.push(rcgen::DnType::OrganizationName, "o");
        params.self_signed(&key).unwrap().pem()
    }

    #[test]
    fn subject_and_end_are_read() {
        let found = details(&certificate()).unwrap();
        assert_eq!(found.expires, "2042-03-04T00:00:00.000Z");
        assert_eq!(found.subject, "CN=settee, O=o");
    }

    #[test]
    fn damaged_certificates_show_nothing_and_harm_nothing() {
        let pem = certificate();
        let body: String = pem.lines().filter(|line| !line.starts_with('-')).collect();
        let der = STANDARD.decode(body).unwrap();
        for at in 0..der.len() {
            for bytes in [&der[..at], &[&der[..at], &[0xff], &der[at + 1..]].concat()] {
                let text = STANDARD.encode(bytes);
                // The answer does not matter, as long as there is one.
                let _ = details(&format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n"));
            }
        }
        assert_eq!(details(""), None);
        assert_eq!(details("-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----"), None);
    }
}
