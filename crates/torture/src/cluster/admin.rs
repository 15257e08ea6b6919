//! What an administrator does to a cluster, over the calls that couchbase-cli makes.

use crate::TortureError;
use client::{ClientError, Rest};
use serde_json::Value;
use std::time::Duration;

/// How long a node may take to answer a question before another one is asked.
const QUESTION: Duration = Duration::from_secs(3);
const MGMT_TLS: u16 = 18091;

/// A member of the cluster as its management shows it.
#[derive(Clone, Debug)]
pub struct Member {
    /// The name that changes take.
    pub otp: String,
    /// `host:port` of its management.
    pub hostname: String,
    /// `healthy`, `unhealthy`, `warmup`.
    pub status: String,
    /// `active`, `inactiveAdded`, `inactiveFailed`.
    pub membership: String,
}

/// What the cluster is like at a moment.
#[derive(Clone, Debug)]
pub struct State {
    /// Its nodes.
    pub members: Vec<Member>,
    /// Whether everything is where it shall be.
    pub balanced: bool,
    /// A rebalance or graceful failover that runs: how far it is, in percent.
    pub rebalancing: Option<f64>,
    /// That one, or the last that did.
    pub rebalance: Option<Rebalance>,
}

/// A rebalance or graceful failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rebalance {
    /// What the cluster calls it.
    pub id: String,
    /// How it ended, if it has: [`COMPLETED`], [`STOPPED`], or why it failed.
    pub ended: Option<String>,
}

/// A rebalance has ended with everything where it shall be.
pub const COMPLETED: &str = "completed";
/// The membership of a node that was failed over.
const FAILED_OVER: &str = "inactiveFailed";
/// Somebody has stopped it.
pub const STOPPED: &str = "stopped";

impl State {
    /// The member that listens at an address.
    #[must_use]
    pub fn at(&self, hostname: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.hostname == hostname)
    }

    /// Why the cluster is not at rest with exactly these nodes, if it is not.
    #[must_use]
    pub fn unrest(&self, wanted: &[String]) -> Option<String> {
        if let Some(percent) = self.rebalancing {
            return Some(format!("a rebalance is at {percent:.0} %"));
        }
        let is_off = |member: &&Member| member.status != "healthy" || member.membership != "active";
        if let Some(member) = self.members.iter().find(is_off) {
            return Some(format!("{} is {}, {}", member.hostname, member.status, member.membership));
        }
        let is_missing = |hostname: &&String| self.at(hostname).is_none();
        if let Some(hostname) = wanted.iter().find(is_missing) {
            return Some(format!("{hostname} is no member"));
        }
        if self.members.len() != wanted.len() {
            return Some(format!("it has {} nodes", self.members.len()));
        }
        (!self.balanced).then(|| "it is not balanced".to_owned())
    }
}

/// Speaks to whichever node answers.
#[derive(Clone, Debug)]
pub struct Admin {
    nodes: Vec<Rest>,
}

impl Admin {
    /// Of a cluster with these nodes, members or not.
    #[must_use]
    pub fn new(nodes: Vec<Rest>) -> Admin {
        Admin { nodes }
    }

    /// What the cluster is like, by the first node that knows and is none of `except`. A node that was failed over takes no changes, so
    /// another one is asked where there is one.
    ///
    /// # Errors
    /// Nobody knows.
    pub fn state(&self, except: &[usize]) -> Result<(State, Rest), TortureError> {
        let mut found = Err(TortureError::Node("no node is left to be asked".to_owned()));
        for node in (0..self.nodes.len()).filter(|node| !except.contains(node)) {
            match self.state_of(node) {
                Ok(state) => {
                    let rest = self.nodes[node].clone();
                    let is_failed =
                        state.at(&rest.address).is_some_and(|member| member.membership == FAILED_OVER);
                    found = Ok((state, rest));
                    if !is_failed {
                        break;
                    }
                }
                Err(error) if found.is_err() => found = Err(error),
                Err(_) => {}
            }
        }
        found
    }

    /// What the cluster is like according to this node.
    ///
    /// # Errors
    /// It does not say.
    pub fn state_of(&self, node: usize) -> Result<State, TortureError> {
        Ok(state_of(&self.nodes[node].within(QUESTION))?)
    }

