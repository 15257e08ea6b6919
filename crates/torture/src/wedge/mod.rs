//! The wedge: the production report that this database is designed against, and its three rescues.
//!
//! The report is of a node with a slow disk and far too little memory for its documents, under loaders that never
//! pause. Write queues grew, memory passed the high watermark and never came down, and every write failed. Neither
//! stopping the load nor deleting nor a restart helped. Here a node is pressed like that ([`press`]), then each rescue
//! ([`rescues`]) is tried on a freshly pressed one, its quota unchanged. A second run ([`metadata`]) fills a node until
//! its keys and metadata alone are more than its quota. Another one presses a cluster slowly ([`slowly`]), and alerts have to
//! fire before a client meets an error ([`warned`]).
//!
//! The scenario takes any [`Target`]: what it calls the node's numbers are sums over nodes, and keys are sent to where
//! the cluster map says. A cluster has one rescue more, a node that is added, and the report's second phase after it.

pub mod metadata;
mod pace;
pub mod press;
pub mod rescues;
pub mod slowly;
pub mod warned;

use crate::TortureError;
use crate::checks::Checks;
use crate::target::Target;
use press::Press;
use serde_json::{Value, json};

/// How a pressed node is brought back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rescue {
    /// Nothing is rescued: pressure comes slowly, and alerts have to fire before a client meets an error.
    Warnings,
    /// The same, where keys and metadata are what fills memory.
    MetadataWarnings,
    /// The loaders stop, and nothing else is done.
    Idle,
    /// Half of the documents are deleted while the loaders go on.
    Delete,
    /// kill -9 and restart while the loaders go on.
    Kill,
    /// A node is added to a pressed cluster while the loaders go on; then everything is updated.
    AddNode,
    /// Keys and metadata are more than the quota; half of the documents are deleted.
    MetadataDelete,
    /// Keys and metadata are more than the quota; the bucket is switched to full eviction.
    MetadataFullEviction,
}

impl Rescue {
    /// All of them, in the order in which they are tried.
    pub const ALL: [Rescue; 8] = [
        Rescue::Warnings,
        Rescue::MetadataWarnings,
        Rescue::Idle,
        Rescue::Delete,
        Rescue::Kill,
        Rescue::AddNode,
        Rescue::MetadataDelete,
        Rescue::MetadataFullEviction,
    ];

    /// The word on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Rescue::Warnings => "warnings",
            Rescue::MetadataWarnings => "metadata-warnings",
            Rescue::Idle => "idle",
            Rescue::Delete => "delete",
            Rescue::Kill => "kill",
            Rescue::AddNode => "add-node",
            Rescue::MetadataDelete => "metadata-delete",
            Rescue::MetadataFullEviction => "metadata-full-eviction",
        }
    }

    /// The rescue of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Rescue> {
        Rescue::ALL.into_iter().find(|rescue| rescue.name() == name)
    }

    /// Whether it takes a cluster.
    #[must_use]
    pub const fn needs_cluster(self) -> bool {
        matches!(self, Rescue::AddNode | Rescue::Warnings | Rescue::MetadataWarnings)
    }

    const fn fills_with_metadata(self) -> bool {
        matches!(self, Rescue::MetadataWarnings | Rescue::MetadataDelete | Rescue::MetadataFullEviction)
    }
}

/// What is done to each node.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Repeats the run's choice of documents.
    pub seed: u64,
    /// Memory quota of the bucket, of all nodes together.
    pub quota_bytes: u64,
    /// The quota is filled so many times over.
    pub fill: f64,
    /// Length of a document's value.
    pub value_bytes: usize,
    /// Length of a value where keys and metadata are to fill the quota.
    pub small_value_bytes: usize,
    /// Clients that write in a tight loop.
    pub loaders: usize,
    /// Requests that each of them keeps under way.
    pub window: usize,
    /// Nodes that share the quota.
    pub nodes: u64,
    /// Copies of a document beside the active one.
    pub replicas: u8,
    /// How long the loaders are watched after a rescue, in seconds.
    pub served_seconds: u64,
    /// What is tried.
    pub rescues: Vec<Rescue>,
}

/// What came of a run.
#[derive(Debug, Default)]
pub struct Outcome {
    /// What had to hold.
    pub checks: Checks,
    /// Everything, for a file.
    pub report: Value,
}

/// Starts a fresh target for the rescue of this name.
pub type Make<'a> = &'a mut dyn FnMut(&str) -> Result<Box<dyn Target>, TortureError>;

/// Presses a target of `make`'s once for each rescue.
///
/// # Errors
/// The scenario could not be carried out; what it found until then has been printed.
pub fn run(plan: &Plan, make: Make<'_>) -> Result<Outcome, TortureError> {
    let mut checks = Checks::default();
    let mut timelines = Vec::new();
    for &rescue in &plan.rescues {
        println!("\n== {}", headline(rescue));
        let target = make(rescue.name())?;
        let mut press = Press::start(plan, rescue, target)?;
        let done = carry_out(rescue, plan, &mut press, &mut checks);
        timelines.push(json!({"rescue": rescue.name(), "timeline": press.timeline()}));
        // What went wrong first is the better news.
        done.and(press.finish())?;
    }
    let failed = checks.failed();
    println!("\n{} checks, {failed} failed", checks.made());
    for failure in checks.failures() {
        println!("  FAILED {}: {}", failure.what, failure.found);
    }
    let report = json!({"checks": checks.to_json(), "failed": failed, "runs": timelines});
    Ok(Outcome { checks, report })
}

fn carry_out(
    rescue: Rescue,
    plan: &Plan,
    press: &mut Press,
    checks: &mut Checks,
) -> Result<(), TortureError> {
    if rescue == Rescue::MetadataWarnings {
        return metadata::run_slowly(plan, press, checks);
    }
    if rescue.fills_with_metadata() {
        return metadata::run(rescue, plan, press, checks);
    }
    if rescue == Rescue::Warnings {
        return slowly::run(plan, press, checks);
    }
    if !press.fill(checks)? {
        return Ok(());
    }
    match rescue {
        Rescue::Delete => rescues::delete(plan, press, checks),
        Rescue::Kill => rescues::kill(plan, press, checks),
        Rescue::AddNode => rescues::add_node(plan, press, checks),
        _ => rescues::idle(plan, press, checks),
    }
}

fn headline(rescue: Rescue) -> &'static str {
    match rescue {
        Rescue::Warnings => "warnings: press slowly; alerts have to fire before a client meets an error",
        Rescue::MetadataWarnings => {
            "metadata-warnings: the same, with keys and metadata that come to exceed the quota"
        }
        Rescue::Idle => "idle: press, then stop the loaders and wait",
        Rescue::Delete => "delete: press, then delete half of the documents while the loaders go on",
        Rescue::Kill => "kill: press, then kill -9 and restart while the loaders go on",
        Rescue::AddNode => "add-node: press, then add a node while the loaders go on; then the update phase",
        Rescue::MetadataDelete => {
            "metadata-delete: keys and metadata over the quota, then delete half of the documents"
        }
        Rescue::MetadataFullEviction => {
            "metadata-full-eviction: keys and metadata over the quota, then switch to full eviction"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rescues_have_names() {
        for rescue in Rescue::ALL {
            assert_eq!(Rescue::named(rescue.name()), Some(rescue));
        }
        assert_eq!(Rescue::named("prayer"), None);
    }
}
