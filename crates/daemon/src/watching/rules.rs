//! What of this node is worth an alert at this moment, whatever its past was. Callers bring what they have gathered.

use admin::{Counted, Foretold, Limit, Source};
use base::{NodeId, bucket::BucketKind};
use cluster::{BucketInfo, Lease, Metadata};
use engine::BucketStats;
use stats::{HotClient, HotReport};
use watch::{
    Severity,
    alerts::{self, Holds},
    hot, judge,
    touch::Touch,
};

use crate::past::forecasts::OVERHEAD_PERCENT;

const DAY_SECS: u64 = 24 * 3600;
/// A certificate is to be replaced within so many seconds.
const CERTIFICATE_SOON: u64 = 30 * DAY_SECS;
/// A figure that reaches its limit within so many seconds is worth an alert.
const SOON_SECS: u64 = 14 * DAY_SECS;

/// The lease of this node, which is as long as `full_millis` where it is renewed just now. By `clock`, the one of leases.
pub(crate) fn lease(
    lease: &Lease,
    touch: &mut Touch,
    full_millis: Option<u64>,
    clock: u64,
    now_secs: u64,
    node: &str,
) -> Option<Holds> {
    let (may_not_serve, was_answered) = (lease.has_run_out(|| clock), lease.was_answered());
    if touch.is_lost(may_not_serve, was_answered, now_secs) {
        let text = format!(
            "Node {node} has lost touch with its cluster: it serves nothing until a majority hears it again."
        );
        return Some(Holds::new(&alerts::NO_TOUCH, "", text));
    }
    let (left, full) = lease.left_millis(clock).zip(full_millis)?;
    // One that was never granted is not late.
    (was_answered && !may_not_serve && left < full / 2).then(|| {
        let seconds = left as f64 / 1_000.0;
        let text = format!(
            "The lease of node {node} was renewed late: {seconds:.1} s were left. Without one the node serves nothing."
        );
        Holds::new(&alerts::LEASE_LATE, "", text)
    })
}

/// Whether a node leaves its cluster as planned. It is none of the cluster's any more, or a rebalance that removes it has left it no vBucket
/// to serve. Nobody grants it a lease then, and that is as it should be.
pub(crate) fn is_leaving(metadata: &Metadata, uuid: &str) -> bool {
    let Some(node) = metadata.node(uuid) else { return true };
    let is_removed = metadata.rebalance.as_ref().is_some_and(|rebalance| rebalance.eject.contains(&node.id));
    let serves = |bucket: &BucketInfo| bucket.vbs.iter().any(|plan| plan.active() == Some(node.id));
    is_removed && !metadata.buckets.values().any(serves)
}

/// Whether nobody leads as far as this node hears: `is_stale` where no leader has said of late how the cluster is. A node that was failed
/// over or leaves is told by other alerts.
pub(crate) fn majority(metadata: &Metadata, uuid: &str, is_stale: bool) -> Option<Holds> {
    let node = metadata.node(uuid).filter(|node| !node.is_failed_over())?;
    let is_so = is_stale && metadata.nodes.len() > 1 && !is_leaving(metadata, uuid);
    is_so.then(|| {
        let (name, others) = (admin::name_in_alerts(node), metadata.nodes.iter().filter(|one| one.id != node.id));
        let others: Vec<String> = others.map(admin::name_in_alerts).collect();
        let text = format!(
            "Node {name} hears of no node that leads: it is not with a majority of its cluster, and nothing of the cluster can be \
             changed here. Other nodes are {}. Bring those back that are down. If they are lost for good, fail all of them over at once: \
             settee cluster failover --hard --unsafe LOST-NODE...",
            others.join(", ")
        );
        Holds::new(&alerts::NO_MAJORITY, "", text)
    })
}

/// Why the metadata cannot change, if they cannot.
pub(crate) fn agreement(trouble: Option<String>, node: &str) -> Option<Holds> {
    let text = format!("Cluster metadata cannot change on node {node}: {}.", trouble?);
    Some(Holds::new(&alerts::METADATA_STUCK, "", text))
}

