//! What loads this node, for readers: connections by what they do, and the addresses that most operations come from.
//!
//! A look goes through every connection, on the threads that serve them. So readers take turns, and share an answer for a moment.

use std::time::Duration;

use dataplane::{Shared, Wakes};
use stats::{ConnectionLoad, ConnectionsReport};
use tokio::{
    sync::{Mutex, mpsc},
    time::{Instant, sleep, timeout},
};

/// For how long connections are watched. Other nodes wait a second for an answer.
const WATCHED: Duration = Duration::from_millis(500);
/// How long a loop may take to answer.
const PATIENCE: Duration = Duration::from_millis(200);
/// How old an answer may be.
const FRESH: Duration = Duration::from_secs(1);
/// Connections that are told.
const BUSIEST: usize = 100;

/// See the module.
#[derive(Default)]
pub(crate) struct Loads(Mutex<Option<(Instant, ConnectionsReport)>>);

impl Loads {
    /// What connections do now.
    pub(crate) async fn connections(&self, shared: &Shared, wakes: &Wakes) -> ConnectionsReport {
        let mut last = self.0.lock().await;
        if let Some((at, report)) = &*last
            && at.elapsed() < FRESH
        {
            return report.clone();
        }
        look(wakes).await;
        sleep(WATCHED).await;
        let mut report = look(wakes).await;
        report.busiest.sort_by(|one, other| weight(other).total_cmp(&weight(one)));
        report.busiest.truncate(BUSIEST);
        let now = shared.now().mono_millis;
        for (name, bucket) in &shared.snapshot().buckets {
            report.clients.extend(bucket.meter.hot(name, now).clients);
        }
        *last = Some((Instant::now(), report.clone()));
        report
    }
}

/// By what the busiest connections are found: a KiB is as much as an operation.
fn weight(one: &ConnectionLoad) -> f64 {
    one.per_second + (one.read_per_second + one.written_per_second) / 1_024.0
}

/// What the connections of all loops have done since the look before.
async fn look(wakes: &Wakes) -> ConnectionsReport {
    let (told, mut heard) = mpsc::unbounded_channel();
    // A reader that has lost its patience hears no more.
    wakes.look_at_connections(move |report| _ = told.send(report));
    let mut all = ConnectionsReport::default();
    let everything = async {
        while let Some(report) = heard.recv().await {
            all.open += report.open;
            all.busiest.extend(report.busiest);
        }
    };
    let _ = timeout(PATIENCE, everything).await;
    all
}
