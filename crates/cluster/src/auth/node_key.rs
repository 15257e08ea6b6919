//! What a node proves who it is with: an Ed25519 key pair of its own. The public key is part of what the metadata know of a member
//! ([`crate::metadata::NodeInfo::key`]), the private one never leaves the node.
//!
//! A node that wants to log in at another one asks it for a challenge. It signs the challenge together with both names and the
//! kind of port. So a signature is good for one connection to one node, and says nothing to anybody else.
//!
//! Invariant: a key counts for as long as the metadata have its owner as a member, and no longer.

use std::fmt;

use base::NodeId;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};

use super::{Domain, INTERNAL_USER, Identity, mark};
use crate::metadata::{Metadata, NodeInfo, topology::Membership};

/// Random bytes that a key pair is made of.
pub const SEED_BYTES: usize = 32;
/// Random bytes of a challenge.
pub const CHALLENGE_BYTES: usize = 32;
/// What tells these signatures from all others that somebody may make with the key.
const CONTEXT: &[u8] = b"settee: a node logs in, 1";
/// What PKCS #8 puts before the seed of an Ed25519 key (RFC 8410).
const PKCS8: [u8; 16] = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];

/// The port that a node logs in at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoginPort {
    /// For documents.
    Kv,
    /// For REST.
    Rest,
}

impl LoginPort {
    const fn name(self) -> &'static [u8] {
        match self {
            Self::Kv => b"kv",
            Self::Rest => b"rest",
        }
    }
}

/// A node's key pair.
pub struct NodeKey {
    pair: Ed25519KeyPair,
    pkcs8: Vec<u8>,
    public: String,
}

impl fmt::Debug for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NodeKey").field("public", &self.public).finish_non_exhaustive()
    }
}

impl NodeKey {
    /// The key pair of a seed, which must be unpredictable. `None` where it is not [`SEED_BYTES`] long.
    #[must_use]
    pub fn from_seed(seed: &[u8]) -> Option<Self> {
        let pair = Ed25519KeyPair::from_seed_unchecked(seed).ok()?;
        let public = STANDARD.encode(pair.public_key());
        Some(Self { pair, pkcs8: [&PKCS8[..], seed].concat(), public })
    }

    /// The public key, as the metadata have it.
    #[must_use]
    pub fn public(&self) -> &str {
        &self.public
    }

    /// The private key, as PKCS #8, for a certificate of this key.
    #[must_use]
    pub fn pkcs8(&self) -> &[u8] {
        &self.pkcs8
    }

    /// Signs the challenge of the node `there`, for a login of the node `me`. Nodes are named by their uuids.
    #[must_use]
    pub fn sign(&self, port: LoginPort, me: &str, there: &str, challenge: &[u8]) -> Vec<u8> {
        self.sign_message(&login(port, me, there, challenge))
    }

    pub(super) fn sign_message(&self, message: &[u8]) -> Vec<u8> {
        self.pair.sign(message).as_ref().to_vec()
    }
}

/// What is signed for a login.
fn login(port: LoginPort, from: &str, to: &str, challenge: &[u8]) -> Vec<u8> {
    message(&[CONTEXT, port.name(), from.as_bytes(), to.as_bytes(), challenge])
}

/// What is signed. Every part has its length before it, so that the parts follow from the message.
pub(super) fn message(parts: &[&[u8]]) -> Vec<u8> {
    parts.iter().fold(Vec::new(), |mut message, part| {
        message.extend((part.len() as u64).to_be_bytes());
        message.extend(*part);
        message
    })
}

/// Whether the node with that public key has signed a message.
pub(super) fn is_signed(key: &str, message: &[u8], signature: &[u8]) -> bool {
    let key = STANDARD.decode(key).unwrap_or_default();
    UnparsedPublicKey::new(&ED25519, key).verify(message, signature).is_ok()
}

/// A node's proof of who it is.
#[derive(Clone, Copy, Debug)]
pub struct NodeProof<'a> {
    /// Where it logs in.
    pub port: LoginPort,
    /// The uuid of the node that says that it is that one.
    pub from: &'a str,
    /// The uuid of the node that it logs in at.
    pub to: &'a str,
    /// What it was to sign.
    pub challenge: &'a [u8],
    /// What it has signed.
    pub signature: &'a [u8],
}

impl NodeProof<'_> {
    /// The node's identity, if `key` is that node's. Nobody is nameless: a node that does not know yet who it is takes no login.
    #[must_use]
    pub fn check(&self, key: &str) -> Option<Identity> {
        if self.from.is_empty() || self.to.is_empty() {
            return None;
        }
        let message = login(self.port, self.from, self.to, self.challenge);
        let identity = || Identity {
            shown: key_mark(self.from, key),
            ..Identity::unproved(INTERNAL_USER, Domain::Internal)
        };
        is_signed(key, &message, self.signature).then(identity)
    }

    /// The node's identity, by the key that the metadata have of that member.
    #[must_use]
    pub fn check_member(&self, meta: &Metadata) -> Option<Identity> {
        self.check(meta.node(self.from)?.key.as_deref()?)
    }
}

fn key_mark(uuid: &str, key: &str) -> u64 {
    mark(&[uuid.as_bytes(), key.as_bytes()])
}

