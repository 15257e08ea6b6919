//! Alerts: which there are, when they fire, and when they are cleared.
//!
//! A condition fires once it has held for `fires_after_secs`, and is cleared once it has not held for `clears_after_secs`. So a figure
//! that swings around its threshold fires once. What is looked at is told by callers: this module has no clock.
//!
//! Invariants: an alert that fires is told once, and so is its end; what is kept is bounded by [`ALERTS_MAX`], however many
//! conditions callers bring.

use std::collections::BTreeMap;

use serde::Serialize;

/// Most alerts of a node that are kept; the rest of the conditions is left out, those of later names first.
pub const ALERTS_MAX: usize = 1_000;
/// What one of them takes in memory, about.
pub const ALERT_BYTES: usize = 512;

/// How much an alert matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// Something is worse than it should be; clients do not see errors yet.
    Warning,
    /// Clients see errors, or a loss is near.
    Critical,
}

impl Level {
    /// The word for it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Critical => "critical",
        }
    }
}

/// One kind of alert.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// Its name, for tools and for the entry in `docs/operating/alerts.md`.
    pub name: &'static str,
    /// How much it matters.
    pub level: Level,
    /// How long its condition has to hold.
    pub fires_after_secs: u64,
    /// How long its condition has to be over.
    pub clears_after_secs: u64,
    /// What it means, in one sentence.
    pub means: &'static str,
    /// What causes it.
    pub cause: &'static str,
    /// What to do about it.
    pub act: &'static str,
}

impl About {
    /// Where the operating guide explains the alert, in Settee's documents.
    #[must_use]
    pub fn guide(&self) -> String {
        format!("docs/operating/alerts.md#{}", self.name)
    }

    /// Where a node's console explains it, below the address of the node's REST: the same words, from the build that fires it.
    #[must_use]
    pub fn console_path(&self) -> String {
        format!("{CONSOLE_PATH}{}", self.name)
    }
}

/// Where a console explains alerts, before an alert's name.
const CONSOLE_PATH: &str = "/ui/#/alerts/guide/";

/// A template of Prometheus for the address of a guide's entry, for rules whose series name the alert and the node that tells it.
/// Nodes that are read under TLS have a console under TLS; an instance says which by its port.
#[must_use]
pub fn runbook_of_instance() -> String {
    let scheme = "http{{ if match \":18091$\" $labels.instance }}s{{ end }}";
    format!("{scheme}://{{{{ $labels.instance }}}}{CONSOLE_PATH}{{{{ $labels.alert }}}}")
}

/// The same for one alert, at any node that Prometheus reaches: for rules about all nodes, or about one that does not answer.
#[must_use]
pub fn runbook_of_any_instance(about: &About) -> String {
    let instance = "{{ with query \"topk(1, up{job='settee'} == 1)\" }}{{ with . | first | label \"instance\" }}\
                    http{{ if match \":18091$\" . }}s{{ end }}://{{ . }}";
    format!("{instance}{}{{{{ end }}}}{{{{ else }}}}{}{{{{ end }}}}", about.console_path(), about.guide())
}

macro_rules! alerts {
    ($($id:ident $name:literal $level:ident $fires:literal $clears:literal: $means:literal, $cause:literal, $act:literal;)*) => {
        $(
            #[doc = $means]
            pub static $id: About = About {
                name: $name, level: Level::$level, fires_after_secs: $fires, clears_after_secs: $clears,
                means: $means, cause: $cause, act: $act,
            };
        )*
        /// Every kind.
        pub static ALERTS: &[&About] = &[$(&$id),*];
    };
}

