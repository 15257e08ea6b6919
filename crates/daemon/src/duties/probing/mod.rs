//! The active probe: this node tries every bucket on every node as a client would, and times the answers. When it does and what counts
//! is decided by [`watch::probe`]; here are the connections.
//!
//! It has a thread of its own, so that what REST has to do does not look like latency. There is one connection for each bucket on each
//! node, kept between rounds.
//!
//! A get asks for a document of the probe's own, which need not exist: "not found" is an answer. Where writes are on,
//! the same document is set, and set durably. It is in the default collection, its key begins with [`KEY_PREFIX`], and it expires. The
//! key is chosen so that its vBucket is active on the node that is probed.
//!
//! Every answer with a status is an answer, so a node that gives one is not silent. Users can guess the key, and can lock its document or
//! write anything to it. So "locked", "exists" and "not found" are good: they speak of the document, and the node has done its part.
//! A durable write under way on the document may be a user's, or a former one of the probe's: such a round measures nothing. Every
//! other status is what a client would see as an error, and counts as refused. So does "no access", for the probe has every right.

mod connection;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use admin::ProbeSettings;
use base::{NodeId, Status, VbId, bucket::BucketKind, hash::vbucket_of};
use cluster::{BucketInfo, Metadata};
use dataplane::links::PeerAddress;
use http::Gate as _;
use tokio::{
    sync::{mpsc, watch as flags},
    time::timeout,
};
use watch::probe::{AT_ONCE_MAX, Ended, TIMEOUT_MICROS, Tried, Try};

use self::connection::Connection;
use crate::{
    control::Control,
    watching::probes::{TIMEOUT, Target},
};

/// How the keys of the probe's documents begin.
const KEY_PREFIX: &str = "_settee:probe:";
/// Keys that are tried for one whose vBucket is on the node. With fewer vBuckets there than this finds, the node is not probed.
const KEYS_MAX: u32 = 10_000;
/// Between two looks at what is to be probed.
const WANT_EVERY: Duration = Duration::from_secs(1);

/// What is probed by these settings. Of more targets than are probed the first ones are: those of buckets with an objective.
fn targets(metadata: &Metadata, settings: ProbeSettings) -> Vec<Target> {
    let probed = metadata.buckets.iter().filter(|(name, info)| {
        // Every node has its own part of a cache-only bucket, and clients choose it: there is no vBucket to ask for.
        info.kind != BucketKind::Memcached && settings.probes(metadata, name)
    });
    let (first, rest): (Vec<_>, Vec<_>) = probed.partition(|(_, info)| !info.objectives.is_empty());
    let probed = first.into_iter().chain(rest);
    let on_nodes = |(bucket, _): (&String, &BucketInfo)| {
        let of = |node: &cluster::NodeInfo| Target { bucket: bucket.clone(), node: node.id };
        metadata.active_nodes().map(of).collect::<Vec<_>>()
    };
    probed.flat_map(on_nodes).collect()
}

/// The document that `from` asks for, and where it is. None: the node has no active vBucket of the bucket.
fn document(metadata: &Metadata, target: &Target, from: NodeId) -> Option<(PeerAddress, VbId, String)> {
    let info = metadata.buckets.get(&target.bucket)?;
    let node = metadata.node_by_id(target.node)?;
    let is_there =
        |vb: &VbId| info.vbs.get(usize::from(vb.get())).and_then(|plan| plan.active()) == Some(target.node);
    if info.vbuckets == 0 || !info.vbs.iter().any(|plan| plan.active() == Some(target.node)) {
        return None;
    }
    let key = |number| format!("{KEY_PREFIX}{}:{}:{number}", from.get(), target.node.get());
    let mut keys = (0..KEYS_MAX).map(key).map(|key| (vbucket_of(key.as_bytes(), info.vbuckets), key));
    let (vb, key) = keys.find(|(vb, _)| is_there(vb))?;
    Some((PeerAddress::of(node, metadata), vb, key))
}

/// What a round has found, and the connection if it can be used again.
struct Round {
    target: Target,
    found: Vec<Tried>,
    connection: Option<Connection>,
}

/// Probes until `ended`. Blocks: it is to have a thread of its own.
pub(crate) fn run(control: &Arc<Control>, ended: flags::Receiver<bool>) {
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(probe(control, ended)),
        Err(error) => tracing::error!(%error, "nothing is probed: there is no thread to be had"),
    }
}

