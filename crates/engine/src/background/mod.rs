//! What goes on without being asked for, in bounded steps: writing, reading back, loading, making room, tidying up, closing.
//! All of it is methods of [`Bucket`](crate::Bucket), which the owner of the threads calls.

pub(crate) mod bg_fetcher;
pub(crate) mod closing;
pub(crate) mod cold_expiry;
pub(crate) mod cold_trim;
mod cold_warmup;
pub(crate) mod compactor;
pub(crate) mod expiry_pager;
pub(crate) mod flusher;
pub(crate) mod hot_keys;
pub(crate) mod item_pager;
pub(crate) mod resets;
pub(crate) mod warmup;
