//! Several processes or machines as one run. A coordinator tells workers what to do, starts them together, and passes on
//! changes of the rate. It merges what they measured, interval by interval and without loss.
//!
//! They speak lines of JSON over one TCP connection each. The coordinator says `{"plan":…,"part":…}`, and per stage
//! `{"stage":…}`, `{"go":true}`, then `{"rate":…,"skips":…,"stop":…}` as these change. A worker answers `{"ready":true}`
//! to plan and stage, then sends `{"interval":…}`s and `{"done":…,"told":…}` or `{"error":…}`. A plan is whatever the two
//! command lines agree on; this module does not look into it. Everyone who reaches a worker's port can use it.

use crate::choose::Part;
use crate::crew::Gathered;
use crate::op::{Class, Op};
use crate::pace::Control;
use crate::process::own_cpu_seconds;
use crate::tally::{Interval, Latencies, Tally};
use crate::target::LoadError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde_json::{Map, Value, json};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How often changes of the control are passed on.
const TICK: Duration = Duration::from_millis(20);
/// Workers start this long after they were told to, so that a late packet delays nobody.
const START: Duration = Duration::from_millis(50);
const CLASSES: [(Class, &str); 3] =
    [(Class::Success, "ok"), (Class::Miss, "miss"), (Class::Failure, "error")];

fn broken(reason: impl std::fmt::Display) -> LoadError {
    LoadError::Plan(format!("a worker: {reason}"))
}

/// One end of a conversation.
struct Line {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Line {
    fn new(stream: TcpStream) -> io::Result<Line> {
        stream.set_nodelay(true)?;
        Ok(Line { reader: BufReader::new(stream.try_clone()?), writer: stream })
    }

    fn say(&mut self, message: &Value) -> io::Result<()> {
        say(&mut self.writer, message)
    }

    /// The next message; `None` at the end.
    fn hear(&mut self) -> io::Result<Option<Value>> {
        let mut text = String::new();
        if self.reader.read_line(&mut text)? == 0 {
            return Ok(None);
        }
        serde_json::from_str(&text).map(Some).map_err(io::Error::other)
    }
}

fn say(writer: &mut impl Write, message: &Value) -> io::Result<()> {
    writer.write_all(format!("{message}\n").as_bytes())
}

/// The coordinator's side: connected workers.
pub struct Fleet {
    workers: Vec<Line>,
    addresses: Vec<String>,
    /// What each found about itself in the last stage, in sentences.
    told: Vec<Vec<String>>,
    /// CPU seconds that all workers have used in stages so far.
    cpu_seconds: f64,
}

impl Fleet {
    /// Connects to workers and gives each its part of the plan.
    ///
    /// # Errors
    /// A worker cannot be reached, or cannot carry out the plan.
    pub fn muster(addresses: &[String], plan: &Value) -> Result<Fleet, LoadError> {
        let of = addresses.len() as u64;
        let mut workers = Vec::new();
        for address in addresses {
            let reached = TcpStream::connect(address).and_then(Line::new);
            workers.push(reached.map_err(|error| broken(format_args!("{address}: {error}")))?);
        }
        for (index, worker) in workers.iter_mut().enumerate() {
            worker.say(&json!({"plan": plan, "part": Part { index: index as u64, of }}))?;
        }
        workers.iter_mut().try_for_each(expect_ready)?;
        Ok(Fleet { workers, addresses: addresses.to_vec(), told: Vec::new(), cpu_seconds: 0.0 })
    }

    /// CPU seconds that the workers have used in the stages that ran.
    #[must_use]
    pub fn cpu_seconds(&self) -> f64 {
        self.cpu_seconds
    }

    /// How many there are.
    #[must_use]
    pub fn size(&self) -> usize {
        self.workers.len()
    }

    /// What each worker, by its address, found about itself and its machine in the last stage.
    #[must_use]
    pub fn told(&self) -> Vec<(String, Vec<String>)> {
        self.addresses.iter().cloned().zip(self.told.iter().cloned()).collect()
    }