async fn probe(control: &Arc<Control>, mut ended: flags::Receiver<bool>) {
    let probing = control.probing();
    let (told, mut rounds) = mpsc::channel::<Round>(AT_ONCE_MAX);
    let mut idle: HashMap<Target, Connection> = HashMap::new();
    let mut settings = ProbeSettings::default();
    let mut wanted_at = None::<Instant>;
    loop {
        let next = probing.probes.lock().next();
        let rest = next.map(|next| Duration::from_millis(next.saturating_sub(probing.millis())));
        tokio::select! {
            // An error means that the sender is gone: the node stops as well.
            _ = ended.wait_for(|stop| *stop) => return,
            Some(round) = rounds.recv() => {
                control.note_probe(&round.target, &round.found);
                if let Some(connection) = round.connection {
                    idle.insert(round.target, connection);
                }
            }
            () = tokio::time::sleep(rest.unwrap_or(WANT_EVERY).min(WANT_EVERY)) => {}
        }
        if wanted_at.is_none_or(|at| at.elapsed() >= WANT_EVERY) && control.caught_up() {
            wanted_at = Some(Instant::now());
            let metadata = control.metadata();
            settings = ProbeSettings::of(&metadata);
            let wanted = targets(&metadata, settings);
            idle.retain(|target, _| wanted.contains(target));
            let period = u64::from(settings.period_secs) * 1_000;
            probing.probes.lock().want(probing.millis(), period, wanted);
        }
        let begun = probing.probes.lock().begin(probing.millis(), u64::from(settings.period_secs) * 1_000);
        for target in begun {
            let (control, told) = (Arc::clone(control), told.clone());
            let kept = idle.remove(&target);
            tokio::spawn(async move {
                let (found, connection) = round(&control, &target, settings.writes, kept).await;
                // An error means that the node stops.
                let _ = told.send(Round { target, found, connection }).await;
            });
        }
    }
}

/// Tries the operations one after the other; what was found, and the connection if it is of use.
async fn round(
    control: &Control,
    target: &Target,
    writes: bool,
    kept: Option<Connection>,
) -> (Vec<Tried>, Option<Connection>) {
    let Some((address, vb, key)) = document(&control.metadata(), target, control.this_id()) else {
        return (Vec::new(), kept);
    };
    let tries: &[Try] = if writes { &Try::ALL } else { &[Try::Get] };
    let kept = kept.filter(|kept| kept.address == address);
    let was_kept = kept.is_some();
    let (mut connection, mut found) = (kept, Vec::new());
    let mut may_dial_again = was_kept;
    while let Some(what) = tries.get(found.len()).copied() {
        let begun = Instant::now();
        let open = match connection.take() {
            Some(open) => Ok(open),
            None => {
                match timeout(TIMEOUT, Connection::open(control.loops().0, address.clone(), &target.bucket))
                    .await
                {
                    Ok(opened) => opened.map_err(|reason| reason.to_string()),
                    Err(_) => Err("it does not answer in time".to_owned()),
                }
            }
        };
        let asked = match open {
            Ok(mut open) => {
                let begun = Instant::now();
                let answer = timeout(TIMEOUT, open.attempt(what, vb, key.as_bytes())).await;
                let micros = u32::try_from(begun.elapsed().as_micros()).unwrap_or(u32::MAX);
                answer.map(|answer| answer.map(|status| (open, status, micros)))
            }
            Err(reason) => {
                let bucket = &target.bucket;
                tracing::debug!(bucket, node = %address, reason, after = ?begun.elapsed(), "a probe found no way");
                return (with_unanswered(found, tries), None);
            }
        };
        match asked {
            Ok(Ok((mut open, status, micros))) => {
                let is_of_use = timeout(TIMEOUT, open.settle()).await.unwrap_or(false);
                connection = is_of_use.then_some(open);
                match ended(what, status) {
                    Some(ended) => found.push(Tried { what, ended, micros: micros.min(TIMEOUT_MICROS) }),
                    None => return (found, connection),
                }
            }
            // A connection that had rested may have been closed by a node that was restarted meanwhile.
            Ok(Err(_)) if std::mem::take(&mut may_dial_again) => {}
            Ok(Err(_)) | Err(_) => return (with_unanswered(found, tries), None),
        }
    }
    (found, connection)
}

/// The rest of the tries was not answered: nothing on that connection is.
fn with_unanswered(mut found: Vec<Tried>, tries: &[Try]) -> Vec<Tried> {
    let rest = tries.get(found.len()..).unwrap_or_default();
    found.extend(rest.iter().map(|what| Tried::unanswered(*what)));
    found
}

/// What a status says of an operation: see the module. None: nothing. A status that is not known is an error.
fn ended(what: Try, status: Option<Status>) -> Option<Ended> {
    match status {
        Some(Status::Success | Status::Locked | Status::KeyExists) => Some(Ended::Answered),
        Some(Status::KeyNotFound) if what == Try::Get => Some(Ended::Answered),
        // The vBucket has just moved, or the user has dropped the collection.
        Some(Status::NotMyVbucket | Status::UnknownCollection) => None,
        Some(Status::SyncWriteInProgress | Status::SyncWriteReCommitInProgress) => None,
        _ => Some(Ended::Refused),
    }
}

