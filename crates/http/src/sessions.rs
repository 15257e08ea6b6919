//! Logins of the web console: a cookie stands for a password that was checked once.
//!
//! - A cookie counts only in a request with the header `ns-server-ui: yes`. No page of another origin can send that header without
//!   asking, and nobody is asked here.
//! - A session ends by a logout, after [`IDLE`] without a request, and after [`LONGEST`] in any case. It also ends with its login:
//!   another password, a lock, or a removed user.
//! - Memory is bounded: a user has [`PER_USER_MAX`] sessions and a node [`SESSIONS_MAX`]. The one that was used longest ago goes first.
//! - What is kept of a token is its HMAC, so that a look-up takes as long wherever tokens differ.
//!
//! Sessions are this node's own, and end with its process.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use axum::http::{HeaderMap, header};
use cluster::{
    Metadata,
    auth::{Identity, ScramHash, is_current},
};

/// What the console says with every request of its own.
const HEADER: &str = "ns-server-ui";
/// How the names of cookies begin, as in Couchbase.
const COOKIE: &str = "ui-auth";
/// How long a session lasts without a request.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long a session lasts at most.
const LONGEST: Duration = Duration::from_secs(12 * 60 * 60);
/// Sessions of one user at the same time.
const PER_USER_MAX: usize = 16;
/// Sessions of a node at the same time.
const SESSIONS_MAX: usize = 1024;
/// Bytes of a token.
const TOKEN_BYTES: usize = 32;

/// The sessions of this node.
pub(crate) struct Sessions {
    secret: [u8; 32],
    open: Mutex<HashMap<Vec<u8>, Session>>,
}

#[derive(Debug)]
struct Session {
    user: Identity,
    begun: Instant,
    used: Instant,
}

impl Session {
    fn is_over(&self, now: Instant) -> bool {
        now.duration_since(self.used) >= IDLE || now.duration_since(self.begun) >= LONGEST
    }
}

impl Sessions {
    /// No session yet; `secret` must be unpredictable.
    pub(crate) fn new(secret: [u8; 32]) -> Self {
        Self { secret, open: Mutex::default() }
    }

    /// Begins a session, and returns its token.
    ///
    /// # Errors
    /// When the operating system has no randomness to give.
    pub(crate) fn begin(&self, user: Identity, now: Instant) -> Result<String, getrandom::Error> {
        use std::fmt::Write as _;
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes)?;
        let token = bytes.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let mut open = self.open();
        open.retain(|_, session| !session.is_over(now));
        let is_same = |other: &Identity| (&other.name, other.domain) == (&user.name, user.domain);
        if open.values().filter(|session| is_same(&session.user)).count() >= PER_USER_MAX {
            end_oldest(&mut open, |session| is_same(&session.user));
        }
        if open.len() >= SESSIONS_MAX {
            end_oldest(&mut open, |_| true);
        }
        open.insert(self.key(&token), Session { user, begun: now, used: now });
        Ok(token)
    }

    /// Whose session a request shows, if it shows one that is open.
    pub(crate) fn recall(&self, meta: &Metadata, headers: &HeaderMap, now: Instant) -> Option<Identity> {
        let key = self.key(token(headers)?);
        let mut open = self.open();
        let session = open.get_mut(&key)?;
        if session.is_over(now) || !is_current(meta, &session.user) {
            open.remove(&key);
            return None;
        }
        session.used = now;
        Some(session.user.clone())
    }

    /// Ends the session that a request shows, and says whose it was.
    pub(crate) fn end(&self, headers: &HeaderMap) -> Option<Identity> {
        let key = self.key(token(headers)?);
        self.open().remove(&key).map(|session| session.user)
    }

    fn key(&self, token: &str) -> Vec<u8> {
        ScramHash::Sha256.hmac(&self.secret, token.as_bytes())
    }

    fn open(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Session>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end_oldest(open: &mut HashMap<Vec<u8>, Session>, of: impl Fn(&Session) -> bool) {
    let candidates = open.iter().filter(|(_, session)| of(session));
    let oldest = candidates.min_by_key(|(_, session)| session.used).map(|(key, _)| key.clone());
    oldest.and_then(|key| open.remove(&key));
}

/// Whether a request is one of the console's.
pub(crate) fn is_of_console(headers: &HeaderMap) -> bool {
    headers.get(HEADER).is_some_and(|value| value == "yes")
}

/// The cookie that hands a token out; without a token, the one that takes it back. A browser keeps cookies of one host together,
/// whatever the port, so that the name has the host and the port in it.
pub(crate) fn cookie(headers: &HeaderMap, token: Option<&str>, is_tls: bool) -> String {
    let name = cookie_name(headers);
    let secure = if is_tls { "; Secure" } else { "" };
    let ended = if token.is_none() { "; Max-Age=0" } else { "" };
    format!("{name}={}; Path=/; HttpOnly; SameSite=Strict{secure}{ended}", token.unwrap_or_default())
}

fn cookie_name(headers: &HeaderMap) -> String {
    use std::fmt::Write as _;
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let mut name = if host.is_empty() { COOKIE.to_owned() } else { format!("{COOKIE}-") };
    for byte in host.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.".contains(&byte) {
            name.push(char::from(byte));
        } else {
            let _ = write!(name, "%{byte:02X}");
        }
    }
    name
}

