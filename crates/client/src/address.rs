//! Addresses as people type them: `host`, `host:port`, `[::1]`, `[::1]:port`, `::1`.

/// `host:port`, with `default` where the text names no port. An IPv6 address comes out in brackets: `::1` is `[::1]:8091`.
#[must_use]
pub fn with_port(text: &str, default: u16) -> String {
    if text.parse::<std::net::Ipv6Addr>().is_ok() {
        return format!("[{text}]:{default}");
    }
    let host_ends = text.rfind(']').map_or(0, |bracket| bracket + 1);
    let has_port = text.get(host_ends..).is_some_and(|rest| rest.contains(':'));
    if has_port { text.to_owned() } else { format!("{text}:{default}") }
}

#[cfg(test)]
mod tests {
    use super::with_port;

    #[test]
    fn a_missing_port_is_the_default() {
        let cases = [
            ("127.0.0.2", "127.0.0.2:11210"),
            ("127.0.0.2:5000", "127.0.0.2:5000"),
            ("db.example", "db.example:11210"),
            ("db.example:5000", "db.example:5000"),
            ("::1", "[::1]:11210"),
            ("[::1]", "[::1]:11210"),
            ("[::1]:5000", "[::1]:5000"),
        ];
        for (typed, meant) in cases {
            assert_eq!(with_port(typed, 11210), meant, "{typed}");
        }
    }
}
