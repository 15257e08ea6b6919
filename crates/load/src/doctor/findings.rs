//! Sentences: which part of the latency is whose, and why.
//!
//! Means add up, so shares of the mean are exact. Percentiles do not; what is said of p99 compares the part's own p99
//! with the whole's, and is said only where one part dominates.

use super::activity::Seen;
use super::sockets::Sockets;
use crate::tally::{Latencies, Tally};

/// What is known of a run besides its tally.
#[derive(Clone, Copy, Debug, Default)]
pub struct Circumstances {
    /// Connections of the client.
    pub connections: usize,
    /// Requests in flight on each.
    pub pipeline: usize,
    /// Threads of the client.
    pub threads: usize,
    /// CPU seconds that the client used.
    pub client_cpu: f64,
    /// CPU seconds that the server's process used, if it runs here.
    pub server_cpu: Option<f64>,
    /// Seconds that threads of the server were ready and did not run.
    pub server_waited: Option<f64>,
}

/// What a process that drove load knows of itself and its machine: the coordinator of workers has to ask them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Surroundings {
    /// How long it drove.
    pub seconds: f64,
    /// How often its threads were taken off their CPUs with more to do.
    pub interrupted: u64,
    /// Its connections.
    pub sockets: Sockets,
    /// What its machine did meanwhile.
    pub seen: Seen,
}

/// A part that makes up this much of the whole is worth naming as the cause.
const MOST: f64 = 0.5;
/// A thread this busy is the limit.
const SATURATED: f64 = 0.9;
/// So many forced pauses per second of the client are worth telling.
const INTERRUPTED: f64 = 10.0;

/// What follows from a run.
#[must_use]
pub fn findings(tally: &Tally, about: &Circumstances) -> Vec<String> {
    let mut out = Vec::new();
    let all = tally.latencies(None);
    if all.count() == 0 {
        return vec!["Nothing succeeded, so there is no latency to explain.".to_owned()];
    }
    shares(tally, &all, &mut out);
    client(tally, &all, about, &mut out);
    server(tally, about, &mut out);
    out
}

/// What follows for the process that drove the load.
#[must_use]
pub fn surroundings(about: &Surroundings) -> Vec<String> {
    let mut out = Vec::new();
    interruptions(about, &mut out);
    connections(&about.sockets, &mut out);
    machine(&about.seen, &mut out);
    out
}

/// What several processes found, each sentence once with those who say it. Sentences of all stand first.
#[must_use]
pub fn of_workers(told: &[(String, Vec<String>)]) -> Vec<String> {
    let mut sentences: Vec<(&str, Vec<&str>)> = Vec::new();
    for (worker, said) in told {
        for sentence in said {
            match sentences.iter_mut().find(|(known, _)| known == sentence) {
                Some((_, workers)) => workers.push(worker),
                None => sentences.push((sentence, vec![worker])),
            }
        }
    }
    sentences.sort_by_key(|(_, workers)| std::cmp::Reverse(workers.len()));
    let told = |(sentence, workers): (&str, Vec<&str>)| match workers.len() {
        all if all == told.len() => format!("Every worker: {sentence}"),
        _ => format!("{}: {sentence}", workers.join(", ")),
    };
    sentences.into_iter().map(told).collect()
}

fn sum(latencies: &Latencies) -> f64 {
    latencies.mean_us() * latencies.count() as f64
}

/// The mean, split.
fn shares(tally: &Tally, all: &Latencies, out: &mut Vec<String>) {
    let whole = sum(all).max(1e-9);
    let percent = |part: f64| (100.0 * part / whole).clamp(0.0, 100.0);
    let split = &tally.split;
    let (queue, server, receive) = (sum(&split.queue), sum(&split.server), sum(&split.receive));
    let mut parts = vec![format!("{:.0} % waiting in the client before it is sent", percent(queue))];
    if split.server.count() > 0 {
        parts.push(format!("{:.0} % in the server by its own account", percent(server)));
    }
    if split.receive.count() > 0 {
        parts.push(format!(
            "{:.0} % waiting in this machine's kernel for the client to read it",
            percent(receive)
        ));
    }
    let rest = whole - queue - server - receive;
    let what = if split.server.count() > 0 {
        "on the network, in sockets and queues on both sides"
    } else {
        "in the server, on the network and in sockets (the server does not say how long it took itself)"
    };
    parts.push(format!("{:.0} % {what}", percent(rest)));
    out.push(format!("An operation took {:.0} us on average: {}.", all.mean_us(), parts.join(", ")));
}