/// A node that was failed over and goes on in a group beside this one.
pub(crate) fn two_groups(other: Option<NodeId>, metadata: &Metadata, node: &str) -> Option<Holds> {
    let other = other?;
    let host = metadata.node_by_id(other).map_or("", |node| &node.host);
    let text = format!(
        "Node {host} ({other}) was failed over and goes on in a group that was formed anew. Node {node} does not believe it: there are two \
         clusters."
    );
    Some(Holds::new(&alerts::TWO_GROUPS, "", text))
}

/// A key or a client that takes too much of a bucket. The texts go to logs, so they name neither.
pub(crate) fn hot(bucket: &str, report: &HotReport, node: &str) -> Vec<Holds> {
    let key = report.keys.first().filter(|key| hot::is_hot_key(key.share, key.per_second)).map(|key| {
        let (percent, per_second) = (key.share * 100.0, key.per_second);
        let text = format!(
            "A single document takes {percent:.0} % of the operations of bucket \"{bucket}\" on node {node}: {per_second:.0} a \
             second."
        );
        Holds::new(&alerts::HOT_KEY, bucket, text)
    });
    let is_hot = |one: &&HotClient| hot::is_hot_client(one.share, one.per_second, report.addresses);
    let client = report.clients.first().filter(is_hot).map(|client| {
        let (percent, per_second) = (client.share * 100.0, client.per_second);
        let text = format!(
            "A single client address takes {percent:.0} % of the operations of bucket \"{bucket}\" on node {node}: \
             {per_second:.0} a second."
        );
        Holds::new(&alerts::HOT_CLIENT, bucket, text)
    });
    key.into_iter().chain(client).collect()
}

/// Buckets that could not be opened, and why.
pub(crate) fn unopened(buckets: Vec<(String, String)>, node: &str) -> impl Iterator<Item = Holds> {
    buckets.into_iter().map(move |(bucket, why)| {
        let text = format!("Node {node} serves nothing of a bucket: {why}.");
        Holds::new(&alerts::BUCKET_CLOSED, bucket, text)
    })
}

/// What a bucket's statistics say of its metadata and its disk.
pub(crate) fn bucket(name: &str, kind: BucketKind, stats: &BucketStats, node: &str) -> Vec<Holds> {
    let percent = stats.mem_floor * 100 / stats.quota_bytes.max(1);
    let share = (kind == BucketKind::Couchbase && percent > OVERHEAD_PERCENT).then(|| {
        let text = format!(
            "Metadata overhead warning. Over {percent}% of RAM allocated to bucket \"{name}\" on node \"{node}\" is taken up by \
             keys and metadata."
        );
        Holds::new(&alerts::METADATA_SHARE, name, text)
    });
    let failed = stats.poisoned.then(|| {
        let text = format!(
            "A shard of bucket \"{name}\" on node {node} writes no more: a write or a sync has failed."
        );
        Holds::new(&alerts::SYNC_FAILED, name, text)
    });
    share.into_iter().chain(failed).collect()
}

/// Whether the certificate that a node shows ends soon: `ends` is text of RFC 3339.
pub(crate) fn certificate(ends: &str, now_secs: u64, node: &str) -> Option<Holds> {
    ends_soon(ends, now_secs).then(|| {
        let text = format!("The certificate that node {node} shows to clients ends on {}.", day(ends));
        Holds::new(&alerts::CERTIFICATE_ENDS, "", text)
    })
}

/// The same of an authority that the cluster trusts.
pub(crate) fn authority(name: &str, ends: &str, now_secs: u64) -> Option<Holds> {
    ends_soon(ends, now_secs).then(|| {
        let text = format!("The authority \"{name}\" that the cluster trusts ends on {}.", day(ends));
        Holds::new(&alerts::AUTHORITY_ENDS, name, text)
    })
}

/// Both are in one form, in which the later time is the greater text.
fn ends_soon(ends: &str, now_secs: u64) -> bool {
    ends < admin::rfc3339((now_secs + CERTIFICATE_SOON) * 1_000).as_str()
}

fn day(time: &str) -> &str {
    time.split('T').next().unwrap_or_default()
}

