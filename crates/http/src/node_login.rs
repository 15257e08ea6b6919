//! How a node of the cluster logs in over REST. It asks a connection for its challenge (`GET /_settee/challenge`), signs that, and
//! shows the signature with every request of the connection. So what somebody reads along is of no use on another connection.

use std::sync::{Mutex, OnceLock, PoisonError};

use axum::http::{HeaderMap, Method, StatusCode, header};
use base::NodeId;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster::{
    Metadata,
    auth::{CHALLENGE_BYTES, Identity, LoginPort, NodeProof},
    consensus::Epoch,
};
use serde_json::json;

use crate::{
    front::Asked,
    gate::Gate,
    reply::{self, Reply},
};

/// The scheme of the authorization header.
const SCHEME: &str = "Settee-Node";

/// The part of a connection in the logins of nodes.
#[derive(Debug, Default)]
pub struct NodeLogin {
    /// Made when it is asked for.
    challenge: OnceLock<[u8; CHALLENGE_BYTES]>,
    /// The login that was found good last: the header, the key that it was good for, and the node.
    known: Mutex<Option<(String, String, Identity)>>,
}

/// The header by which a node logs in.
#[must_use]
pub fn node_authorization(uuid: &str, signature: &[u8]) -> String {
    format!("{SCHEME} {uuid} {}", STANDARD.encode(signature))
}

/// The node's uuid and its signature, where a request logs a node in.
fn claim(headers: &HeaderMap) -> Option<(&str, &str)> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    text.strip_prefix(SCHEME)?.strip_prefix(' ')?.split_once(' ')
}

/// Whether a request logs a node in, well or badly.
pub(crate) fn is_of_node(headers: &HeaderMap) -> bool {
    claim(headers).is_some()
}

impl NodeLogin {
    /// The answer to a node that asks for the challenge of its connection, and perhaps why its login was refused; `None` for any
    /// other request. The sender is not known.
    #[must_use]
    pub fn answer(&self, gate: &dyn Gate, asked: &Asked) -> Option<Reply> {
        if asked.method != Method::GET || asked.path != ["_settee", "challenge"] {
            return None;
        }
        let Some(challenge) = self.challenge() else {
            return Some(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!("no randomness")));
        };
        let number = |name: &str| asked.query.get(name)?.parse::<u64>().ok();
        // Nodes of other clusters have numbers as well, and one may be where a node of this one was.
        let is_of_this =
            asked.query.get("cluster").is_some_and(|uuid| *uuid == *gate.metadata().cluster_uuid);
        let verdict = number("node").filter(|_| is_of_this).and_then(|node| {
            let node = NodeId(u16::try_from(node).ok()?);
            gate.verdict_on(node, Epoch { number: number("epoch")?, lot: number("lot")? })
        });
        let (verdict, signature) = verdict.map(|said| (said.text, said.signature)).unzip();
        Some(reply::json_ok(&json!({
            "challenge": STANDARD.encode(challenge),
            "verdict": verdict,
            "signature": signature.flatten().map(|signature| STANDARD.encode(signature)),
        })))
    }

    fn challenge(&self) -> Option<[u8; CHALLENGE_BYTES]> {
        if let Some(challenge) = self.challenge.get() {
            return Some(*challenge);
        }
        let mut challenge = [0; CHALLENGE_BYTES];
        getrandom::fill(&mut challenge).ok()?;
        // Another request of the connection may have been faster.
        Some(*self.challenge.get_or_init(|| challenge))
    }

    /// The node that a request is of, if it is a member by now and has signed this connection's challenge.
    pub(crate) fn check(&self, meta: &Metadata, gate: &dyn Gate, headers: &HeaderMap) -> Option<Identity> {
        let (from, signature) = claim(headers)?;
        let challenge = self.challenge.get()?;
        let member = meta.node(from).and_then(|node| node.key.clone());
        let key = member.or_else(|| gate.key_of_no_member(from))?;
        let header = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((shown, by, identity)) = &*known
            && shown == header
            && *by == key
        {
            return Some(identity.clone());
        }
        let signature = STANDARD.decode(signature).ok()?;
        let to = gate.this_node_uuid();
        let proof = NodeProof { port: LoginPort::Rest, from, to: &to, challenge, signature: &signature };
        let identity = proof.check(&key)?;
        *known = Some((header.to_owned(), key, identity.clone()));
        Some(identity)
    }
}
