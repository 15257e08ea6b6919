//! The web console: its files below `/ui/`, and its sessions (`/uilogin`, `/uilogout`).
//!
//! Everybody gets the files, and nothing about the cluster is in them. `/` leads a browser there and goes on telling everybody else the
//! version.

use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, Method, StatusCode, header, request::Parts},
};
use http::{
    Asked, Connection, Front,
    reply::{self, Outcome, Reply},
};
use hyper::body::Incoming;

/// Where the console is.
const PAGE: &str = "/ui/";

/// A file of the console, or the way to it; `None` for any other request.
pub(crate) fn file(asked: &Asked, parts: &Parts) -> Option<Reply> {
    if asked.method != Method::GET {
        return None;
    }
    let path: Vec<&str> = asked.path.iter().map(String::as_str).collect();
    match path.as_slice() {
        [] if wants_page(&parts.headers) => Some(moved(PAGE)),
        ["ui"] if !parts.uri.path().ends_with('/') => Some(moved(PAGE)),
        ["ui"] => Some(send("", &parts.headers)),
        ["ui", name] => Some(send(name, &parts.headers)),
        ["ui", ..] => Some(not_found()),
        _ => None,
    }
}

/// Whether a request is one to log in or out.
pub(crate) fn is_session(asked: &Asked) -> bool {
    let is_one = |name: &str| name == "uilogin" || name == "uilogout";
    asked.method == Method::POST && asked.path.len() == 1 && asked.path.iter().all(|name| is_one(name))
}

/// `POST /uilogin` and `POST /uilogout`, which nobody needs a login for.
pub(crate) async fn session(
    front: &Front,
    asked: &Asked,
    parts: &Parts,
    body: Incoming,
    from: &Connection,
) -> Outcome {
    let (method, headers) = (&asked.method, &parts.headers);
    let cookie = if asked.path.first().is_some_and(|name| name == "uilogin") {
        front.begin_session(method, headers, body, from).await?
    } else {
        front.end_session(method, headers, from)?
    };
    let mut reply = reply::empty_ok();
    let cookie = HeaderValue::from_str(&cookie).map_err(|_| reply::bad_request("Malformed host name"))?;
    reply.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(reply)
}

/// Whether a browser asks, for somebody to look at the answer.
fn wants_page(headers: &HeaderMap) -> bool {
    let accepted = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    accepted.split(',').any(|kind| kind.split(';').next().is_some_and(|kind| kind.trim() == "text/html"))
}

fn moved(to: &'static str) -> Reply {
    let mut reply = reply::text(StatusCode::FOUND, "");
    reply.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    reply
}

fn not_found() -> Reply {
    reply::not_found()
}

fn send(name: &str, headers: &HeaderMap) -> Reply {
    let says = |name, what: &str| {
        let value = headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok()).unwrap_or_default();
        value.split(',').any(|part| part.split(';').next().is_some_and(|part| part.trim() == what))
    };
    let Some(file) = console::file(name, says(header::ACCEPT_ENCODING, "gzip")) else { return not_found() };
    let is_known = says(header::IF_NONE_MATCH, file.tag);
    let (status, bytes) =
        if is_known { (StatusCode::NOT_MODIFIED, &[][..]) } else { (StatusCode::OK, file.bytes) };
    let mut reply = reply::with_body(status, file.media_type, Body::from(bytes));
    let set = reply.headers_mut();
    if file.is_gzip && !is_known {
        set.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    let keep = if file.is_immutable { "public, max-age=31536000, immutable" } else { "no-cache" };
    set.insert(header::CACHE_CONTROL, HeaderValue::from_static(keep));
    set.insert(header::ETAG, HeaderValue::from_static(file.tag));
    set.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
    set.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static(console::POLICY));
    reply
}
