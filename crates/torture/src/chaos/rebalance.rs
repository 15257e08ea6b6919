//! Rebalances, and what is done to a cluster in the middle of one.
//!
//! Each that is started is followed by its name to its own end. The cluster is mended after every event, which rebalances again,
//! and would hide one that had failed. A rebalance goes on by itself after a node was killed in it and has started again. So does
//! one in which a node was failed over. The cluster then strives for what is possible without that node.

use super::event::Event;
use super::{Chaos, Deed, LOOK};
use crate::TortureError;
use crate::cluster::admin::{COMPLETED, Rebalance, STOPPED, State};
use crate::target::Target;
use std::time::{Duration, Instant};

/// How long a rebalance may take to go on by itself after a node was killed in it.
const RESUME: Duration = Duration::from_secs(180);
/// How long it may take until a rebalance that was started is heard of.
const HEARD: Duration = Duration::from_secs(30);
/// It is hurt no later than when it has come this far, in percent, or it might end before; and often sooner.
const FAR_MAX: u64 = 60;
/// So many are started, one after the other, until one is caught in the middle.
const TRIES: usize = 5;

/// A rebalance that runs, and has been found to.
pub(super) struct Caught {
    /// What it does, in words.
    what: String,
    id: String,
    /// How far it was.
    percent: f64,
}

impl Chaos {
    /// Graceful failover of a node.
    pub(super) fn fail_over_gracefully(&mut self, node: usize) -> Result<Deed, TortureError> {
        let before = self.last_rebalance()?;
        self.cluster.fail_over(node, true)?;
        let id = self.started_after(before.as_deref())?;
        let how = self.await_end(&id)?;
        let deed = Deed::new(format!("graceful failover of node {node}, recovered"), vec![node]);
        Ok(deed.with("it completes", how == COMPLETED, how))
    }

    /// A rebalance of this kind, in which `node` may have to go.
    pub(super) fn rebalance(&mut self, event: Event, node: usize) -> Result<Deed, TortureError> {
        let (what, id) = self.begin_rebalance(event, node)?;
        let how = self.await_end(&id)?;
        Ok(Deed::new(what, Vec::new()).with("it completes", how == COMPLETED, how))
    }

    /// A rebalance that is stopped half-way; the repair of the cluster asks for it again.
    pub(super) fn stop_rebalance(&mut self) -> Result<Deed, TortureError> {
        let Caught { what, id, percent } = self.catch_rebalance()?;
        let (_, rest) = self.cluster.admin().state(&self.cluster.spares())?;
        rest.post("/controller/stopRebalance", &[])?;
        let how = self.await_end(&id)?;
        let what = format!("{what}, stopped at {percent:.0} % and asked for again");
        Ok(Deed::new(what, Vec::new()).with("it is stopped half-way", how == STOPPED, how))
    }

    /// A rebalance in which a node gets kill -9 and starts again.
    pub(super) fn kill_in_rebalance(&mut self, event: Event) -> Result<Deed, TortureError> {
        let caught = self.catch_rebalance()?;
        let (victim, name) = self.victim(event)?;
        self.cluster.kill(victim)?;
        let ran = self.runs_without(victim, &caught.id);
        std::thread::sleep(self.schedule.millis(200..1_500));
        self.cluster.restart(victim)?;
        let what = format!("{}, kill -9 of {name} at {:.0} %", caught.what, caught.percent);
        self.end_of_hurt(
            &caught.id,
            Deed::new(what, vec![victim]).with("it ran when the node was killed", ran.0, ran.1),
        )
    }

    /// A rebalance in which a node gets kill -9 and is failed over.
    pub(super) fn fail_over_in_rebalance(&mut self, event: Event) -> Result<Deed, TortureError> {
        let caught = self.catch_rebalance()?;
        let (victim, name) = self.victim(event)?;
        self.cluster.kill(victim)?;
        let ran = self.runs_without(victim, &caught.id);
        std::thread::sleep(self.schedule.millis(100..1_000));
        self.cluster.fail_over(victim, false)?;
        std::thread::sleep(self.schedule.millis(500..2_000));
        self.cluster.restart(victim)?;
        let what =
            format!("{}, kill -9 and failover of {name} at {:.0} %, recovered", caught.what, caught.percent);
        self.end_of_hurt(
            &caught.id,
            Deed::new(what, vec![victim]).with("it ran when the node was killed", ran.0, ran.1),
        )
    }

    /// Nobody helps a rebalance in which a node was hurt.
    fn end_of_hurt(&self, id: &str, deed: Deed) -> Result<Deed, TortureError> {
        let how = self.await_end(id)?;
        Ok(deed.with("the rebalance completes by itself", how == COMPLETED, how))
    }

    /// Starts a rebalance of this kind, in which `node` may have to go. What it is in words, and its name.
    fn begin_rebalance(&mut self, event: Event, node: usize) -> Result<(String, String), TortureError> {
        let (spares, members) = (self.cluster.spares(), self.cluster.members().to_vec());
        let stay: Vec<usize> = members.iter().copied().filter(|member| *member != node).collect();
        let (wanted, what) = match event {
            Event::RebalanceOut => (stay, format!("rebalance without node {node}")),
            Event::RebalanceIn => {
                let new = self.schedule.choose(&spares);
                ([members, vec![new]].concat(), format!("rebalance with node {new}"))
            }
            _ => {
                let new = self.schedule.choose(&spares);
                ([stay, vec![new]].concat(), format!("rebalance with node {new} for node {node}"))
            }
        };
        let before = self.last_rebalance()?;
        self.cluster.change(wanted)?;
        Ok((what, self.started_after(before.as_deref())?))
    }