/// What runs out within two weeks.
pub(crate) fn runs_out(told: Vec<Foretold>, now_secs: u64, node: &str, folder: &str) -> Vec<Holds> {
    let held = |one: Foretold| {
        let left = one.likely_secs?.saturating_sub(now_secs);
        let days = match left / DAY_SECS {
            0 => "less than a day".to_owned(),
            1 => "a day".to_owned(),
            days => format!("{days} days"),
        };
        let bucket = one.bucket.unwrap_or_default();
        let (about, text) = match one.what {
            Limit::Disk => {
                (&alerts::DISK_FILLS, format!("The disk \"{folder}\" of node {node} will be full in {days}."))
            }
            Limit::Memory => (
                &alerts::MEMORY_FILLS,
                format!(
                    "Memory of bucket \"{bucket}\" on node {node} will reach its high watermark in {days}."
                ),
            ),
            Limit::Metadata => (
                &alerts::METADATA_FILLS,
                format!(
                    "Keys and metadata of bucket \"{bucket}\" on node {node} will take more than {OVERHEAD_PERCENT} % of its \
                     quota in {days}."
                ),
            ),
        };
        (left < SOON_SECS).then(|| Holds::new(about, bucket, text))
    };
    told.into_iter().filter_map(held).collect()
}

/// Objectives whose budgets burn too fast, by what a node has counted.
pub(crate) fn burning(metadata: &Metadata, counted: Vec<Counted>, node: &str) -> Vec<Holds> {
    let burning = |one: Counted| {
        let objective = metadata.buckets.get(&one.bucket)?.objectives.get(&one.objective)?;
        let judged = judge(objective.target_ppm, &one.spans);
        let rule = judged.worst()?;
        let about = match rule.severity {
            Severity::Page => &alerts::BURN_PAGE,
            Severity::Ticket => &alerts::BURN_TICKET,
        };
        let burn = judged.burn.get(rule.long as usize).copied().flatten().unwrap_or_default();
        let (seen, place) = match one.source {
            Source::Server => ("", ""),
            Source::Probe => (" by its probes", "/probe"),
            Source::Sdk => (" as its clients tell", "/sdk"),
        };
        let covered = one.spans.covered(rule.long);
        let of_late = match covered == rule.long {
            true => String::new(),
            false => format!(" Nothing was counted before the last {}.", covered.name()),
        };
        let text = format!(
            "Objective \"{}\" of bucket \"{}\": node {node} uses its error budget {burn:.1} times too fast over {}{seen}.{of_late}",
            one.objective,
            one.bucket,
            rule.long.name(),
        );
        Some(Holds::new(about, format!("{}/{}{place}", one.bucket, one.objective), text))
    };
    counted.into_iter().filter_map(burning).collect()
}

#[cfg(test)]
mod tests {
    use admin::Outlook;
    use base::BucketUuid;
    use cluster::{
        BucketParams, Command, Membership, NodeInfo, Objective, Operation, Ports, Rebalance, RebalanceKind,
    };
    use stats::HotKey;
    use watch::{
        Counts, Ring,
        alerts::{Board, Change},
    };

    use super::*;

    const NOW: u64 = 1_700_000_000;
    const DAYS: u64 = DAY_SECS;

