//! A minimal HTTP/1.1 client for the management interface: one request a connection, Basic authentication, bodies
//! by length, chunked or until the end. No redirects, no TLS, no compression: our server needs none of them.

use crate::{Body, ClientError, Result, with_port};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A longer body than any management call returns; beyond it the reply is refused.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Where a node's management interface listens unless it was told otherwise.
pub const MGMT_PORT: u16 = 8091;
/// What a node that was not initialised says of its cluster.
const UNINITIALISED: &str = "\"unknown pool\"";
/// Creating a bucket waits until the bucket serves; nothing takes longer.
const TIMEOUT: Duration = Duration::from_secs(75);

/// Where a management interface listens, and as whom to talk to it.
#[derive(Clone, Debug)]
pub struct Rest {
    /// `host:port`.
    pub address: String,
    /// User name and password for Basic authentication.
    pub login: Option<(String, String)>,
    /// How long an answer is waited for.
    patience: Duration,
}

/// An answer whose body is still to be read.
pub struct Opened {
    /// HTTP status.
    pub code: u16,
    /// Where else to ask, where the answer says so.
    pub location: Option<String>,
    /// The body.
    pub body: Body<BufReader<TcpStream>>,
}

/// A complete answer.
#[derive(Debug)]
pub struct Answer {
    /// HTTP status.
    pub code: u16,
    /// The body as it came.
    pub body: Vec<u8>,
}

impl Rest {
    /// The interface at `host:port` or, without a port, at 8091; with a login if the node has been initialised.
    #[must_use]
    pub fn new(address: impl Into<String>, login: Option<(&str, &str)>) -> Rest {
        Rest {
            address: with_port(&address.into(), MGMT_PORT),
            login: login.map(|(name, password)| (name.to_owned(), password.to_owned())),
            patience: TIMEOUT,
        }
    }

    /// The same, with no answer waited for longer than this: a node that was stopped accepts connections and never answers.
    #[must_use]
    pub fn within(&self, patience: Duration) -> Rest {
        Rest { patience, ..self.clone() }
    }

    /// GET; any status but 2xx is an error.
    ///
    /// # Errors
    /// No connection, no HTTP, or a status that is not 2xx.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        self.expect_success("GET", path, &[])
    }

    /// GET of a JSON document.
    ///
    /// # Errors
    /// As [`Rest::get`], or the body is no JSON.
    pub fn get_json(&self, path: &str) -> Result<serde_json::Value> {
        let body = self.get(path)?;
        serde_json::from_slice(&body).map_err(|e| ClientError::Protocol(format!("GET {path}: {e}")))
    }

    /// POST of a form; any status but 2xx is an error.
    ///
    /// # Errors
    /// As [`Rest::get`].
    pub fn post(&self, path: &str, form: &[(&str, &str)]) -> Result<Vec<u8>> {
        self.expect_success("POST", path, form)
    }

    /// PUT of a form; any status but 2xx is an error.
    ///
    /// # Errors
    /// As [`Rest::get`].
    pub fn put(&self, path: &str, form: &[(&str, &str)]) -> Result<Vec<u8>> {
        self.expect_success("PUT", path, form)
    }

    /// DELETE; any status but 2xx is an error.
    ///
    /// # Errors
    /// As [`Rest::get`].
    pub fn delete(&self, path: &str) -> Result<Vec<u8>> {
        self.expect_success("DELETE", path, &[])
    }

    /// PUT of a JSON document; any status but 2xx is an error.
    ///
    /// # Errors
    /// As [`Rest::get`].
    pub fn put_json(&self, path: &str, document: &serde_json::Value) -> Result<Vec<u8>> {
        success("PUT", path, self.send("PUT", path, "application/json", &document.to_string())?)
    }

    /// Sends one request, with a JSON document or none, and leaves the body of the answer to be read.
    ///
    /// # Errors
    /// No connection, or the answer is no HTTP.
    pub fn open(&self, method: &str, path: &str, document: Option<&str>) -> Result<Opened> {
        self.connect_and_send(method, path, "application/json", document.unwrap_or_default())
    }

    /// The same, and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// As [`Rest::open`], or the answer breaks off.
    pub fn ask_json(&self, method: &str, path: &str, document: Option<&str>) -> Result<Answer> {
        self.send(method, path, "application/json", document.unwrap_or_default())
    }

    fn expect_success(&self, method: &'static str, path: &str, form: &[(&str, &str)]) -> Result<Vec<u8>> {
        success(method, path, self.request(method, path, form)?)
    }

    /// Sends one request with a form and reads the whole answer, whatever its status.
    ///
    /// # Errors
    /// No connection, or the answer is no HTTP.
    pub fn request(&self, method: &str, path: &str, form: &[(&str, &str)]) -> Result<Answer> {
        self.send(method, path, "application/x-www-form-urlencoded", &form_encoded(form))
    }

    fn send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Result<Answer> {
        whole(self.connect_and_send(method, path, content_type, body)?)
    }

    fn connect_and_send(&self, method: &str, path: &str, content_type: &str, body: &str) -> Result<Opened> {
        let connect = |source| ClientError::Connect { address: self.address.clone(), source };
        let address = self.address.to_socket_addrs().map_err(connect)?.next();
        let address = address.ok_or_else(|| connect(ErrorKind::NotFound.into()))?;
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(connect)?;
        stream.set_read_timeout(Some(self.patience))?;
        stream.set_write_timeout(Some(self.patience))?;
        stream.write_all(self.head_and_body(method, path, content_type, body).as_bytes())?;
        let (code, location, body) = read_head(BufReader::new(stream))?;
        Ok(Opened { code, location, body })
    }

    fn head_and_body(&self, method: &str, path: &str, content_type: &str, body: &str) -> String {
        let mut text = format!("{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n", self.address);
        if let Some((name, password)) = &self.login {
            text += &format!("Authorization: Basic {}\r\n", STANDARD.encode(format!("{name}:{password}")));
        }
        if method != "GET" {
            text += &format!("Content-Type: {content_type}\r\n");
            text += &format!("Content-Length: {}\r\n", body.len());
        }
        text + "\r\n" + body
    }
}