impl Control {
    /// Takes note of what a round has found.
    fn note_probe(&self, target: &Target, found: &[Tried]) {
        let probing = self.probing();
        probing.probes.lock().end(probing.millis(), target, found);
        let now = u64::from(self.loops().0.now().unix_secs());
        self.objectives_here().probed(&self.metadata(), &target.bucket, found, now);
    }
}

#[cfg(test)]
mod tests {
    use admin::ProbedBuckets;
    use base::BucketUuid;
    use cluster::{BucketParams, Command, Membership, NodeInfo, Objective, Operation, Ports};

    use super::*;

    #[test]
    fn not_found_is_an_answer_to_a_get_alone() {
        assert_eq!(ended(Try::Get, Some(Status::KeyNotFound)), Some(Ended::Answered));
        assert_eq!(ended(Try::Set, Some(Status::KeyNotFound)), Some(Ended::Refused));
        assert_eq!(ended(Try::Durable, Some(Status::TemporaryFailure)), Some(Ended::Refused));
        assert_eq!(ended(Try::Get, Some(Status::NotMyVbucket)), None);
    }

    #[test]
    fn what_users_do_to_the_document_is_not_held_against_the_node() {
        for what in Try::ALL {
            for of_users in [Status::Locked, Status::KeyExists] {
                assert_eq!(ended(what, Some(of_users)), Some(Ended::Answered));
            }
            assert_eq!(ended(what, Some(Status::SyncWriteInProgress)), None);
            // None of these is silence.
            assert_eq!(ended(what, Some(Status::NoAccess)), Some(Ended::Refused));
            assert_eq!(ended(what, None), Some(Ended::Refused));
        }
    }

    /// Two nodes, and a bucket for each name: `objectives` tells whether it has an objective. The last one is cache-only.
    fn of_two(buckets: &[(&str, bool)]) -> Metadata {
        let node = |id: u16| {
            let first = NodeInfo::first(format!("uuid-{id}"), format!("10.0.0.{id}"), Ports::default());
            NodeInfo { id: NodeId(id), ..first }
        };
        let create = |name: &str, kind| {
            let params = BucketParams { ram_quota_mb: Some(100), kind, ..BucketParams::default() };
            Command::CreateBucket { name: name.into(), uuid: BucketUuid(name.into()), params }
        };
        let couchbase = buckets.iter().map(|(name, _)| create(name, None));
        let mut state = Metadata::new("c".into(), 1_024);
        let first = [Command::SetNode(node(0)), Command::AddNode(node(1))];
        for command in
            first.into_iter().chain(couchbase).chain([create("cache", Some(BucketKind::Memcached))])
        {
            state = state.apply(&command).unwrap().0;
        }
        state.nodes.iter_mut().for_each(|node| node.membership = Membership::Active);
        let objective =
            Objective { operation: Operation::Get, latency_us: 2_000, target_ppm: 999_000, period_days: 28 };
        for (name, _) in buckets.iter().filter(|(_, has)| *has) {
            state.buckets.get_mut(*name).unwrap().objectives.insert("fast".into(), objective);
        }
        state
    }

    #[test]
    fn every_bucket_is_probed_by_gets_unasked_and_those_with_an_objective_come_first() {
        let metadata = of_two(&[("a", false), ("b", true)]);
        let probed = |settings| {
            let all = targets(&metadata, settings).into_iter();
            all.map(|target| (target.bucket, target.node.get())).collect::<Vec<_>>()
        };
        let settings = ProbeSettings::of(&metadata);
        assert!(!settings.writes, "nothing is written unasked");
        let on_both = |bucket: &str| [0, 1].map(|node| (bucket.to_owned(), node));
        assert_eq!(probed(settings), [on_both("b"), on_both("a")].concat());
        let buckets = ProbedBuckets::Objectives;
        assert_eq!(probed(ProbeSettings { buckets, ..settings }), on_both("b"));
        assert_eq!(probed(ProbeSettings { buckets: ProbedBuckets::None, ..settings }), []);
    }

    #[test]
    fn what_follows_an_operation_without_an_answer_has_none_either() {
        let get = Tried { what: Try::Get, ended: Ended::Answered, micros: 5 };
        let expected = [get, Tried::unanswered(Try::Set), Tried::unanswered(Try::Durable)];
        assert_eq!(with_unanswered(vec![get], &Try::ALL), expected);
    }
}
