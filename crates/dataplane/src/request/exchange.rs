//! What is remembered of a login between two messages of its client.

use cluster::auth::{CHALLENGE_BYTES, Identity, ScramVerifier};
use protocol::sasl::Mechanism;

/// A login that waits for the client's next message.
#[derive(Debug)]
pub(crate) enum Exchange {
    /// The server's first message of SCRAM was sent.
    Scram(Box<ScramExchange>),
    /// This challenge of CRAM-MD5 was sent.
    CramMd5(String),
    /// A node that says that it has this uuid is to sign this.
    Node(String, [u8; CHALLENGE_BYTES]),
}

#[derive(Debug)]
pub(crate) struct ScramExchange {
    pub(crate) mechanism: Mechanism,
    pub(crate) user: String,
    /// Nobody, if the name is unknown; the proof will not hold then.
    pub(crate) identity: Option<Identity>,
    pub(crate) verifier: ScramVerifier,
    pub(crate) gs2_header: Vec<u8>,
    pub(crate) client_first_bare: Vec<u8>,
    pub(crate) server_first: Vec<u8>,
    pub(crate) nonce: Vec<u8>,
}
