//! A node that is nothing but metadata, the real REST API in front of it, and a plain HTTP client.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::PathBuf,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering, Ordering::Relaxed},
    sync::{Arc, Mutex},
};

use ::http::{AuditEvent, BoxFuture, Gate, Limits, serve};
use base::{BucketUuid, NodeId};
use cluster::{
    Applied, Authority, ClusterError, Command, Membership, Metadata, NodeInfo, Ports, StartRebalance,
    auth::INTERNAL_USER, consensus::Epoch,
};
use settee_admin::{
    Api, BucketStatsView, Callee, Certificates, ClusterStatus, FiringAlert, Foretold, InboxFile, JoinOffer,
    Limit, NodeCall, NodeControl, Notice, Obstacle, Outlook, PastForecasts, Regenerate, TrailEvent,
    TrailPage, TrailPlace, TrailQuestion,
    documents::{Document, DocumentAct, DocumentAnswer, DocumentQuestion, DocumentRefusal, Octets, Version},
    latency::{LatencyCount, LatencyInterval, LatencyPast, LatencyZoom},
};
use stats::{
    Across, ConnectionLoad, ConnectionsReport, HotKey, HotReport, Kind, Metric, Reading, Samples, Statistic,
    SystemStats, Unit, Zoom,
};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};

use ::watch::sdk::Report;

use crate::http::{Response, connect, request};

pub(crate) const NODE: &str = "11112222333344445555666677778888";
pub(crate) const CLUSTER: &str = "aaaabbbbccccddddeeeeffff00001111";
pub(crate) const ADMIN: Option<&str> = Some("Administrator:password");

/// A few statistics, as a server declares them.
const fn statistic(names: &'static [&'static str], metrics: &'static [Metric], kind: Kind) -> Statistic {
    Statistic {
        stat: names,
        rest: names,
        metrics,
        help: "Says something.",
        unit: Unit::Count,
        kind,
        across: Across::Sum,
    }
}

static QUOTA: Statistic = statistic(&["ep_max_size"], &[], Kind::Gauge);
static VERSION: Statistic = statistic(&["ep_version"], &[], Kind::Text);
static ITEMS: Statistic = statistic(&["curr_items"], &[Metric::new("kv_curr_items")], Kind::Gauge);
static CONNECTIONS: Statistic = statistic(
    &["settee_node_mem_connections"],
    &[Metric::one_of("settee_node_memory_bytes", "Memory by holder.", &[("pool", "connections")])],
    Kind::Gauge,
);

static TOLD: Statistic =
    statistic(&[], &[Metric::new("sdk_kv_retrieval_duration_milliseconds")], Kind::Histogram);

/// A node without documents.
pub(crate) struct FakeNode {
    uuid: String,
    meta: Mutex<Arc<Metadata>>,
    rev: watch::Sender<i64>,
    pub(crate) audited: Mutex<Vec<AuditEvent>>,
    pub(crate) flushed: Mutex<Vec<String>>,
    /// What its leader is supposed to know.
    pub(crate) status: Mutex<ClusterStatus>,
    /// What was decided at other nodes, and has not been heard of here.
    pub(crate) unheard: Mutex<Vec<Command>>,
    /// Nobody says what was decided.
    pub(crate) hears_nobody: AtomicBool,
    /// What other nodes have decided, each right before this one has its next change agreed on, or says that a copy is not here.
    pub(crate) meanwhile: Mutex<Vec<Command>>,
    /// Whether it hears that its changes are agreed on when a test says so.
    pub(crate) is_slow: AtomicBool,
    pub(crate) says_so: tokio::sync::Notify,
    /// Whether its next change is agreed on, and it does not hear that in time.
    pub(crate) is_left_in_doubt: AtomicBool,
    /// Bytes of its disk, and how many of them are in use.
    pub(crate) disk: Mutex<(u64, u64)>,
    /// What it has asked nodes that are no members, and whether it did so at their port for TLS.
    pub(crate) asked: Mutex<Vec<(String, bool)>>,
    /// Whether it has not caught up with its cluster.
    pub(crate) is_behind: AtomicBool,
    /// What keeps it from serving.
    pub(crate) obstacles: Mutex<Vec<Obstacle>>,
    /// Whether no other node answers, nor says that it does not.
    pub(crate) is_cut_off: AtomicBool,
    /// Whether it answers in the place of other members, and what those were asked.
    pub(crate) speaks_for_others: AtomicBool,
    pub(crate) asked_members: Mutex<Vec<String>>,
    pub(crate) certificates: Arc<FakeCertificates>,
    /// Around the folder of its archives of logs.
    pub(crate) collected: tempfile::TempDir,
    /// Its documents by collection and key, and how often it says first that a copy is not here.
    pub(crate) documents: Mutex<BTreeMap<(u32, Vec<u8>), Document>>,
    pub(crate) elsewhere: AtomicUsize,
    /// Other nodes that have not heard that a bucket was dropped.
    pub(crate) lagging: AtomicUsize,
    /// Keys of the default collection that are hotter than any other.
    pub(crate) hotter: AtomicUsize,
    /// What SDKs have told it, and how many of them it asks.
    pub(crate) told: Mutex<Vec<Report>>,
    pub(crate) connected: Mutex<usize>,
    /// Events of its audit trail, the oldest first. Nothing: the trail cannot be read.
    pub(crate) trail: Mutex<Option<Vec<serde_json::Value>>>,
    /// What an administrator must know.
    pub(crate) notices: Mutex<Vec<Notice>>,
}

