//! Which node serves which vBucket by now.
//!
//! "Not my vBucket" and a dead node are no errors for the users of an SDK: it fetches the map anew and tries again. So does
//! this. The fetching blocks and has a thread of its own, which ends with this; one fetch is under way at a time. Nodes
//! keep the numbers that they got first; one that joins gets the next. A map that is older than the one in use is
//! none: a node that is cut off still has it.

use crate::target::Target;
use base::VbId;
use client::ClusterMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// Before each fetch: what comes back sooner would still be the old map while vBuckets move.
const PAUSE: Duration = Duration::from_millis(if cfg!(test) { 1 } else { 100 });

/// Between two looks at maps that come with refusals.
const LESSON: Duration = Duration::from_millis(5);

/// Whom to ask.
type Order = Vec<String>;

pub(super) struct Homes {
    pub(super) target: Arc<Target>,
    /// Data addresses of all nodes that were ever seen; a node's number is its place.
    known: Vec<String>,
    /// The node of each vBucket, `None` where nobody is known; nothing as long as what the target discovered is right.
    nodes: Option<Vec<Option<usize>>>,
    version: (i64, i64),
    thread: Option<(Sender<Order>, Receiver<Option<ClusterMap>>)>,
    asked: bool,
    /// From when on a refusal's map is looked at again.
    next_lesson: u64,
}

impl Homes {
    pub(super) fn new(target: Arc<Target>) -> Homes {
        let known = target.addresses();
        Homes {
            target,
            known,
            nodes: None,
            version: (i64::MIN, 0),
            thread: None,
            asked: false,
            next_lesson: 0,
        }
    }

    /// How many nodes have numbers.
    pub(super) fn count(&self) -> usize {
        self.known.len()
    }

    /// The data address of a node.
    pub(super) fn address(&self, node: usize) -> &str {
        &self.known[node]
    }

    /// Whether nothing is sent to a node any more, as far as is known.
    pub(super) fn has_left(&self, node: usize) -> bool {
        self.nodes.as_ref().is_some_and(|nodes| !nodes.contains(&Some(node)))
    }

    /// vBucket and node of a key.
    #[inline]
    pub(super) fn route(&self, key: &[u8]) -> (VbId, usize) {
        let (vb, node) = self.target.route(key);
        let moved = self.nodes.as_ref().and_then(|nodes| *nodes.get(usize::from(vb.get()))?);
        (vb, moved.unwrap_or(node))
    }

    /// Asks for the map; nothing happens if that is under way.
    pub(super) fn refresh(&mut self) {
        if self.asked {
            return;
        }
        let target = &self.target;
        let (orders, _) = self.thread.get_or_insert_with(|| {
            let (orders, inbox) = channel::<Order>();
            let (outbox, answers) = channel();
            let target = target.clone();
            std::thread::spawn(move || {
                while let Ok(known) = inbox.recv() {
                    std::thread::sleep(PAUSE);
                    // A map that cannot be had now is asked for again with the next refusal.
                    if outbox.send(target.newest_map(&known)).is_err() {
                        return;
                    }
                }
            });
            (orders, answers)
        });
        // The thread ends only when this sender does.
        self.asked = orders.send(self.known.clone()).is_ok();
    }

    /// Takes in an answer; says whether there was one.
    pub(super) fn see(&mut self) -> bool {
        let Some(answer) = self.thread.as_ref().and_then(|(_, answers)| answers.try_recv().ok()) else {
            return false;
        };
        self.asked = false;
        if let Some(map) = answer.filter(|map| map.version >= self.version) {
            self.adopt(&map);
        }
        true
    }

    /// Takes the map that a node has refused a request with, as SDKs do; says whether that is news. Each of many refusals
    /// brings the same map, so not all of them are looked at.
    pub(super) fn learn(&mut self, node: usize, map: &[u8], now: u64) -> bool {
        if map.is_empty() || now < self.next_lesson {
            return false;
        }
        self.next_lesson = now + LESSON.as_nanos() as u64;
        let map = ClusterMap::of_refusal(map, &self.known[node]);
        let Some(map) = map.filter(|map| map.version > self.version) else {
            // Asking around will tell.
            return false;
        };
        self.adopt(&map);
        true
    }

    fn adopt(&mut self, map: &ClusterMap) {
        self.version = map.version;
        self.nodes = Some(numbered(map, &mut self.known));
    }
}

/// The node of each vBucket in `map`, as a place in `known`, which grows by those that are new.
fn numbered(map: &ClusterMap, known: &mut Vec<String>) -> Vec<Option<usize>> {
    let mut place = |node: &String| match known.iter().position(|name| name == node) {
        Some(place) => place,
        None => {
            known.push(node.clone());
            known.len() - 1
        }
    };
    let places: Vec<usize> = map.nodes.iter().map(&mut place).collect();
    let home = |vb| map.active_node(VbId(vb)).and_then(|node| places.get(node).copied());
    (0..map.vbuckets()).map(home).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_brings_the_map() {
        let target = Target::discover(crate::Protocol::Binary, "a:11210", client::Login::default());
        let mut homes = Homes::new(Arc::new(target.expect("a target")));
        let map = |rev: u32, node: &str| {
            format!(
                r#"{{"rev": {rev}, "vBucketServerMap": {{"serverList": ["{node}:11210"], "vBucketMap": [[0]]}}}}"#
            )
        };
        assert!(!homes.learn(0, b"", 0) && !homes.learn(0, b"no map", 0));
        assert!(homes.learn(0, map(7, "b").as_bytes(), 10_000_000));
        assert_eq!((homes.count(), homes.address(1)), (2, "b:11210"));
        assert!(homes.has_left(0) && !homes.has_left(1));
        assert!(!homes.learn(0, map(8, "c").as_bytes(), 10_000_001), "too soon");
        assert!(!homes.learn(0, map(6, "c").as_bytes(), 90_000_000), "older");
        assert!(homes.learn(1, map(8, "$HOST").as_bytes(), 95_000_001));
        assert_eq!(homes.count(), 2, "the one that said it");
    }

    #[test]
    fn nodes_keep_their_numbers_in_another_map_and_new_ones_get_the_next() {
        let config = r#"{"rev": 7, "nodeLocator": "vbucket", "vBucketServerMap": {"serverList":
            ["c:11210", "b:11210", "a:11210"], "vBucketMap": [[0], [1], [2], [-1]]}}"#;
        let map = ClusterMap::parse(config.as_bytes(), "a").expect("a map");
        let mut known = vec!["a:11210".to_owned(), "b:11210".to_owned()];
        assert_eq!(numbered(&map, &mut known), [Some(2), Some(1), Some(0), None]);
        assert_eq!(known[2], "c:11210", "it has joined");
    }
}
