//! SCRAM (RFC 5802) without channel binding: four messages of comma-separated attributes.
//!
//! client-first `n,,n=user,r=nonce` → server-first `r=nonce+more,s=salt,i=iterations` → client-final
//! `c=biws,r=nonce+more,p=proof` → server-final `v=signature`. Both sides sign the same [`auth_message`].
//!
//! One leniency: a nonce may hold any byte but a comma, where the RFC wants printable ones. The nonces of Couchbase's
//! C++ client contain spaces.

use super::Malformed;
use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use std::borrow::Cow;

/// The part before the client's first message proper: no channel binding, nobody else's identity.
pub const GS2_HEADER: &str = "n,,";

/// The first message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFirst<'a> {
    /// What the final message has to repeat.
    pub gs2_header: &'a [u8],
    /// The message behind that header: the beginning of the [`auth_message`].
    pub bare: &'a [u8],
    /// The name of the user, unescaped.
    pub user: Cow<'a, str>,
    /// The client's half of the nonce; not empty.
    pub nonce: &'a [u8],
}

impl<'a> ClientFirst<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Malformed`], also for a client that insists on channel binding or on an extension.
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut commas = message.iter().enumerate().filter(|&(_, &byte)| byte == b',').map(|(at, _)| at);
        let second = commas.nth(1).ok_or(Malformed("the GS2 header is incomplete"))?;
        let (gs2_header, bare) =
            message.split_at_checked(second + 1).ok_or(Malformed("the message is empty"))?;
        // "y": the client could bind channels but believes that the server cannot, and is right.
        if !gs2_header.starts_with(b"n,") && !gs2_header.starts_with(b"y,") {
            return Err(Malformed("channel binding is not supported"));
        }
        let mut attributes = bare.split(|&byte| byte == b',');
        let user = attribute(attributes.next(), b"n=", "the user is missing")?;
        let nonce = attribute(attributes.next(), b"r=", "the nonce is missing")?;
        if nonce.is_empty() {
            return Err(Malformed("the nonce is empty"));
        }
        Ok(Self { gs2_header, bare, user: unescape(user)?, nonce })
    }

    /// The `bare` part of the message for a user; the message is [`GS2_HEADER`] and this.
    #[must_use]
    pub fn encode_bare(user: &str, nonce: &str) -> String {
        format!("n={},r={nonce}", user.replace('=', "=3D").replace(',', "=2C"))
    }
}

/// The first message of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerFirst<'a> {
    /// The client's half of the nonce and the server's.
    pub nonce: Cow<'a, [u8]>,
    /// With what the password is salted.
    pub salt: Cow<'a, [u8]>,
    /// How often it is hashed.
    pub iterations: u32,
}

impl<'a> ServerFirst<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut attributes = message.split(|&byte| byte == b',');
        let nonce = attribute(attributes.next(), b"r=", "the nonce is missing")?;
        let salt = attribute(attributes.next(), b"s=", "the salt is missing")?;
        let iterations = attribute(attributes.next(), b"i=", "the iteration count is missing")?;
        let iterations = str::from_utf8(iterations)
            .ok()
            .and_then(|digits| digits.parse().ok())
            .filter(|&iterations| iterations > 0)
            .ok_or(Malformed("the iteration count is no positive number"))?;
        Ok(Self { nonce: Cow::Borrowed(nonce), salt: Cow::Owned(decode_base64(salt)?), iterations })
    }

    /// The message.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let tail = format!(",s={},i={}", BASE64.encode(&self.salt), self.iterations);
        [b"r=", &*self.nonce, tail.as_bytes()].concat()
    }
}

/// The final message of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientFinal<'a> {
    /// Must be the GS2 header of the first message.
    pub channel_binding: Vec<u8>,
    /// Must be the nonce of the server's first message.
    pub nonce: &'a [u8],
    /// What shows that the client knows the password.
    pub proof: Vec<u8>,
    /// The message without the proof: the end of the [`auth_message`].
    pub without_proof: &'a [u8],
}

impl<'a> ClientFinal<'a> {
    /// Reads the message.
    ///
    /// # Errors
    /// [`Malformed`].
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let at = message
            .windows(3)
            .rposition(|window| window == b",p=")
            .ok_or(Malformed("the proof is missing"))?;
        let (without_proof, proof) = message.split_at_checked(at).ok_or(Malformed("the proof is missing"))?;
        let proof = attribute(proof.get(1..), b"p=", "the proof is missing")?;
        let mut attributes = without_proof.split(|&byte| byte == b',');
        let channel_binding = attribute(attributes.next(), b"c=", "the channel binding is missing")?;
        let nonce = attribute(attributes.next(), b"r=", "the nonce is missing")?;
        Ok(Self {
            channel_binding: decode_base64(channel_binding)?,
            nonce,
            proof: decode_base64(proof)?,
            without_proof,
        })
    }

    /// The message without its proof, for a client that sent [`GS2_HEADER`].
    #[must_use]
    pub fn encode_without_proof(nonce: &[u8]) -> Vec<u8> {
        [b"c=", BASE64.encode(GS2_HEADER).as_bytes(), b",r=", nonce].concat()
    }

    /// The message.
    #[must_use]
    pub fn encode(without_proof: &[u8], proof: &[u8]) -> Vec<u8> {
        [without_proof, b",p=", BASE64.encode(proof).as_bytes()].concat()
    }
}

/// The final message of a server that has verified the proof: its own.
#[must_use]
pub fn encode_server_final(signature: &[u8]) -> String {
    format!("v={}", BASE64.encode(signature))
}

