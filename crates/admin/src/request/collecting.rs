//! What is known on this node of collections of logs: the one that was started here, and this node's part in the last one. Nodes tell
//! both to one another among their figures, so every node shows the same task.

use std::sync::{Mutex, MutexGuard, PoisonError};

use base::NodeId;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;

/// A collection that was started at this node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) id: String,
    pub(crate) began_ms: u64,
    pub(crate) is_cancelled: bool,
    /// Every node that shall collect, and why it has not begun to.
    pub(crate) nodes: Vec<(NodeId, Option<String>)>,
}

/// What a node does for a collection, whichever node that was started at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Part {
    pub(crate) run: String,
    /// Where its archive is to be.
    pub(crate) path: String,
    pub(crate) state: PartState,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum PartState {
    Started,
    Collected,
    Failed(String),
    Cancelled,
}

/// What a node tells the others.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Told {
    pub(crate) run: Option<Run>,
    pub(crate) part: Option<Part>,
}

#[derive(Default)]
struct State {
    told: Told,
    /// Ends what this node does.
    abort: Option<AbortHandle>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Collecting(Mutex<State>);

impl Collecting {
    pub(crate) fn told(&self) -> Told {
        self.lock().told.clone()
    }

    /// A collection begins here.
    pub(crate) fn begin(&self, run: Run) {
        self.lock().told.run = Some(run);
    }

    /// A node of that collection does not collect.
    pub(crate) fn refused(&self, run: &str, node: NodeId, why: String) {
        let mut state = self.lock();
        let ours = state.told.run.as_mut().filter(|ours| ours.id == run);
        let of_node = ours.and_then(|ours| ours.nodes.iter_mut().find(|(known, _)| *known == node));
        if let Some((_, reason)) = of_node {
            *reason = Some(why);
        }
    }

    /// This node begins its part, which `spawn` has done; or it still does the one before.
    pub(crate) fn begin_part(&self, part: Part, spawn: impl FnOnce() -> AbortHandle) -> Result<(), String> {
        let mut state = self.lock();
        if state.told.part.as_ref().is_some_and(|part| part.state == PartState::Started) {
            return Err("This node still collects for an earlier collection of logs.".into());
        }
        state.told.part = Some(part);
        state.abort = Some(spawn());
        Ok(())
    }

    /// This node's part has come to its end, unless somebody has cancelled it.
    pub(crate) fn end_part(&self, run: &str, ended: PartState) {
        let mut state = self.lock();
        if let Some(part) = state.told.part.as_mut().filter(|part| part.run == run)
            && part.state == PartState::Started
        {
            part.state = ended;
        }
    }

    /// Ends this node's part, and takes note of that for the collection that was started here, where `runs` has it.
    pub(crate) fn cancel(&self, runs: &[String]) {
        let mut state = self.lock();
        if let Some(run) = state.told.run.as_mut().filter(|run| runs.contains(&run.id)) {
            run.is_cancelled = true;
        }
        let abort = state.abort.take();
        if let Some(part) = state.told.part.as_mut().filter(|part| runs.contains(&part.run))
            && part.state == PartState::Started
        {
            part.state = PartState::Cancelled;
            if let Some(abort) = abort {
                abort.abort();
            }
        } else {
            state.abort = abort;
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
