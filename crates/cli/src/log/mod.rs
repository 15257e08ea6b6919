//! The node's log: lines on standard error or in a file, written by a thread of their own. They are text or JSON.
//!
//! Standard error may be a file on a disk that has just stopped answering, or a pipe that nobody reads. No other thread
//! is to wait for it, the loops of the data plane least of all. So a thread that logs puts a line into a queue and goes
//! on. Lines that find no room are lost, and a later line tells their number. A line may quote what strangers send. So
//! control characters are escaped here, and nothing that strangers send can pass for a line of its own or move a
//! terminal's cursor.
//!
//! The crate tracing-appender has such a queue. It does not say what it lost, and cannot be waited for from a panic,
//! which ends this process.

mod file;

use std::{
    io::{self, IsTerminal, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, Receiver, SyncSender, TrySendError},
    },
    thread,
    time::{Duration, Instant},
};

use base::recent_log::OF_PROCESS;
use tracing_subscriber::{
    Layer as _, filter::LevelFilter, fmt, layer::SubscriberExt as _, registry, util::SubscriberInitExt as _,
};

pub(crate) use self::file::LogFile;
use self::file::Rotating;

/// Lines that may wait.
const LINES_MAX: usize = 4096;
/// How long the end of the process waits for what is still to be written, and how often it looks for room in the queue.
const LAST_WORDS: Duration = Duration::from_secs(1);
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// What a line is for, and how it looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Text, with colours where that is so. Those are escape sequences of our own.
    Text { colored: bool },
    /// A JSON object. REST and `settee logs` show text, which comes beside it.
    Json,
    /// Text for them alone.
    Recent,
}

enum Entry {
    Line(Kind, Vec<u8>),
    /// Everything before it has been written.
    Mark(SyncSender<()>),
}

/// Where lines go in. Every write is one.
#[derive(Clone)]
struct Lines {
    kind: Kind,
    queue: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    fn new(kind: Kind) -> (Self, Receiver<Entry>) {
        let (queue, entries) = mpsc::sync_channel(LINES_MAX);
        (Self { kind, queue, lost: Arc::default() }, entries)
    }

    /// Where lines of another kind go in, among these.
    fn of(&self, kind: Kind) -> Self {
        Self { kind, ..self.clone() }
    }

