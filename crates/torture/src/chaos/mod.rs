//! Chaos: a cluster that is killed, stopped, cut apart, failed over and rebalanced while it serves, from one seed.
//!
//! Load with validation runs at a constant rate ([`traffic`]); one [`event`] after the other is done to the cluster, and
//! each time it must come to rest by itself or with the help that an administrator would give. What is printed per event
//! is what users would have felt: failed operations, from the first to the last, and the longest silence. In the end
//! everything is read back: no durable write may be lost, stale, torn or resurrected, whatever was done; no write at all
//! while nodes were treated gracefully. Clients that record histories ([`history`]) work beside, for a checker of
//! linearisability.

pub mod event;
pub mod history;
pub mod traffic;

use crate::TortureError;
use crate::checks::Checks;
use crate::cluster::{LocalCluster, admin};
use crate::target::Target;
use base::bucket::DurabilityLevel;
use event::{Event, Schedule};
use history::Recorder;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use traffic::{Felt, Kind, Traffic};

/// After an event has ended: what it left behind would show here.
const QUIET: Duration = Duration::from_secs(2);
/// How long a rebalance may take to go on by itself after a node was killed in it.
const RESUME: Duration = Duration::from_secs(180);
/// How long the cluster may take to fail a dead node over, beyond its timeout.
const NOTICE: Duration = Duration::from_secs(30);
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
    checks: Checks,
    rows: Vec<Value>,
}

/// Does all of it to a cluster.
///
/// # Errors
/// The scenario could not be carried out; what it found until then has been printed.
pub fn run(plan: &Plan, cluster: LocalCluster) -> Result<Outcome, TortureError> {
    let kinds = possible_kinds(plan, &cluster);
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
    let recorder = match &plan.history {
        Some(_) => Some(Recorder::start(&seeds, &login, plan.level, plan.seed)?),
        None => None,
    };
    let mut chaos = Chaos {
        cluster,
        schedule: Schedule::new(kinds, plan.seed),
        traffic,
        began: Instant::now(),
        auto_failover: Duration::from_secs(plan.auto_failover),
        checks: Checks::default(),
        rows: Vec::new(),
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
        let recorded = recorder.finish(path)?;
        let found = format!(
            "{} operations, {} without an answer, in {}",
            recorded.operations,
            recorded.lost,
            path.display()
        );
        chaos.checks.add("histories were recorded", recorded.operations > 0, found);
    }
    chaos.finish()
}

/// The kinds that this machine allows; says what it leaves out.
fn possible_kinds(plan: &Plan, cluster: &LocalCluster) -> Vec<Event> {
    let Err(reason) = cluster.network() else { return plan.kinds.clone() };
    let (left_out, kinds): (Vec<Event>, Vec<Event>) =
        plan.kinds.iter().partition(|event| event.needs_network());
    if !left_out.is_empty() {
        let names: Vec<_> = left_out.iter().map(|event| event.name()).collect();
        println!("left out, because there are no network namespaces ({reason}): {}", names.join(", "));
    }
    kinds
}

impl Chaos {
    fn say(&self, what: &str) {
        println!("{:7.1}  {what}", self.began.elapsed().as_secs_f64());
    }