fn client(tally: &Tally, all: &Latencies, about: &Circumstances, out: &mut Vec<String>) {
    let seconds = tally.elapsed.as_secs_f64().max(1e-9);
    let busy = about.client_cpu / seconds / about.threads.max(1) as f64;
    let queued = tally.split.queue.percentile_us(99.0) / all.percentile_us(99.0).max(1e-9);
    let slots = about.connections * about.pipeline;
    if queued >= MOST {
        let why = if busy >= SATURATED {
            format!("its {} threads are busy all the time: give it more", about.threads)
        } else {
            let (connections, pipeline) = (about.connections, about.pipeline);
            format!(
                "no more than {slots} can be under way at a time (connections: {connections}, requests on each: \
                 {pipeline}), and the others wait for one of these places or for the client to get a CPU"
            )
        };
        out.push(format!(
            "{:.0} % of your p99 is spent waiting in your own client: {why}.",
            (100.0 * queued).min(100.0)
        ));
    } else if busy >= SATURATED {
        out.push(format!(
            "The client's threads are busy {:.0} % of the time: more load needs more threads.",
            busy * 100.0
        ));
    }
    if tally.unsent > 0 {
        out.push(format!(
            "{} operations were due and never sent: this rate is above what was possible.",
            tally.unsent
        ));
    }
}

fn interruptions(about: &Surroundings, out: &mut Vec<String>) {
    let interrupted = about.interrupted as f64 / about.seconds.max(1e-9);
    if interrupted >= INTERRUPTED {
        out.push(format!(
            "The client's threads were taken off their CPUs {interrupted:.0} times per second with more to do: such pauses \
             of its own are in the latencies, as a garbage collector's would be."
        ));
    }
}

fn connections(sockets: &Sockets, out: &mut Vec<String>) {
    let kib = |bytes: Option<usize>| {
        bytes.map_or_else(|| "not available".to_owned(), |bytes| format!("{:.0} KiB", bytes as f64 / 1024.0))
    };
    let told = |number: Option<u64>| number.map_or_else(|| "not available".to_owned(), |n| n.to_string());
    out.push(format!(
        "{} connections: send buffers of at least {}, receive buffers of at least {}, segments sent again {}, longest \
         round trip (kernel's mean, us) {}.",
        sockets.count,
        kib(sockets.send_buffer),
        kib(sockets.receive_buffer),
        told(sockets.sent_again),
        told(sockets.round_trip_us.map(u64::from))
    ));
    match sockets.delayed {
        Some(0) => {}
        Some(delayed) => out.push(format!(
            "{delayed} connections hold small requests back until the last is acknowledged (Nagle), up to 40 ms: set \
             TCP_NODELAY."
        )),
        None => out.push("Whether connections hold small requests back (Nagle) is not available.".to_owned()),
    }
}

fn server(tally: &Tally, about: &Circumstances, out: &mut Vec<String>) {
    let seconds = tally.elapsed.as_secs_f64().max(1e-9);
    if let Some(cpu) = about.server_cpu {
        let each = cpu * 1e6 / tally.done().max(1) as f64;
        out.push(format!("The server used {:.2} cores, {each:.1} us per operation.", cpu / seconds));
    }
    if let Some(waited) = about.server_waited.filter(|waited| *waited > 0.01 * seconds) {
        out.push(format!(
            "Threads of the server were ready and waited for a CPU for {waited:.2} s in {seconds:.0} s: it shares its \
             cores with something, perhaps with this client."
        ));
    }
    let retried = tally.temporary;
    if retried > 0 {
        out.push(format!(
            "The server asked {retried} times to try again later: its memory or disk is the limit."
        ));
    }
}