/// What is in its inbox, and what became of it.
#[derive(Default)]
pub(crate) struct FakeCertificates {
    pub(crate) shown: Mutex<Option<String>>,
    pub(crate) inbox: Mutex<Vec<InboxFile>>,
    pub(crate) regenerated: Mutex<Vec<Regenerate>>,
    pub(crate) absent: Mutex<Vec<String>>,
}

impl Certificates for FakeCertificates {
    fn chain_pem(&self) -> Option<String> {
        let shown = self.shown.lock().unwrap().clone();
        Some(shown.unwrap_or_else(|| "-----BEGIN CERTIFICATE-----\n".into()))
    }
    fn inbox_authorities(&self) -> Result<Vec<InboxFile>, String> {
        let found = self.inbox.lock().unwrap().clone();
        if found.is_empty() { Err("Directory inbox/CA is empty".into()) } else { Ok(found) }
    }
    fn take_from_inbox(&self, metadata: &Metadata) -> Result<(), String> {
        let ca = metadata.trusted_cas().into_iter().next();
        let ca = ca.ok_or("CA certificate for this chain is not found in the list of trusted CA's")?;
        *self.shown.lock().unwrap() = Some(ca.pem);
        Ok(())
    }
    fn regenerate(&self, what: Regenerate) -> BoxFuture<'_, Result<Vec<String>, String>> {
        self.regenerated.lock().unwrap().push(what);
        Box::pin(async move { Ok(self.absent.lock().unwrap().clone()) })
    }
}

impl FakeNode {
    fn new(mgmt: u16, uuid: &str) -> Self {
        let mut meta = Metadata::new(CLUSTER.into(), 1024);
        // A second node is asked at both; the test speaks no TLS.
        let mgmt_tls = if uuid == NODE { 18091 } else { mgmt };
        let ports =
            Ports { mgmt, mgmt_tls, kv: 11210, kv_tls: 11207, capi: 8092, capi_tls: 18092, memcached: 11211 };
        let node = NodeInfo::first(uuid.into(), "127.0.0.1".into(), ports);
        (meta, _) = meta.apply(&Command::SetNode(node)).unwrap();
        let authority = Authority { certificate: "certificate".into(), key: "key".into() };
        (meta, _) = meta.apply(&Command::SetAuthority(authority)).unwrap();
        Self {
            uuid: uuid.into(),
            meta: Mutex::new(Arc::new(meta)),
            rev: watch::channel(0).0,
            audited: Mutex::default(),
            flushed: Mutex::default(),
            status: Mutex::default(),
            unheard: Mutex::default(),
            hears_nobody: AtomicBool::new(false),
            meanwhile: Mutex::default(),
            is_slow: AtomicBool::new(false),
            says_so: tokio::sync::Notify::new(),
            is_left_in_doubt: AtomicBool::new(false),
            disk: Mutex::default(),
            asked: Mutex::default(),
            is_behind: AtomicBool::new(false),
            obstacles: Mutex::default(),
            is_cut_off: AtomicBool::new(false),
            speaks_for_others: AtomicBool::new(false),
            asked_members: Mutex::default(),
            certificates: Arc::default(),
            collected: tempfile::tempdir().unwrap(),
            documents: Mutex::default(),
            elsewhere: AtomicUsize::new(0),
            lagging: AtomicUsize::new(0),
            hotter: AtomicUsize::new(0),
            told: Mutex::default(),
            connected: Mutex::default(),
            trail: Mutex::new(Some(Vec::new())),
            notices: Mutex::default(),
        }
    }