/// The token of a request of the console's.
fn token(headers: &HeaderMap) -> Option<&str> {
    if !is_of_console(headers) {
        return None;
    }
    let name = cookie_name(headers);
    let lines = headers.get_all(header::COOKIE).iter().filter_map(|line| line.to_str().ok());
    let mut cookies =
        lines.flat_map(|line| line.split(';')).filter_map(|cookie| cookie.trim().split_once('='));
    cookies.find(|(known, _)| *known == name).map(|(_, token)| token).filter(|token| !token.is_empty())
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use cluster::auth::Domain;

    use super::*;

    fn user(name: &str) -> Identity {
        Identity::unproved(name, Domain::Local)
    }

    fn shows(token: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_static("[::1]:8091"));
        headers.insert(HEADER, HeaderValue::from_static("yes"));
        let cookie = format!("other=1; ui-auth-%5B%3A%3A1%5D%3A8091={token}");
        headers.insert(header::COOKIE, HeaderValue::from_str(&cookie).unwrap());
        headers
    }

    fn sessions() -> (Sessions, Metadata, Instant) {
        (Sessions::new([7; 32]), Metadata::new("c".into(), 256), Instant::now())
    }

    #[test]
    fn a_cookie_counts_under_its_own_name_and_with_the_header_only() {
        let (sessions, meta, now) = sessions();
        let token = sessions.begin(user("a"), now).unwrap();
        assert!(
            cookie(&shows(""), Some(&token), true)
                .starts_with(&format!("ui-auth-%5B%3A%3A1%5D%3A8091={token};"))
        );
        assert_eq!(sessions.recall(&meta, &shows(&token), now), Some(user("a")));
        assert_eq!(sessions.recall(&meta, &shows(""), now), None);
        assert_eq!(sessions.recall(&meta, &shows(&token[1..]), now), None);
        let mut without = shows(&token);
        without.remove(HEADER);
        assert_eq!(sessions.recall(&meta, &without, now), None);
        let mut elsewhere = shows(&token);
        elsewhere.insert(header::HOST, HeaderValue::from_static("[::1]:8092"));
        assert_eq!(sessions.recall(&meta, &elsewhere, now), None);
        assert_eq!(sessions.end(&shows(&token)), Some(user("a")));
        assert_eq!(sessions.recall(&meta, &shows(&token), now), None);
    }

    #[test]
    fn a_session_ends_when_nobody_uses_it_and_after_half_a_day_in_any_case() {
        let (sessions, meta, begun) = sessions();
        let (idle, busy) =
            (sessions.begin(user("a"), begun).unwrap(), sessions.begin(user("a"), begun).unwrap());
        let mut now = begun;
        while now.duration_since(begun) + IDLE / 2 < LONGEST {
            now += IDLE / 2;
            assert!(sessions.recall(&meta, &shows(&busy), now).is_some(), "{:?}", now.duration_since(begun));
        }
        assert!(sessions.recall(&meta, &shows(&idle), now).is_none());
        assert!(sessions.recall(&meta, &shows(&busy), begun + LONGEST).is_none());
    }

    #[test]
    fn a_user_and_a_node_have_so_many_sessions_and_the_oldest_goes() {
        let (sessions, meta, now) = sessions();
        let tokens: Vec<_> = (0..=PER_USER_MAX as u64)
            .map(|number| sessions.begin(user("a"), now + Duration::from_secs(number)).unwrap())
            .collect();
        let is_open = |token: &String| sessions.recall(&meta, &shows(token), now + IDLE / 2).is_some();
        assert!(!is_open(&tokens[0]) && tokens[1..].iter().all(is_open));
        for number in 0..SESSIONS_MAX * 2 {
            sessions.begin(user(&number.to_string()), now + IDLE / 2).unwrap();
        }
        assert_eq!(sessions.open().len(), SESSIONS_MAX);
    }
}
