//! What a node does not do for a page in somebody's browser. The browser sits where the administrator does, reaches what he
//! reaches, and may send what he once logged in with.
//!
//! - **Names.** A page can give itself a name that leads to this node, and is then of the same origin. Requests that prove
//!   nothing by themselves (no login, or none that is needed yet) are answered only under a name that can be no page's. These
//!   are an address, a loopback name, or one of the cluster's own. A request with a password may use any name for the node, unless a
//!   browser says that it sent the request.
//! - **Origins.** What changes something must not come from a page of another origin.
//! - **Types.** A form of another page can be sent without asking in three types. Two of them mean nothing here and are refused;
//!   the third, which every tool uses, is left to the origin.

use std::net::IpAddr;

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use cluster::{Metadata, NodeInfo};

use crate::reply::{self, Refusal};

/// Where a browser says that a request comes from.
const FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
/// Types of bodies that mean something here.
const TYPES: [&str; 3] =
    ["application/x-www-form-urlencoded", "application/json", "application/octet-stream"];
/// What every answer says to browsers.
const HEADERS: [(HeaderName, &str); 5] = [
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'; form-action 'none'"),
    (header::REFERRER_POLICY, "no-referrer"),
    (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
];

/// Adds what every answer says to browsers, but what it says already: the console's page says more of what a browser may load.
pub fn secure<B>(reply: &mut Response<B>) {
    for (name, value) in HEADERS {
        reply.headers_mut().entry(name).or_insert(HeaderValue::from_static(value));
    }
}

/// Refuses what a page of somebody else may have caused. `proves`: the request shows a password. `is_own` knows further names of
/// this machine.
pub(crate) fn refuse_pages(
    method: &Method,
    headers: &HeaderMap,
    proves: bool,
    meta: &Metadata,
    is_own: impl Fn(&str) -> bool,
) -> Result<(), Refusal> {
    let changes = ![Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let from_browser = headers.contains_key(header::ORIGIN) || headers.contains_key(FETCH_SITE);
    let host = match headers.get(header::HOST).map(HeaderValue::to_str) {
        Some(Ok(host)) => Some(host),
        Some(Err(_)) => return Err(reply::text(StatusCode::BAD_REQUEST, "Bad Request").into()),
        // No browser leaves it out.
        None => None,
    };
    if (!proves || from_browser) && host.is_some_and(|host| !is_known(host, meta, is_own)) {
        let text =
            "This node does not know itself by that name. Use its address or its host name, or log in.\r\n";
        return Err(reply::text(StatusCode::MISDIRECTED_REQUEST, text).into());
    }
    if !changes {
        return Ok(());
    }
    let of_page = |headers: &HeaderMap| {
        let site = headers.get(FETCH_SITE).map(HeaderValue::as_bytes);
        let foreign = site.is_some_and(|site| site != b"same-origin" && site != b"none");
        let origin = headers.get(header::ORIGIN).map(HeaderValue::to_str);
        foreign || origin.is_some_and(|origin| !origin.is_ok_and(|origin| is_origin_of(origin, host)))
    };
    if of_page(headers) {
        let text = "Changes are not made for pages of another origin.\r\n";
        return Err(reply::text(StatusCode::FORBIDDEN, text).into());
    }
    let kind = headers.get(header::CONTENT_TYPE).map(|kind| kind.to_str().unwrap_or_default());
    if kind.is_some_and(|kind| !is_understood(kind)) {
        let text = "Bodies are forms (application/x-www-form-urlencoded) or application/json.\r\n";
        return Err(reply::text(StatusCode::UNSUPPORTED_MEDIA_TYPE, text).into());
    }
    Ok(())
}

fn is_understood(kind: &str) -> bool {
    let essence = kind.split(';').next().unwrap_or_default().trim();
    essence.is_empty() || TYPES.iter().any(|known| essence.eq_ignore_ascii_case(known))
}

/// Whether an origin is where a request went.
fn is_origin_of(origin: &str, host: Option<&str>) -> bool {
    let (scheme, place) = origin.split_once("://").unwrap_or_default();
    // Browsers leave out the scheme's own port in both, and REST is not on those.
    ["http", "https"].contains(&scheme) && host.is_some_and(|host| host.eq_ignore_ascii_case(place))
}

/// Whether a host can be no page's name for this node.
fn is_known(host: &str, meta: &Metadata, is_own: impl Fn(&str) -> bool) -> bool {
    let name = without_port(host).trim_end_matches('.').to_ascii_lowercase();
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    let is_loopback = name == "localhost" || name.ends_with(".localhost");
    let is_of = |node: &NodeInfo| {
        let elsewhere = node.alternate.as_ref().map(|address| address.hostname.as_str());
        [Some(node.host.as_str()), elsewhere].into_iter().flatten().any(|own| own.eq_ignore_ascii_case(&name))
    };
    let is_node = || meta.nodes.iter().any(is_of);
    is_address || is_loopback || is_node() || is_own(&name)
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        // What follows the last colon of a bare IPv6 address in brackets is no port.
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use cluster::{AlternateAddress, Command, Ports};

    use super::*;

    #[test]
    fn names_are_those_of_nodes_and_addresses() {
        let node = NodeInfo::first("1".into(), "db1.example.com".into(), Ports::default());
        let elsewhere =
            AlternateAddress { hostname: "db1.outside.example".into(), ports: BTreeMap::default() };
        let node = NodeInfo { alternate: Some(elsewhere), ..node };
        let meta = Metadata::new("c".into(), 256).apply(&Command::SetNode(node)).unwrap().0;
        let known = |host: &str| is_known(host, &meta, |name| name == "machine");
        for host in [
            "localhost",
            "localhost:8091",
            "LOCALHOST.:8091",
            "a.localhost",
            "127.0.0.1:8091",
            "192.168.0.7",
            "[::1]",
            "[::1]:8091",
            "[fe80::1]:18091",
            "db1.example.com",
            "DB1.example.com:8091",
            "db1.outside.example:31091",
            "machine:8091",
        ] {
            assert!(known(host), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "xlocalhost",
            "127.0.0.1.evil.example",
            "db2.example.com",
            "",
        ] {
            assert!(!known(host), "{host}");
        }
    }

    #[test]
    fn an_origin_is_the_very_host() {
        for (origin, host, same) in [
            ("http://127.0.0.1:8091", "127.0.0.1:8091", true),
            ("https://db:18091", "DB:18091", true),
            ("http://127.0.0.1", "127.0.0.1:8091", false),
            ("http://127.0.0.1:8091.evil", "127.0.0.1:8091", false),
            ("null", "127.0.0.1:8091", false),
            ("file://", "127.0.0.1:8091", false),
        ] {
            assert_eq!(is_origin_of(origin, Some(host)), same, "{origin}");
        }
    }
}