    /// What it knows now.
    pub(crate) fn metadata_now(&self) -> Arc<Metadata> {
        self.metadata()
    }

    /// Replaces what it is part of.
    pub(crate) fn become_part_of(&self, meta: Metadata) {
        self.rev.send_replace(meta.rev);
        *self.meta.lock().unwrap() = Arc::new(meta);
    }

    /// Makes nodes members that are not there: as active ones, by a rebalance that has nothing to move.
    pub(crate) fn add_members(&self, count: u16) {
        for number in 1..=count {
            let ports = Ports { mgmt: 8091, kv: 11210, ..Ports::default() };
            let (uuid, host) = (format!("{number:032}"), format!("127.99.0.{}", number + 1));
            let id = NodeId(self.metadata().next_node);
            let node =
                NodeInfo { id, membership: Membership::InactiveAdded, ..NodeInfo::first(uuid, host, ports) };
            self.apply(&Command::AddNode(node)).unwrap();
        }
        let keep = self.metadata().nodes.iter().map(|node| node.id).collect();
        let start = StartRebalance { id: "first".into(), keep, eject: Vec::new(), now_ms: 0 };
        self.apply(&Command::StartRebalance(start)).unwrap();
        self.apply(&Command::FinishRebalance { id: "first".into(), now_ms: 0 }).unwrap();
    }

    /// Applies a command as the server would.
    pub(crate) fn apply(&self, command: &Command) -> Result<Applied, ClusterError> {
        let mut meta = self.meta.lock().unwrap();
        let (next, applied) = meta.apply(command)?;
        *meta = Arc::new(next);
        // As in the server, every change wakes the watchers.
        self.rev.send_replace(meta.rev);
        Ok(applied)
    }
}

impl FakeNode {
    fn decide_meanwhile(&self) {
        for meanwhile in std::mem::take(&mut *self.meanwhile.lock().unwrap()) {
            self.apply(&meanwhile).unwrap();
        }
    }

    /// What a server does with documents, without vBuckets.
    fn do_with_documents(&self, question: DocumentQuestion) -> DocumentAnswer {
        let mut documents = self.documents.lock().unwrap();
        let place = |key: Octets| (question.collection, key.0);
        let missing = DocumentAnswer::Refused(DocumentRefusal::Missing);
        match question.act {
            DocumentAct::Read(key) => {
                documents.get(&place(key)).cloned().map_or(missing, DocumentAnswer::Document)
            }
            DocumentAct::Write { key, value, flags, expiry, over } => {
                let key = place(key);
                let old = documents.get(&key).cloned();
                let fits = match over {
                    None => true,
                    Some(Version::None) => old.is_none(),
                    Some(Version::Cas(cas)) => old.as_ref().is_some_and(|old| old.cas == cas),
                };
                if !fits {
                    return DocumentAnswer::Refused(DocumentRefusal::OtherVersion);
                }
                let rev = old.as_ref().map_or(0, |old| old.rev) + 1;
                let is_json = serde_json::from_slice::<serde_json::Value>(&value.0).is_ok();
                let expiry = expiry.or(old.map(|old| old.expiry)).unwrap_or(0);
                let cas = 1000 + rev;
                documents.insert(key, Document { value, is_json, cas, rev, flags, expiry });
                DocumentAnswer::Done(cas)
            }
            DocumentAct::Remove { key, .. } => {
                documents.remove(&place(key)).map_or(missing, |_| DocumentAnswer::Done(1))
            }
            DocumentAct::List(range) => {
                let keys = documents.keys().filter(|(collection, _)| *collection == question.collection);
                let within = |key: &&Vec<u8>| {
                    **key >= range.from.0
                        && range
                            .to
                            .as_ref()
                            .is_none_or(|(to, included)| **key < to.0 || (*included && **key == to.0))
                };
                DocumentAnswer::Keys(
                    keys.map(|(_, key)| key).filter(within).take(range.limit).cloned().map(Octets).collect(),
                )
            }
        }
    }
}