    /// A rebalance that has come some way and runs still. The leader stays in it, and can be hurt.
    fn catch_rebalance(&mut self) -> Result<Caught, TortureError> {
        for _ in 0..TRIES {
            let leader = self.cluster.leader()?;
            let node = self.member_beside(leader);
            let (what, id) = self.begin_rebalance(Event::Swap, node)?;
            let (far, pause) = (self.schedule.number(0..FAR_MAX) as f64, self.schedule.millis(200..2_000));
            if let Some(percent) = self.await_middle(&id, far, pause)? {
                return Ok(Caught { what, id, percent });
            }
            self.say(&format!("{what}: done before anything was done to it"));
        }
        Err(TortureError::Node("rebalances end sooner than anything can be done to them".to_owned()))
    }

    /// Which node to hurt: every other time the one that leads, else one that does not. And how to call it.
    pub(super) fn victim(&mut self, event: Event) -> Result<(usize, String), TortureError> {
        let leader = self.cluster.leader()?;
        let first =
            self.leader_first == (event == Event::KillInRebalance) || event == Event::PauseAutoFailover;
        let is_turn = self.leaders_turn.entry(event).or_insert(first);
        // It may lead since a moment ago, and be about to leave: another time, then.
        let is_taken = *is_turn && self.cluster.members().contains(&leader);
        *is_turn = !is_taken;
        if is_taken {
            return Ok((leader, format!("node {leader}, which led,")));
        }
        let node = self.member_beside(leader);
        Ok((node, format!("node {node}")))
    }

    /// A member that is not this one, if there is one.
    fn member_beside(&mut self, node: usize) -> usize {
        let members = self.cluster.members();
        let others: Vec<usize> = members.iter().copied().filter(|member| *member != node).collect();
        if others.is_empty() { node } else { self.schedule.choose(&others) }
    }

    /// Lets a rebalance run for so long, or until it has come so far. How far it is then; `None` if it has ended.
    fn await_middle(&self, id: &str, far: f64, pause: Duration) -> Result<Option<f64>, TortureError> {
        let began = Instant::now();
        loop {
            let (state, _) = self.cluster.admin().state(&self.cluster.spares())?;
            let percent = state.rebalancing.filter(|_| is_of(&state, id));
            match percent {
                Some(percent) if percent < far && began.elapsed() < pause => {
                    std::thread::sleep(LOOK / 4);
                }
                percent => return Ok(percent),
            }
        }
    }

    /// Whether a rebalance runs, as those say that are left without a node; and what they say.
    fn runs_without(&self, node: usize, id: &str) -> (bool, String) {
        let except = [self.cluster.spares(), vec![node]].concat();
        match self.cluster.admin().state(&except) {
            Err(error) => (false, error.to_string()),
            Ok((state, _)) => match state.rebalance.filter(|rebalance| rebalance.id == id) {
                Some(Rebalance { ended: None, .. }) => (true, "yes".to_owned()),
                Some(Rebalance { ended: Some(how), .. }) => (false, how),
                None => (false, "another one has begun".to_owned()),
            },
        }
    }

    /// The name of the rebalance that runs, or ran last.
    fn last_rebalance(&self) -> Result<Option<String>, TortureError> {
        let (state, _) = self.cluster.admin().state(&self.cluster.spares())?;
        Ok(state.rebalance.map(|rebalance| rebalance.id))
    }

    /// The name of the rebalance that was just started, when the one before it was called so.
    fn started_after(&self, before: Option<&str>) -> Result<String, TortureError> {
        let began = Instant::now();
        while began.elapsed() < HEARD {
            if let Ok(Some(id)) = self.last_rebalance()
                && Some(id.as_str()) != before
            {
                return Ok(id);
            }
            std::thread::sleep(LOOK / 4);
        }
        Err(TortureError::Node("nobody has heard of the rebalance that was started".to_owned()))
    }

    /// Waits for the end of a rebalance, which nobody helps. How it ended.
    fn await_end(&self, id: &str) -> Result<String, TortureError> {
        let (began, mut seen) = (Instant::now(), "nobody says".to_owned());
        while began.elapsed() < RESUME {
            match self.cluster.admin().state(&self.cluster.spares()) {
                Err(error) => seen = error.to_string(),
                Ok((state, _)) => match state.rebalance {
                    Some(Rebalance { id: of, ended: Some(how) }) if of == id => return Ok(how),
                    other => seen = format!("{:?} %, {other:?}", state.rebalancing),
                },
            }
            std::thread::sleep(LOOK);
        }
        Err(TortureError::Node(format!("the rebalance {id} does not end: {seen}")))
    }
}

fn is_of(state: &State, id: &str) -> bool {
    state.rebalance.as_ref().is_some_and(|rebalance| rebalance.id == id)
}
