//! Password verifiers of SCRAM (RFC 5802) for the three hashes Couchbase's clients use, and the digest of CRAM-MD5.
//!
//! Couchbase's default of 15,000 iterations costs a client about as much time at every connection as everything else
//! of its start-up together. RFC 7677's minimum of 4,096 is used. The number travels with every verifier, so it can be
//! raised for new passwords at any time.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, Mac};
use md5::Md5;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha1::Sha1;
use sha2::{Digest, Sha256, Sha512};

/// Iterations of new verifiers.
pub const SCRAM_ITERATIONS: u32 = 4096;
/// Bytes of a salt that the caller provides per hash.
pub const SALT_BYTES: usize = 32;

/// The hash a SCRAM mechanism is built on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ScramHash {
    Sha1,
    Sha256,
    Sha512,
}

impl ScramHash {
    /// `HMAC(key, message)`.
    #[must_use]
    pub fn hmac(self, key: &[u8], message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => hmac_bytes::<Hmac<Sha1>>(key, message),
            Self::Sha256 => hmac_bytes::<Hmac<Sha256>>(key, message),
            Self::Sha512 => hmac_bytes::<Hmac<Sha512>>(key, message),
        }
    }

    /// What its salts are labelled with.
    const fn mechanism(self) -> &'static [u8] {
        match self {
            Self::Sha1 => b"SCRAM-SHA1",
            Self::Sha256 => b"SCRAM-SHA256",
            Self::Sha512 => b"SCRAM-SHA512",
        }
    }

    fn hash(self, message: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => Sha1::digest(message).to_vec(),
            Self::Sha256 => Sha256::digest(message).to_vec(),
            Self::Sha512 => Sha512::digest(message).to_vec(),
        }
    }

    fn salted_password(self, password: &str, salt: &[u8], iterations: u32) -> Vec<u8> {
        let password = password.as_bytes();
        match self {
            Self::Sha1 => pbkdf2::pbkdf2_hmac_array::<Sha1, 20>(password, salt, iterations).to_vec(),
            Self::Sha256 => pbkdf2::pbkdf2_hmac_array::<Sha256, 32>(password, salt, iterations).to_vec(),
            Self::Sha512 => pbkdf2::pbkdf2_hmac_array::<Sha512, 64>(password, salt, iterations).to_vec(),
        }
    }
}

fn hmac_bytes<M: Mac + hmac::digest::KeyInit>(key: &[u8], message: &[u8]) -> Vec<u8> {
    match <M as Mac>::new_from_slice(key) {
        Ok(mac) => mac.chain_update(message).finalize().into_bytes().to_vec(),
        // HMAC takes keys of any length; an empty answer equals no digest.
        Err(_) => Vec::new(),
    }
}

/// What is kept of a password for one hash: enough to verify it, not enough to log in with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScramVerifier {
    /// Which hash.
    pub hash: ScramHash,
    /// Random per password.
    #[serde(with = "base64_bytes")]
    pub salt: Vec<u8>,
    /// PBKDF2 iterations.
    pub iterations: u32,
    /// `H(HMAC(salted password, "Client Key"))`.
    #[serde(with = "base64_bytes")]
    pub stored_key: Vec<u8>,
    /// `HMAC(salted password, "Server Key")`.
    #[serde(with = "base64_bytes")]
    pub server_key: Vec<u8>,
}

impl ScramVerifier {
    /// The verifier of `password` under this salt.
    #[must_use]
    pub fn new(hash: ScramHash, password: &str, salt: Vec<u8>, iterations: u32) -> Self {
        let salted = hash.salted_password(password, &salt, iterations);
        let stored_key = hash.hash(&hash.hmac(&salted, b"Client Key"));
        let server_key = hash.hmac(&salted, b"Server Key");
        Self { hash, salt, iterations, stored_key, server_key }
    }

    /// What a login name that does not exist gets. The salt is made from a secret of the cluster, and stays the same for
    /// the name and the mechanism. The keys belong to no password. Nothing about it tells it from somebody's.
    #[must_use]
    pub fn decoy(hash: ScramHash, secret: &[u8], name: &str) -> Self {
        let random = ScramHash::Sha256.hmac(secret, &[b"nobody ", name.as_bytes()].concat());
        let salt = ScramHash::Sha256.hmac(&random, hash.mechanism());
        let stored_key = hash.hmac(&random, b"stored key");
        let server_key = hash.hmac(&random, b"server key");
        Self { hash, salt, iterations: SCRAM_ITERATIONS, stored_key, server_key }
    }

    /// The salt as the server-first message carries it.
    #[must_use]
    pub fn salt_base64(&self) -> String {
        STANDARD.encode(&self.salt)
    }

