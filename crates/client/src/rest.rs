//! The management interface, for blocking code: one request a connection, Basic authentication. `hyper` speaks HTTP. No redirects,
//! no TLS, no compression: our server needs none of them.
//!
//! Each request has a runtime of its own, on the thread that asks. So none of this may be called from asynchronous code.

use crate::body::broken;
use crate::{Body, ClientError, Result, with_port};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, client::conn::http1, header};
use hyper_util::rt::TokioIo;
use std::future::Future;
use std::io::{ErrorKind, Read};
use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

pub(crate) type RequestBody = http_body_util::Full<Bytes>;

/// A longer body than any management call returns; beyond it the reply is refused.
const BODY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Where a node's management interface listens unless it was told otherwise.
pub const MGMT_PORT: u16 = 8091;
/// What a node that was not initialised says of its cluster.
const UNINITIALISED: &str = "\"unknown pool\"";
/// Creating a bucket waits until the bucket serves; nothing takes longer.
const TIMEOUT: Duration = Duration::from_secs(75);
/// A node that does not take a connection for so long is not there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    pub body: Body,
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
        let mut request = self.request_of(method, path, content_type, body)?;
        request.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
        // Before the runtime begins: its end would wait for a name that is still being looked up.
        let address = self.resolve()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let answer = runtime.block_on(async {
            let stream = self.connect(address).await?;
            let asked = async {
                let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                tokio::spawn(connection);
                sender.send_request(request).await
            };
            patient(self.patience, asked).await
        })?;
        let location = answer.headers().get(header::LOCATION).and_then(|value| value.to_str().ok());
        Ok(Opened {
            code: answer.status().as_u16(),
            location: location.map(str::to_owned),
            body: Body::new(runtime, answer.into_body(), self.patience),
        })
    }

    /// How long an answer is waited for.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    pub(crate) fn resolve(&self) -> Result<SocketAddr> {
        let found = self.address.to_socket_addrs().map(|mut found| found.next());
        found
            .and_then(|found| found.ok_or_else(|| ErrorKind::NotFound.into()))
            .map_err(|e| self.unreachable(e))
    }

    pub(crate) async fn connect(&self, address: SocketAddr) -> Result<TcpStream> {
        let connected = timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await;
        connected.unwrap_or_else(|_| Err(ErrorKind::TimedOut.into())).map_err(|e| self.unreachable(e))
    }

    fn unreachable(&self, source: std::io::Error) -> ClientError {
        ClientError::Connect { address: self.address.clone(), source }
    }

    pub(crate) fn request_of(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: &str,
    ) -> Result<Request<RequestBody>> {
        let mut request = Request::builder().method(method).uri(path).header(header::HOST, &self.address);
        if let Some((name, password)) = &self.login {
            let login = STANDARD.encode(format!("{name}:{password}"));
            request = request.header(header::AUTHORIZATION, format!("Basic {login}"));
        }
        if method != "GET" {
            request = request.header(header::CONTENT_TYPE, content_type);
        }
        let body = if method == "GET" { Bytes::new() } else { Bytes::copy_from_slice(body.as_bytes()) };
        let wrong = |error| ClientError::Protocol(format!("{method} {path} is no HTTP request: {error}"));
        request.body(RequestBody::new(body)).map_err(wrong)
    }
}

/// The head of an answer, if it comes in time.
pub(crate) async fn patient(
    patience: Duration,
    asked: impl Future<Output = hyper::Result<Response<Incoming>>>,
) -> Result<Response<Incoming>> {
    match timeout(patience, asked).await {
        Ok(answer) => answer.map_err(|error| failed(broken(&error))),
        Err(_) => Err(failed(ErrorKind::TimedOut.into())),
    }
}

/// What failed while an answer was read.
pub(crate) fn failed(error: std::io::Error) -> ClientError {
    match error.kind() {
        ErrorKind::InvalidData => ClientError::Protocol(error.to_string()),
        _ => error.into(),
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

fn whole(opened: Opened) -> Result<Answer> {
    Ok(Answer { code: opened.code, body: read_body(opened.body)? })
}

fn read_body(from: impl Read) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    from.take(BODY_BYTES_MAX + 1).read_to_end(&mut body).map_err(failed)?;
    if body.len() as u64 > BODY_BYTES_MAX {
        return Err(ClientError::Protocol("not an HTTP answer: the body is too long".to_owned()));
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{Shutdown, TcpListener};

    /// One request in small letters, with its body.
    fn read_request(stream: &mut std::net::TcpStream) -> String {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a request") == 1 {
            request.extend_from_slice(&byte);
        }
        let head = String::from_utf8(request).expect("text").to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let mut body = vec![0; length.map_or(0, |length| length.parse().expect("a length"))];
        stream.read_exact(&mut body).expect("a body");
        head + &String::from_utf8(body).expect("text")
    }

    /// What a server that reads one request and sends this text is understood to answer, and the request.
    fn exchange(text: &'static str, ask: impl FnOnce(&Rest) -> Result<Answer>) -> (Result<Answer>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let request = read_request(&mut stream);
            stream.write_all(text.as_bytes()).expect("an answer");
            stream.shutdown(Shutdown::Write).expect("the end");
            request
        });
        let answer = ask(&Rest::new(address, Some(("Administrator", "password"))));
        (answer, server.join().expect("the server"))
    }

    fn answer(text: &'static str) -> Result<Answer> {
        exchange(text, |rest| rest.ask_json("GET", "/x", None)).0
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(form_encoded(&[("name", "a b&c"), ("é", "1")]), "name=a%20b%26c&%C3%A9=1");
    }

    #[test]
    fn requests_carry_login_and_body() {
        let ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let (answer, request) = exchange(ok, |rest| rest.request("POST", "/x", &[("a", "b")]));
        assert_eq!(answer.expect("an answer").code, 200);
        assert!(request.starts_with("post /x http/1.1\r\nhost: 127.0.0.1:"), "{request}");
        assert!(
            request.contains("\r\nauthorization: basic qwrtaw5pc3ryyxrvcjpwyxnzd29yza==\r\n"),
            "{request}"
        );
        assert!(request.contains("\r\ncontent-type: application/x-www-form-urlencoded\r\n"), "{request}");
        assert!(request.ends_with("\r\n\r\na=b"), "{request}");
    }

    #[test]
    fn bodies_by_length_by_chunks_and_to_the_end() {
        let by_length = answer("HTTP/1.1 200 OK\r\nContent-length: 3\r\n\r\nabc").expect("an answer");
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

    #[test]
    fn a_server_that_stops_in_an_answer_is_waited_for_so_long_and_no_longer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let server = std::thread::spawn(move || {
            for text in ["", "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\na"] {
                let (mut stream, _) = listener.accept().expect("a connection");
                read_request(&mut stream);
                stream.write_all(text.as_bytes()).expect("an answer");
                held.recv().expect("the end of the wait");
            }
        });
        let rest = Rest::new(address, None).within(Duration::from_millis(50));
        for _ in 0..2 {
            let answer = rest.ask_json("GET", "/x", None);
            assert!(answer.as_ref().is_err_and(ClientError::is_timeout), "{answer:?}");
            let_go.send(()).expect("the server");
        }
        server.join().expect("the server");
    }
}
