//! Which bucket the past of a name belongs to.
//!
//! A bucket that is flushed has another uuid and keeps its past. One that is made anew under the name of a dropped one has another uuid,
//! too, and no past. Changes tell the two apart: a flush is one change, and between a drop and a creation lies metadata without the bucket.
//! Where a node has not seen each change, it takes another uuid for another bucket.

use std::collections::BTreeMap;

use cluster::{Metadata, consensus::Commit};

/// The buckets of the metadata that were followed last.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    cluster_uuid: String,
    buckets: BTreeMap<String, Origin>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Origin {
    uuid: String,
    /// The first uuid that this node knows of it.
    first: String,
}

impl Origins {
    /// Follows changes in order. Says which names have lost their bucket; another one may have the name by now. `goes_on`: they follow
    /// those that were followed before. Otherwise the node has joined another group, which may be one that was formed anew.
    pub(crate) fn follow(&mut self, commits: &[Commit], goes_on: bool) -> Vec<String> {
        let before: Vec<(String, String)> =
            self.buckets.iter().map(|(name, origin)| (name.clone(), origin.first.clone())).collect();
        commits.iter().for_each(|commit| self.step(&commit.metadata, commit.is_snapshot || !goes_on));
        let is_lost = |name: &str, first: &str| self.buckets.get(name).is_none_or(|now| now.first != first);
        before.into_iter().filter(|(name, first)| is_lost(name, first)).map(|(name, _)| name).collect()
    }

    /// The buckets are these now. `jumped`: changes in between are not known.
    pub(crate) fn step(&mut self, metadata: &Metadata, jumped: bool) {
        let is_known = |(name, origin): (&String, &Origin)| {
            metadata.buckets.get(name).is_some_and(|info| info.uuid.0 == origin.uuid)
        };
        let is_same_cluster = self.cluster_uuid == metadata.cluster_uuid;
        if is_same_cluster
            && self.buckets.len() == metadata.buckets.len()
            && self.buckets.iter().all(is_known)
        {
            return;
        }
        let before = std::mem::take(&mut self.buckets);
        self.cluster_uuid.clone_from(&metadata.cluster_uuid);
        for (name, info) in &metadata.buckets {
            let uuid = info.uuid.0.clone();
            let goes_on = |before: &&Origin| before.uuid == uuid || (is_same_cluster && !jumped);
            let first = before.get(name).filter(goes_on).map_or(&uuid, |before| &before.first).clone();
            self.buckets.insert(name.clone(), Origin { uuid, first });
        }
    }

    /// The first uuid of an open bucket. None: the bucket is one of before, which is about to close.
    pub(crate) fn first(&self, name: &str, uuid: &str) -> Option<&str> {
        self.buckets.get(name).filter(|origin| origin.uuid == uuid).map(|origin| origin.first.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::BucketUuid;
    use cluster::{BucketParams, Command, NodeInfo, Ports};

    use super::*;

    fn begun() -> Metadata {
        let node = NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default());
        Metadata::new("c".into(), 1024).apply(&Command::SetNode(node)).unwrap().0
    }

    fn create(uuid: &str) -> Command {
        let params =
            BucketParams { ram_quota_mb: Some(100), flush_enabled: Some(true), ..BucketParams::default() };
        Command::CreateBucket { name: "b".into(), uuid: BucketUuid(uuid.into()), params }
    }

    fn flush(uuid: &str) -> Command {
        Command::FlushBucket { name: "b".into(), uuid: BucketUuid(uuid.into()) }
    }

    fn drop_it() -> Command {
        Command::DeleteBucket { name: "b".into() }
    }

    /// What follows from these changes, each seen, or only the last one's outcome.
    fn follow(
        origins: &mut Origins,
        from: &Metadata,
        commands: &[Command],
        is_snapshot: bool,
    ) -> (Metadata, Vec<String>) {
        let mut commits: Vec<Commit> = Vec::new();
        for command in commands {
            let before = commits.last().map_or(from, |commit| &*commit.metadata);
            let metadata = before.apply(command).unwrap().0.into();
            commits.push(Commit { index: 0, metadata, is_snapshot, outcomes: Vec::new() });
        }
        let newest = commits.last().unwrap().metadata.as_ref().clone();
        let seen = if is_snapshot { commits.split_off(commits.len() - 1) } else { commits };
        (newest, origins.follow(&seen, true))
    }

    #[test]
    fn a_flush_keeps_a_bucket_and_a_creation_makes_another_one() {
        let mut origins = Origins::default();
        let begun = begun();
        origins.step(&begun, true);
        let (state, lost) = follow(&mut origins, &begun, &[create("u1")], false);
        assert_eq!((origins.first("b", "u1"), lost.as_slice()), (Some("u1"), [].as_slice()));
        let (state, lost) = follow(&mut origins, &state, &[flush("u2"), flush("u3")], false);
        assert_eq!((origins.first("b", "u3"), lost.as_slice()), (Some("u1"), [].as_slice()));
        assert_eq!(origins.first("b", "u1"), None, "which is about to close");
        let (state, lost) = follow(&mut origins, &state, &[drop_it(), create("u4")], false);
        assert_eq!((origins.first("b", "u4"), lost.as_slice()), (Some("u4"), ["b".to_owned()].as_slice()));
        let (_, lost) = follow(&mut origins, &state, &[drop_it()], false);
        assert_eq!((origins.first("b", "u4"), lost.as_slice()), (None, ["b".to_owned()].as_slice()));
    }

    #[test]
    fn where_changes_were_not_seen_another_uuid_is_another_bucket() {
        let begun = begun();
        let with_bucket = begun.apply(&create("u1")).unwrap().0;
        for commands in [vec![flush("u2")], vec![drop_it(), create("u2")]] {
            let mut origins = Origins::default();
            origins.step(&with_bucket, true);
            let (_, lost) = follow(&mut origins, &with_bucket, &commands, true);
            assert_eq!(
                (origins.first("b", "u2"), lost.as_slice()),
                (Some("u2"), ["b".to_owned()].as_slice())
            );
        }
        // Another cluster has a bucket of that name.
        let mut origins = Origins::default();
        origins.step(&with_bucket, true);
        let elsewhere = Metadata { cluster_uuid: "d".into(), ..begun };
        let (_, lost) = follow(&mut origins, &elsewhere, &[create("u2")], false);
        assert_eq!(lost, ["b"]);
        // So has a group that was formed anew of the same cluster.
        let mut origins = Origins::default();
        origins.step(&with_bucket, true);
        let metadata = Arc::new(with_bucket.apply(&flush("u2")).unwrap().0);
        let commit = Commit { index: 0, metadata, is_snapshot: false, outcomes: Vec::new() };
        assert_eq!(origins.follow(&[commit], false), ["b"]);
    }
}