impl Gate for FakeNode {
    fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.meta.lock().unwrap())
    }
    fn catch_up(&self) -> BoxFuture<'_, bool> {
        let is_deaf = self.hears_nobody.load(Relaxed);
        let unheard = if is_deaf { Vec::new() } else { std::mem::take(&mut *self.unheard.lock().unwrap()) };
        Box::pin(async move {
            for command in unheard {
                self.apply(&command).unwrap();
            }
            !is_deaf
        })
    }
    fn audit(&self, event: AuditEvent) {
        self.audited.lock().unwrap().push(event);
    }
}

impl NodeControl for FakeNode {
    fn watch(&self) -> watch::Receiver<i64> {
        self.rev.subscribe()
    }
    fn this_node(&self) -> String {
        self.uuid.clone()
    }
    fn submit(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
        self.decide_meanwhile();
        let is_left_in_doubt = self.is_left_in_doubt.swap(false, Relaxed);
        let is_slow = self.is_slow.load(Relaxed);
        Box::pin(async move {
            let applied = self.apply(&command);
            if is_slow {
                self.says_so.notified().await;
            }
            if is_left_in_doubt {
                Err(ClusterError::Failed("nobody has said so in time".into()))
            } else {
                applied
            }
        })
    }
    fn cluster_status(&self) -> Arc<ClusterStatus> {
        Arc::new(self.status.lock().unwrap().clone())
    }
    fn documents(&self, question: DocumentQuestion) -> BoxFuture<'_, Result<DocumentAnswer, ClusterError>> {
        let is_here = self.elsewhere.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_err();
        let refused = DocumentAnswer::Refused(DocumentRefusal::NotHere);
        if !is_here {
            self.decide_meanwhile();
        }
        Box::pin(async move { Ok(if is_here { self.do_with_documents(question) } else { refused }) })
    }
    fn hot(&self, bucket: &str, uuid: Option<&BucketUuid>) -> Option<HotReport> {
        // Every collection has a hot key of its name, and the default one many that are hotter.
        let meta = self.metadata();
        let info = meta.buckets.get(bucket).filter(|info| uuid.is_none_or(|uuid| info.uuid == *uuid))?;
        let hot = |key: String, collection, per_second| HotKey {
            key: key.into_bytes(),
            collection,
            share: 0.5,
            per_second,
        };
        let hotter = (0..self.hotter.load(Relaxed)).map(|number| hot(format!("hotter{number}"), 0, 20.0));
        let collections = info.manifest.scopes.iter().flat_map(|scope| scope.collections.iter());
        let of_each = collections.map(|one| hot(one.name.clone(), one.id.get(), 10.0));
        let keys = hotter.chain(of_each);
        Some(HotReport {
            bucket: bucket.into(),
            per_second: 20.0,
            keys: keys.collect(),
            ..HotReport::default()
        })
    }
    fn connections(&self) -> BoxFuture<'_, ConnectionsReport> {
        let one = |client: &str, per_second| ConnectionLoad {
            client: client.into(),
            user: "ann".into(),
            per_second,
            ..ConnectionLoad::default()
        };
        let busiest = vec![one("10.0.0.1:1", 1.0), one("10.0.0.2:2", 2.0)];
        Box::pin(async { ConnectionsReport { open: 2, busiest, clients: Vec::new() } })
    }
    fn offer(&self, uuid: &str) -> Result<JoinOffer, ClusterError> {
        let meta = self.metadata();
        let node = meta.node(uuid).ok_or(ClusterError::NodeNotFound)?.id;
        let (cluster_uuid, secret) = (meta.cluster_uuid.clone(), meta.secret.clone());
        let (epoch, authority) = (Epoch::default(), meta.authority.clone());
        Ok(JoinOffer {
            cluster_uuid,
            level: meta.level,
            node,
            epoch,
            secret,
            authority,
            members: meta.nodes.clone(),
        })
    }
    fn join(&self, offer: JoinOffer) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(async move {
            let mut meta = Metadata::new(offer.cluster_uuid, 1024);
            (meta.initialized, meta.nodes) = (true, offer.members);
            self.become_part_of(meta);
            Ok(())
        })
    }
    fn reset(&self) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(async {
            let this = self.metadata().node(&self.uuid).unwrap().clone();
            let node = NodeInfo::first(this.uuid, this.host, this.ports);
            let (meta, _) = Metadata::new(CLUSTER.into(), 1024).apply(&Command::SetNode(node)).unwrap();
            self.become_part_of(meta);
            Ok(())
        })
    }
    fn call_node(&self, call: NodeCall) -> BoxFuture<'_, Result<(u16, Vec<u8>), ClusterError>> {
        let failed = |error: std::io::Error| ClusterError::Failed(error.to_string());
        let meta = self.metadata();
        if let Callee::Stranger { tls, .. } = &call.to {
            self.asked.lock().unwrap().push((call.path.clone(), *tls));
        }
        if let Callee::Member(_) = &call.to {
            self.asked_members.lock().unwrap().push(call.path.clone());
        }
        let is_cut_off = self.is_cut_off.load(Relaxed);
        let own = self.speaks_for_others.load(Relaxed).then(|| meta.node(&self.uuid).unwrap().clone());
        Box::pin(async move {
            if is_cut_off {
                std::future::pending::<()>().await;
            }
            let mut credentials = call.credentials;
            let (host, port) = match call.to {
                Callee::Stranger { host, port, .. } => (host, port),
                Callee::Member(node) => {
                    let node = meta.node_by_id(node).ok_or(ClusterError::NodeNotFound)?;
                    let node = own.as_ref().unwrap_or(node);
                    credentials = Some((INTERNAL_USER.into(), meta.secret.clone()));
                    (node.host.clone(), node.ports.mgmt)
                }
            };
            let answer = tokio::task::spawn_blocking(move || {
                let address = connect(&host, port).map_err(failed)?;
                let user = credentials.map(|(user, password)| format!("{user}:{password}"));
                let body = String::from_utf8(call.body).unwrap();
                let body = (call.content_type.as_str(), body.as_str());
                Ok(request(address, &call.method, &call.path, user.as_deref(), Some(body)))
            });
            let answer: Response = answer.await.unwrap()?;
            Ok((answer.status, answer.body.into()))
        })
    }
    fn all_follow(&self) -> BoxFuture<'_, bool> {
        let follow = self.lagging.load(Relaxed) == 0;
        Box::pin(async move { follow })
    }
    fn is_held_elsewhere<'a>(&'a self, _: &'a str) -> BoxFuture<'a, bool> {
        let is_held = self.lagging.load(Relaxed) > 0;
        Box::pin(async move { is_held })
    }
    fn flush_bucket<'a>(
        &'a self,
        name: &'a str,
        _: &'a BucketUuid,
    ) -> BoxFuture<'a, Result<(), ClusterError>> {
        self.flushed.lock().unwrap().push(name.into());
        Box::pin(async { Ok(()) })
    }
    fn compact_bucket<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        Box::pin(async { Ok(()) })
    }
    fn knows_cluster(&self) -> bool {
        !self.is_behind.load(Ordering::Relaxed)
    }
    fn bucket_is_ready(&self, name: &str) -> bool {
        // A bucket of that name has not opened yet.
        name != "closed"
    }
    fn bucket_stats(&self, name: &str) -> Option<BucketStatsView> {
        // A bucket of that name has so many bytes of keys and metadata, and on disk.
        let heavy = if name == "heavy" { 250 << 20 } else { 0 };
        // Another one has many documents.
        let items = if name == "keys" { 4 << 20 } else { 7 };
        Some(BucketStatsView {
            items,
            mem_used: 4096,
            mem_floor: heavy,
            disk_used: heavy,
            data_used: heavy,
            resident_percent: 100.0,
            ..BucketStatsView::default()
        })
    }
    fn readings(&self, bucket: &str) -> Vec<Reading> {
        if bucket == "told" {
            let value = stats::Value::Told { sum: 40, count: 20, steps: vec![(Some(1), 15), (None, 20)] };
            let labels = vec![("node", "10.0.0.2:8091".to_owned())];
            return vec![Reading { labels, ..Reading::of(&TOLD, value) }];
        }
        vec![
            Reading::of(&QUOTA, 104_857_600.into()),
            Reading::of(&VERSION, "text".into()),
            Reading::of(&ITEMS, 7.into()),
        ]
    }
    fn node_readings(&self) -> Vec<Reading> {
        vec![Reading::of(&CONNECTIONS, 5.into())]
    }
    fn statistics(&self) -> Vec<(&'static str, Vec<&'static Statistic>)> {
        vec![("Bucket", vec![&QUOTA, &VERSION, &ITEMS]), ("Process", vec![&CONNECTIONS])]
    }
    fn samples(&self, bucket: &str, zoom: Zoom) -> Option<Samples> {
        // A bucket of that name has not opened yet; another one has said something once.
        (bucket != "closed").then(|| Samples {
            timestamps: vec![1_700_000_000_000],
            values: [("curr_items".to_owned(), vec![7.0]), ("ep_max_size".to_owned(), vec![104_857_600.0])]
                .into_iter()
                .filter(|_| zoom != Zoom::Year)
                .collect(),
        })
    }
    fn forecasts(&self) -> Vec<Foretold> {
        let of = |what, bucket: Option<&str>, likely_secs: Option<u64>| Foretold {
            what,
            bucket: bucket.map(str::to_owned),
            value: 50.0,
            limit: 100.0,
            per_day: Some(2.5),
            outlook: if likely_secs.is_some() { Outlook::Dated } else { Outlook::Reached },
            likely_secs,
            early_secs: likely_secs.map(|secs| secs - 86_400),
            past: vec![PastForecasts { days: 7, percent: 1.5, forecasts: 3 }],
            at_secs: 1_700_000_000,
        };
        vec![
            of(Limit::Disk, None, Some(1_703_000_000)),
            of(Limit::Memory, Some("a"), Some(1_701_728_000)),
            of(Limit::Memory, Some("b"), Some(1_702_000_000)),
            of(Limit::Metadata, Some("a"), None),
            of(Limit::Memory, Some("dropped"), None),
        ]
    }
    fn alerts(&self) -> Vec<Notice> {
        self.notices.lock().unwrap().clone()
    }
    fn mail_log(&self) -> settee_admin::MailLog {
        let last_failure = Some((1_700_000_000, "550 no such user".to_owned()));
        settee_admin::MailLog { sent: 1, failed: 0, last_failure }
    }
    fn told_by_sdk(&self, report: &Report) {
        self.told.lock().unwrap().push(report.clone());
    }
    fn sdks_connected(&self, count: usize) {
        *self.connected.lock().unwrap() = count;
    }
    fn latency_past(&self, _: &str, zoom: LatencyZoom) -> Option<LatencyPast> {
        // A minute of quick reads after nine of slow ones.
        let at_secs: Vec<u64> = (0..120).map(|number| 1_700_000_000 + number * 5).collect();
        let step = |at: usize| match at < 108 {
            true => LatencyCount { from_us: 1_000, to_us: 1_024, count: 10 },
            false => LatencyCount { from_us: 100, to_us: 112, count: 1 },
        };
        let reads = at_secs
            .iter()
            .enumerate()
            .map(|(at, &at_secs)| LatencyInterval { at_secs, steps: vec![step(at)] });
        let operations = [("get".to_owned(), reads.collect())].into();
        (zoom == LatencyZoom::Minutes).then(|| LatencyPast { operations, at_secs, ..LatencyPast::default() })
    }
    fn trail(&self, question: TrailQuestion) -> BoxFuture<'_, Option<TrailPage>> {
        let this = self.metadata().node(&self.uuid).map(|node| node.id);
        let before = this.and_then(|this| question.before.get(&this)).map_or(u64::MAX, |place| place.at);
        let page = self.trail.lock().unwrap().as_ref().map(|trail| {
            let all = trail.iter().enumerate().rev().map(|(at, event)| (at as u64, event.clone()));
            let is = |event: &serde_json::Value, name: &str, wanted: &Option<String>| {
                wanted.as_ref().is_none_or(|wanted| event[name] == **wanted)
            };
            let events = all.filter(|(at, event)| {
                *at < before && is(event, "user", &question.user) && is(event, "name", &question.event)
            });
            let place = |at| TrailPlace { file: 1, at };
            let events: Vec<_> = events
                .take(question.limit)
                .map(|(at, event)| TrailEvent { place: place(at), event })
                .collect();
            let further = events.last().filter(|one| one.place.at > 0).map(|one| one.place);
            TrailPage { events, further, unreadable: 0 }
        });
        Box::pin(std::future::ready(page))
    }
    fn firing_alerts(&self) -> Vec<FiringAlert> {
        vec![FiringAlert {
            name: "writes_paced".into(),
            level: "warning".into(),
            subject: "b".into(),
            text: "Writers wait.".into(),
            since_secs: 1_700_000_000,
        }]
    }
    fn system(&self) -> SystemStats {
        let (disk_total, disk_used) = *self.disk.lock().unwrap();
        let (memory_total, memory_free) = (16 << 30, 8 << 30);
        SystemStats {
            memory_total,
            memory_free,
            cpu_cores: 2,
            disk_total,
            disk_used,
            ..SystemStats::default()
        }
    }
    fn collected_folder(&self) -> PathBuf {
        self.collected.path().join("collected")
    }
    fn obstacles(&self) -> Vec<Obstacle> {
        self.obstacles.lock().unwrap().clone()
    }
    fn certificates(&self) -> Arc<dyn Certificates> {
        Arc::clone(&self.certificates) as Arc<dyn Certificates>
    }
}

