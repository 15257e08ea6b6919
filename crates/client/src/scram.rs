//! The client's half of SCRAM-SHA512 (RFC 5802 with SHA-512), which every Couchbase server offers and which never
//! sends the password. Checks the server's signature as well, so both sides know each other.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha512};

/// More rounds than any server asks for; a hostile one must not keep us busy for hours.
const ITERATIONS_MAX: u32 = 1_000_000;

/// The conversation after the first message.
pub(crate) struct Scram {
    password: String,
    nonce: String,
    first_bare: String,
    server_signature: Option<[u8; 64]>,
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 64] {
    // HMAC accepts keys of any length, so there is nothing to fail; an empty key stands in for the impossible.
    Hmac::<Sha512>::new_from_slice(key)
        .map_or([0; 64], |mac| mac.chain_update(message).finalize().into_bytes().into())
}

impl Scram {
    /// Starts a conversation; returns the client's first message. `nonce` must be random and without comma.
    pub(crate) fn start(user: &str, password: &str, nonce: &str) -> (Scram, String) {
        let name = user.replace('=', "=3D").replace(',', "=2C");
        let first_bare = format!("n={name},r={nonce}");
        let first = format!("n,,{first_bare}");
        let scram = Scram {
            password: password.to_owned(),
            nonce: nonce.to_owned(),
            first_bare,
            server_signature: None,
        };
        (scram, first)
    }

    /// The client's proof, from the server's first message.
    pub(crate) fn prove(&mut self, server_first: &str) -> Result<String, String> {
        let field = |name: &str| {
            let found = server_first.split(',').find_map(|part| part.strip_prefix(name));
            found.ok_or_else(|| format!("the server's message lacks {name}"))
        };
        let nonce = field("r=")?;
        if !nonce.starts_with(&self.nonce) || nonce.len() == self.nonce.len() {
            return Err("the server's nonce does not continue ours".to_owned());
        }
        let salt = STANDARD.decode(field("s=")?).map_err(|_| "the salt is not Base64".to_owned())?;
        let iterations: u32 = field("i=")?.parse().map_err(|_| "no iteration count".to_owned())?;
        if iterations == 0 || iterations > ITERATIONS_MAX {
            return Err(format!("{iterations} iterations"));
        }
        let mut salted = [0; 64];
        pbkdf2::pbkdf2_hmac::<Sha512>(self.password.as_bytes(), &salt, iterations, &mut salted);
        let client_key = hmac(&salted, b"Client Key");
        let without_proof = format!("c=biws,r={nonce}");
        let signed = format!("{},{server_first},{without_proof}", self.first_bare);
        let signature = hmac(&Sha512::digest(client_key), signed.as_bytes());
        let mut proof = client_key;
        proof.iter_mut().zip(signature).for_each(|(byte, mask)| *byte ^= mask);
        self.server_signature = Some(hmac(&hmac(&salted, b"Server Key"), signed.as_bytes()));
        Ok(format!("{without_proof},p={}", STANDARD.encode(proof)))
    }

    /// Checks that the server knew the password too.
    pub(crate) fn verify(&self, server_final: &str) -> Result<(), String> {
        let claimed = server_final.split(',').find_map(|part| part.strip_prefix("v="));
        let claimed = claimed.and_then(|text| STANDARD.decode(text).ok());
        match (claimed, self.server_signature) {
            (Some(claimed), Some(expected)) if claimed == expected => Ok(()),
            _ => Err("the server's signature is wrong".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER_FIRST: &str = "r=abcXYZ,s=c2FsdHNhbHQxNmJ5dGVzIQ==,i=4096";

    /// Proof and signature were computed with another implementation (Python's hashlib).
    #[test]
    fn the_exchange_gives_the_bytes_that_another_implementation_gives() {
        let (mut scram, first) = Scram::start("us,er=1", "pencil", "abc");
        assert_eq!(first, "n,,n=us=2Cer=3D1,r=abc");
        let proof = scram.prove(SERVER_FIRST).expect("a proof");
        assert_eq!(
            proof,
            "c=biws,r=abcXYZ,p=jLiXmu0Pne+2ZTcdo3EOlSauqvpggA38f6+Rsl/dRaRThZtGeezO2LwqAIDeP0uv+iaZl8jButvmtLE3kAfbeA=="
        );
        let signature =
            "v=Czdf9tFgtzn9rdnk2QGANBC4G7OHDIN1Pkq4jjsOoGzl4kTna7+pLHJYNX9g/oP8udfuMClooek9dU16yZvcWw==";
        assert_eq!(scram.verify(signature), Ok(()));
        let (mut other, _) = Scram::start("other", "pencil", "abc");
        other.prove(SERVER_FIRST).expect("a proof");
        assert!(other.verify(signature).is_err(), "another user's signature");
    }

    #[test]
    fn a_server_that_cheats_is_refused() {
        for message in [
            "r=abc,s=c2FsdA==,i=4096",
            "r=xyzabc,s=c2FsdA==,i=4096",
            "r=abcX,s=!,i=4096",
            "r=abcX,s=c2FsdA==,i=0",
            "r=abcX,s=c2FsdA==,i=4000000000",
            "s=c2FsdA==,i=1",
        ] {
            let (mut scram, _) = Scram::start("u", "p", "abc");
            assert!(scram.prove(message).is_err(), "{message}");
            assert!(scram.verify("v=").is_err());
        }
    }
}
