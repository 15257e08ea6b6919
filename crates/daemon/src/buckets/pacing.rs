//! The thread that paces buckets under pressure: it looks at each now and then, and every few milliseconds while one of
//! them has mutations waiting. It also tells the log which step a bucket has come to ([`crate::buckets::pressure_log`]).

use std::{
    collections::HashMap,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use dataplane::{Shared, followers};

use crate::{
    buckets::{housekeeping::MeteredBucket, pressure_log::PressureLog},
    threads::{node_thread::NodeThread, wake_flag::WakeFlag},
};

/// While nobody waits: how well the disk does is measured all the same.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// While nothing waits for the disk either.
const IDLE: Duration = Duration::from_secs(1);
/// While somebody waits.
const PACE_EVERY: Duration = Duration::from_millis(4);

/// How far nodes are that follow this one is looked at so often.
const FOLLOWERS_EVERY: Duration = Duration::from_secs(1);

/// `buckets` lists what is open at the moment; `wake_flag` is set when a bucket cannot wait.
pub(crate) fn start(
    buckets: impl Fn() -> Vec<MeteredBucket> + Send + 'static,
    wake_flag: Arc<WakeFlag>,
    shared: Arc<Shared>,
) -> io::Result<NodeThread> {
    NodeThread::start("pacing", wake_flag, move |duty| {
        let mut logs: HashMap<String, PressureLog> = HashMap::new();
        let mut followers_seen = Instant::now();
        while !duty.is_over() {
            if followers_seen.elapsed() >= FOLLOWERS_EVERY {
                followers_seen = Instant::now();
                look_at_followers(&shared);
            }
            let (mut more, mut idle) = (false, true);
            let buckets = buckets();
            logs.retain(|name, _| buckets.iter().any(|(bucket, _)| bucket.name() == name));
            for (bucket, _) in &buckets {
                let now = shared.now();
                let report = bucket.pace(now);
                let name = bucket.name();
                // A name is copied for the first look only.
                let log = match logs.get_mut(name) {
                    Some(log) => log,
                    None => logs.entry(name.to_owned()).or_default(),
                };
                log.tell(name, &report, || bucket.shortage(now), Instant::now());
                more |= report.more;
                idle &= report.idle;
            }
            drop(buckets);
            if more {
                std::thread::sleep(PACE_EVERY);
            } else {
                duty.rest(if idle { IDLE } else { LOOK_EVERY });
            }
        }
    })
}

/// Tells each bucket how far the nodes are that follow this one.
fn look_at_followers(shared: &Shared) {
    let snapshot = shared.snapshot();
    for bucket in snapshot.buckets.values() {
        bucket.engine.note_followers(&followers::loads(shared, &snapshot, bucket), shared.now());
    }
}