/// Reads the signature out of the server's final message.
///
/// # Errors
/// [`Malformed`], also if the server reports an error instead.
pub fn decode_server_final(message: &[u8]) -> Result<Vec<u8>, Malformed> {
    let attributes = message.split(|&byte| byte == b',').next();
    decode_base64(attribute(attributes, b"v=", "the signature is missing")?)
}

/// What both sides sign.
#[must_use]
pub fn auth_message(
    client_first_bare: &[u8],
    server_first: &[u8],
    client_final_without_proof: &[u8],
) -> Vec<u8> {
    [client_first_bare, server_first, client_final_without_proof].join(&b","[..])
}

fn attribute<'a>(
    attribute: Option<&'a [u8]>,
    name: &[u8],
    missing: &'static str,
) -> Result<&'a [u8], Malformed> {
    attribute.and_then(|attribute| attribute.strip_prefix(name)).ok_or(Malformed(missing))
}

fn decode_base64(text: &[u8]) -> Result<Vec<u8>, Malformed> {
    BASE64.decode(text).map_err(|_| Malformed("an attribute is not base64"))
}

/// `=2C` is a comma, `=3D` an equals sign, and no other equals sign may occur.
fn unescape(name: &[u8]) -> Result<Cow<'_, str>, Malformed> {
    let name = str::from_utf8(name).map_err(|_| Malformed("the user name is not UTF-8"))?;
    let mut parts = name.split('=');
    let first = parts.next().unwrap_or_default();
    if first.len() == name.len() {
        return Ok(Cow::Borrowed(name));
    }
    let mut plain = first.to_owned();
    for part in parts {
        let (sign, rest) = match (part.strip_prefix("2C"), part.strip_prefix("3D")) {
            (Some(rest), _) => (',', rest),
            (_, Some(rest)) => ('=', rest),
            _ => return Err(Malformed("the user name has an unknown escape")),
        };
        plain.push(sign);
        plain.push_str(rest);
    }
    Ok(Cow::Owned(plain))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exchange of RFC 5802, section 5.
    #[test]
    fn the_example_of_the_rfc() {
        let first = ClientFirst::decode(b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL").unwrap();
        assert_eq!((first.gs2_header, &*first.user), (&b"n,,"[..], "user"));
        assert_eq!(first.nonce, b"fyko+d2lbbFgONRv9qkxdawL");
        assert_eq!(first.bare, ClientFirst::encode_bare("user", "fyko+d2lbbFgONRv9qkxdawL").as_bytes());
        let server_first = b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096";
        let decoded = ServerFirst::decode(server_first).unwrap();
        assert_eq!((decoded.iterations, decoded.salt.len()), (4096, 12));
        assert_eq!(decoded.encode(), server_first);
        let message = b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=";
        let last = ClientFinal::decode(message).unwrap();
        assert_eq!((&last.channel_binding[..], last.nonce), (&b"n,,"[..], &*decoded.nonce));
        assert_eq!(last.without_proof, ClientFinal::encode_without_proof(last.nonce));
        assert_eq!(ClientFinal::encode(last.without_proof, &last.proof), message);
        let signature = decode_server_final(b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=").unwrap();
        assert_eq!(encode_server_final(&signature), "v=rmF9pqV8S7suAoZWja4dJRkFsKQ=");
        let signed = auth_message(first.bare, server_first, last.without_proof);
        assert!(signed.starts_with(b"n=user,r=fyko+d2lbbFgONRv9qkxdawL,r=fyko"));
        assert!(signed.ends_with(b",i=4096,c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j"));
    }

    #[test]
    fn nonces_of_the_cpp_client_contain_spaces() {
        let first = ClientFirst::decode(b"n,,n=u,r=0xffffffa7 0xfffffff4 0x11\x01").unwrap();
        assert_eq!(first.nonce, b"0xffffffa7 0xfffffff4 0x11\x01");
    }

    #[test]
    fn names_are_escaped() {
        let bare = ClientFirst::encode_bare("a=b,c", "n");
        assert_eq!(bare, "n=a=3Db=2Cc,r=n");
        let message = format!("{GS2_HEADER}{bare}");
        assert_eq!(ClientFirst::decode(message.as_bytes()).unwrap().user, "a=b,c");
        for name in ["a=", "a=2c", "a=4"] {
            assert!(ClientFirst::decode(format!("n,,n={name},r=x").as_bytes()).is_err(), "{name}");
        }
    }

    #[test]
    fn what_is_malformed_is_refused() {
        for message in [
            "",
            "n",
            "n,",
            "n,,",
            "n,,n=u",
            "n,,n=u,r=",
            "p=tls-unique,,n=u,r=x",
            "x,,n=u,r=x",
            "n,,m=x,n=u,r=x",
        ] {
            assert!(ClientFirst::decode(message.as_bytes()).is_err(), "{message}");
        }
        for message in
            ["", "r=x", "r=x,s=QQ==", "r=x,s=!,i=1", "r=x,s=QQ==,i=0", "r=x,s=QQ==,i=-1", "e=other"]
        {
            assert!(ServerFirst::decode(message.as_bytes()).is_err(), "{message}");
        }
        for message in ["", "c=biws,r=x", "c=biws,p=QQ==", "c=!,r=x,p=QQ==", "c=biws,r=x,p=!", ",p="] {
            assert!(ClientFinal::decode(message.as_bytes()).is_err(), "{message}");
        }
        assert!(decode_server_final(b"e=invalid-proof").is_err());
    }
}
