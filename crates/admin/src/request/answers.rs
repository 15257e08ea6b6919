//! What other nodes answered a moment ago. Many consoles ask the same again and again: one request asks the nodes, and those that come
//! meanwhile, or within a second, have its answers.
//!
//! Answers are kept as nodes gave them. What of them a sender may see is judged anew for each request, by the caller.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use base::NodeId;
use cluster::{Metadata, NodeInfo};

use super::figures::{PATIENCE, ask_bytes, question};
use crate::node::control::NodeControl;

/// How old an answer may be.
const FRESH: Duration = Duration::from_secs(1);
/// Questions that are remembered. Beyond these each request asks for itself.
const QUESTIONS_MAX: usize = 32;
/// Most bytes of the answers to a question that are kept.
const BYTES_MAX: usize = 512 << 10;

/// A question to all nodes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Question {
    path: &'static str,
    body: Vec<u8>,
    /// Of the buckets' uuids: what was told of a dropped bucket is not told of the next one of its name.
    buckets: u64,
}

impl Question {
    pub(crate) fn new(path: &'static str, body: Vec<u8>, meta: &Metadata) -> Self {
        let mut buckets = DefaultHasher::new();
        meta.buckets.values().for_each(|info| info.uuid.0.hash(&mut buckets));
        Self { path, body, buckets: buckets.finish() }
    }
}

/// What a node answered; nothing where it did not in time.
pub(crate) type Answer = Option<Arc<[u8]>>;

/// This node, and what it says itself.
pub(crate) type Own<'a> = (NodeId, &'a (dyn Fn() -> Option<Vec<u8>> + Sync));

/// The answers to a question by node, and when they came. Held by the task that asks; others wait for the answers instead of asking, too.
#[derive(Debug, Default)]
struct Known(tokio::sync::Mutex<BTreeMap<NodeId, (Instant, Answer)>>);

/// The questions of late, and when they were asked last.
#[derive(Debug, Default)]
pub(crate) struct Answers(Mutex<BTreeMap<Question, (Instant, Arc<Known>)>>);

impl Answers {
    /// What these nodes answer, or have answered within a second. What this node says is of the same moment, where `own` is given.
    pub(crate) async fn of(
        &self,
        control: &Arc<dyn NodeControl>,
        asked: Question,
        nodes: &[&NodeInfo],
        own: Option<Own<'_>>,
    ) -> Vec<(NodeId, Answer)> {
        let known = self.known(&asked);
        let mut known = known.0.lock().await;
        known.retain(|_, (at, _)| at.elapsed() < FRESH);
        let mut waiting = tokio::task::JoinSet::new();
        for node in nodes.iter().filter(|node| !known.contains_key(&node.id)) {
            let (control, id) = (Arc::clone(control), node.id);
            let question = question(node, asked.path, asked.body.clone());
            waiting.spawn(async move { (id, ask_bytes(control.as_ref(), question).await) });
        }
        if let Some((this, own)) = own.filter(|(this, _)| !waiting.is_empty() || !known.contains_key(this)) {
            known.insert(this, (Instant::now(), own().map(Arc::from)));
        }
        for (node, answer) in waiting.join_all().await {
            known.insert(node, (Instant::now(), answer.map(Arc::from)));
        }
        let wanted = nodes.iter().map(|node| node.id).chain(own.map(|(this, _)| this));
        let answer = |id: NodeId| (id, known.get(&id).and_then(|(_, answer)| answer.clone()));
        let answers: Vec<_> = wanted.map(answer).collect();
        let bytes: usize = answers.iter().flat_map(|(_, answer)| answer).map(|answer| answer.len()).sum();
        if bytes > BYTES_MAX {
            known.clear();
        }
        answers
    }

    fn known(&self, asked: &Question) -> Arc<Known> {
        let mut questions = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of_use = |asked_at: &Instant, known: &Arc<Known>| {
            Arc::strong_count(known) > 1 || asked_at.elapsed() < FRESH + PATIENCE
        };
        questions.retain(|_, (asked_at, known)| is_of_use(asked_at, known));
        if let Some((asked_at, known)) = questions.get_mut(asked) {
            *asked_at = Instant::now();
            return Arc::clone(known);
        }
        let known = Arc::<Known>::default();
        if questions.len() < QUESTIONS_MAX {
            questions.insert(asked.clone(), (Instant::now(), Arc::clone(&known)));
        }
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_few_and_those_of_another_bucket_are_others() {
        let answers = Answers::default();
        let meta = Metadata::new("c".into(), 1024);
        let question = |number: usize| Question::new("/p", vec![number as u8], &meta);
        let first = answers.known(&question(0));
        for number in 1..100 {
            answers.known(&question(number));
        }
        assert!(Arc::ptr_eq(&first, &answers.known(&question(0))));
        assert!(!Arc::ptr_eq(&answers.known(&question(99)), &answers.known(&question(99))));
        assert_eq!(answers.0.lock().unwrap().len(), QUESTIONS_MAX);
    }
}
