//! What the ports of views answer, on this port: the web console can reach no other.
//!
//! The table of routes has judged the sender before, by the right of the bucket that the path names. The service answers in the words
//! of its own ports, with the same bounds, and streams rows the same way.

use axum::http::{HeaderValue, StatusCode, Uri, header, request::Parts};
use http::{
    Admitted, Connection,
    reply::{self, Reply},
};

use super::design_documents::{SERVICE, is_absent};
use crate::{node::control::NodeControl, request::Route};

/// How paths begin that belong to the service.
const PREFIX: &str = "couchBase";

/// Whether the service answers a route.
pub(crate) fn is_of(route: &Route) -> bool {
    route.path.split('/').next() == Some(PREFIX)
}

/// Answers a request whose sender has the right to it. `path`: its decoded segments, with the prefix.
pub(crate) async fn answer(
    control: &dyn NodeControl,
    mut parts: Parts,
    path: Vec<String>,
    admitted: Admitted,
    from: Connection,
) -> Reply {
    let Some(service) = control.behind(SERVICE) else { return is_absent() };
    let Some(uri) = without_prefix(&parts.uri) else {
        return reply::text(StatusCode::BAD_REQUEST, "Bad Request");
    };
    parts.uri = uri;
    let path = path.into_iter().skip(1).collect();
    let mut reply = service.answer_admitted(parts, path, admitted, from).await;
    let headers = reply.headers_mut();
    let location = headers.get(header::LOCATION).and_then(|location| location.to_str().ok());
    let here = location.filter(|location| location.starts_with('/'));
    if let Some(location) = here.and_then(|path| HeaderValue::from_str(&format!("/{PREFIX}{path}")).ok()) {
        headers.insert(header::LOCATION, location);
    }
    reply
}

/// The same without its first segment.
fn without_prefix(uri: &Uri) -> Option<Uri> {
    let (_, rest) = uri.path().trim_start_matches('/').split_once('/')?;
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    format!("/{rest}{query}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_segment_is_left_out_however_it_is_written() {
        for (uri, left) in [
            ("/couchBase/b/_design/x?limit=1&key=%22a%22", "/b/_design/x?limit=1&key=%22a%22"),
            ("//%63ouchBase/b/_design%2Fx", "/b/_design%2Fx"),
            ("/couchBase//b", "//b"),
        ] {
            let found = without_prefix(&uri.parse().unwrap()).map(|uri| uri.to_string());
            assert_eq!(found.as_deref(), Some(left), "{uri}");
        }
        assert_eq!(without_prefix(&"/couchBase".parse().unwrap()), None);
    }
}