    /// Adds a node that has the same login, by its port for TLS or not; a rebalance gives it data.
    ///
    /// # Errors
    /// It is refused.
    pub fn add(&self, through: &Rest, node: usize, tls: bool) -> Result<(), TortureError> {
        let (user, password) = through.login.clone().unwrap_or_default();
        let address = &self.nodes[node].address;
        let hostname = if tls {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            format!("https://{host}:{MGMT_TLS}")
        } else {
            format!("http://{address}")
        };
        let form = [
            ("hostname", hostname.as_str()),
            ("user", user.as_str()),
            ("password", password.as_str()),
            ("services", "kv"),
        ];
        through.post("/controller/addNode", &form)?;
        Ok(())
    }
}

fn state_of(rest: &Rest) -> Result<State, ClientError> {
    let pool = rest.get_json("/pools/default")?;
    let tasks = rest.get_json("/pools/default/tasks")?;
    let text = |node: &Value, field: &str| node[field].as_str().unwrap_or_default().to_owned();
    let members = pool["nodes"].as_array().into_iter().flatten().map(|node| Member {
        otp: text(node, "otpNode"),
        hostname: text(node, "hostname"),
        status: text(node, "status"),
        membership: text(node, "clusterMembership"),
    });
    let moves = |task: &&Value| matches!(task["type"].as_str(), Some("rebalance" | "gracefulFailover"));
    let task = tasks.as_array().into_iter().flatten().find(moves);
    let running = task.filter(|task| task["status"] == "running");
    Ok(State {
        members: members.collect(),
        balanced: pool["balanced"] == true,
        rebalancing: running.map(|task| task["progress"].as_f64().unwrap_or(0.0)),
        rebalance: task.and_then(rebalance_of),
    })
}

/// None, if there never was one.
fn rebalance_of(task: &Value) -> Option<Rebalance> {
    let id = task["statusId"].as_str()?.to_owned();
    let how = || task["errorMessage"].as_str().or(task["settee"]["result"].as_str());
    let ended = (task["status"] != "running").then(|| how().unwrap_or("without a word").to_owned());
    Some(Rebalance { id, ended })
}

/// The name of the node that leads, as far as a node knows.
///
/// # Errors
/// It does not say.
pub fn orchestrator(rest: &Rest) -> Result<Option<String>, TortureError> {
    let info = rest.within(QUESTION).get_json("/pools/default/terseClusterInfo")?;
    Ok(info["orchestrator"].as_str().map(str::to_owned))
}

/// Has a cluster of one node, and all that are added to it, speak TLS between nodes.
///
/// # Errors
/// It is refused.
pub fn encrypt(rest: &Rest) -> Result<(), TortureError> {
    rest.post("/node/controller/setupNetConfig", &[("nodeEncryption", "on")])?;
    rest.post("/settings/security", &[("clusterEncryptionLevel", "all")])?;
    Ok(())
}

/// Starts a rebalance of all members without `eject`.
///
/// # Errors
/// It is refused.
pub fn rebalance(rest: &Rest, state: &State, eject: &[String]) -> Result<(), TortureError> {
    let otp = |hostname: &String| state.at(hostname).map(|member| member.otp.as_str());
    let known: Vec<&str> = state.members.iter().map(|member| member.otp.as_str()).collect();
    let ejected: Vec<&str> = eject.iter().filter_map(otp).collect();
    let (known, ejected) = (known.join(","), ejected.join(","));
    rest.post("/controller/rebalance", &[("knownNodes", &known), ("ejectedNodes", &ejected)])?;
    Ok(())
}

/// Fails a node over, with its help or without.
///
/// # Errors
/// It is refused.
pub fn fail_over(rest: &Rest, member: &Member, graceful: bool) -> Result<(), TortureError> {
    let path = if graceful { "/controller/startGracefulFailover" } else { "/controller/failOver" };
    rest.post(path, &[("otpNode", &member.otp)])?;
    Ok(())
}

/// Has nodes agree that as many may be failed over automatically as if none had been. Without this a long run would use up the
/// failovers that the cluster allows.
///
/// # Errors
/// They don't, as long as nobody leads.
pub fn forget_failovers(rest: &Rest) -> Result<(), TortureError> {
    rest.post("/settings/autoFailover/resetCount", &[])?;
    Ok(())
}

/// Lets a node that was failed over come back with the next rebalance.
///
/// # Errors
/// It is refused.
pub fn recover(rest: &Rest, member: &Member, delta: bool) -> Result<(), TortureError> {
    let kind = if delta { "delta" } else { "full" };
    rest.post("/controller/setRecoveryType", &[("otpNode", &member.otp), ("recoveryType", kind)])?;
    Ok(())
}
