//! Asks the other nodes about alerts that they may see as well, so that one of them sends each. Which one does is decided by
//! [`watch::turns`].

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use admin::{MailSettings, Webhook};
use base::NodeId;
use cluster::{ClusterError, config};
use http::Gate as _;
use tokio::{sync::watch as flags, task::JoinSet, time::timeout};
use watch::{alerts::Firing, turns::Told};

use super::ticks::Ticks;
use crate::control::Control;

/// The question what a node tells and sends.
const TURNS: &str = "turns";
/// From one round to the next.
const ASK_EVERY: Duration = Duration::from_secs(2);
/// While a node is known to send each alert, one of so many rounds is held.
const SETTLED_ROUNDS: u32 = 5;
/// A round is over by then: it is shorter than the pause between two.
const PATIENCE: Duration = Duration::from_millis(1_500);

impl Control {
    /// What this node sends of what fires on it.
    pub(super) fn to_send(&self) -> Vec<Firing> {
        let firing = self.alerting().firing();
        self.alerting().turns.lock().look(firing)
    }

    async fn ask_for_turns(self: &Arc<Self>) {
        let metadata = self.metadata();
        let mut asked = JoinSet::new();
        for node in config::shown_nodes(&metadata) {
            let id = node.id;
            if id != self.this_id() {
                let control = Arc::clone(self);
                asked.spawn(async move { (id, told_by(&control, id).await) });
            }
        }
        let answers = asked.join_all().await.into_iter();
        let answers: BTreeMap<NodeId, Vec<Told>> =
            answers.filter_map(|(id, told)| Some((id, told?))).collect();
        let (silences, now) = (admin::silences(&metadata), self.unix_secs());
        let is_silenced = |firing: &Firing, node: NodeId| {
            let uuid = metadata.node_by_id(node).map_or("", |node| &node.uuid);
            silences.values().any(|one| one.covers(firing.about.name, &firing.subject, uuid, now))
        };
        self.alerting().turns.lock().round(self.this_id(), &answers, is_silenced);
    }
}

async fn told_by(control: &Control, node: NodeId) -> Option<Vec<Told>> {
    let answer = timeout(PATIENCE, control.peers().post(node, TURNS, Vec::new())).await.ok()?.ok()?;
    serde_json::from_slice(&answer).ok()
}

/// Answers other nodes.
pub(crate) fn answer(control: &Arc<Control>) {
    control.answer(TURNS, |control, _| async move {
        let told = control.alerting().turns.lock().told();
        serde_json::to_vec(&told).map_err(|error| ClusterError::Failed(error.to_string()))
    });
}

/// Asks until `ended`, while something fires that is to be sent.
pub(crate) async fn run(control: Arc<Control>, ended: flags::Receiver<bool>) {
    let mut ticks = Ticks::every(ASK_EVERY, ended);
    let mut settled = 0_u32;
    while ticks.next().await {
        let metadata = control.metadata();
        let (is_empty, is_settled) = {
            let mut turns = control.alerting().turns.lock();
            if Webhook::of(&metadata).is_none() && !MailSettings::of(&metadata).enabled {
                turns.forget();
            }
            (turns.is_empty(), turns.is_settled())
        };
        settled = if is_settled { settled + 1 } else { 0 };
        if !is_empty && settled.is_multiple_of(SETTLED_ROUNDS) {
            ticks.unless_ended(control.ask_for_turns()).await;
        }
    }
}
