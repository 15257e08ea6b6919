//! PLAIN (RFC 4616): `[authorisation id] NUL user NUL password`.

use super::Malformed;

/// A decoded PLAIN message.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Plain<'a> {
    /// On whose behalf; empty for the user itself.
    pub authorization_id: &'a [u8],
    /// The name of the user.
    pub user: &'a str,
    /// The password. Never printed, hence no `Debug`.
    pub password: &'a [u8],
}

impl<'a> Plain<'a> {
    /// Reads a message. The password is everything behind the second NUL.
    ///
    /// # Errors
    /// [`Malformed`] without two NULs or with a user name that is not UTF-8.
    pub fn decode(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut parts = message.splitn(3, |&byte| byte == 0);
        let (Some(authorization_id), Some(user), Some(password)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Malformed("PLAIN needs two NUL bytes"));
        };
        let user = str::from_utf8(user).map_err(|_| Malformed("the user name is not UTF-8"))?;
        Ok(Self { authorization_id, user, password })
    }

    /// The message of a client.
    #[must_use]
    pub fn encode(user: &str, password: &[u8]) -> Vec<u8> {
        [b"\0", user.as_bytes(), b"\0", password].concat()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_nul_bytes_make_three_parts() {
        let plain = Plain::decode(b"\0user\0pass\0word").ok().unwrap();
        assert_eq!(
            (plain.authorization_id, plain.user, plain.password),
            (&b""[..], "user", &b"pass\0word"[..])
        );
        assert!(
            Plain::decode(&Plain::encode("u", b"p"))
                .is_ok_and(|plain| plain.user == "u" && plain.password == b"p")
        );
        for malformed in [&b""[..], b"user", b"\0user", b"\0\xff\0p"] {
            assert!(Plain::decode(malformed).is_err(), "{malformed:?}");
        }
    }
}