/// A running API.
pub(crate) struct TestNode {
    pub(crate) node: Arc<FakeNode>,
    pub(crate) address: SocketAddr,
    pub(crate) stop: watch::Sender<bool>,
    pub(crate) runtime: Runtime,
    pub(crate) served: tokio::task::JoinHandle<std::io::Result<()>>,
}

impl TestNode {
    /// A node that nobody has set up.
    pub(crate) fn fresh() -> Self {
        Self::with_limits(Limits::default())
    }

    /// The same under another uuid.
    pub(crate) fn fresh_with_uuid(uuid: &str) -> Self {
        Self::start(Limits::default(), uuid)
    }

    /// A node with an administrator.
    pub(crate) fn initialized() -> Self {
        Self::initialized_with_uuid(NODE)
    }

    /// The same under another uuid.
    pub(crate) fn initialized_with_uuid(uuid: &str) -> Self {
        let test = Self::fresh_with_uuid(uuid);
        test.initialize();
        test
    }

    /// Makes the administrator.
    pub(crate) fn initialize(&self) {
        let form =
            "username=Administrator&password=password&port=SAME&services=kv&memoryQuota=1024&clusterName=c1";
        let response = self.send("POST", "/clusterInit", None, Some(form));
        assert_eq!(response.status, 200, "{}", response.body);
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        Self::start(limits, NODE)
    }

