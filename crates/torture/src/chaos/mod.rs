//! Chaos: a cluster that is killed, stopped, cut apart, failed over and rebalanced while it serves, from one seed.
//!
//! Load with validation runs at a constant rate ([`traffic`]). One [`event`] after the other is done to the cluster.
//! Each time it must come to rest by itself or with the help that an administrator would give. What is printed per
//! event is what users would have felt. It tells of failed operations, from the first to the last, of those that were
//! refused for now, and of the slowest one. A planned event may be felt as "not my vBucket" only: clients get no
//! other refusal, and none waits longer than SDKs do. In the end everything is read back. No durable write may be
//! lost, stale, torn or resurrected, whatever was done. Nor may any write that had reached the replicas before a node
//! was hurt, or was acknowledged while all nodes were treated gracefully. Only nodes that were hurt may be failed
//! over. Clients that record histories ([`history`]) work beside, for a checker of linearisability. Some of these ask
//! one node each, whatever maps say.
//!
//! What hangs on time is not held against a cluster whose machine stood still ([`Pulse`]).

pub mod event;
pub mod history;
mod pinned;
mod rebalance;
mod summary;
pub mod traffic;
mod views;

use crate::TortureError;
use crate::checks::Checks;
use crate::cluster::LocalCluster;
use crate::cluster::network::Network;
use crate::pulse::Pulse;
use crate::target::Target;
use base::bucket::DurabilityLevel;
use event::{Event, Schedule};
use history::Recorder;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use summary::Summary;
use traffic::{Felt, Kind, Traffic};
use views::Views;

/// After an event has ended: what it left behind would show here.
const QUIET: Duration = Duration::from_secs(1);
/// How long SDKs wait for an operation that is not durable. Any that is measured here takes less while nothing goes wrong. So
/// nobody may wait longer beside a planned event.
const PLANNED_WAIT: Duration = Duration::from_millis(2_500);
/// A client that waits longer for an answer has been given up by then.
const LONGEST_WAIT: Duration = Duration::from_millis(12_500);
/// How long the cluster may take to fail a dead node over, beyond its timeout.
const NOTICE: Duration = Duration::from_secs(30);
/// A machine that stands still for this part of the timeout of automatic failover is to blame for whatever comes too late.
const STANDSTILLS_PER_TIMEOUT: u32 = 4;
/// The load whose writes are not durable.
const PLAIN: &str = "plain";
const LOOK: Duration = Duration::from_millis(200);

/// What is done.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Repeats the order of events, the nodes they hit, and their pauses.
    pub seed: u64,
    /// Ends after so many events.
    pub events: u64,
    /// Or after so long.
    pub time: Duration,
    /// The kinds of events.
    pub kinds: Vec<Event>,
    /// When durable writes are acknowledged.
    pub level: DurabilityLevel,
    /// Operations per second of the durable and the plain load.
    pub rates: (f64, f64),
    /// Documents of each.
    pub records: u64,
    /// Seconds after which the cluster fails a silent node over.
    pub auto_failover: u64,
    /// Where the histories go.
    pub history: Option<PathBuf>,
    /// A directory on the disk that the nodes use.
    pub dir: PathBuf,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What had to hold.
    pub checks: Checks,
    /// Everything, for a file.
    pub report: Value,
}

struct Chaos {
    cluster: LocalCluster,
    schedule: Schedule,
    traffic: Vec<Traffic>,
    began: Instant,
    auto_failover: Duration,
    pulse: Pulse,
    checks: Checks,
    rows: Vec<Value>,
    summary: Summary,
    wanted: Vec<Event>,
    /// Which of the two kinds that kill in a rebalance begins with the node that leads: the first of them?
    leader_first: bool,
    /// Whether the leader is next to be hurt by a kind of event.
    leaders_turn: BTreeMap<Event, bool>,
}