alerts! {
    MEMORY_CLOSE "memory_close_to_quota" Warning 0 10:
        "A bucket is close to its quota on a node; streams that lag behind are read from disk.",
        "Documents and the history that slow streams need take nearly all of the quota.",
        "Raise the quota or add a node if this lasts; see which stream lags by `cbstats dcp`.";
    WRITES_PACED "writes_paced" Warning 0 10:
        "Writers of a bucket are slowed down on a node; none is refused.",
        "The bucket has no room for what is not written yet: writes come faster than the disk takes them.",
        "Look at what the disk does (`iostat`). Raise the quota, or add nodes: each takes its share of the writes.";
    WRITES_REFUSED "writes_refused" Critical 0 10:
        "Writes that need memory are refused with \"temporary failure\" on a node.",
        "The bucket has reached its quota, and the disk does not take what would make room.",
        "Delete documents, raise the quota, or add nodes. Nothing is lost, and no restart is needed.";
    QUEUE_GROWS "disk_queue_grows" Warning 5 30:
        "The queue of mutations that wait for the disk grows faster than it drains.",
        "Writes come faster than the disk takes them, or the disk has become slower. It takes 10,000 mutations that wait, or 5 % of the quota in bytes.",
        "Compare `ep_diskqueue_fill` with `ep_diskqueue_drain`, and look at the disk. Writers are slowed down next.";
    REPLICA_LAG "replica_lag_grows" Warning 5 30:
        "Replicas on other nodes fall behind the active copies of a node.",
        "The network or the other nodes do not take what is written here. It takes 10,000 changes that are to be sent, or copies that are 5 s behind.",
        "Look at the nodes that follow, and at the network. Durable writes wait longer, and a failover could lose more.";
    WORKING_SET "working_set_does_not_fit" Warning 5 60:
        "More than a tenth of a bucket's reads wait for the disk.",
        "The documents that are read often do not fit in memory. Nothing counts which those are: reads that wait for the disk are the sign of it. It takes 100 reads/s of the bucket on the node.",
        "Raise the quota or add nodes. Residency (`vb_active_perc_mem_resident`) says how much fits.";
    METADATA_SHARE "metadata_share" Warning 0 60:
        "Keys and metadata take more than half of a bucket's quota.",
        "There are many documents with small values.",
        "Raise the quota, or switch the bucket to full eviction, which lets whole documents leave memory.";
    HOT_KEY "hot_key" Warning 30 60:
        "A quarter or more of a bucket's operations on a node go to a single document.",
        "Many clients read or write one document: a counter, a configuration, a lock. It takes 5,000 operations/s on that document.",
        "`settee top --hot` names the document. Cache it in the application, or split it into several documents.";
    HOT_CLIENT "hot_client" Warning 30 60:
        "Half or more of a bucket's operations on a node come from a single address, though others use the bucket too.",
        "An application runs away, repeats its requests, or does the work of others. It takes 5,000 operations/s from that address, and 4 addresses that use the bucket.",
        "`settee top --hot` names the address, its users and programs. Look at what that application does.";
    DISK_LOW "disk_low" Critical 0 10:
        "The disk of a node has less free space than is kept free; only deletions are accepted.",
        "Documents, or files of others, have filled the disk.",
        "Free space, delete documents, or add a disk or nodes.";
    DISK_SOON "disk_fills_soon" Critical 5 60:
        "The disk of a node will be full within an hour at the pace of the last minutes. Then only deletions are accepted.",
        "Documents, or files of others, are written faster than the disk bears. The forecast looks at half a minute, two minutes and eight, and sees ten times as far ahead. A load of less than 18 seconds is no growth.",
        "Stop what fills the disk, free space, or delete documents. It is over three minutes after the growth.";
    MEMORY_SOON "memory_fills_soon" Warning 5 60:
        "The memory of a bucket will reach its high watermark on a node within an hour, at the pace of the last minutes.",
        "The bucket grows fast. The forecast looks at half a minute, two minutes and eight, and sees ten times as far ahead. A load of less than 18 seconds is no growth.",
        "Nothing, if it is all right that values leave memory. Otherwise raise the quota or add nodes. A bucket of type ephemeral drops documents then, or refuses writes.";
    METADATA_SOON "metadata_fills_soon" Critical 5 60:
        "Keys and metadata alone will take a bucket's memory up to its high watermark on a node within an hour. That goes by the pace of the last minutes.",
        "Documents are inserted fast, and nothing will be left to eject. The forecast looks at half a minute, two minutes and eight, and sees ten times as far ahead. A load of less than 18 seconds is no growth.",
        "Stop the inserts, raise the quota, or switch the bucket to full eviction. From the watermark on, inserts are slowed down and then refused.";
    DISK_FILLS "disk_fills" Warning 0 3600:
        "The disk of a node will be full within two weeks at the pace of the last two.",
        "The stored data grows. The forecast is a robust line through the last two weeks.",
        "Add nodes or disk in time. `settee plan --from HOST` says how many.";
    MEMORY_FILLS "memory_fills" Warning 0 3600:
        "The memory of a bucket will reach its high watermark on a node within two weeks, at the pace of the last two.",
        "The bucket grows. The forecast is a robust line through the last two weeks, with what hours of the day add.",
        "Raise the quota or add nodes, unless it is all right that values leave memory. `settee plan --from HOST` shows the forecasts.";
    METADATA_FILLS "metadata_fills" Warning 0 3600:
        "Within two weeks, keys and metadata of a bucket will take more than half of its quota on a node. That goes by the pace of the last two.",
        "The number of documents grows. Keys and metadata stay in memory with value eviction.",
        "Raise the quota, add nodes, or switch the bucket to full eviction. `settee plan --from HOST` shows the forecasts.";
    BURN_PAGE "budget_burns_fast" Critical 0 60:
        "Operations miss an objective so often that its error budget is used many times too fast.",
        "Requests are slower than the objective asks for, on this node. By its probes: nodes answer this one slowly or not at all. It fires above 14.4 over 1h and 5m, or above 6 over 6h and 30m, where 1 uses all of the budget in one period. The shorter span has to have 100 operations.",
        "See `settee slo show`, and where the time goes: `settee_phase_seconds`. Of probes `GET /settee/probe` shows which node is slow.";
    BURN_TICKET "budget_burns" Warning 0 300:
        "Operations miss an objective more often than its error budget allows in the long run.",
        "Requests are slower than the objective asks for, on this node. By its probes: nodes answer this one slowly or not at all. It fires above 3 over 1d and 2h, or above 1 over 3d and 6h, where 1 uses all of the budget in one period. The shorter span has to have 100 operations.",
        "See `settee slo show`, and where the time goes: `settee_phase_seconds`. Of probes `GET /settee/probe` shows which node is slow.";
    NODE_DOWN "node_down" Critical 0 5:
        "A node is not heard of.",
        "The node or its process has ended, or the network does not reach it. The node that leads tells it. Where no majority is left no node leads, and `no_majority` is told instead.",
        "See whether the node runs. Where automatic failover is off, `settee cluster failover --hard` fails the node over. Where it is on, that happens by itself.";
    PROBE_SILENT "probe_not_answered" Critical 15 60:
        "A node does not answer probes of another node, or of its own: two or more in a row on a bucket.",
        "The node stands still, has no way to its disk, or cannot be reached by the node that tells it.",
        "`GET /settee/probe` shows which nodes see it. Look at that node's process, its disk and its network.";
    CLOCK_SKEW "clock_skew" Warning 30 60:
        "The clock of a node differs by more than five seconds from that of the node that leads.",
        "A clock is not set by NTP, or by another source than those of the other nodes.",
        "Run `chronyc tracking` on both nodes. Where conflicts are resolved by time, the later clock wins until then.";
    FAILED_OVER "failed_over" Warning 0 5:
        "A node was failed over and serves nothing.",
        "Its cluster did not hear of it, or somebody has failed it over.",
        "Ask another node. `settee cluster recover` brings the node back, `settee cluster remove` removes it.";
    NO_TOUCH "lost_touch" Critical 0 5:
        "A node has lost touch with its cluster and serves nothing.",
        "No majority of nodes has heard the node for the length of the failover timeout. A node that is removed as planned does not tell it.",
        "Look at the network between the node and the others, and at whether a majority of nodes runs.";
    NO_MAJORITY "no_majority" Critical 5 5:
        "A node hears of no node that leads its cluster, so nothing of the cluster can be changed there.",
        "A majority of the nodes that vote is down or out of reach of the node. One of two is no majority.",
        "Bring back nodes that are down. If they are lost for good, fail all of them over at once: `settee cluster failover --hard --unsafe LOST-NODE...`, see \"When the majority is lost\" in `docs/replication.md`. A node without a lease goes on serving what it serves.";
    LEASE_LATE "lease_renewed_late" Warning 0 60:
        "A node's lease was renewed so late that less than half of it was left. Once it runs out, the node serves nothing.",
        "The node that leads answers late, or the network between both loses or delays what they say.",
        "Look at the processor and the disk of the node that leads, and at the network. `settee_lease_ms` shows what is left.";
    METADATA_STUCK "metadata_stuck" Critical 0 5:
        "A node cannot write or take part in what the cluster agrees on.",
        "The text says why: mostly its disk.",
        "Free space, or check the disk; then restart the node if its text says so.";
    TWO_GROUPS "two_groups" Critical 15 30:
        "A node that was failed over goes on in a group that was formed anew, beside the group of the node that tells this.",
        "A majority was failed over with `--unsafe`, came back, and failed the survivors over; or both sides did so with `--unsafe`.",
        "Decide which group stays, and end the other one: see \"When the majority is lost\" in `docs/replication.md`.";
    SYNC_FAILED "sync_failed" Critical 0 60:
        "A shard of a bucket writes no more: a write or a sync has failed.",
        "The disk has reported an input/output error.",
        "Check the disk (`dmesg`, SMART), then restart the node; fail it over if the disk is bad.";
    BUCKET_CLOSED "bucket_not_open" Critical 30 5:
        "A bucket cannot be opened on a node, which serves nothing of it.",
        "Files of the bucket are missing or damaged, or the disk cannot be read. The text says which.",
        "Bring back what the text names: the node opens the bucket by itself then. Otherwise fail the node over, and recover it with full recovery.";
    CERTIFICATE_ENDS "certificate_ends" Warning 0 60:
        "The certificate that a node shows to clients ends within 30 days.",
        "It was made for a limited time.",
        "Bring another one: `couchbase-cli ssl-manage --set-node-certificate`, or `--regenerate-cert` for one of its own.";
    AUTHORITY_ENDS "authority_ends" Warning 0 60:
        "An authority that the cluster trusts ends within 30 days. Then neither nodes nor clients are believed whose certificates it has signed.",
        "It was made for a limited time.",
        "Load another one on every node (`couchbase-cli ssl-manage --cluster-cert-load`). Then bring certificates that it has signed, and remove the old one.";
}

