//! The beginning of a WebSocket (RFC 6455, 4.2): what a request has to say, and what its answer proves.

use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::reply::{self, Refusal};
use sha1::{Digest as _, Sha1};

/// What the answer's proof is made of, beside the request's key.
const PROOF: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The version that is spoken.
const VERSION: &str = "13";

/// The proof that a request was understood.
///
/// # Errors
/// 400 for a request that asks for no WebSocket; 426 for one of another version.
pub(super) fn accept(method: &Method, headers: &HeaderMap) -> Result<HeaderValue, Refusal> {
    let lists = |name: HeaderName, word: &str| {
        let texts = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
        texts.flat_map(|text| text.split(',')).any(|part| part.trim().eq_ignore_ascii_case(word))
    };
    let asks = lists(header::CONNECTION, "upgrade") && lists(header::UPGRADE, "websocket");
    let key = headers.get(header::SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16));
    let Some(key) = key.filter(|_| asks && *method == Method::GET) else {
        return Err(reply::bad_request("This path is for WebSockets."));
    };
    if headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes) != Some(VERSION.as_bytes()) {
        let mut refusal = reply::text(StatusCode::UPGRADE_REQUIRED, "");
        refusal.headers_mut().insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        return Err(refusal.into());
    }
    let proof = STANDARD.encode(Sha1::new().chain_update(key).chain_update(PROOF).finalize());
    HeaderValue::from_str(&proof).map_err(|_| reply::bad_request("This path is for WebSockets."))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(changed: &[(&'static str, &'static str)]) -> HeaderMap {
        let usual = [
            ("connection", "keep-alive, Upgrade"),
            ("upgrade", "WebSocket"),
            ("sec-websocket-version", "13"),
            ("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ=="),
        ];
        let mut headers = HeaderMap::new();
        for (name, value) in usual.iter().chain(changed) {
            headers.insert(*name, HeaderValue::from_static(value));
        }
        headers
    }

    fn status(method: &Method, changed: &[(&'static str, &'static str)]) -> u16 {
        accept(method, &headers(changed)).map_or_else(|refusal| refusal.0.status().as_u16(), |_| 101)
    }

    #[test]
    fn the_proof_is_that_of_the_standard_and_what_asks_for_something_else_is_refused() {
        let proof = accept(&Method::GET, &headers(&[])).unwrap();
        assert_eq!(proof, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
        assert_eq!(status(&Method::HEAD, &[]), 400);
        for (wrong, expected) in [
            (("connection", "close"), 400),
            (("upgrade", "h2c"), 400),
            (("sec-websocket-key", "dGhl"), 400),
            (("sec-websocket-key", "?"), 400),
            (("sec-websocket-version", "8"), 426),
        ] {
            assert_eq!(status(&Method::GET, &[wrong]), expected, "{wrong:?}");
        }
    }
}
