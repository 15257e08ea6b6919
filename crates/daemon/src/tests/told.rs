//! Alerts as they leave a node: as mails, set up as `couchbase-cli setting-alert` does it, and as posts to a webhook that fails.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::Arc,
    thread,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use parking_lot::Mutex;
use serde_json::Value;

use super::statistics::{PATIENCE, Served};

/// Of each document that fills the bucket, which has 100 MiB.
const VALUE_BYTES: usize = 5_000_000;

/// A mail as its server has it.
struct Mail {
    recipients: Vec<String>,
    head: String,
    body: String,
}

/// A mail server that takes every mail and keeps it.
struct MailServer {
    port: u16,
    mails: Arc<Mutex<Vec<Mail>>>,
}

impl MailServer {
    fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let mails = Arc::<Mutex<Vec<Mail>>>::default();
        let taken = Arc::clone(&mails);
        thread::spawn(move || listener.incoming().for_each(|stream| take_mails(stream.unwrap(), &taken)));
        Self { port, mails }
    }

    /// How many mails have this in their text.
    fn count(&self, text: &str) -> usize {
        self.mails.lock().iter().filter(|mail| mail.body.contains(text)).count()
    }
}

/// Speaks SMTP over a connection until its end.
fn take_mails(mut stream: TcpStream, taken: &Mutex<Vec<Mail>>) {
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines().map_while(Result::ok);
    let mut recipients = Vec::new();
    stream.write_all(b"220 here\r\n").unwrap();
    while let Some(line) = lines.next() {
        let mut answer = "250 taken";
        if let Some(recipient) = line.strip_prefix("RCPT TO:") {
            recipients.push(recipient.to_owned());
        }
        if line == "DATA" {
            stream.write_all(b"354 go on\r\n").unwrap();
            let text: Vec<String> = lines.by_ref().take_while(|line| line != ".").collect();
            let blank = text.iter().position(String::is_empty).unwrap();
            let body = STANDARD.decode(text[blank..].concat()).unwrap();
            let mail = Mail {
                recipients: std::mem::take(&mut recipients),
                head: text[..blank].join("\n"),
                body: String::from_utf8(body).unwrap(),
            };
            taken.lock().push(mail);
        }
        if line == "QUIT" {
            answer = "221 bye";
        }
        if stream.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
            return;
        }
    }
}

/// A webhook that answers its first three posts with an error, as if it were not ready.
fn failing_webhook() -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let posts = Arc::<Mutex<Vec<Value>>>::default();
    let taken = Arc::clone(&posts);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut posts = taken.lock();
            posts.push(post(&mut stream));
            let status = if posts.len() <= 3 { "503 Service Unavailable" } else { "204 No Content" };
            let answer = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            stream.write_all(answer.as_bytes()).unwrap();
        }
    });
    (url, posts)
}

/// What one post says.
fn post(stream: &mut TcpStream) -> Value {
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let (mut request, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        let bytes = stream.read(&mut piece).unwrap();
        request.extend_from_slice(&piece[..bytes]);
        let text = String::from_utf8_lossy(&request);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        if let Some(Ok(json)) = body {
            return json;
        }
        assert!(bytes > 0, "{text}");
    }
}

/// Writes documents over port 11211 until one is refused.
fn fill(served: &Served) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, served.node.ports().memcached));
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut answers = BufReader::new(stream.try_clone().unwrap()).lines();
    for number in 0.. {
        write!(stream, "set key{number} 0 0 {VALUE_BYTES}\r\n").unwrap();
        stream.write_all(&vec![b'x'; VALUE_BYTES]).unwrap();
        stream.write_all(b"\r\n").unwrap();
        if answers.next().unwrap().unwrap() != "STORED" {
            return;
        }
    }
}

#[test]
fn an_alert_is_mailed_when_it_fires_and_when_it_is_over_and_a_webhook_is_tried_three_times() {
    let served = Served::start_with(|options| {
        options.init.as_mut().unwrap().bucket = None;
    });
    let accepted = |method: &str, path: &str, form: &str| {
        let (status, answer) = served.send(method, path, form);
        assert!((200..300).contains(&status), "{path}: {status} {answer}");
    };
    let (server, (url, posts)) = (MailServer::start(), failing_webhook());
    // As `couchbase-cli setting-alert` sends it.
    let settings = format!(
        "enabled=true&recipients=ops%40example.com%2Cann%40example.com&sender=settee%40example.com&emailHost=127.0.0.1&emailPort={}\
         &emailEncrypt=false&alerts=auto_failover_node%2Cdisk%2Coverhead%2Cep_oom_errors",
        server.port
    );
    accepted("POST", "/settings/alerts", &settings);
    accepted("PUT", "/settee/alerts/webhook", &format!("url={url}"));
    accepted(
        "POST",
        "/pools/default/buckets",
        "name=full&ramQuota=100&replicaNumber=0&bucketType=ephemeral&legacyMemcachedPort=1",
    );
    served.until("the bucket is served", |served| {
        served.json("/pools/default/buckets/full")["nodes"][0]["status"] == "healthy"
    });
    served.until("the alert fires", |served| {
        fill(served);
        served.json("/settee/alerts").to_string().contains("writes_refused")
    });
    let (fired, over) = ("writes_refused (critical): ", "writes_refused is over: ");
    served.until("a mail tells that it fires", |_| server.count(fired) == 1);
    accepted("DELETE", "/pools/default/buckets/full", "");
    served.until("a mail tells that it is over", |_| server.count(over) == 1);
    let told = |event: &str| {
        let posts = posts.lock();
        let is_it = |post: &&Value| post["name"] == "writes_refused" && post["event"] == event;
        posts.iter().filter(is_it).cloned().collect::<Vec<_>>()
    };
    served.until("the end is posted", |_| told("cleared").len() == 1);
    // What the node had said again would have come before the end.
    assert_eq!(server.count(fired), 1);
    let mails = server.mails.lock();
    for mail in mails.iter() {
        assert_eq!(mail.recipients, ["<ops@example.com>", "<ann@example.com>"]);
        assert!(mail.head.contains("From: <settee@example.com>"), "{}", mail.head);
    }
    assert_eq!(served.json("/settings/alerts")["settee"]["sent"], mails.len(), "the node counts its mails");
    let posts = posts.lock();
    let (failed, taken) = posts.split_at(3);
    assert!(failed.iter().all(|post| *post == failed[0]), "an event is posted again as it was: {failed:?}");
    for (at, post) in taken.iter().enumerate() {
        assert!(
            !taken[..at].contains(post) && *post != failed[0],
            "what was taken is posted again: {posts:?}"
        );
    }
}