    /// Whether `password` is the one.
    #[must_use]
    pub fn check_password(&self, password: &str) -> bool {
        let salted = self.hash.salted_password(password, &self.salt, self.iterations);
        let stored_key = self.hash.hash(&self.hash.hmac(&salted, b"Client Key"));
        same_secret(&stored_key, &self.stored_key)
    }

    /// Checks the client's proof over the authentication message; the server's signature when it holds.
    #[must_use]
    pub fn check_proof(&self, auth_message: &[u8], proof: &[u8]) -> Option<Vec<u8>> {
        let client_signature = self.hash.hmac(&self.stored_key, auth_message);
        if proof.len() != client_signature.len() {
            return None;
        }
        let client_key: Vec<u8> = proof.iter().zip(&client_signature).map(|(a, b)| a ^ b).collect();
        same_secret(&self.hash.hash(&client_key), &self.stored_key)
            .then(|| self.hash.hmac(&self.server_key, auth_message))
    }
}

/// One password's verifiers for every mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Credentials {
    pub sha1: ScramVerifier,
    pub sha256: ScramVerifier,
    pub sha512: ScramVerifier,
}

impl Credentials {
    /// Hashes `password` under salts made of `random`, which must be unpredictable. Takes some 10 ms.
    #[must_use]
    pub fn new(password: &str, random: [u8; SALT_BYTES]) -> Self {
        let verifier = |hash: ScramHash| {
            let salt = ScramHash::Sha256.hmac(&random, hash.mechanism());
            ScramVerifier::new(hash, password, salt, SCRAM_ITERATIONS)
        };
        Self {
            sha1: verifier(ScramHash::Sha1),
            sha256: verifier(ScramHash::Sha256),
            sha512: verifier(ScramHash::Sha512),
        }
    }

    /// The verifier for one mechanism.
    #[must_use]
    pub const fn verifier(&self, hash: ScramHash) -> &ScramVerifier {
        match hash {
            ScramHash::Sha1 => &self.sha1,
            ScramHash::Sha256 => &self.sha256,
            ScramHash::Sha512 => &self.sha512,
        }
    }
}

/// The answer CRAM-MD5 (RFC 2195) expects, in lower-case hexadecimal.
#[must_use]
pub fn cram_md5_digest(password: &[u8], challenge: &[u8]) -> String {
    use std::fmt::Write as _;
    hmac_bytes::<Hmac<Md5>>(password, challenge).iter().fold(String::new(), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// Whether two secrets are equal, in a time that depends on their lengths only. Empty secrets equal nothing.
#[must_use]
pub fn same_secret(left: &[u8], right: &[u8]) -> bool {
    let differing = left.iter().zip(right).fold(0, |bits, (a, b)| bits | (a ^ b));
    left.len() == right.len() && !left.is_empty() && std::hint::black_box(differing) == 0
}

mod base64_bytes {
    use base64::Engine as _;

    use super::{Deserialize, Deserializer, STANDARD, Serializer};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = String::deserialize(deserializer)?;
        STANDARD.decode(text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_example_of_rfc_7677_verifies() {
        let salt = STANDARD.decode("W22ZaJ0SNY7soEsUEjb6gQ==").unwrap();
        let verifier = ScramVerifier::new(ScramHash::Sha256, "pencil", salt, 4096);
        let message = "n=user,r=rOprNGfwEbeRWgbNEkqO,\
            r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096,\
            c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0";
        let proof = STANDARD.decode("dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=").unwrap();
        let signature = verifier.check_proof(message.as_bytes(), &proof).unwrap();
        assert_eq!(STANDARD.encode(signature), "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=");
        assert_eq!(verifier.check_proof(message.as_bytes(), &[0; 32]), None);
        assert_eq!(verifier.check_proof(message.as_bytes(), &[]), None);
    }

    #[test]
    fn the_example_of_rfc_2195_verifies() {
        let challenge = b"<1896.697170952@postoffice.reston.mci.net>";
        assert_eq!(cram_md5_digest(b"tanstaaftanstaaf", challenge), "b913a602c7eda7a495b4e6e7334d3890");
    }

    #[test]
    fn a_decoy_matches_no_proof_and_no_password() {
        let decoy = ScramVerifier::decoy(ScramHash::Sha512, b"secret", "nobody");
        assert_eq!(decoy, ScramVerifier::decoy(ScramHash::Sha512, b"secret", "nobody"));
        assert!(!decoy.check_password(""));
        assert_eq!(decoy.check_proof(b"m", &[0; 64]), None);
        // Everything has the size that it has of a password.
        for hash in [ScramHash::Sha1, ScramHash::Sha256, ScramHash::Sha512] {
            let sizes = |of: &ScramVerifier| [of.salt.len(), of.stored_key.len(), of.server_key.len()];
            let real = Credentials::new("password", [7; SALT_BYTES]);
            assert_eq!(sizes(&ScramVerifier::decoy(hash, b"secret", "nobody")), sizes(real.verifier(hash)));
        }
    }
}
