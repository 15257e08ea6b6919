//! Buckets that are not where the metadata want them, and why.
//!
//! Each stands by itself. The other buckets are opened, changed and dropped all the same, and a change that concerns another bucket, or
//! none, is carried out.

use std::{fmt, io};

use base::BucketUuid;
use cluster::{ClusterError, Metadata};
use engine::OpenError;
use storage::StoreError;

use crate::files::shards::ShardsError;

/// Why a bucket could not be brought to where the metadata wants it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BucketError {
    #[error("bucket {name} cannot be opened: {source}")]
    Open { name: String, source: OpenError },
    #[error("the files of bucket {name} cannot be opened: {source}")]
    Store { name: String, source: StoreError },
    #[error("bucket {name} is not opened: {source}")]
    Shards { name: String, source: ShardsError },
    #[error("bucket {name}: {source}")]
    Io { name: String, source: io::Error },
    #[error("bucket {name} was dropped a moment ago, and its files are still being removed")]
    Leaving { name: String },
}

/// See the module. There is one at least.
#[derive(Debug, thiserror::Error)]
pub(crate) struct Unavailable(Vec<(BucketUuid, BucketError)>);

impl Unavailable {
    /// These buckets, if there is one.
    pub(crate) fn check(found: Vec<(BucketUuid, BucketError)>) -> Result<(), Self> {
        if found.is_empty() { Ok(()) } else { Err(Self(found)) }
    }

    /// Why each of them is not available.
    pub(crate) fn reasons(&self) -> impl Iterator<Item = &BucketError> {
        self.0.iter().map(|(_, error)| error)
    }

    /// Why a change is not carried out here that has made `after` of `before`: it has made one of these buckets.
    pub(crate) fn fails(&self, before: &Metadata, after: &Metadata) -> Option<ClusterError> {
        let has_made = |uuid| before.bucket_by_uuid(uuid).is_none() && after.bucket_by_uuid(uuid).is_some();
        let made = self.0.iter().find(|(uuid, _)| has_made(uuid));
        made.map(|(_, error)| ClusterError::Failed(error.to_string()))
    }
}

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let told: Vec<_> = self.reasons().map(ToString::to_string).collect();
        formatter.write_str(&told.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use cluster::{BucketParams, Command, NodeInfo, Ports};

    use super::*;

    fn create(name: &str) -> Command {
        let params = BucketParams { ram_quota_mb: Some(100), replicas: Some(0), ..BucketParams::default() };
        Command::CreateBucket { name: name.into(), uuid: BucketUuid(name.into()), params }
    }

    #[test]
    fn a_bucket_that_cannot_be_opened_fails_no_change_but_the_one_that_made_it() {
        let node = NodeInfo::first("0".into(), "h".into(), Ports::default());
        let changes = [Command::SetNode(node), create("well"), create("broken"), create("later")];
        let mut states = vec![Metadata::new("c".repeat(32), 1024)];
        for change in &changes {
            let next = states.last().unwrap().apply(change).unwrap().0;
            states.push(next);
        }
        let source = io::Error::other("no disk");
        let error = BucketError::Io { name: "broken".into(), source };
        let unavailable = Unavailable::check(vec![(BucketUuid("broken".into()), error)]).unwrap_err();
        let fails: Vec<bool> =
            states.windows(2).map(|pair| unavailable.fails(&pair[0], &pair[1]).is_some()).collect();
        assert_eq!(fails, [false, false, true, false]);
        assert_eq!(unavailable.to_string(), "bucket broken: no disk");
    }
}