fn machine(seen: &Seen, out: &mut Vec<String>) {
    if let Some(stolen) = seen.stolen.filter(|stolen| *stolen > 0.01) {
        out.push(format!("The hypervisor gave {:.1} % of the CPU time to others.", stolen * 100.0));
    }
    if let Some(busy) = seen.busy.filter(|busy| *busy > SATURATED) {
        out.push(format!("All CPUs of this machine together were busy {:.0} % of the time.", busy * 100.0));
    }
    if let Some(lost) = seen.retransmitted.filter(|lost| *lost > 0.001) {
        out.push(format!("{:.2} % of the TCP segments were sent again: packets are lost.", lost * 100.0));
    }
    if let (Some(switches), Some(interrupts)) = (seen.switches, seen.interrupts) {
        out.push(format!(
            "This machine made {switches:.0} context switches and took {interrupts:.0} interrupts per second."
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::{Class, Op};
    use std::time::Duration;

    fn tally(queue_us: u64, server_us: u64, rest_us: u64) -> Tally {
        let mut tally = Tally::default();
        for _ in 0..1000 {
            tally.record(Op::Get, Class::Success, (queue_us + server_us + rest_us) * 1000);
            tally.split.queue.record(queue_us * 1000);
            tally.split.service.record((server_us + rest_us) * 1000);
            tally.split.server.record(server_us * 1000);
        }
        tally.elapsed = Duration::from_secs(10);
        tally
    }

    fn about() -> Circumstances {
        Circumstances { connections: 1, pipeline: 1, threads: 8, client_cpu: 4.0, ..Circumstances::default() }
    }

    #[test]
    fn a_client_that_waits_for_itself_is_told() {
        let text = findings(&tally(820, 60, 120), &about()).join("\n");
        assert!(text.contains("82 % waiting in the client"), "{text}");
        assert!(text.contains("6 % in the server"), "{text}");
        assert!(
            text.contains("82 % of your p99 is spent waiting in your own client: no more than 1 can be"),
            "{text}"
        );
        let busy = findings(&tally(820, 60, 120), &Circumstances { client_cpu: 79.0, ..about() }).join("\n");
        assert!(busy.contains("its 8 threads are busy all the time"), "{busy}");
    }

    #[test]
    fn connections_and_pauses_are_told() {
        let good = Sockets {
            count: 3,
            delayed: Some(0),
            send_buffer: Some(87_040),
            receive_buffer: Some(131_072),
            sent_again: Some(7),
            round_trip_us: None,
        };
        let calm = Surroundings { seconds: 10.0, sockets: good, ..Surroundings::default() };
        let told = |about: &Surroundings| surroundings(about).join("\n");
        let text = told(&calm);
        let expected = "3 connections: send buffers of at least 85 KiB, receive buffers of at least 128 KiB, segments \
                        sent again 7, longest round trip (kernel's mean, us) not available.";
        assert!(text.contains(expected) && !text.contains("Nagle") && !text.contains("pauses"), "{text}");
        let slow = Sockets { delayed: Some(2), ..good };
        let text = told(&Surroundings { sockets: slow, interrupted: 500, ..calm });
        assert!(text.contains("2 connections hold small requests back"), "{text}");
        assert!(text.contains("taken off their CPUs 50 times per second"), "{text}");
    }

    #[test]
    fn workers_say_together_what_they_have_in_common() {
        let said = |name: &str, all: &[&str]| {
            (name.to_owned(), all.iter().map(|sentence| (*sentence).to_owned()).collect::<Vec<_>>())
        };
        let told =
            of_workers(&[said("a:1", &["slow", "swaps"]), said("b:1", &["swaps"]), said("c:1", &["swaps"])]);
        assert_eq!(told, ["Every worker: swaps", "a:1: slow"]);
        assert!(of_workers(&[]).is_empty());
    }

    #[test]
    fn nobody_is_accused_without_reason() {
        let text = findings(&tally(5, 60, 120), &about()).join("\n");
        assert!(!text.contains("own client") && !text.contains("waited for a CPU"), "{text}");
        let crowded = Circumstances { server_cpu: Some(5.0), server_waited: Some(3.0), ..about() };
        let text = findings(&tally(5, 60, 120), &crowded).join("\n");
        assert!(
            text.contains("0.50 cores, 5000.0 us per operation")
                && text.contains("waited for a CPU for 3.00 s"),
            "{text}"
        );
        assert_eq!(findings(&Tally::default(), &about()).len(), 1);
    }
}
