//! Speaks to mail servers, and writes the mails that they take.
//!
//! Invariant: two connections to mail servers are open at once at most, and none for longer than [`PATIENCE`], however a server draws its
//! answers out. An answer has 100 kB at most: `lettre` reads no more.

use std::{fmt::Write as _, time::Duration};

use admin::{Mail, MailLog};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use lettre::{
    Address, AsyncSmtpTransport, AsyncTransport as _, Tokio1Executor,
    address::Envelope,
    transport::smtp::{
        authentication::Credentials,
        client::{Tls, TlsParameters},
    },
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

/// How long a mail server may take altogether, as in Couchbase.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long it may take for one answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Most bytes of what a server has said that are kept and told.
const WORDS_BYTES_MAX: usize = 512;
/// A server that speaks TLS from the first byte.
const PORT_OF_TLS: u16 = 465;

/// The mails of a node.
pub(crate) struct Mails {
    log: Mutex<MailLog>,
    /// One for alerts, and one for mails that try settings: neither waits for a server of the other.
    places: [Semaphore; 2],
    patience: Duration,
}

impl Default for Mails {
    fn default() -> Self {
        Self { log: Mutex::default(), places: [(); 2].map(|()| Semaphore::new(1)), patience: PATIENCE }
    }
}

impl Mails {
    /// What has become of them.
    pub(crate) fn log(&self) -> MailLog {
        self.log.lock().clone()
    }

    /// One was given up.
    pub(crate) fn gave_up(&self) {
        self.log.lock().failed += 1;
    }

    /// Sends one about alerts, or says why it could not be.
    pub(crate) async fn send(&self, mail: Mail, now_secs: u64) -> Result<(), String> {
        let [alerts, _] = &self.places;
        self.send_from(alerts, mail, now_secs).await
    }

    /// Sends one that tries settings, or says why it could not be.
    pub(crate) async fn send_trial(&self, mail: Mail, now_secs: u64) -> Result<(), String> {
        let [_, trials] = &self.places;
        self.send_from(trials, mail, now_secs).await
    }

    async fn send_from(&self, places: &Semaphore, mail: Mail, now_secs: u64) -> Result<(), String> {
        let cut = |mut text: String| {
            text.truncate(text.floor_char_boundary(WORDS_BYTES_MAX));
            text
        };
        let sent = match places.try_acquire() {
            // What is dropped at the end of the patience closes its connection.
            Ok(_place) => match tokio::time::timeout(self.patience, deliver(mail, now_secs)).await {
                Ok(sent) => sent.map_err(cut),
                Err(_) => Err("timeout".into()),
            },
            Err(_) => Err("other mails are being sent; try again in a moment".into()),
        };
        let mut log = self.log.lock();
        match &sent {
            Ok(()) => log.sent += 1,
            Err(text) => log.last_failure = Some((now_secs, text.clone())),
        }
        sent
    }
}

/// Speaks to the server.
async fn deliver(mail: Mail, now_secs: u64) -> Result<(), String> {
    let address = |text: &String| text.parse::<Address>().map_err(|error| format!("{text}: {error}"));
    let recipients = mail.recipients.iter().map(address).collect::<Result<Vec<_>, _>>()?;
    let envelope =
        Envelope::new(Some(address(&mail.sender)?), recipients).map_err(|error| described(&error))?;
    let message = message(&mail, now_secs);
    let server = mail.server;
    let tls = if server.encrypt { encrypted(server.host.clone(), server.port).await? } else { Tls::None };
    let mut transport = AsyncSmtpTransport::<Tokio1Executor>::builder_dangerous(&server.host)
        .port(server.port)
        .tls(tls)
        .timeout(Some(ANSWER));
    if !server.user.is_empty() {
        transport = transport.credentials(Credentials::new(server.user, server.password));
    }
    let sent = transport.build().send_raw(&envelope, message.as_bytes()).await;
    sent.map(|_| ()).map_err(|error| described(&error))
}

/// How TLS is spoken. The certificates that the machine trusts are read from files.
async fn encrypted(host: String, port: u16) -> Result<Tls, String> {
    let parameters = tokio::task::spawn_blocking(move || TlsParameters::new(host)).await;
    let parameters = parameters.map_err(|error| error.to_string())?.map_err(|error| described(&error))?;
    Ok(if port == PORT_OF_TLS { Tls::Wrapper(parameters) } else { Tls::Required(parameters) })
}

/// An error with its causes, as far as it does not tell them itself.
fn described(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let told = error.to_string();
        if !text.ends_with(&told) {
            // Writing to a string cannot fail.
            let _ = write!(text, ": {told}");
        }
        cause = error.source();
    }
    text
}