/// Whether a login by that key is good still. A node that was failed over holds nothing that counts, and has no right to anything.
pub(super) fn is_of_member(meta: &Metadata, shown: u64) -> bool {
    by_mark(meta, shown).is_some_and(|node| node.membership != Membership::InactiveFailed)
}

/// The member that has logged in by its key, be it one that was failed over.
#[must_use]
pub fn member<'a>(meta: &'a Metadata, identity: &Identity) -> Option<&'a NodeInfo> {
    by_mark(meta, identity.shown).filter(|_| identity.is_internal())
}

/// The number of the node that has logged in by its key: a member, or one that was removed, as far as that is remembered.
#[must_use]
pub fn number_of(meta: &Metadata, identity: &Identity) -> Option<NodeId> {
    let parted = || meta.parted.iter().find(|gone| key_mark(&gone.uuid, &gone.key) == identity.shown);
    let number = by_mark(meta, identity.shown).map(|node| node.id);
    number.or_else(|| Some(parted()?.node)).filter(|_| identity.is_internal())
}

fn by_mark(meta: &Metadata, shown: u64) -> Option<&NodeInfo> {
    let mark = |node: &NodeInfo| node.key.as_deref().map(|key| key_mark(&node.uuid, key));
    meta.nodes.iter().find(|node| mark(node) == Some(shown))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::places::Holder;

    use crate::{auth::is_current, metadata::Ports};

    const CHALLENGE: &[u8] = &[7; CHALLENGE_BYTES];

    fn key(seed: u8) -> NodeKey {
        NodeKey::from_seed(&[seed; SEED_BYTES]).unwrap()
    }

    fn cluster(keys: &[(&str, &NodeKey)]) -> Metadata {
        let node = |(uuid, key): &(&str, &NodeKey)| NodeInfo {
            key: Some(key.public().to_owned()),
            ..NodeInfo::first((*uuid).to_owned(), "h".into(), Ports::default())
        };
        Metadata { nodes: keys.iter().map(node).collect(), ..Metadata::new("c".into(), 256) }
    }

    #[test]
    fn a_member_is_known_by_its_signature_and_by_nothing_else() {
        let (a, b) = (key(1), key(2));
        let meta = cluster(&[("a", &a), ("b", &b)]);
        let signature = a.sign(LoginPort::Kv, "a", "b", CHALLENGE);
        let proof = NodeProof {
            port: LoginPort::Kv,
            from: "a",
            to: "b",
            challenge: CHALLENGE,
            signature: &signature,
        };
        let identity = proof.check_member(&meta).unwrap();
        assert!(identity.is_internal() && is_current(&meta, &identity));
        assert_eq!(identity.holder_by(&meta), Holder::Member);
        let others = [
            NodeProof { port: LoginPort::Rest, ..proof },
            NodeProof { from: "b", ..proof },
            NodeProof { from: "c", ..proof },
            NodeProof { to: "a", ..proof },
            NodeProof { challenge: &[8; CHALLENGE_BYTES], ..proof },
            NodeProof { signature: &signature[1..], ..proof },
            NodeProof { signature: &[0; 64], ..proof },
        ];
        for other in others {
            assert_eq!(other.check_member(&meta), None, "{other:?}");
        }
        assert_eq!(proof.check_member(&cluster(&[("a", &key(3))])), None, "it has another key now");
        for (from, to) in [("", "b"), ("a", "")] {
            let signature = a.sign(LoginPort::Kv, from, to, CHALLENGE);
            let nameless = NodeProof { from, to, signature: &signature, ..proof };
            assert_eq!(nameless.check_member(&cluster(&[("a", &a), ("", &a)])), None, "{nameless:?}");
        }
    }

    #[test]
    fn a_login_ends_with_the_membership() {
        let (a, b) = (key(1), key(2));
        let signature = a.sign(LoginPort::Rest, "a", "b", CHALLENGE);
        let port = LoginPort::Rest;
        let proof = NodeProof { port, from: "a", to: "b", challenge: CHALLENGE, signature: &signature };
        let mut meta = cluster(&[("a", &a), ("b", &b)]);
        let identity = proof.check_member(&meta).unwrap();
        meta.nodes[0].membership = Membership::InactiveFailed;
        assert!(!is_current(&meta, &identity), "it was failed over");
        assert_ne!(identity.holder_by(&meta), Holder::Member, "nor has it the places of members");
        assert_eq!(member(&meta, &identity).map(|node| &*node.uuid), Some("a"), "it is a member still");
        meta.nodes[0].membership = Membership::Active;
        assert!(is_current(&meta, &identity));
        assert_eq!(number_of(&meta, &identity), Some(NodeId(0)));
        meta.nodes[0].membership = Membership::InactiveFailed;
        meta.forget_nodes(&[NodeId(0)]);
        assert_eq!((member(&meta, &identity), number_of(&meta, &identity)), (None, Some(NodeId(0))));
        meta.parted.clear();
        assert_eq!(number_of(&meta, &identity), None);
        assert!(!is_current(&meta, &identity), "it was removed");
        assert_eq!(proof.check_member(&meta), None);
    }
}