    fn names(holding: impl IntoIterator<Item = Holds>) -> Vec<&'static str> {
        holding.into_iter().map(|holds| holds.about.name).collect()
    }

    /// What a board fires first where this holds at each look, and after how many seconds.
    fn fires(holds: impl Fn() -> Vec<Holds>) -> Option<(&'static str, String, u64)> {
        let mut board = Board::default();
        (0..120).find_map(|second| {
            let fired = board.look(NOW + second, holds()).into_iter().next()?;
            let Change::Fired(firing) = fired else { panic!("nothing is over: {fired:?}") };
            Some((firing.about.name, firing.subject, second))
        })
    }

    fn fired(name: &'static str, subject: &str, after: u64) -> Option<(&'static str, String, u64)> {
        Some((name, subject.to_owned(), after))
    }

    #[test]
    fn a_key_and_a_client_that_take_much_of_a_busy_bucket_fire_after_half_a_minute() {
        let key = |share, per_second| {
            let keys = vec![HotKey { key: b"secret".to_vec(), share, per_second, ..HotKey::default() }];
            HotReport { keys, ..HotReport::default() }
        };
        let client = |share, per_second, addresses| {
            let address = "10.0.0.9".to_owned();
            let clients = vec![HotClient { address, share, per_second, ..HotClient::default() }];
            HotReport { clients, addresses, ..HotReport::default() }
        };
        let of = |report: &HotReport| fires(|| hot("b", report, "n"));
        assert_eq!(of(&key(0.25, 5_000.0)), fired("hot_key", "b", 30));
        assert_eq!(of(&key(0.2, 5_000.0)), None);
        assert_eq!(of(&key(0.9, 4_000.0)), None, "the node is not busy");
        assert_eq!(of(&client(0.5, 5_000.0, 4)), fired("hot_client", "b", 30));
        assert_eq!(of(&client(0.4, 5_000.0, 4)), None);
        assert_eq!(of(&client(0.9, 5_000.0, 3)), None, "one of few clients takes most by nature");
        for told in [hot("b", &key(1.0, 7_000.0), "n"), hot("b", &client(1.0, 7_000.0, 4), "n")] {
            let [told] = &told[..] else { panic!("{told:?}") };
            assert!(told.text.contains("100 %") && told.text.contains("7000 a second"), "{}", told.text);
            assert!(!told.text.contains("secret") && !told.text.contains("10.0.0.9"), "{}", told.text);
        }
    }

    #[test]
    fn two_groups_are_told_with_the_node_that_goes_on_in_the_other_one() {
        let metadata = of_two();
        let of = |other| two_groups(other, &metadata, "n");
        assert_eq!(fires(|| of(Some(NodeId(1))).into_iter().collect()), fired("two_groups", "", 15));
        assert!(of(Some(NodeId(1))).unwrap().text.starts_with("Node 10.0.0.1 (1) was failed over"));
        assert_eq!(of(None), None);
    }

    #[test]
    fn metadata_that_cannot_change_are_told_at_once_with_the_reason() {
        let stuck = || agreement(Some("the disk is full".into()), "n");
        assert_eq!(fires(|| stuck().into_iter().collect()), fired("metadata_stuck", "", 0));
        assert!(stuck().unwrap().text.ends_with("on node n: the disk is full."));
        assert_eq!(agreement(None, "n"), None);
    }

    #[test]
    fn a_bucket_that_is_not_open_is_told_with_the_reason_where_that_lasts() {
        let closed = || unopened(vec![("b".into(), "a file is damaged".into())], "n").collect::<Vec<_>>();
        assert_eq!(fires(closed), fired("bucket_not_open", "b", 30));
        assert!(closed()[0].text.ends_with("serves nothing of a bucket: a file is damaged."));
        assert_eq!(unopened(Vec::new(), "n").count(), 0);
    }

    #[test]
    fn a_lease_that_is_renewed_late_is_told_before_it_is_lost() {
        let (held, mut touch) = (Lease::default(), Touch::default());
        let mut look = |held: &Lease, clock| {
            names(lease(held, &mut touch, Some(5_000), clock, NOW + clock / 1_000, "n"))
        };
        assert_eq!(look(&held, 1), [""; 0], "none is needed");
        held.require(10_000);
        held.answered(10_000, Some(5_000));
        assert_eq!(look(&held, 11_000), [""; 0]);
        assert_eq!(look(&held, 12_501), ["lease_renewed_late"]);
        held.answered(12_400, Some(5_000));
        assert_eq!(look(&held, 12_600), [""; 0], "it was renewed");
        assert_eq!(look(&held, 17_300), ["lease_renewed_late"]);
        assert_eq!(look(&held, 17_400), ["lost_touch"]);
        held.answered(20_000, Some(5_000));
        assert_eq!(look(&held, 20_100), [""; 0], "it is heard again");
        // Of a new life no report was answered yet.
        held.begin_again(30_000);
        assert_eq!(look(&held, 30_000), [""; 0]);
        assert_eq!(look(&held, 46_000), ["lost_touch"]);
        held.waive();
        assert_eq!(look(&held, 47_000), [""; 0]);
    }

    /// Two nodes. The first one serves all of a bucket.
    fn of_two() -> Metadata {
        let node = |id: u16| {
            let ports = Ports { mgmt: 8091, ..Ports::default() };
            let first = NodeInfo::first(format!("uuid-{id}"), format!("10.0.0.{id}"), ports);
            NodeInfo { id: NodeId(id), ..first }
        };
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let create = Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params };
        let commands = [Command::SetNode(node(0)), create, Command::AddNode(node(1))];
        commands
            .iter()
            .fold(Metadata::new("c".into(), 1_024), |state, command| state.apply(command).unwrap().0)
    }

    #[test]
    fn a_node_leaves_once_it_is_to_be_removed_and_has_nothing_to_serve() {
        let mut metadata = of_two();
        assert!(is_leaving(&metadata, "uuid-7"), "it was removed");
        assert!(!is_leaving(&metadata, "uuid-0") && !is_leaving(&metadata, "uuid-1"));
        metadata.rebalance = Some(Rebalance {
            id: "r".into(),
            kind: RebalanceKind::Rebalance,
            keep: Vec::new(),
            eject: vec![NodeId(0), NodeId(1)],
            started_ms: 0,
            copies: 0,
        });
        assert!(!is_leaving(&metadata, "uuid-0"), "clients miss it still");
        assert!(is_leaving(&metadata, "uuid-1"));
    }

    #[test]
    fn a_node_that_hears_of_no_leader_says_which_nodes_there_are_and_what_to_do() {
        let metadata = of_two();
        let told = majority(&metadata, "uuid-0", true).unwrap();
        assert_eq!((told.about.name, told.subject.as_str()), ("no_majority", ""));
        assert!(told.text.contains("Other nodes are 10.0.0.1:8091."), "{}", told.text);
        assert!(told.text.contains("failover --hard --unsafe"), "{}", told.text);
        assert_eq!(majority(&metadata, "uuid-0", false), None);
        assert_eq!(majority(&metadata, "uuid-7", true), None, "it was removed");
        let mut alone = metadata.clone();
        alone.nodes.truncate(1);
        assert_eq!(majority(&alone, "uuid-0", true), None);
        let mut out = metadata;
        out.nodes[0].membership = Membership::InactiveFailed;
        assert_eq!(majority(&out, "uuid-0", true), None, "it was failed over");
    }

    #[test]
    fn a_bucket_whose_disk_failed_and_one_that_is_full_of_keys_are_told() {
        let of = |kind, stats: &BucketStats| names(bucket("b", kind, stats, "n"));
        let mut stats = BucketStats { quota_bytes: 1_000, mem_floor: 509, ..BucketStats::default() };
        assert_eq!(of(BucketKind::Couchbase, &stats), [""; 0]);
        stats.poisoned = true;
        assert_eq!(of(BucketKind::Couchbase, &stats), ["sync_failed"]);
        stats = BucketStats { poisoned: false, mem_floor: 510, ..stats };
        assert_eq!(of(BucketKind::Couchbase, &stats), ["metadata_share"]);
        assert_eq!(of(BucketKind::Ephemeral, &stats), [""; 0]);
    }

    #[test]
    fn certificates_and_authorities_are_told_a_month_before_they_end() {
        let ends = |secs: u64| admin::rfc3339(secs * 1_000);
        let soon = ends(NOW + 29 * DAYS);
        let text = certificate(&soon, NOW, "n").unwrap().text;
        assert!(text.ends_with("2023-12-13."), "{text}");
        assert_eq!(certificate(&ends(NOW + 31 * DAYS), NOW, "n"), None, "it was replaced");
        assert!(certificate(&ends(NOW - DAYS), NOW, "n").is_some(), "it has ended");
        let told = authority("CN=House", &soon, NOW).unwrap();
        assert_eq!((told.about.name, told.subject.as_str()), ("authority_ends", "CN=House"));
        assert_eq!(authority("CN=House", &ends(NOW + 31 * DAYS), NOW), None);
    }

    fn foretold(what: Limit, likely_secs: Option<u64>) -> Foretold {
        let bucket = (what != Limit::Disk).then(|| "b".to_owned());
        let (value, limit, outlook, at_secs) = (1.0, 2.0, Outlook::Dated, NOW);
        let (per_day, early_secs, past) = (None, None, Vec::new());
        Foretold { what, bucket, value, limit, per_day, outlook, likely_secs, early_secs, past, at_secs }
    }

    #[test]
    fn what_runs_out_within_two_weeks_is_told_and_is_over_an_hour_after_it_does_not() {
        let mut board = Board::default();
        let mut look = |secs: u64, likely: Option<u64>| {
            let told = [Limit::Disk, Limit::Memory, Limit::Metadata].map(|what| foretold(what, likely));
            let changes = board.look(NOW + secs, runs_out(told.to_vec(), NOW + secs, "n", "/data"));
            let told = changes.into_iter().map(|change| match change {
                Change::Fired(firing) => (firing.about.name, firing.text),
                Change::Cleared(firing) => (firing.about.name, "over".to_owned()),
            });
            told.collect::<Vec<_>>()
        };
        assert_eq!(look(0, Some(NOW + 15 * DAYS)), []);
        let told = look(1, Some(NOW + 13 * DAYS + 100));
        let texts: Vec<_> = told.iter().map(|(name, text)| (*name, text.ends_with("in 13 days."))).collect();
        assert_eq!(
            texts,
            [("disk_fills", true), ("memory_fills", true), ("metadata_fills", true)],
            "{told:?}"
        );
        assert_eq!(look(600, None), []);
        assert_eq!(look(4_199, None), []);
        assert_eq!(look(4_200, None).len(), 3);
    }

    /// One bucket `b` with an objective `fast`: 99.9 % over 28 days.
    fn with_objective() -> Metadata {
        let params = BucketParams { ram_quota_mb: Some(100), ..BucketParams::default() };
        let objective =
            Objective { operation: Operation::Get, latency_us: 2_000, target_ppm: 999_000, period_days: 28 };
        let mut metadata = Metadata::new("c".into(), 1024);
        for command in [
            Command::SetNode(NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default())),
            Command::CreateBucket { name: "b".into(), uuid: BucketUuid("u".into()), params },
        ] {
            metadata = metadata.apply(&command).unwrap().0;
        }
        metadata.buckets.get_mut("b").unwrap().objectives.insert("fast".into(), objective);
        metadata
    }

    #[test]
    fn a_budget_that_burns_in_a_young_cluster_says_over_what_it_was_counted() {
        let (metadata, mut ring) = (with_objective(), Ring::default());
        (0..10).for_each(|minute| ring.add(NOW + minute * 60, Counts { good: 990, total: 1_000 }));
        let counted = Counted {
            bucket: "b".into(),
            objective: "fast".into(),
            source: Source::Probe,
            spans: ring.spans(NOW + 600, 28),
        };
        let told = burning(&metadata, vec![counted], "n").remove(0);
        assert_eq!((told.about.name, told.subject.as_str()), ("budget_burns_fast", "b/fast/probe"));
        let ends = "10.0 times too fast over 6h by its probes. Nothing was counted before the last 30m.";
        assert!(told.text.ends_with(ends), "{}", told.text);
    }

    #[test]
    fn a_budget_that_burns_slowly_is_told_until_two_hours_of_it_are_good() {
        let (metadata, mut ring) = (with_objective(), Ring::default());
        let fires = |ring: &Ring, now: u64| {
            let spans = ring.spans(now, 28);
            let (bucket, objective) = ("b".to_owned(), "fast".to_owned());
            let counted = Counted { bucket, objective, source: Source::Server, spans };
            names(burning(&metadata, vec![counted], "n"))
        };
        // The test counts four times as many bad operations as the objective allows.
        let minutes = |ring: &mut Ring, from: u64, count: u64, good: u64| {
            (0..count).for_each(|minute| ring.add(from + minute * 60, Counts { good, total: 10_000 }));
            from + count * 60
        };
        let now = minutes(&mut ring, NOW, 24 * 60, 9_995);
        assert_eq!(fires(&ring, now), [""; 0]);
        let now = minutes(&mut ring, now, 24 * 60, 9_960);
        assert_eq!(fires(&ring, now), ["budget_burns"]);
        let now = minutes(&mut ring, now, 3 * 60, 10_000);
        // Six hours are still worse than they may be, and so are three days.
        assert_eq!(fires(&ring, now), ["budget_burns"]);
        let now = minutes(&mut ring, now, 4 * 60, 10_000);
        assert_eq!(fires(&ring, now), [""; 0]);
        let gone = Metadata::new("c".into(), 1024);
        let counted = Counted {
            bucket: "b".into(),
            objective: "fast".into(),
            source: Source::Server,
            spans: ring.spans(now, 28),
        };
        assert_eq!(burning(&gone, vec![counted], "n"), []);
    }
}