fn success(method: &'static str, path: &str, answer: Answer) -> Result<Vec<u8>> {
    if (200..300).contains(&answer.code) {
        return Ok(answer.body);
    }
    let body = String::from_utf8_lossy(&answer.body).trim().to_owned();
    if answer.code == 404 && body == UNINITIALISED {
        return Err(ClientError::Uninitialised);
    }
    Err(ClientError::Rest { method, path: path.to_owned(), code: answer.code, body })
}

/// `application/x-www-form-urlencoded`.
#[must_use]
pub fn form_encoded(form: &[(&str, &str)]) -> String {
    let pairs: Vec<String> = form.iter().map(|(k, v)| format!("{}={}", percent(k), percent(v))).collect();
    pairs.join("&")
}

/// Percent-encodes all but the unreserved characters; also right for one segment of a path.
#[must_use]
pub fn percent(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                encoded.push(char::from(byte))
            }
            _ => encoded += &format!("%{byte:02X}"),
        }
    }
    encoded
}

fn garbled(what: &str) -> ClientError {
    ClientError::Protocol(format!("not an HTTP answer: {what}"))
}

fn whole(opened: Opened) -> Result<Answer> {
    Ok(Answer { code: opened.code, body: read_body(opened.body)? })
}

/// Status, `Location` and body of an answer.
fn read_head<R: BufRead>(mut from: R) -> Result<(u16, Option<String>, Body<R>)> {
    loop {
        let status = read_line(&mut from)?;
        let code =
            status.strip_prefix("HTTP/1.").and_then(|rest| rest.get(2..5)).and_then(|c| c.parse().ok());
        let code: u16 = code.ok_or_else(|| garbled(&status))?;
        let (mut length, mut chunked, mut location) = (None, false, None);
        loop {
            let line = read_line(&mut from)?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            match (name.to_ascii_lowercase().as_str(), value.trim()) {
                ("content-length", value) => length = value.parse().ok(),
                ("transfer-encoding", value) => chunked = value.eq_ignore_ascii_case("chunked"),
                ("location", value) => location = Some(value.to_owned()),
                _ => {}
            }
        }
        // Interim answers (100 Continue) precede the real one.
        if code >= 200 {
            return Ok((code, location, Body::new(from, length, chunked)));
        }
    }
}

fn read_body(from: impl Read) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    from.take(BODY_BYTES_MAX + 1).read_to_end(&mut body).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => ClientError::Protocol(error.to_string()),
        _ => error.into(),
    })?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(garbled("the body is too long"));
    }
    Ok(body)
}

/// One line without its end; an answer's lines are short, so a bound keeps garbage from filling memory.
pub(crate) fn read_line(from: &mut impl BufRead) -> Result<String> {
    let mut line = String::new();
    from.by_ref().take(64 * 1024).read_line(&mut line).map_err(|error| match error.kind() {
        ErrorKind::InvalidData => garbled("bytes that are no text"),
        _ => error.into(),
    })?;
    match line.strip_suffix('\n') {
        Some(text) => Ok(text.trim_end_matches('\r').to_owned()),
        None => Err(garbled("it ends early")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(text: &str) -> Result<Answer> {
        let (code, _, body) = read_head(text.as_bytes())?;
        Ok(Answer { code, body: read_body(body)? })
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form_encoded(&[("name", "a b&c"), ("é", "1")]), "name=a%20b%26c&%C3%A9=1");
    }

    #[test]
    fn requests_carry_login_and_body() {
        let rest = Rest::new("127.0.0.1:8091", Some(("Administrator", "password")));
        let text = rest.head_and_body("POST", "/x", "application/x-www-form-urlencoded", "a=b");
        assert!(text.starts_with("POST /x HTTP/1.1\r\nHost: 127.0.0.1:8091\r\n"));
        assert!(text.contains("\r\nAuthorization: Basic QWRtaW5pc3RyYXRvcjpwYXNzd29yZA==\r\n"));
        assert!(text.ends_with("Content-Length: 3\r\n\r\na=b"));
    }

    #[test]
    fn bodies_by_length_by_chunks_and_to_the_end() {
        let by_length = answer("HTTP/1.1 200 OK\r\nContent-length: 3\r\n\r\nabcdef").expect("an answer");
        assert_eq!((by_length.code, &by_length.body[..]), (200, &b"abc"[..]));
        let chunked = "HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\na\r\n0123456789\r\n0\r\n\r\n";
        let chunked = answer(chunked).expect("an answer");
        assert_eq!((chunked.code, &chunked.body[..]), (404, &b"ab0123456789"[..]));
        let to_the_end = answer("HTTP/1.0 202 Accepted\r\n\r\nall of it").expect("an answer");
        assert_eq!((to_the_end.code, &to_the_end.body[..]), (202, &b"all of it"[..]));
        let interim = answer("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(interim.expect("an answer").code, 200);
    }

    #[test]
    fn garbage_is_an_error_and_never_a_short_body() {
        for text in [
            "",
            "SSH-2.0-x\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nabc",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nab",
        ] {
            assert!(answer(text).is_err(), "{text:?}");
        }
    }
}