    /// Does one thing to the cluster and sees it to its end; whether it came to rest.
    fn carry_out(&mut self, event: Event) -> Result<bool, TortureError> {
        let hurts = !event.is_graceful();
        let begun = Instant::now();
        self.traffic.iter().for_each(|traffic| traffic.set_doubt(hurts));
        if hurts {
            // What was under way when doubts began has its answer by now, or is in doubt.
            std::thread::sleep(LOOK);
        }
        let done = self.inflict(event);
        let settled = match done {
            Ok(ref what) => {
                let mended = self.cluster.mend(self.schedule.coin());
                mended.map(|_| what.clone())
            }
            Err(error) => Err(error),
        };
        let took = begun.elapsed().as_secs_f64();
        std::thread::sleep(QUIET);
        self.traffic.iter().for_each(|traffic| traffic.set_doubt(false));
        let felt: Vec<(&'static str, Felt)> =
            self.traffic.iter().map(|traffic| (traffic.kind.name, traffic.felt_since(begun))).collect();
        let words: Vec<String> = felt.iter().map(|(name, felt)| in_words(name, felt)).collect();
        let what = settled.as_ref().map_or_else(|error| format!("{event}: {error}"), Clone::clone);
        self.say(&format!("{what}; at rest after {took:.1} s; {}", words.join("; ")));
        self.rows.push(json!({
            "event": event.name(), "what": what, "seconds": took, "at": begun.duration_since(self.began).as_secs_f64(),
            "felt": felt.iter().map(|(name, felt)| json!({
                "load": name, "done": felt.done, "failed": felt.failed, "window_seconds": felt.window,
                "silence_seconds": felt.silence,
            })).collect::<Vec<_>>(),
        }));
        let is_settled = settled.is_ok();
        self.checks.add(
            format!("{event}: the cluster comes to rest"),
            is_settled,
            format!("after {took:.1} s"),
        );
        if event.is_graceful() {
            // With one copy left of two there is no majority, and durable writes are refused until the other is back.
            let is_short = event == Event::GracefulFailover && self.cluster.replicas() < 2;
            let judged = felt.iter().filter(|(name, _)| !is_short || *name == PLAIN);
            let failed: u64 = judged.map(|(_, felt)| felt.failed).sum();
            self.checks.add(format!("{event}: no operation fails"), failed == 0, format!("{failed} failed"));
        }
        if self.traffic.iter().any(Traffic::has_ended) {
            self.checks.add("the load goes on", false, "it has ended early");
            return Ok(false);
        }
        Ok(is_settled)
    }

    /// The deed itself; returns what was done in words.
    fn inflict(&mut self, event: Event) -> Result<String, TortureError> {
        let members = self.cluster.members().to_vec();
        let node = self.schedule.choose(&members);
        match event {
            Event::Kill => {
                let pause = self.schedule.millis(200..2_000);
                self.cluster.kill(node)?;
                std::thread::sleep(pause);
                self.cluster.restart(node)?;
                Ok(format!("kill -9 of node {node}, started again after {:.1} s", pause.as_secs_f64()))
            }
            Event::KillFailover => {
                self.cluster.kill(node)?;
                std::thread::sleep(self.schedule.millis(100..1_500));
                self.fail_over(node, false)?;
                std::thread::sleep(self.schedule.millis(500..3_000));
                self.cluster.restart(node)?;
                Ok(format!("kill -9 of node {node}, failed over by hand, started, recovered"))
            }
            Event::KillAutoFailover => {
                self.cluster.kill(node)?;
                let noticed = self.await_failover(node)?;
                self.cluster.restart(node)?;
                Ok(format!(
                    "kill -9 of node {node}, failed over by the cluster after {noticed:.1} s, started, recovered"
                ))
            }
            Event::Pause => {
                // Half of what it takes to be failed over.
                let most = (self.auto_failover.as_millis() as u64 / 2).max(600);
                let pause = self.schedule.millis(500..most);
                self.cluster.process(node).freeze(true)?;
                std::thread::sleep(pause);
                self.cluster.process(node).freeze(false)?;
                Ok(format!("SIGSTOP of node {node} for {:.1} s", pause.as_secs_f64()))
            }
            Event::PauseAutoFailover => {
                self.cluster.process(node).freeze(true)?;
                let noticed = self.await_failover(node);
                std::thread::sleep(self.schedule.millis(0..2_000));
                self.cluster.process(node).freeze(false)?;
                let noticed = noticed?;
                Ok(format!(
                    "SIGSTOP of node {node}, failed over by the cluster after {noticed:.1} s, SIGCONT, recovered"
                ))
            }
            Event::Isolate | Event::Mute | Event::Deaf => self.cut_off(event, node),
            Event::GracefulFailover => {
                self.fail_over(node, true)?;
                self.await_end_of_rebalance(&[])?;
                Ok(format!("graceful failover of node {node}, recovered"))
            }
            Event::RebalanceIn | Event::RebalanceOut | Event::Swap => {
                let (wanted, what) = self.other_members(event, node);
                self.cluster.change(wanted)?;
                self.await_end_of_rebalance(&[])?;
                Ok(what)
            }
            Event::StopRebalance => {
                let (wanted, what) = self.other_members(Event::Swap, node);
                self.cluster.change(wanted)?;
                std::thread::sleep(self.schedule.millis(200..2_000));
                let (_, rest) = self.cluster.admin().state(&[])?;
                // One that has ended already cannot be stopped.
                let stopped = rest.post("/controller/stopRebalance", &[]).is_ok();
                self.await_end_of_rebalance(&[])?;
                Ok(format!(
                    "{what}, {}",
                    if stopped {
                        "stopped half-way and asked for again"
                    } else {
                        "done before it could be stopped"
                    }
                ))
            }
            Event::KillInRebalance => {
                let (wanted, what) = self.other_members(Event::Swap, node);
                self.cluster.change(wanted.clone())?;
                std::thread::sleep(self.schedule.millis(200..2_000));
                let victim = self.schedule.choose(&wanted);
                self.cluster.kill(victim)?;
                std::thread::sleep(self.schedule.millis(200..1_500));
                self.cluster.restart(victim)?;
                self.await_end_of_rebalance(&[])?;
                Ok(format!("{what}, kill -9 of node {victim} in the middle"))
            }
        }
    }

    /// Who shall be a member after a rebalance of this kind, and that in words.
    fn other_members(&mut self, event: Event, node: usize) -> (Vec<usize>, String) {
        let spares = self.cluster.spares();
        let members = self.cluster.members().to_vec();
        let without =
            |gone: usize| members.iter().copied().filter(|member| *member != gone).collect::<Vec<_>>();
        match event {
            Event::RebalanceOut => (without(node), format!("rebalance without node {node}")),
            Event::RebalanceIn => {
                let new = self.schedule.choose(&spares);
                ([members, vec![new]].concat(), format!("rebalance with node {new}"))
            }
            _ => {
                let new = self.schedule.choose(&spares);
                ([without(node), vec![new]].concat(), format!("rebalance with node {new} for node {node}"))
            }
        }
    }

    fn fail_over(&mut self, node: usize, graceful: bool) -> Result<(), TortureError> {
        let except = if graceful { Vec::new() } else { vec![node] };
        let (state, rest) = self.cluster.admin().state(&[except, self.cluster.spares()].concat())?;
        let hostname = self.cluster.hostname(node);
        let member =
            state.at(&hostname).ok_or_else(|| TortureError::Node(format!("{hostname} is no member")))?;
        admin::fail_over(&rest, member, graceful)
    }

    /// Waits until the cluster has failed a node over; how long that took, in seconds.
    fn await_failover(&mut self, node: usize) -> Result<f64, TortureError> {
        let (began, hostname) = (Instant::now(), self.cluster.hostname(node));
        let except = [vec![node], self.cluster.spares()].concat();
        while began.elapsed() < self.auto_failover + NOTICE {
            let state = self.cluster.admin().state(&except);
            let failed = state.is_ok_and(|(state, _)| {
                state.at(&hostname).is_some_and(|member| member.membership == "inactiveFailed")
            });
            if failed {
                let noticed = began.elapsed().as_secs_f64();
                if let Ok((_, rest)) = self.cluster.admin().state(&except) {
                    // A cluster that was told to stop after some failovers would stop the run.
                    let _ = rest.post("/settings/autoFailover/resetCount", &[]);
                }
                return Ok(noticed);
            }
            std::thread::sleep(LOOK);
        }
        Err(TortureError::Node(format!("node {node} is not failed over by the cluster")))
    }

    /// Waits for the end of whatever rebalances, which nobody helps.
    fn await_end_of_rebalance(&mut self, except: &[usize]) -> Result<(), TortureError> {
        let began = Instant::now();
        while began.elapsed() < RESUME {
            std::thread::sleep(LOOK);
            let except = [except.to_vec(), self.cluster.spares()].concat();
            if self.cluster.admin().state(&except).is_ok_and(|(state, _)| state.rebalancing.is_none()) {
                return Ok(());
            }
        }
        Err(TortureError::Node("the rebalance does not end".to_owned()))
    }

    /// Cuts a node off from the others for a while, clients excepted.
    fn cut_off(&mut self, event: Event, node: usize) -> Result<String, TortureError> {
        let others: Vec<usize> = (0..self.cluster.len()).filter(|other| *other != node).collect();
        let network = self.cluster.network().map_err(|reason| TortureError::Node(reason.to_owned()))?;
        for &other in &others {
            if event != Event::Deaf {
                network.cut(node, other)?;
            }
            if event != Event::Mute {
                network.cut(other, node)?;
            }
        }
        // Sometimes shorter than it takes to be failed over, sometimes longer.
        let most = self.auto_failover.as_millis() as u64 * 2;
        let pause = self.schedule.millis(1_000..most.max(2_000));
        std::thread::sleep(pause);
        self.cluster.network().map_err(|reason| TortureError::Node(reason.to_owned()))?.heal()?;
        let how = match event {
            Event::Mute => "what it sends is lost",
            Event::Deaf => "what is sent to it is lost",
            _ => "cut off from the others",
        };
        Ok(format!("node {node} {how} for {:.1} s", pause.as_secs_f64()))
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
                "plain: nothing that was acknowledged while nodes were treated gracefully is lost"
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
        println!("\n{} checks, {failed} failed", self.checks.made());
        for failure in self.checks.failures() {
            println!("  FAILED {}: {}", failure.what, failure.found);
        }
        let report = json!({"checks": self.checks.to_json(), "failed": failed, "events": self.rows});
        Ok(Outcome { checks: self.checks, report })
    }
}

fn in_words(name: &str, felt: &Felt) -> String {
    if felt.failed == 0 {
        return format!("{name}: no errors, longest silence {:.1} s", felt.silence);
    }
    format!(
        "{name}: {} errors within {:.1} s, longest silence {:.1} s",
        felt.failed, felt.window, felt.silence
    )
}
