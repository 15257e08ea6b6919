//! What a stop says of the buckets that it could not bring to a clean end.

use std::fmt;

use engine::{FlushFailure, Unclosed};

/// Buckets whose shards could not all be closed cleanly at a stop, each with the shards that were not.
#[derive(Debug, Default)]
pub struct NotClosed(Vec<(String, Vec<Unclosed>)>);

impl NotClosed {
    /// Notes the shards of a bucket.
    pub(crate) fn add(&mut self, bucket: String, shards: Vec<Unclosed>) {
        self.0.push((bucket, shards));
    }

    /// An error, unless nothing was noted.
    pub(crate) fn into_result(self) -> Result<(), Self> {
        if self.0.is_empty() { Ok(()) } else { Err(self) }
    }

    fn unwritten(&self) -> u64 {
        self.0.iter().flat_map(|(_, shards)| shards).map(|shard| shard.unwritten).sum()
    }
}

impl fmt::Display for NotClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.unwritten() {
            0 => f.write_str(
                "the node has stopped, and every mutation is on disk, but the end could not be recorded there; the next start \
                 recovers the files as after a crash",
            )?,
            unwritten => write!(
                f,
                "the node has stopped, but not everything that it has acknowledged is on disk: mutations lost: {unwritten}"
            )?,
        }
        for (bucket, shards) in &self.0 {
            for Unclosed { shard, unwritten, failure } in shards {
                let why = match failure {
                    FlushFailure::NoSpace => "there is no space for them, and compaction found none",
                    FlushFailure::Poisoned => "a write or a sync has failed",
                };
                write!(f, "; bucket {bucket}, shard {shard}: {unwritten} not on disk, because {why}")?;
            }
        }
        Ok(())
    }
}

impl std::error::Error for NotClosed {}

/// Whether somebody else's end could make room for what is missing.
pub(crate) fn wants_space(shards: &[Unclosed]) -> bool {
    shards.iter().any(|shard| shard.failure == FlushFailure::NoSpace)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(unwritten: u64, failure: FlushFailure) -> String {
        let mut left = NotClosed::default();
        left.add("travel".into(), vec![Unclosed { shard: 1, unwritten, failure }]);
        left.into_result().unwrap_err().to_string()
    }

    #[test]
    fn what_is_lost_is_called_lost_and_nothing_else_is() {
        let full = said(12, FlushFailure::NoSpace);
        assert!(full.contains("mutations lost: 12"), "{full}");
        assert!(full.contains("bucket travel, shard 1") && full.contains("no space"), "{full}");
        let unmarked = said(0, FlushFailure::Poisoned);
        assert!(unmarked.contains("every mutation is on disk") && !unmarked.contains("lost"), "{unmarked}");
        assert!(NotClosed::default().into_result().is_ok());
    }
}
