//! The syntax of SASL messages: names of mechanisms, PLAIN, SCRAM (RFC 5802, without channel binding) and
//! CRAM-MD5. No cryptography: proofs and digests are bytes here; the server compares them, the client makes
//! them.

pub mod cram_md5;
pub mod plain;
pub mod scram;

/// The mechanism of a client that has proved who it is by its certificate: there is nothing more to say.
pub const EXTERNAL: &str = "EXTERNAL";

/// The mechanism of a node of the cluster: it says its uuid, and signs the challenge that it gets. Not offered to clients.
pub const NODE: &str = "SETTEE-NODE";

/// A message is not what its mechanism prescribes. The reason is for logs, never for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed SASL message: {0}")]
pub struct Malformed(pub &'static str);

/// How a client proves who it is, strongest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Mechanism {
    /// SCRAM over SHA-512.
    ScramSha512,
    /// SCRAM over SHA-256.
    ScramSha256,
    /// SCRAM over SHA-1.
    ScramSha1,
    /// Challenge and keyed digest; only possible where the password itself is known (bucket passwords).
    CramMd5,
    /// The password as it is.
    Plain,
}

impl Mechanism {
    /// All of them, strongest first.
    pub const ALL: [Mechanism; 5] =
        [Self::ScramSha512, Self::ScramSha256, Self::ScramSha1, Self::CramMd5, Self::Plain];

    /// The name on the wire. Couchbase writes `SHA512`, not `SHA-512`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ScramSha512 => "SCRAM-SHA512",
            Self::ScramSha256 => "SCRAM-SHA256",
            Self::ScramSha1 => "SCRAM-SHA1",
            Self::CramMd5 => "CRAM-MD5",
            Self::Plain => "PLAIN",
        }
    }

    /// The mechanism with this name.
    #[must_use]
    pub fn from_name(name: &[u8]) -> Option<Mechanism> {
        Self::ALL.into_iter().find(|mechanism| mechanism.name().as_bytes() == name)
    }
}

/// The value of a SASL_LIST_MECHS response.
#[must_use]
pub fn list(mechanisms: &[Mechanism]) -> String {
    mechanisms.iter().map(|mechanism| mechanism.name()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_separated_by_one_space_and_round_trip() {
        assert_eq!(list(&[Mechanism::ScramSha512, Mechanism::Plain]), "SCRAM-SHA512 PLAIN");
        for mechanism in Mechanism::ALL {
            assert_eq!(Mechanism::from_name(mechanism.name().as_bytes()), Some(mechanism));
        }
        assert_eq!(Mechanism::from_name(b"SCRAM-SHA-512"), None);
    }
}