/// RFC 5322, of letters of ASCII.
fn message(mail: &Mail, now_secs: u64) -> String {
    let to: Vec<_> = mail.recipients.iter().map(|one| format!("<{one}>")).collect();
    let mut text = format!(
        "From: <{}>\r\nTo: {}\r\nSubject: {}\r\nDate: {}\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Transfer-Encoding: base64\r\n\r\n",
        mail.sender,
        to.join(",\r\n "),
        words(&mail.subject),
        date(now_secs),
    );
    for line in mail.body.replace('\n', "\r\n").as_bytes().chunks(57) {
        text.push_str(&STANDARD.encode(line));
        text.push_str("\r\n");
    }
    text
}

/// A header's text: as it is, or in encoded words (RFC 2047) where it has other letters or is long.
fn words(text: &str) -> String {
    const WORD_BYTES_MAX: usize = 42;
    if text.len() <= 70 && text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return text.to_owned();
    }
    let mut parts = vec![String::new()];
    for letter in text.chars() {
        if parts.last().is_some_and(|part| part.len() + letter.len_utf8() > WORD_BYTES_MAX) {
            parts.push(String::new());
        }
        if let Some(part) = parts.last_mut() {
            part.push(letter);
        }
    }
    let encoded = parts.iter().map(|part| format!("=?UTF-8?B?{}?=", STANDARD.encode(part)));
    encoded.collect::<Vec<_>>().join("\r\n ")
}

/// `29 Nov 2026 01:40:00 +0000`.
fn date(secs: u64) -> String {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let text = admin::rfc3339(secs.saturating_mul(1_000));
    let part = |from: usize, to: usize| text.get(from..to).unwrap_or_default();
    let month = part(5, 7).parse().ok().and_then(|month: usize| MONTHS.get(month.checked_sub(1)?));
    format!("{} {} {} {} +0000", part(8, 10), month.copied().unwrap_or_default(), part(0, 4), part(11, 19))
}

#[cfg(test)]
mod tests {
    use std::{
        io::{BufRead as _, BufReader, Read as _, Write as _},
        net::TcpListener,
        thread::JoinHandle,
    };

    use admin::MailServer;

    use super::*;

