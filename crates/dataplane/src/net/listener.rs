//! Which protocol a listener is for.

/// What a listener's clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListenerKind {
    /// The binary protocol, every feature (11210).
    Kv,
    /// The same under TLS (11207).
    KvTls,
    /// Plain memcached, text or binary, for the one bucket that asked for it (11211).
    Memcached,
}