    fn start(limits: Limits, uuid: &str) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let node = Arc::new(FakeNode::new(address.port(), uuid));
        let api = Api::new(Arc::clone(&node) as Arc<dyn NodeControl>).unwrap();
        let (stop, stopping) = watch::channel(false);
        let served = runtime.spawn(serve(listener, None, api, limits, stopping));
        Self { node, address, stop, runtime, served }
    }

    /// Makes a user with these roles. Returns `name:password`.
    pub(crate) fn with_user(&self, name: &str, roles: &str) -> String {
        let form = format!("password=secret-1&roles={roles}");
        let made = self.send("PUT", &format!("/settings/rbac/users/local/{name}"), ADMIN, Some(&form));
        assert_eq!(made.status, 200, "{}", made.body);
        format!("{name}:secret-1")
    }

    /// Sends a form (or nothing) as somebody (`name:password`) or nobody.
    pub(crate) fn send(&self, method: &str, path: &str, user: Option<&str>, form: Option<&str>) -> Response {
        request(
            self.address,
            method,
            path,
            user,
            form.map(|form| ("application/x-www-form-urlencoded", form)),
        )
    }

    pub(crate) fn get(&self, path: &str) -> Response {
        self.send("GET", path, ADMIN, None)
    }

    pub(crate) fn post(&self, path: &str, form: &str) -> Response {
        self.send("POST", path, ADMIN, Some(form))
    }
}