    /// A mail server for one connection. It answers a command that begins so with that, and returns all that it was sent.
    fn sink(refuses: &'static str, answer: &'static str) -> (u16, JoinHandle<Vec<String>>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut lines = Vec::new();
            stream.write_all(b"220 here\r\n").unwrap();
            let (reader, mut in_data) = (BufReader::new(stream.try_clone().unwrap()), false);
            for line in reader.lines() {
                let Ok(line) = line else { break };
                let said = if line.starts_with(refuses) {
                    answer
                } else if line.starts_with("EHLO") {
                    "250-here\r\n250 AUTH PLAIN LOGIN"
                } else if line.starts_with("AUTH") {
                    "235 yes"
                } else if line == "DATA" {
                    in_data = true;
                    "354 go on"
                } else if in_data && line != "." {
                    ""
                } else {
                    in_data = false;
                    "250 yes"
                };
                lines.push(line);
                if !said.is_empty() && stream.write_all(format!("{said}\r\n").as_bytes()).is_err() {
                    break;
                }
            }
            lines
        });
        (port, thread)
    }

    fn mail(port: u16) -> Mail {
        let server = MailServer {
            host: "127.0.0.1".into(),
            port,
            encrypt: false,
            user: "u".into(),
            password: "secret".into(),
        };
        Mail {
            server,
            sender: "settee@localhost".into(),
            recipients: vec!["a@example.com".into(), "b@example.com".into()],
            subject: "Größer".into(),
            body: "one\n.\ntwo\n".into(),
        }
    }

    fn send(mails: &Mails, mail: Mail) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(mails.send_trial(mail, 1_795_916_400))
    }

    #[test]
    fn a_mail_reaches_every_recipient_as_it_was_written() {
        let ((port, server), mails) = (sink("?", ""), Mails::default());
        send(&mails, mail(port)).unwrap();
        let lines = server.join().unwrap();
        let has = |line: &str| assert!(lines.iter().any(|one| one == line), "{line}: {lines:#?}");
        has(&format!("AUTH PLAIN {}", STANDARD.encode("\0u\0secret")));
        has("RCPT TO:<a@example.com>");
        has("RCPT TO:<b@example.com>");
        has("From: <settee@localhost>");
        has("Subject: =?UTF-8?B?R3LDtsOfZXI=?=");
        has("Date: 29 Nov 2026 01:40:00 +0000");
        has(&STANDARD.encode("one\r\n.\r\ntwo\r\n"));
        assert_eq!(mails.log(), MailLog { sent: 1, failed: 0, last_failure: None });
    }

    #[test]
    fn what_a_server_answers_is_told_and_a_server_without_tls_gets_nothing_that_asks_for_it() {
        let ((port, server), mails) = (sink("RCPT", "550 no such user here"), Mails::default());
        let text = send(&mails, mail(port)).unwrap_err();
        assert!(text.contains("550"), "{text}");
        let once = |words: &str| assert_eq!(text.matches(words).count(), 1, "{text}");
        once("no such user here");
        assert!(!server.join().unwrap().iter().any(|line| line == "DATA"));
        let (port, server) = sink("?", "");
        let mut secret = mail(port);
        secret.server.encrypt = true;
        assert!(send(&mails, secret).is_err());
        assert!(
            !server.join().unwrap().iter().any(|line| line.starts_with("AUTH") || line.starts_with("MAIL"))
        );
        let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        assert!(send(&mails, mail(nobody)).is_err());
        assert!(mails.log().last_failure.is_some() && mails.log().sent == 0);
    }

    #[test]
    fn a_server_that_holds_a_trial_holds_up_no_alerts() {
        let ((port, _server), mails) = (sink("?", ""), Mails::default());
        let _held = mails.places[1].try_acquire().unwrap();
        assert!(send(&mails, mail(port)).unwrap_err().contains("try again"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(mails.send(mail(port), 1_795_916_400)).unwrap();
    }

    /// Begins an answer that it never ends, a letter at a time, until the other side closes the connection.
    fn dripping() -> (u16, JoinHandle<()>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let thread = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            let mut letters = b"220-".iter().chain(std::iter::repeat(&b'x'));
            let is_timeout = |error: &std::io::Error| error.kind() == std::io::ErrorKind::WouldBlock;
            while letters.next().is_some_and(|letter| stream.write_all(&[*letter]).is_ok()) {
                match stream.read(&mut [0]) {
                    Err(error) if is_timeout(&error) => {}
                    _ => break,
                }
            }
        });
        (port, thread)
    }

    #[test]
    fn a_server_that_draws_out_its_answer_keeps_no_place_and_no_connection() {
        let mails = Mails { patience: Duration::from_millis(200), ..Mails::default() };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for _ in 0..2 {
            let (port, server) = dripping();
            let sent = runtime.block_on(mails.send_trial(mail(port), 1_795_916_400));
            assert_eq!(sent, Err("timeout".to_owned()));
            // It ends once its connection is closed.
            server.join().unwrap();
        }
    }

    #[test]
    fn of_what_a_server_says_the_beginning_is_kept() {
        let answer: &str = Box::leak(format!("550 {}", "ü".repeat(450)).into_boxed_str());
        let ((port, _server), mails) = (sink("RCPT", answer), Mails::default());
        let text = send(&mails, mail(port)).unwrap_err();
        assert!(text.contains('ü') && text.len() <= WORDS_BYTES_MAX, "{text}");
        assert_eq!(mails.log().last_failure, Some((1_795_916_400, text)));
    }

    #[test]
    fn long_subjects_are_cut_into_words_of_whole_letters() {
        let subject = "ü".repeat(60);
        let words = words(&subject);
        let decoded = words.split("\r\n ").map(|word| {
            assert!(word.len() <= 75, "{word}");
            let word = word.strip_prefix("=?UTF-8?B?").unwrap().strip_suffix("?=").unwrap();
            String::from_utf8(STANDARD.decode(word).unwrap()).unwrap()
        });
        assert_eq!(decoded.collect::<String>(), subject);
    }
}
