//! The past of statistics: what figures were, where that is kept, and what it foretells.

pub(crate) mod forecasts;
pub(crate) mod gauges;
pub(crate) mod history;
pub(crate) mod latency_past;
#[cfg(test)]
mod memory;
pub(crate) mod origins;

use std::collections::BTreeMap;

/// Lets go of the row whose time is farthest from now. After the clock was set back that may be one that is later than now.
fn let_go_farthest<R>(rows: &mut BTreeMap<u64, R>, now: u64) -> Option<R> {
    let (oldest, newest) = (*rows.first_key_value()?.0, *rows.last_key_value()?.0);
    let farthest = if newest.saturating_sub(now) > now.saturating_sub(oldest) {
        rows.pop_last()
    } else {
        rows.pop_first()
    };
    farthest.map(|(_, row)| row)
}