/// Does all of it to a cluster.
///
/// # Errors
/// The scenario could not be carried out; what it found until then has been printed.
pub fn run(plan: &Plan, cluster: LocalCluster) -> Result<Outcome, TortureError> {
    let (kinds, left_out) = possible_kinds(plan, &cluster);
    let login = cluster.login();
    let seeds: Vec<String> = (0..cluster.len()).map(|node| cluster.address(node)).collect();
    let kinds_of_load = [
        Kind {
            name: "durable",
            level: Some(plan.level),
            rate: plan.rates.0,
            records: plan.records,
            connections: 8,
        },
        Kind { name: PLAIN, level: None, rate: plan.rates.1, records: plan.records, connections: 8 },
    ];
    let mut traffic = Vec::new();
    for kind in &kinds_of_load {
        traffic.push(Traffic::start(kind, &cluster.seed(), login.clone(), plan.seed)?);
    }
    let views = Views::start(&cluster, plan.level, plan.seed)?;
    let recorder = match &plan.history {
        Some(path) => Some(Recorder::start(&seeds, &login, plan.level, plan.seed, path)?),
        None => None,
    };
    if let Some((left_out, reason)) = &left_out {
        let names: Vec<_> = left_out.iter().map(|event| event.name()).collect();
        println!("left out, because there are no network namespaces ({reason}): {}", names.join(", "));
    }
    let mut schedule = Schedule::new(kinds, plan.seed);
    let leader_first = schedule.coin();
    let mut chaos = Chaos {
        cluster,
        schedule,
        traffic,
        began: Instant::now(),
        auto_failover: Duration::from_secs(plan.auto_failover),
        pulse: Pulse::start(&plan.dir)?,
        checks: Checks::default(),
        rows: Vec::new(),
        summary: Summary::new(left_out),
        wanted: plan.kinds.clone(),
        leader_first,
        leaders_turn: BTreeMap::new(),
    };
    let mut events = 0;
    while events < plan.events && chaos.began.elapsed() < plan.time {
        let Some(event) = chaos.schedule.draw(chaos.cluster.members().len(), chaos.cluster.spares().len())
        else {
            break;
        };
        events += 1;
        if !chaos.carry_out(event)? {
            // What follows would only show the same again.
            break;
        }
    }
    chaos.checks.add("events were carried out", events > 0, events.to_string());
    if let Some((recorder, path)) = recorder.zip(plan.history.as_ref()) {
        let recorded = recorder.finish()?;
        let found = format!(
            "{} operations, {} without an answer, in {}",
            recorded.operations,
            recorded.lost,
            path.display()
        );
        chaos.checks.add("histories were recorded", recorded.operations > 0, found);
    }
    chaos.judge_views(views)?;
    chaos.finish()
}

/// The kinds that this machine allows, and those that it does not with the reason.
fn possible_kinds(plan: &Plan, cluster: &LocalCluster) -> (Vec<Event>, Option<(Vec<Event>, String)>) {
    let Err(reason) = cluster.network() else { return (plan.kinds.clone(), None) };
    let (left_out, kinds): (Vec<Event>, Vec<Event>) =
        plan.kinds.iter().partition(|event| event.needs_network());
    (kinds, (!left_out.is_empty()).then(|| (left_out, reason.to_owned())))
}

/// What was done to the cluster.
struct Deed {
    /// In words.
    what: String,
    /// The nodes that may be failed over for it.
    hurt: Vec<usize>,
    /// What had to hold of the deed itself, whether it did, and what was found.
    held: Vec<(&'static str, bool, String)>,
}

impl Deed {
    fn new(what: String, hurt: Vec<usize>) -> Deed {
        Deed { what, hurt, held: Vec::new() }
    }

    fn with(mut self, what: &'static str, holds: bool, found: String) -> Deed {
        self.held.push((what, holds, found));
        self
    }
}

impl Chaos {
    fn say(&self, what: &str) {
        println!("{:7.1}  {what}", self.began.elapsed().as_secs_f64());
    }

    /// Notes what must hold, unless it does not and the machine is to blame, which has stood still for so long.
    fn expect(&mut self, what: String, holds: bool, found: String, still: Duration) {
        if holds || still < self.auto_failover / STANDSTILLS_PER_TIMEOUT {
            self.checks.add(what, holds, found);
        } else {
            let still = still.as_secs_f64();
            println!("  not judged, because the machine stood still for {still:.1} s: {what}: {found}");
        }
    }