/// A condition that holds now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holds {
    /// Of which alert.
    pub about: &'static About,
    /// What it is about: a bucket, an objective, a node. Empty: the node itself.
    pub subject: String,
    /// What is to be told.
    pub text: String,
}

impl Holds {
    /// A condition that holds now.
    #[must_use]
    pub fn new(about: &'static About, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { about, subject: subject.into(), text: text.into() }
    }
}

/// What has become of an alert.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// It fires from now on.
    Fired(Firing),
    /// It is over.
    Cleared(Firing),
}

/// An alert that fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Firing {
    /// Which.
    pub about: &'static About,
    /// What it is about.
    pub subject: String,
    /// What is to be told: as it was when the condition held last.
    pub text: String,
    /// Since when, in seconds since 1970.
    pub since_secs: u64,
}

#[derive(Debug)]
struct State {
    firing: Firing,
    /// Whether it has been told.
    is_told: bool,
    /// Since when the condition holds, or does not.
    turned_secs: u64,
    holds: bool,
}

/// The alerts of one node. See the module.
#[derive(Debug, Default)]
pub struct Board(BTreeMap<(&'static str, String), State>);

impl Board {
    /// Takes what holds now; says what has changed by that. `now_secs` may go back: nothing is told twice for that.
    pub fn look(&mut self, now_secs: u64, holding: Vec<Holds>) -> Vec<Change> {
        for state in self.0.values_mut() {
            // A clock that was set back makes nothing wait longer than it has to.
            state.turned_secs = state.turned_secs.min(now_secs);
        }
        let mut seen = std::collections::BTreeSet::new();
        for Holds { about, subject, text } in holding {
            let key = (about.name, subject.clone());
            if !seen.insert(key.clone()) || (self.0.len() >= ALERTS_MAX && !self.0.contains_key(&key)) {
                continue;
            }
            let new = || State {
                firing: Firing { about, subject, text: String::new(), since_secs: now_secs },
                is_told: false,
                turned_secs: now_secs,
                holds: true,
            };
            let state = self.0.entry(key).or_insert_with(new);
            state.turn(true, now_secs);
            state.firing.text = text;
        }
        let mut changes = Vec::new();
        self.0.retain(|key, state| {
            if !seen.contains(key) {
                state.turn(false, now_secs);
            }
            state.settle(now_secs, &mut changes)
        });
        changes
    }

    /// Ends alerts at once of whose subjects nothing can be told any more; says which of them had fired.
    pub fn end(&mut self, is_gone: impl Fn(&Firing) -> bool) -> Vec<Change> {
        let mut changes = Vec::new();
        self.0.retain(|_, state| {
            let stays = !is_gone(&state.firing);
            if !stays && state.is_told {
                changes.push(Change::Cleared(state.firing.clone()));
            }
            stays
        });
        changes
    }

    /// What fires now, the gravest first. The text of one whose condition holds no longer says so: it is as old as that.
    #[must_use]
    pub fn firing(&self) -> Vec<Firing> {
        let told = self.0.values().filter(|state| state.is_told);
        let mut firing: Vec<_> = told.map(State::shown).collect();
        firing.sort_by_key(|one| std::cmp::Reverse(one.about.level));
        firing
    }
}

impl State {
    fn shown(&self) -> Firing {
        let mut shown = self.firing.clone();
        if !self.holds {
            let seconds = shown.about.clears_after_secs;
            shown.text += &format!(" It is no longer so: this alert ends once that has lasted {seconds} s.");
        }
        shown
    }

    fn turn(&mut self, holds: bool, now_secs: u64) {
        if self.holds != holds {
            (self.holds, self.turned_secs) = (holds, now_secs);
        }
    }

    /// Tells what is due; whether it is to be kept.
    fn settle(&mut self, now_secs: u64, changes: &mut Vec<Change>) -> bool {
        let lasted = now_secs.saturating_sub(self.turned_secs);
        match (self.is_told, self.holds) {
            (false, true) if lasted >= self.firing.about.fires_after_secs => {
                (self.is_told, self.firing.since_secs) = (true, now_secs);
                changes.push(Change::Fired(self.firing.clone()));
                true
            }
            (false, holds) => holds,
            (true, false) if lasted >= self.firing.about.clears_after_secs => {
                changes.push(Change::Cleared(self.firing.clone()));
                false
            }
            (true, _) => true,
        }
    }
}
