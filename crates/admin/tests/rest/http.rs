//! HTTP/1.1 by hand: what is tested is the server, so the client shows exactly what arrived.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::Value;

#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Where a node listens, if it does.
pub(crate) fn connect(host: &str, port: u16) -> std::io::Result<SocketAddr> {
    let address = format!("{host}:{port}").parse().map_err(std::io::Error::other)?;
    TcpStream::connect(address).map(|_| address)
}

pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    user: Option<&str>,
    body: Option<(&str, &str)>,
) -> Response {
    read_response(send(address, method, path, user, body, true))
}

/// Sends a request with exactly these headers beside those of its body, and its own `Host` unless there is one among them.
pub(crate) fn request_with(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: Option<(&str, &str)>,
) -> Response {
    let mut head = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        head.push_str(&format!("Host: {address}\r\n"));
    }
    headers.iter().for_each(|(name, value)| head.push_str(&format!("{name}: {value}\r\n")));
    read_response(write(address, head, body))
}

fn read_response(mut reader: BufReader<TcpStream>) -> Response {
    let (status, headers) = read_head(&mut reader);
    let mut text = String::new();
    if headers.get("transfer-encoding").is_some_and(|coding| coding == "chunked") {
        while let Some(chunk) = read_chunk(&mut reader) {
            text.push_str(&chunk);
        }
    } else {
        reader.read_to_string(&mut text).unwrap();
    }
    Response { status, headers, body: text }
}

/// Asks, and reads no more than the head of the answer.
pub(crate) fn begin(address: SocketAddr, path: &str, user: Option<&str>) -> (u16, BufReader<TcpStream>) {
    let mut reader = send(address, "GET", path, user, None, false);
    (read_head(&mut reader).0, reader)
}

/// A streaming request: its chunks come from [`Stream::next`].
pub(crate) fn open_stream(address: SocketAddr, path: &str, user: Option<&str>) -> Stream {
    let mut reader = send(address, "GET", path, user, None, false);
    let (status, headers) = read_head(&mut reader);
    assert_eq!(status, 200, "{path}");
    assert_eq!(headers.get("transfer-encoding").map(String::as_str), Some("chunked"));
    Stream { reader }
}

pub(crate) struct Stream {
    reader: BufReader<TcpStream>,
}

impl Stream {
    /// The next chunk; `None` when the stream has ended.
    pub(crate) fn next(&mut self) -> Option<String> {
        read_chunk(&mut self.reader)
    }
}

fn send(
    address: SocketAddr,
    method: &str,
    path: &str,
    user: Option<&str>,
    body: Option<(&str, &str)>,
    close: bool,
) -> BufReader<TcpStream> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\n");
    if close {
        head.push_str("Connection: close\r\n");
    }
    if let Some(user) = user {
        head.push_str(&format!("Authorization: Basic {}\r\n", STANDARD.encode(user)));
    }
    write(address, head, body)
}

/// Sends a head that is not closed yet, and a body.
fn write(address: SocketAddr, mut head: String, body: Option<(&str, &str)>) -> BufReader<TcpStream> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    if let Some((kind, body)) = body {
        head.push_str(&format!("Content-Type: {kind}\r\nContent-Length: {}\r\n", body.len()));
    }
    head.push_str("\r\n");
    head.push_str(body.map_or("", |(_, body)| body));
    stream.write_all(head.as_bytes()).unwrap();
    BufReader::new(stream)
}

fn read_head(reader: &mut impl BufRead) -> (u16, BTreeMap<String, String>) {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let status =
        line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("{line:?}"));
    let mut headers = BTreeMap::new();
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).unwrap();
        match line.trim_end().split_once(": ") {
            Some((name, value)) => headers.insert(name.to_ascii_lowercase(), value.to_owned()),
            None => return (status, headers),
        };
    }
}

fn read_chunk(reader: &mut impl BufRead) -> Option<String> {
    let mut line = String::new();
    reader.read_line(&mut line).unwrap();
    let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
    let mut bytes = vec![0; length + 2];
    reader.read_exact(&mut bytes).unwrap();
    bytes.truncate(length);
    (length > 0).then(|| String::from_utf8(bytes).unwrap())
}
