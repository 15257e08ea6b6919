//! What readers of a vBucket's history hold: cursors, items, states gathered at one seqno, backfills and range scans under way.
//! A bucket keeps these for its readers, so they know their vBuckets by [`Home`](crate::vbucket::slot::Home), not the bucket.

pub(crate) mod backfill;
pub(crate) mod cursor;
pub(crate) mod gather;
pub(crate) mod item;
pub(crate) mod places;
pub(crate) mod queue;
pub(crate) mod scan;
pub(crate) mod scans;
pub(crate) mod told;