    /// Does one thing to the cluster and sees it to its end; whether it came to rest.
    fn carry_out(&mut self, event: Event) -> Result<bool, TortureError> {
        if !event.is_graceful() && !self.lets_acks_be_lost(event) {
            return Ok(false);
        }
        self.pulse.longest();
        let begun = Instant::now();
        let done = self.inflict(event);
        let settled = done.and_then(|deed| Ok((deed, self.come_to_rest()?)));
        let took = begun.elapsed().as_secs_f64();
        let rested = Instant::now();
        std::thread::sleep(QUIET);
        let longest = if event.is_graceful() { PLANNED_WAIT } else { LONGEST_WAIT };
        self.traffic.iter().for_each(|traffic| traffic.await_answers(rested, longest));
        self.traffic.iter().for_each(|traffic| traffic.set_acks_may_be_lost(false));
        let still = self.pulse.longest();
        let felt: Vec<(&'static str, Felt)> =
            self.traffic.iter().map(|traffic| (traffic.kind.name, traffic.felt_since(begun))).collect();
        let what = match &settled {
            Ok((deed, _)) => deed.what.clone(),
            Err(error) => format!("{event}: {error}"),
        };
        let words: Vec<String> = felt.iter().map(|(name, felt)| in_words(name, felt)).collect();
        self.say(&format!("{what}; at rest after {took:.1} s; {}", words.join("; ")));
        self.note(event, &what, (begun, took), still, &felt);
        let found = match &settled {
            Ok(_) => format!("after {took:.1} s"),
            Err(error) => error.to_string(),
        };
        self.checks.add(format!("{event}: the cluster comes to rest"), settled.is_ok(), found);
        if let Ok((deed, failed_over)) = &settled {
            for (what, holds, found) in &deed.held {
                self.checks.add(format!("{event}: {what}"), *holds, found.clone());
            }
            let others: Vec<_> = failed_over.iter().filter(|node| !deed.hurt.contains(node)).collect();
            let found = if others.is_empty() { "nobody".to_owned() } else { format!("nodes {others:?}") };
            self.expect(format!("{event}: nobody else is failed over"), others.is_empty(), found, still);
        }
        if event.is_graceful() {
            self.judge_planned(event, &felt, still);
        }
        if self.traffic.iter().any(Traffic::has_ended) {
            self.checks.add("the load goes on", false, "it has ended early");
            return Ok(false);
        }
        Ok(settled.is_ok())
    }

    /// Keeps what an event came to, for the report and the summary.
    fn note(
        &mut self,
        event: Event,
        what: &str,
        (begun, took): (Instant, f64),
        still: Duration,
        felt: &[(&'static str, Felt)],
    ) {
        self.rows.push(json!({
            "event": event.name(), "what": what, "seconds": took,
            "at": begun.duration_since(self.began).as_secs_f64(),
            "machine_stood_still_seconds": still.as_secs_f64(),
            "felt": felt.iter().map(|(name, felt)| json!({
                "load": name, "done": felt.done, "failed": felt.failed, "temporary": felt.temporary,
                "sent_elsewhere": felt.moved, "refusals": felt.refusals, "window_seconds": felt.window,
                "silence_seconds": felt.silence, "slowest_seconds": felt.slowest,
            })).collect::<Vec<_>>(),
        }));
        let slowest = |plain: bool| {
            let of = felt.iter().filter(|(name, _)| (*name == PLAIN) == plain);
            of.map(|(_, felt)| felt.slowest).fold(0.0, f64::max)
        };
        self.summary.add(event, took, slowest(false), slowest(true));
    }

    /// Of what is planned nothing may be felt but that vBuckets are elsewhere.
    fn judge_planned(&mut self, event: Event, felt: &[(&'static str, Felt)], still: Duration) {
        // With one copy left of two there is no majority, and durable writes are refused until the other is back.
        let is_short = event == Event::GracefulFailover && self.cluster.replicas() < 2;
        let judged: Vec<_> = felt.iter().filter(|(name, _)| !is_short || *name == PLAIN).collect();
        let found: Vec<String> = judged
            .iter()
            .map(|(name, felt)| match felt.refused() {
                0 => format!("{name}: none, {} x \"not my vBucket\"", felt.moved),
                _ => format!(
                    "{name}: {} failed, {} temporary failures: {}",
                    felt.failed,
                    felt.temporary,
                    felt.refusals_in_words()
                ),
            })
            .collect();
        self.expect(
            format!("{event}: no answer but success, expected misses and \"not my vBucket\""),
            judged.iter().all(|(_, felt)| felt.refused() == 0),
            found.join("; "),
            still,
        );
        let found: Vec<String> =
            judged.iter().map(|(name, felt)| format!("{name}: {:.2} s", felt.slowest)).collect();
        let longest = PLANNED_WAIT.as_secs_f64();
        self.expect(
            format!("{event}: no operation takes longer than {longest} s"),
            judged.iter().all(|(_, felt)| felt.slowest <= longest),
            found.join("; "),
            still,
        );
    }

    /// Sees to it that the cluster comes to rest, and that its copies follow. After a link was cut and has healed, it takes
    /// some time until messages get over it. Returns the nodes that had been failed over.
    fn come_to_rest(&mut self) -> Result<BTreeSet<usize>, TortureError> {
        let failed_over = self.cluster.mend(self.schedule.coin())?;
        self.cluster.await_copies()?;
        Ok(failed_over)
    }

    /// From now on what is acknowledged without durability may be lost; what was so far has reached the replicas when this
    /// returns. Whether it has.
    fn lets_acks_be_lost(&mut self, event: Event) -> bool {
        self.traffic.iter().for_each(|traffic| traffic.set_acks_may_be_lost(true));
        let replicated = self.cluster.await_copies();
        if let Err(error) = &replicated {
            let what = format!("before {event}: replicas get what was acknowledged");
            self.checks.add(what, false, error.to_string());
        }
        replicated.is_ok()
    }

    /// The deed itself.
    fn inflict(&mut self, event: Event) -> Result<Deed, TortureError> {
        let members = self.cluster.members().to_vec();
        let node = self.schedule.choose(&members);
        match event {
            Event::Kill => {
                let pause = self.schedule.millis(200..2_000);
                self.cluster.kill(node)?;
                std::thread::sleep(pause);
                self.cluster.restart(node)?;
                let pause = pause.as_secs_f64();
                Ok(Deed::new(format!("kill -9 of node {node}, started again after {pause:.1} s"), vec![node]))
            }
            Event::KillFailover => {
                self.cluster.kill(node)?;
                std::thread::sleep(self.schedule.millis(100..1_500));
                self.cluster.fail_over(node, false)?;
                std::thread::sleep(self.schedule.millis(500..3_000));
                self.cluster.restart(node)?;
                Ok(Deed::new(format!("kill -9 of node {node}, failed over by hand, recovered"), vec![node]))
            }
            Event::KillAutoFailover => {
                self.cluster.kill(node)?;
                let noticed = self.await_failover(node)?;
                self.cluster.restart(node)?;
                let what =
                    format!("kill -9 of node {node}, failed over by itself after {noticed:.1} s, recovered");
                Ok(Deed::new(what, vec![node]))
            }
            Event::Pause => {
                // Half of what it takes to be failed over.
                let most = (self.auto_failover.as_millis() as u64 / 2).max(600);
                let pause = self.schedule.millis(500..most);
                self.cluster.process(node).freeze(true)?;
                std::thread::sleep(pause);
                self.cluster.process(node).freeze(false)?;
                Ok(Deed::new(format!("SIGSTOP of node {node} for {:.1} s", pause.as_secs_f64()), vec![node]))
            }
            Event::PauseAutoFailover => self.pause_until_failed_over(event),
            Event::Isolate => {
                let others = self.all_but(node);
                self.cut(&[node], &others)?;
                self.cut(&others, &[node])?;
                let noticed = self.await_failover(node);
                std::thread::sleep(self.schedule.millis(0..2_000));
                self.network()?.heal()?;
                let noticed = noticed?;
                let what =
                    format!("node {node} cut off, failed over by itself after {noticed:.1} s, recovered");
                Ok(Deed::new(what, vec![node]))
            }
            Event::Mute | Event::Deaf | Event::Unlink | Event::Split => self.cut_for_a_while(event, node),
            Event::GracefulFailover => self.fail_over_gracefully(node),
            Event::RebalanceIn | Event::RebalanceOut | Event::Swap => self.rebalance(event, node),
            Event::StopRebalance => self.stop_rebalance(),
            Event::KillInRebalance => self.kill_in_rebalance(event),
            Event::FailoverInRebalance => self.fail_over_in_rebalance(event),
        }
    }

    /// Freezes a node until the cluster has failed it over and others have written what it does not know of.
    fn pause_until_failed_over(&mut self, event: Event) -> Result<Deed, TortureError> {
        // The node that leads hears last of what was decided without it.
        let (node, name) = self.victim(event)?;
        self.cluster.process(node).freeze(true)?;
        let noticed = self.await_failover(node);
        std::thread::sleep(self.schedule.millis(2_000..5_000));
        self.cluster.process(node).freeze(false)?;
        let noticed = noticed?;
        let what = format!("{name} was frozen, failed over by itself after {noticed:.1} s, recovered");
        Ok(Deed::new(what, vec![node]))
    }

    /// Waits until the cluster has failed a node over; how long that took, in seconds.
    fn await_failover(&self, node: usize) -> Result<f64, TortureError> {
        let (began, hostname) = (Instant::now(), self.cluster.hostname(node));
        let except = [vec![node], self.cluster.spares()].concat();
        while began.elapsed() < self.auto_failover + NOTICE {
            let state = self.cluster.admin().state(&except);
            let failed = state.is_ok_and(|(state, _)| {
                state.at(&hostname).is_some_and(|member| member.membership == "inactiveFailed")
            });
            if failed {
                return Ok(began.elapsed().as_secs_f64());
            }
            std::thread::sleep(LOOK);
        }
        Err(TortureError::Node(format!("node {node} is not failed over by the cluster")))
    }

    fn network(&self) -> Result<&Network, TortureError> {
        self.cluster.network().map_err(|reason| TortureError::Node(reason.to_owned()))
    }

    fn all_but(&self, node: usize) -> Vec<usize> {
        (0..self.cluster.len()).filter(|other| *other != node).collect()
    }

    /// From now on nothing that one of these nodes sends reaches one of those.
    fn cut(&self, from: &[usize], to: &[usize]) -> Result<(), TortureError> {
        for &sender in from {
            for &receiver in to {
                self.network()?.cut(sender, receiver)?;
            }
        }
        Ok(())
    }

    /// Cuts links, and heals them sometimes before anybody would be failed over for it, sometimes later.
    fn cut_for_a_while(&mut self, event: Event, node: usize) -> Result<Deed, TortureError> {
        let others = self.all_but(node);
        let mut members = self.cluster.members().to_vec();
        let (what, hurt) = match event {
            Event::Mute => {
                self.cut(&[node], &others)?;
                (format!("what node {node} sends to others is lost"), vec![node])
            }
            Event::Deaf => {
                self.cut(&others, &[node])?;
                (format!("what others send to node {node} is lost"), vec![node])
            }
            Event::Unlink => {
                members.retain(|member| *member != node);
                let other = self.schedule.choose(&members);
                self.cut(&[node], &[other])?;
                self.cut(&[other], &[node])?;
                (format!("nodes {node} and {other} do not hear of each other"), vec![node, other])
            }
            _ => {
                self.schedule.shuffle(&mut members);
                let (few, many) = members.split_at(members.len() / 2);
                self.cut(few, many)?;
                self.cut(many, few)?;
                // Of two halves that are equal neither may decide anything.
                let hurt = if few.len() < many.len() { few.to_vec() } else { Vec::new() };
                (format!("nodes {few:?} and {many:?} do not hear of each other"), hurt)
            }
        };
        let most = self.auto_failover.as_millis() as u64 * 3 / 2;
        let pause = self.schedule.millis(500..most);
        std::thread::sleep(pause);
        self.network()?.heal()?;
        Ok(Deed::new(format!("{what} for {:.1} s", pause.as_secs_f64()), hurt))
    }

    /// Ends the readers of a view, whose every answer was held against what was acknowledged.
    fn judge_views(&mut self, views: Views) -> Result<(), TortureError> {
        let (seen, last) = views.finish()?;
        let first = seen.wrong.first().map_or("none", String::as_str);
        let found = format!(
            "{} answers, {} refused or with errors, {} wrong: {first}",
            seen.right,
            seen.refused,
            seen.wrong.len()
        );
        let is_right = seen.wrong.is_empty() && seen.right > 0;
        self.checks.add("views: every answer has what was acknowledged, and each row once", is_right, found);
        let found = last.as_ref().err().cloned().unwrap_or_else(|| "it is".to_owned());
        self.checks.add("views: the answer of a cluster at rest is whole", last.is_ok(), found);
        self.rows.push(json!({
            "load": "views", "right": seen.right, "refused": seen.refused, "wrong": seen.wrong,
        }));
        Ok(())
    }

    /// Reads everything back and judges.
    fn finish(mut self) -> Result<Outcome, TortureError> {
        self.say("reading everything back");
        for traffic in std::mem::take(&mut self.traffic) {
            let (name, durable) = (traffic.kind.name, traffic.kind.level.is_some());
            let outcome = traffic.finish()?;
            let violations = outcome.violations();
            let what = if durable {
                "durable: nothing that was acknowledged is lost, stale, torn or back from the dead"
            } else {
                "plain: nothing is lost that replicas had, or that was acknowledged while nodes were treated gracefully"
            };
            let found = if violations.is_empty() { "none".to_owned() } else { violations.join(", ") };
            let is_fine = violations.is_empty() && outcome.failure.is_none() && outcome.is_whole;
            self.checks.add(what, is_fine, format!(
                "{found}; {} operations, {} failed, {} tried again elsewhere, {} connections made again, {} documents read back, {} absent{}{}",
                outcome.tally.done(),
                outcome.tally.failed(),
                outcome.tally.moved,
                outcome.tally.reconnects,
                outcome.sweep.ok(),
                outcome.sweep.misses(),
                if outcome.is_whole { "" } else { "; NOT ALL could be read back" },
                outcome.failure.as_deref().map_or_else(String::new, |failure| format!("; it ended early: {failure}"))
            ));
            for (failure, count) in &outcome.tally.failures {
                println!("         {name}: {count} x {failure}");
            }
            outcome.histories().for_each(|history| println!("         {history}"));
            self.rows.push(json!({
                "load": name, "done": outcome.tally.done(), "failed": outcome.tally.failed(),
                "failures": outcome.tally.failures, "violations": violations,
                "histories": outcome.histories().collect::<Vec<_>>(),
            }));
        }
        let failed = self.checks.failed();
        println!("\nSeconds, the worst of all events of a kind:\n\n{}", self.summary.table());
        println!("{} checks, {failed} failed", self.checks.made());
        for failure in self.checks.failures() {
            println!("  FAILED {}: {}", failure.what, failure.found);
        }
        let not_tried = self.summary.not_tried(&self.wanted);
        not_tried.iter().for_each(|line| println!("{line}"));
        let report = json!({
            "checks": self.checks.to_json(), "failed": failed, "events": self.rows,
            "kinds": self.summary.to_json(), "not_tried": not_tried,
        });
        Ok(Outcome { checks: self.checks, report })
    }
}

fn in_words(name: &str, felt: &Felt) -> String {
    let errors = match felt.failed {
        0 => "no errors".to_owned(),
        failed => format!("{failed} errors within {:.1} s", felt.window),
    };
    let temporary = match felt.temporary {
        0 => String::new(),
        temporary => format!(", {temporary} temporary failures"),
    };
    let why = if felt.refused() > 0 { format!(" ({})", felt.refusals_in_words()) } else { String::new() };
    let moved = if felt.moved > 0 { format!(", {} x not my vBucket", felt.moved) } else { String::new() };
    let silence =
        if felt.silence > 0.0 { format!(", silence of {:.1} s", felt.silence) } else { String::new() };
    format!("{name}: {errors}{temporary}{why}{moved}, slowest {:.1} s{silence}", felt.slowest)
}