    /// Waits until what came before is written, but not for long.
    fn settle(&self) {
        let until = Instant::now() + LAST_WORDS;
        let (done, written) = mpsc::sync_channel(1);
        let mut mark = Entry::Mark(done);
        while let Err(TrySendError::Full(refused)) = self.queue.try_send(mark) {
            if Instant::now() > until {
                return;
            }
            mark = refused;
            thread::sleep(LOOK_EVERY);
        }
        let _ = written.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.queue.try_send(Entry::Line(self.kind, escaped(line, self.kind))).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The line without control characters. Its end stays and, where it has colours, so does their escape character. The
/// formatter escapes that one itself in what it quotes.
fn escaped(line: &[u8], kind: Kind) -> Vec<u8> {
    let text = String::from_utf8_lossy(line);
    let (text, end) = text.strip_suffix('\n').map_or((&*text, ""), |text| (text, "\n"));
    let mut escaped = String::with_capacity(line.len());
    for character in text.chars() {
        match character {
            '\x1b' if kind == (Kind::Text { colored: true }) => escaped.push(character),
            // All of them are below U+10000.
            _ if character.is_control() && kind == Kind::Json => {
                escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
            }
            _ if character.is_control() => escaped.extend(character.escape_default()),
            _ => escaped.push(character),
        }
    }
    (escaped + end).into_bytes()
}

/// Writes what comes until nobody is left who could say anything.
fn write_out(entries: Receiver<Entry>, lost: &AtomicU64, json: bool, mut out: impl Write) {
    for entry in entries {
        let written = match entry {
            Entry::Line(kind, line) => {
                if kind != Kind::Json {
                    OF_PROCESS.add(&String::from_utf8_lossy(&line));
                }
                if kind == Kind::Recent { Ok(()) } else { out.write_all(&line) }
            }
            Entry::Mark(done) => {
                let _ = done.try_send(());
                Ok(())
            }
        };
        if written.is_err() {
            lost.fetch_add(1, Ordering::Relaxed);
            continue;
        }
        let count = lost.swap(0, Ordering::Relaxed);
        if count > 0 {
            let told = format!("settee: {count} lines of the log are lost: nobody took them");
            OF_PROCESS.add(&told);
            // The text has nothing that JSON escapes.
            let written = if json {
                writeln!(out, "{{\"level\":\"WARN\",\"fields\":{{\"message\":\"{told}\",\"lost\":{count}}}}}")
            } else {
                writeln!(out, "{told}")
            };
            if written.is_err() {
                lost.fetch_add(count, Ordering::Relaxed);
            }
        }
    }
}

/// The log of this process, as long as there is one: its end writes what is left.
#[must_use]
pub(crate) struct Log(Lines);

impl Log {
    /// Logs what is at least so important from here on. Standard output belongs to the ready report.
    ///
    /// # Errors
    /// When there is no thread to be had, or the file cannot be written.
    pub(crate) fn start(level: tracing::Level, json: bool, file: Option<LogFile>) -> io::Result<Self> {
        let color = !json && file.is_none() && io::stderr().is_terminal();
        let (lines, entries) = Lines::new(if json { Kind::Json } else { Kind::Text { colored: color } });
        let lost = Arc::clone(&lines.lost);
        let out: Box<dyn Write + Send> = match file {
            Some(file) => Box::new(Rotating::open(file)?),
            None => Box::new(io::stderr()),
        };
        let writer = thread::Builder::new().name("log".into());
        writer.spawn(move || write_out(entries, &lost, json, out))?;
        let (log, recent) = (lines.clone(), lines.of(Kind::Recent));
        let level = LevelFilter::from_level(level);
        if json {
            let text = fmt::layer().with_ansi(false).with_writer(move || recent.clone());
            let json = fmt::layer().json().with_writer(move || log.clone());
            registry().with(text.with_filter(level)).with(json.with_filter(level)).init();
        } else {
            let text = fmt::layer().with_ansi(color).with_writer(move || log.clone());
            registry().with(text.with_filter(level)).init();
        }
        // A panic ends the process at once: what led to it is to be read before.
        let (log, report) = (lines.clone(), std::panic::take_hook());
        std::panic::set_hook(Box::new(move |panic| {
            log.settle();
            report(panic);
        }));
        Ok(Self(lines))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.0.settle();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    const TEXT: Kind = Kind::Text { colored: false };

    /// Takes nothing until the sender of `go` is gone.
    struct Stuck {
        go: Receiver<()>,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let _ = self.go.recv();
            self.written.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn nobody_waits_for_a_log_that_cannot_be_written_and_what_is_lost_is_counted() {
        let (mut lines, entries) = Lines::new(TEXT);
        let (stop, go) = mpsc::channel();
        let written = Arc::new(Mutex::default());
        let out = Stuck { go, written: Arc::clone(&written) };
        let lost = Arc::clone(&lines.lost);
        let writer = thread::spawn(move || write_out(entries, &lost, false, out));
        let sent = 2 * LINES_MAX;
        for number in 0..sent {
            lines.write_all(format!("line {number}\n").as_bytes()).unwrap();
        }
        drop(stop);
        drop(lines);
        writer.join().unwrap();
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let (kept, told): (Vec<_>, Vec<_>) = text.lines().partition(|line| line.starts_with("line "));
        assert!(kept.len() >= LINES_MAX && kept[..3] == ["line 0", "line 1", "line 2"], "{}", kept.len());
        let numbers = told.iter().map(|line| line.split(' ').nth(1).unwrap().parse::<usize>().unwrap());
        assert_eq!(kept.len() + numbers.sum::<usize>(), sent);
    }

    /// Refuses so many writes, as a full disk does.
    struct Full {
        refused: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.refused > 0 {
                self.refused -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.written.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_counted() {
        let (mut lines, entries) = Lines::new(TEXT);
        let written = Arc::new(Mutex::default());
        let out = Full { refused: 3, written: Arc::clone(&written) };
        let lost = Arc::clone(&lines.lost);
        (0..4).for_each(|number| lines.write_all(format!("line {number}\n").as_bytes()).unwrap());
        drop(lines);
        write_out(entries, &lost, false, out);
        let text = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        assert_eq!(text, "line 3\nsettee: 3 lines of the log are lost: nobody took them\n");
    }

    #[test]
    fn no_line_can_be_forged() {
        let line = "login failed user=a\n2026-01-01 INFO all is well\x1b[2K\u{9b}1A\tend\n".as_bytes();
        let text = |colored| String::from_utf8(escaped(line, Kind::Text { colored })).unwrap();
        assert_eq!(
            text(false),
            "login failed user=a\\n2026-01-01 INFO all is well\\u{1b}[2K\\u{9b}1A\\tend\n"
        );
        assert!(text(true).contains('\x1b') && text(true).lines().count() == 1);
        assert_eq!(escaped("München\n".as_bytes(), TEXT), "München\n".as_bytes());
        // What writes JSON escapes the others itself.
        let json = escaped("{\"user\":\"\u{9b}1A\"}\n".as_bytes(), Kind::Json);
        assert_eq!(json, b"{\"user\":\"\\u009b1A\"}\n");
        assert_eq!(serde_json::from_slice::<serde_json::Value>(&json).unwrap()["user"], "\u{9b}1A");
    }

    #[test]
    fn the_end_waits_for_the_last_line() {
        let (mut lines, entries) = Lines::new(TEXT);
        let (stop, go) = mpsc::channel();
        let written = Arc::new(Mutex::default());
        let out = Stuck { go, written: Arc::clone(&written) };
        let lost = Arc::clone(&lines.lost);
        thread::spawn(move || write_out(entries, &lost, false, out));
        lines.write_all(b"last words\n").unwrap();
        drop(stop);
        lines.settle();
        assert_eq!(*written.lock().unwrap(), b"last words\n");
    }
}