    /// Runs a stage on all of them, from a common start.
    ///
    /// # Errors
    /// The first error of any worker, after all have ended.
    pub fn run(
        &mut self,
        stage: &str,
        control: &Control,
        mut sink: impl FnMut(Interval),
    ) -> Result<(), LoadError> {
        for worker in &mut self.workers {
            worker.say(&json!({"stage": stage, "rate": control.rate()}))?;
        }
        self.workers.iter_mut().try_for_each(expect_ready)?;
        for worker in &mut self.workers {
            worker.say(&json!({"go": true}))?;
        }
        let (outbox, inbox) = channel();
        let mut gathered = Gathered::new(self.workers.len());
        let (mut first_error, mut cpu, over) = (None, 0.0, AtomicBool::new(false));
        let mut told = vec![Vec::new(); self.workers.len()];
        let writers: io::Result<Vec<_>> =
            self.workers.iter().map(|worker| worker.writer.try_clone()).collect();
        let writers = writers?;
        std::thread::scope(|scope| {
            scope.spawn(|| herald(writers, control, &over));
            for (number, worker) in self.workers.iter_mut().enumerate() {
                let outbox = outbox.clone();
                scope.spawn(move || listen(number, worker, &outbox));
            }
            drop(outbox);
            while let Ok((worker, heard)) = inbox.recv() {
                match heard {
                    Heard::Interval(interval) => gathered.add(worker, *interval),
                    Heard::Done(seconds, sentences) => {
                        cpu += seconds;
                        told[worker] = sentences;
                        gathered.leave(worker);
                    }
                    Heard::Error(error) => {
                        first_error.get_or_insert(error);
                        gathered.leave(worker);
                        control.stop();
                    }
                }
                while let Some(interval) = gathered.complete() {
                    sink(interval);
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        self.cpu_seconds += cpu;
        self.told = told;
        first_error.map_or(Ok(()), |error| Err(broken(error)))
    }
}

fn expect_ready(worker: &mut Line) -> Result<(), LoadError> {
    let answer = worker.hear()?.ok_or_else(|| broken("it went away"))?;
    match answer["error"].as_str() {
        Some(error) => Err(broken(error)),
        None => Ok(()),
    }
}

enum Heard {
    Interval(Box<Interval>),
    /// CPU seconds, and what the worker found about itself.
    Done(f64, Vec<String>),
    Error(String),
}

fn listen(number: usize, worker: &mut Line, outbox: &std::sync::mpsc::Sender<(usize, Heard)>) {
    loop {
        let heard = match worker.hear() {
            Ok(Some(message)) => understand(&message),
            Ok(None) => Heard::Error("it went away".to_owned()),
            Err(error) => Heard::Error(error.to_string()),
        };
        let last = !matches!(heard, Heard::Interval(_));
        if outbox.send((number, heard)).is_err() || last {
            return;
        }
    }
}

fn understand(message: &Value) -> Heard {
    if let Some(interval) = message.get("interval").and_then(interval_from) {
        return Heard::Interval(Box::new(interval));
    }
    let told = message["told"].as_array().into_iter().flatten();
    let told = told.filter_map(Value::as_str).map(str::to_owned);
    match message["done"].as_f64() {
        Some(cpu_seconds) => Heard::Done(cpu_seconds, told.collect()),
        None => Heard::Error(message["error"].as_str().unwrap_or("it said something odd").to_owned()),
    }
}

/// Passes on what changes while a stage runs.
fn herald(mut writers: Vec<TcpStream>, control: &Control, over: &AtomicBool) {
    let mut last = (control.rate(), control.skips(), false);
    while !over.load(Ordering::Relaxed) {
        let now = (control.rate(), control.skips(), control.stopped());
        if now != last {
            let message = json!({"rate": now.0, "skips": now.1, "stop": now.2});
            // A worker that is gone is noticed by the thread that listens to it.
            writers.iter_mut().for_each(|writer| drop(say(writer, &message)));
            last = now;
        }
        std::thread::sleep(TICK);
    }
}

/// What a worker does when it is told to.
pub trait Work {
    /// Runs a stage from a moment on.
    ///
    /// # Errors
    /// See [`LoadError`].
    fn run(
        &mut self,
        stage: &str,
        start: Instant,
        control: &Control,
        sink: &mut dyn FnMut(Interval),
    ) -> Result<(), LoadError>;

    /// What it found about itself and its machine in the last stage, in sentences.
    fn told(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The worker's side: serves one coordinator until it hangs up. `prepare` makes the work of a plan.
///
/// # Errors
/// The connection broke.
pub fn serve(
    listener: &TcpListener,
    mut prepare: impl FnMut(&Value, Part) -> Result<Box<dyn Work>, String>,
) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let mut line = Line::new(stream)?;
    let Some(order) = line.hear()? else { return Ok(()) };
    let part: Part = serde_json::from_value(order["part"].clone()).map_err(io::Error::other)?;
    if part.index >= part.of {
        return line.say(&json!({"error": "a part beyond the whole"}));
    }
    let mut work = match prepare(&order["plan"], part) {
        Ok(work) => work,
        Err(error) => return line.say(&json!({"error": error})),
    };
    line.say(&json!({"ready": true}))?;
    while let Some(order) = line.hear()? {
        // Orders that come after a stage has ended are late changes of its rate.
        if let Some(stage) = order["stage"].as_str() {
            let control = Control::new(order["rate"].as_f64().unwrap_or(0.0));
            line.say(&json!({"ready": true}))?;
            line.hear()?;
            serve_stage(&mut line, &mut *work, stage, &control)?;
        }
    }
    Ok(())
}

fn serve_stage(line: &mut Line, work: &mut dyn Work, stage: &str, control: &Control) -> io::Result<()> {
    let start = Instant::now() + START;
    let cpu = own_cpu_seconds();
    let over = AtomicBool::new(false);
    line.reader.get_ref().set_read_timeout(Some(TICK))?;
    let Line { reader, writer } = line;
    let mut failed = None;
    let result = std::thread::scope(|scope| {
        scope.spawn(|| follow(reader, control, &over));
        let result = work.run(stage, start, control, &mut |interval| {
            if let Err(error) = say(writer, &json!({"interval": interval_to(&interval)})) {
                failed.get_or_insert(error);
                control.stop();
            }
        });
        over.store(true, Ordering::Relaxed);
        result
    });
    line.reader.get_ref().set_read_timeout(None)?;
    if let Some(error) = failed {
        return Err(error);
    }
    line.say(&match result {
        Ok(()) => json!({"done": own_cpu_seconds() - cpu, "told": work.told()}),
        Err(error) => json!({"error": error.to_string()}),
    })
}

/// Obeys changes while a stage runs.
fn follow(reader: &mut BufReader<TcpStream>, control: &Control, over: &AtomicBool) {
    let (mut text, mut skips) = (String::new(), 0);
    while !over.load(Ordering::Relaxed) {
        match reader.read_line(&mut text) {
            Ok(0) => return control.stop(),
            Ok(_) => {}
            // What has arrived of a line stays in `text` until the rest comes.
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => return control.stop(),
        }
        let message: Value = serde_json::from_str(&text).unwrap_or_default();
        text.clear();
        if let Some(rate) = message["rate"].as_f64() {
            control.set_rate(rate);
        }
        if let Some(asked) = message["skips"].as_u64().filter(|asked| *asked > skips) {
            skips = asked;
            control.skip_backlog();
        }
        if message["stop"].as_bool() == Some(true) {
            control.stop();
        }
    }
}

fn interval_to(interval: &Interval) -> Value {
    let tally = &interval.tally;
    let mut ops = Map::new();
    for (op, one) in tally.ops() {
        for (name, latencies) in [("ok", &one.ok), ("miss", &one.miss), ("error", &one.failed)] {
            ops.extend(encode(latencies).map(|text| (format!("{}.{name}", op.name()), text)));
        }
    }
    let split = &tally.split;
    let parts = [&split.queue, &split.service, &split.server, &split.receive, &split.beside];
    json!({
        "index": interval.index, "ops": ops, "split": parts.map(encode), "keys_found": tally.keys_found,
        "keys_missed": tally.keys_missed, "bytes": tally.bytes, "temporary": tally.temporary, "moved": tally.moved,
        "reasons": tally.reasons, "failures": tally.failures, "corrupt": tally.corrupt, "violations": tally.violations,
        "histories": tally.histories, "reconnects": tally.reconnects, "unsent": tally.unsent, "overstated": tally.overstated,
        "elapsed": tally.elapsed.as_secs_f64(),
    })
}

fn interval_from(value: &Value) -> Option<Interval> {
    let number = |name: &str| value[name].as_u64();
    let mut tally = Tally::default();
    for (name, text) in value["ops"].as_object()? {
        let (op, class) = name.split_once('.')?;
        let op = Op::ALL.iter().copied().find(|known| known.name() == op)?;
        let class = CLASSES.iter().find(|(_, known)| *known == class)?.0;
        tally.of(op, class).merge(&decode(text)?);
    }
    let split = &mut tally.split;
    let parts =
        [&mut split.queue, &mut split.service, &mut split.server, &mut split.receive, &mut split.beside];
    for (part, text) in parts.into_iter().zip(value["split"].as_array()?) {
        *part = decode(text)?;
    }
    tally.keys_found = number("keys_found")?;
    tally.keys_missed = number("keys_missed")?;
    tally.bytes = number("bytes")?;
    tally.temporary = number("temporary")?;
    tally.reasons = serde_json::from_value(value["reasons"].clone()).ok()?;
    tally.moved = number("moved")?;
    tally.failures = serde_json::from_value(value["failures"].clone()).ok()?;
    tally.corrupt = number("corrupt")?;
    tally.violations = serde_json::from_value(value["violations"].clone()).ok()?;
    tally.histories = serde_json::from_value(value["histories"].clone()).ok()?;
    tally.reconnects = number("reconnects")?;
    tally.overstated = number("overstated")?;
    tally.unsent = number("unsent")?;
    tally.elapsed = Duration::try_from_secs_f64(value["elapsed"].as_f64()?).ok()?;
    Some(Interval { index: number("index")?, tally })
}

/// A histogram as HdrHistogram's tools write it; nothing for an empty one.
fn encode(latencies: &Latencies) -> Option<Value> {
    let mut bytes = Vec::new();
    // Fails only when writing does, and writing to a Vec does not.
    V2DeflateSerializer::new().serialize(latencies.get()?, &mut bytes).ok()?;
    Some(Value::String(STANDARD.encode(bytes)))
}

fn decode(text: &Value) -> Option<Latencies> {
    if text.is_null() {
        return Some(Latencies::default());
    }
    let bytes = STANDARD.decode(text.as_str()?).ok()?;
    Deserializer::new().deserialize::<u64, _>(&mut &bytes[..]).ok().map(Latencies::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Work that records as many operations per interval as its part says, and notes the rate it was given.
    struct Counting(Part);

    impl Work for Counting {
        fn run(
            &mut self,
            stage: &str,
            start: Instant,
            control: &Control,
            sink: &mut dyn FnMut(Interval),
        ) -> Result<(), LoadError> {
            assert!(start > Instant::now(), "there is time to start together");
            if stage == "fail" {
                return Err(LoadError::Plan("as asked".to_owned()));
            }
            for index in 0..3 {
                let mut tally = Tally::default();
                for i in 0..(self.0.index + 1) * 1000 {
                    tally.record(Op::Get, Class::Success, 1000 + i * 977);
                    tally.record(Op::Set, Class::Failure, i * 31);
                    tally.split.queue.record(i);
                    tally.split.beside.record(i * 3);
                }
                (tally.bytes, tally.overstated) = (control.rate() as u64, 2);
                tally.failures.insert("Busy".to_owned(), 7);
                tally.reasons.extend((index == 1).then(|| ("no room".to_owned(), 2)));
                sink(Interval { index, tally });
            }
            if stage == "wait" {
                while !control.stopped() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                assert_eq!(control.rate(), 5.0, "the change came before the end");
            }
            Ok(())
        }
    }

    fn workers(count: usize) -> Vec<String> {
        let start = |_| {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
            let address = listener.local_addr().expect("an address").to_string();
            std::thread::spawn(move || {
                serve(&listener, |plan, part| match plan.as_str() {
                    Some("count") => Ok(Box::new(Counting(part))),
                    _ => Err("no such plan".to_owned()),
                })
            });
            address
        };
        (0..count).map(start).collect()
    }

    #[test]
    fn merged_workers_equal_the_whole() {
        let mut fleet = Fleet::muster(&workers(3), &json!("count")).expect("workers");
        for _ in 0..2 {
            let (mut total, mut intervals) = (Tally::default(), 0);
            let sink = |interval: Interval| {
                intervals += 1;
                total.merge(&interval.tally);
            };
            fleet.run("count", &Control::new(11.0), sink).expect("a stage");
            let mut whole = Tally::default();
            for part in 1..=3u64 {
                for i in (0..part * 1000).cycle().take(3 * part as usize * 1000) {
                    whole.record(Op::Get, Class::Success, 1000 + i * 977);
                    whole.record(Op::Set, Class::Failure, i * 31);
                    whole.split.queue.record(i);
                    whole.split.beside.record(i * 3);
                }
            }
            assert_eq!(intervals, 3);
            for ((op, merged), (_, expected)) in total.ops().zip(whole.ops()) {
                assert_eq!(merged.ok.get(), expected.ok.get(), "{op:?}");
                assert_eq!(merged.failed.get(), expected.failed.get(), "{op:?}");
            }
            assert_eq!(total.split.queue.get(), whole.split.queue.get());
            assert_eq!((total.split.beside.get(), total.overstated), (whole.split.beside.get(), 18));
            assert_eq!((total.failures["Busy"], total.bytes), (63, 99));
            assert_eq!((total.main_reason(), total.reasons["no room"]), (Some("no room"), 6));
        }
    }

    #[test]
    fn changes_reach_the_workers_and_errors_the_coordinator() {
        let mut fleet = Fleet::muster(&workers(2), &json!("count")).expect("workers");
        let control = Control::new(1.0);
        let mut seen = 0;
        let result = fleet.run("wait", &control, |_| {
            seen += 1;
            if seen == 3 {
                control.set_rate(5.0);
                control.stop();
            }
        });
        assert!(result.is_ok(), "{result:?}");
        let failed = fleet.run("fail", &Control::new(0.0), |_| ());
        assert!(failed.is_err_and(|error| error.to_string().contains("as asked")));
        assert!(Fleet::muster(&workers(1), &json!("dance")).is_err());
    }
}
