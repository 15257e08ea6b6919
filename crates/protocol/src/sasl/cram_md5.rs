//! CRAM-MD5 (RFC 2195): the server sends a challenge, the client answers `user SP hex(HMAC-MD5(password,
//! challenge))`. The oldest Java clients prefer it to PLAIN.

use super::Malformed;

/// Bytes of an MD5 digest.
pub const DIGEST_BYTES: usize = 16;

/// A decoded answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CramMd5Response<'a> {
    /// The name of the user; may contain spaces.
    pub user: &'a str,
    /// What the server computes as well and compares in constant time.
    pub digest: [u8; DIGEST_BYTES],
}

impl<'a> CramMd5Response<'a> {
    /// Reads an answer; the digest is behind the last space, in hexadecimal of either case.
    ///
    /// # Errors
    /// [`Malformed`] without a space, with another length, with something that is no hexadecimal digit, or
    /// with a user name that is not UTF-8.
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let space =
            message.iter().rposition(|&byte| byte == b' ').ok_or(Malformed("CRAM-MD5 needs a space"))?;
        let (user, digest) = message.split_at_checked(space).ok_or(Malformed("CRAM-MD5 needs a space"))?;
        let user = str::from_utf8(user).map_err(|_| Malformed("the user name is not UTF-8"))?;
        let wrong = Malformed("the digest is not 32 hexadecimal digits");
        let digits: &[u8; 2 * DIGEST_BYTES] =
            digest.get(1..).and_then(|digits| digits.try_into().ok()).ok_or(wrong)?;
        let mut bytes = [0; DIGEST_BYTES];
        for (byte, &[high, low]) in bytes.iter_mut().zip(digits.as_chunks::<2>().0) {
            *byte = nibble(high).ok_or(wrong)? << 4 | nibble(low).ok_or(wrong)?;
        }
        Ok(Self { user, digest: bytes })
    }

    /// The answer of a client.
    #[must_use]
    pub fn encode(&self) -> String {
        let digits: String = self.digest.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{} {digits}", self.user)
    }
}

fn nibble(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|value| value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_digest_is_behind_the_last_space() {
        let response = CramMd5Response::decode(b"two words b913a602c7eda7a495b4e6e7334d3890").unwrap();
        assert_eq!((response.user, response.digest[0], response.digest[15]), ("two words", 0xb9, 0x90));
        assert_eq!(response.encode(), "two words b913a602c7eda7a495b4e6e7334d3890");
        let upper = CramMd5Response::decode(b"two words B913A602C7EDA7A495B4E6E7334D3890");
        assert_eq!(upper, Ok(response));
        for malformed in [
            &b""[..],
            b"tim",
            b"tim b913a602c7eda7a495b4e6e7334d389",
            b"tim b913a602c7eda7a495b4e6e7334d38900",
            b"tim b913a602c7eda7a495b4e6e7334d389g",
            b"\xff b913a602c7eda7a495b4e6e7334d3890",
        ] {
            assert!(CramMd5Response::decode(malformed).is_err(), "{malformed:?}");
        }
    }
}
