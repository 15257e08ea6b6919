//! What the REST API asks of the node.

use std::{
    net::IpAddr,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use ::watch::{
    alerts::{Firing, NODE_DOWN},
    sdk::Report,
};
use admin::{
    AnswerParts, BucketStatsView, Callee, Certificates, ClusterStatus, Counted, FiringAlert, Indexing,
    JoinOffer, Mail, MailLog, NodeCall, NodeControl, Notice, Obstacle, Probed, TrailPage, TrailQuestion,
    documents::{DocumentAnswer, DocumentQuestion},
    latency::{LatencyPast, LatencyZoom},
};
use base::{BucketUuid, NodeId};
use cluster::{
    Applied as CommandApplied, ClusterError, Command, Metadata,
    auth::{Identity, Judgement},
    consensus::Epoch,
};
use dataplane::{
    dcp_stats, lease,
    machine::host_name,
    meter::OpKind,
    statistics::{BucketFacts, DcpFacts, NodeFacts, durations, of_bucket, of_collections},
};
use http::{AuditEvent, Behind, BoxFuture, Gate};
use hyper::body::Bytes;
use service::Progress;
use tokio::sync::watch;

use super::{Control, documents};
use stats::{Reading, Samples, Statistic, SystemStats, Zoom};

use crate::{
    audit,
    control::{compacting, everywhere, flushing},
    statistics,
    talk::http::{Address, Ask, Connection, Security, basic},
};

/// How long a request waits for this node to have everything that was agreed on before. It is longer than the members
/// take to elect a leader, and this node to hear of it.
const READ_PATIENCE: Duration = Duration::from_secs(3);
/// How long a request to another node may take: one that has it join takes as long as that.
const CALL_PATIENCE: Duration = Duration::from_secs(20);
/// What the leader said of the cluster is good for so long: every report is answered with it.
const STATUS_GOOD_MILLIS: u64 = 2_000;

impl Gate for Control {
    fn metadata(&self) -> Arc<Metadata> {
        self.metadata.load_full()
    }

    fn catch_up(&self) -> BoxFuture<'_, bool> {
        self.catches_up_within(READ_PATIENCE)
    }

    fn catches_up_within(&self, patience: Duration) -> BoxFuture<'_, bool> {
        Box::pin(self.reads.share(patience, |patience| self.agreement.read(patience)))
    }

    fn may_serve(&self) -> bool {
        !self.shared.lease.has_run_out(lease::clock_millis)
    }

    fn allows_setup_from(&self, peer: IpAddr) -> bool {
        // Somebody on this machine: by loopback, or by the address the node listens on.
        peer.is_loopback() || peer == self.listen
    }

    fn is_own_name(&self, name: &str) -> bool {
        host_name().is_some_and(|own| own == name)
    }

    fn this_node_uuid(&self) -> String {
        self.this_node.uuid()
    }

    fn key_of_no_member(&self, uuid: &str) -> Option<String> {
        self.key_of_stranger(uuid)
    }

    fn verdict_on(&self, node: NodeId, epoch: Epoch) -> Option<http::Verdict> {
        let text = self.judge(node, Some(epoch))?.text();
        let cluster = &self.metadata.load().cluster_uuid;
        let said = Judgement { verdict: text, cluster, node, epoch };
        Some(http::Verdict { text, signature: self.shared.node_tls.sign_verdict(&said) })
    }

    fn audit(&self, event: AuditEvent) {
        audit::record_rest(&self.audit, &event);
    }
}

impl Control {
    /// How far the indexes of a bucket are that are fed on this node.
    fn progress_of_indexes(&self, bucket: &BucketUuid) -> impl Iterator<Item = Progress> {
        self.services.get().into_iter().flatten().flat_map(move |service| service.progress(bucket))
    }
}

impl NodeControl for Control {
    fn watch(&self) -> watch::Receiver<i64> {
        self.rev.subscribe()
    }

    fn this_node(&self) -> String {
        self.this_node.uuid()
    }

    fn knows_cluster(&self) -> bool {
        self.caught_up()
    }

    fn submit(&self, command: Command) -> BoxFuture<'_, Result<CommandApplied, ClusterError>> {
        match command {
            Command::FailOver(fail_over) if fail_over.allow_unsafe => {
                Box::pin(self.fail_over_at_any_price(fail_over))
            }
            command => Box::pin(self.propose(command)),
        }
    }

    fn cluster_status(&self) -> Arc<ClusterStatus> {
        let heard = self.cluster.load();
        let (status, at) = &**heard;
        let is_old = lease::clock_millis().saturating_sub(*at) > STATUS_GOOD_MILLIS;
        if is_old || status.leader != self.leader() {
            Arc::new(ClusterStatus { stale: true, ..ClusterStatus::clone(status) })
        } else {
            Arc::clone(status)
        }
    }

    fn internal<'a>(
        &'a self,
        name: &'a str,
        from: Option<NodeId>,
        body: Vec<u8>,
    ) -> BoxFuture<'a, Result<Vec<u8>, ClusterError>> {
        self.routes.answer(name, from, body)
    }

    fn ask_service<'a>(
        &'a self,
        service: &'a str,
        question: Bytes,
        from: &'a Identity,
    ) -> BoxFuture<'a, Result<Box<dyn AnswerParts>, String>> {
        Box::pin(self.questions.answer(service, question, from))
    }

    fn behind(&self, service: &str) -> Option<Arc<dyn Behind>> {
        self.questions.behind(service)
    }

    fn documents(&self, question: DocumentQuestion) -> BoxFuture<'_, Result<DocumentAnswer, ClusterError>> {
        Box::pin(documents::answer(self, question))
    }

    fn offer(&self, uuid: &str) -> Result<JoinOffer, ClusterError> {
        let metadata = self.metadata.load();
        let node = metadata.node(uuid).ok_or(ClusterError::NodeNotFound)?;
        Ok(JoinOffer {
            cluster_uuid: metadata.cluster_uuid.clone(),
            level: metadata.level,
            node: node.id,
            epoch: self.agreement.epoch(),
            secret: if metadata.accepts_secret() { metadata.secret.clone() } else { String::new() },
            authority: metadata.authority.clone().filter(|_| !metadata.knows_nodes_by_keys()),
            members: metadata.nodes.clone(),
        })
    }

    fn join(&self, offer: JoinOffer) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(self.become_member(offer))
    }

    fn reset(&self) -> BoxFuture<'_, Result<(), ClusterError>> {
        Box::pin(self.begin_anew())
    }

    fn call_node(&self, call: NodeCall) -> BoxFuture<'_, Result<(u16, Vec<u8>), ClusterError>> {
        Box::pin(async move {
            let (address, member) = match call.to {
                // What a node that is behind knows of the others may be old: how they are to be spoken to as well.
                Callee::Member(_) if !self.caught_up() => {
                    let text = "this node has yet to hear what its cluster has agreed on";
                    return Err(ClusterError::Failed(text.into()));
                }
                Callee::Member(node) => {
                    let metadata = self.metadata.load();
                    let node = metadata.node_by_id(node).ok_or(ClusterError::NodeNotFound)?;
                    (Address::of(node), Some(node.uuid.clone()))
                }
                Callee::Stranger { host, port, tls } => {
                    let security = if tls { Security::Stranger } else { Security::Plain };
                    (Address { host, port, security }, None)
                }
            };
            let failed = |error: std::io::Error| {
                ClusterError::Failed(format!("{}:{}: {error}", address.host, address.port))
            };
            let ask = Ask {
                method: call.method.parse().map_err(|_| ClusterError::Failed("no such method".into()))?,
                path: &call.path,
                authorization: call.credentials.as_ref().map(|(name, password)| basic(name, password)),
                content_type: &call.content_type,
                body: call.body.into(),
            };
            let node_tls = &self.shared.node_tls;
            let connection = match member {
                Some(uuid) => Connection::open_as_node(&address, node_tls, &uuid, false).await,
                None => Connection::open(&address, node_tls).await,
            };
            let mut connection = connection.map_err(failed)?;
            connection.exchange(ask, CALL_PATIENCE).await.map_err(failed)
        })
    }

    fn all_follow(&self) -> BoxFuture<'_, bool> {
        Box::pin(everywhere::all_follow(self))
    }

    fn is_held_elsewhere<'a>(&'a self, name: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(everywhere::is_held_elsewhere(self, name))
    }

    fn flush_bucket<'a>(
        &'a self,
        name: &'a str,
        uuid: &'a BucketUuid,
    ) -> BoxFuture<'a, Result<(), ClusterError>> {
        if self.metadata.load().nodes.len() > 1 {
            return Box::pin(flushing::flush(self, name, uuid));
        }
        let (name, uuid) = (name.to_owned(), uuid.clone());
        self.blocking(move |me| {
            let is_meant = me.metadata.load().buckets.get(&name).is_some_and(|bucket| bucket.uuid == uuid);
            let engine = me.buckets.engine(&name).filter(|_| is_meant).ok_or(ClusterError::BucketNotFound)?;
            let flushed = engine.flush_all(me.shared.now());
            flushed.map_err(|status| {
                ClusterError::Failed(format!("the bucket could not be flushed: {}", status.text()))
            })
        })
    }

    fn compact_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        Box::pin(compacting::start(self, name))
    }

    fn bucket_is_ready(&self, name: &str) -> bool {
        // Documents that are not in memory yet are fetched on demand, so an open bucket is a ready one.
        self.buckets.engine(name).is_some()
    }

    fn bucket_stats(&self, name: &str) -> Option<BucketStatsView> {
        let stats = self.buckets.engine(name)?.stats();
        let meter = self.buckets.meter(name)?;
        let rates = self.gauges.bucket(name);
        let reads = [OpKind::Get, OpKind::SubdocLookup];
        let gets: u64 = reads.map(|kind| meter.operations(kind)).iter().sum();
        let misses = reads.map(|kind| meter.misses(kind)).iter().sum();
        let writes = [OpKind::Set, OpKind::Add, OpKind::Replace, OpKind::SubdocMutation];
        let sets = writes.map(|kind| meter.operations(kind)).iter().sum();
        let snapshot = self.shared.snapshot();
        let entry = snapshot.buckets.get(name);
        let dcp = entry.map(|entry| dcp_stats::totals(&self.shared, entry)).unwrap_or_default();
        let views = entry.map(|entry| self.shared.of_services(&entry.uuid)).unwrap_or_default();
        Some(BucketStatsView {
            items: stats.curr_items,
            replica_items: stats.replica.items,
            mem_used: stats.mem_used,
            mem_floor: stats.mem_floor,
            quota_min: stats.quota_min(),
            disk_used: stats.disk_bytes,
            data_used: stats.disk_live_bytes,
            ops_per_sec: rates.ops_per_sec,
            gets_per_sec: rates.gets_per_sec,
            get_hits_per_sec: rates.get_hits_per_sec,
            disk_fetches_per_sec: rates.fetches_per_sec,
            non_resident: stats.active.non_resident,
            resident_percent: stats.resident_percent as f64,
            disk_queue: stats.diskqueue_items,
            connections: self.shared.totals.connections.load(Ordering::Relaxed),
            gets,
            get_hits: gets.saturating_sub(misses),
            sets,
            deletes: meter.operations(OpKind::Delete),
            dcp_producers: dcp.all.producers,
            dcp_items_sent: dcp.all.items_sent,
            dcp_items_remaining: dcp.all.items_remaining,
            dcp_bytes_sent: dcp.all.bytes_sent,
            links: dcp.replication.producers + dcp.replication.consumers,
            links_items_sent: dcp.replication.items_sent,
            links_items_remaining: dcp.replication.items_remaining,
            links_bytes_sent: dcp.replication.bytes_sent,
            links_inflated_bytes_sent: dcp.replication.inflated_bytes_sent,
            replicas_cut_off: entry.map_or(0, |entry| self.cut_off(entry)),
            views_disk_used: views.disk_bytes,
            views_data_used: views.live_bytes,
        })
    }

    fn indexing(&self, bucket: &str) -> Vec<Indexing> {
        let snapshot = self.shared.snapshot();
        let Some(entry) = snapshot.buckets.get(bucket) else { return Vec::new() };
        self.progress_of_indexes(&entry.uuid).map(shown).collect()
    }

    fn compacting(&self, bucket: &str) -> Vec<Indexing> {
        let snapshot = self.shared.snapshot();
        let Some(entry) = snapshot.buckets.get(bucket) else { return Vec::new() };
        let told =
            self.services.get().into_iter().flatten().flat_map(|service| service.compactions(&entry.uuid));
        told.map(shown).collect()
    }

    fn readings(&self, bucket: &str) -> Vec<Reading> {
        let snapshot = self.shared.snapshot();
        let Some(entry) = snapshot.buckets.get(bucket) else { return Vec::new() };
        let dcp = DcpFacts::gather(&self.shared, entry, self.gauges.bucket(bucket).ops_per_sec);
        let facts = BucketFacts::gather(&self.shared, entry);
        let mut readings = of_bucket(&facts, &dcp);
        readings.extend(of_collections(&facts, &entry.engine.manifest()));
        readings.extend(durations(&entry.meter));
        let now = u64::from(self.shared.now().unix_secs());
        readings.extend(self.objectives.readings(&self.metadata.load(), bucket, now));
        readings.extend(self.probing().readings(&self.metadata.load(), bucket));
        readings.extend(self.sdks.readings(&self.metadata.load(), Some(bucket)));
        let indexes = self.progress_of_indexes(&entry.uuid);
        readings.extend(indexes.flat_map(|index| statistics::of_index(&index)));
        readings
    }

    fn node_readings(&self) -> Vec<Reading> {
        let mut readings = statistics::of_node(&NodeFacts::gather(&self.shared), &self.system());
        readings.extend(self.alerting().readings());
        readings.extend(self.sdks.readings(&self.metadata.load(), None));
        readings
    }

    fn statistics(&self) -> Vec<(&'static str, Vec<&'static Statistic>)> {
        statistics::sections()
    }

    fn samples(&self, bucket: &str, zoom: Zoom) -> Option<Samples> {
        self.gauges.samples(&self.shared, bucket, zoom)
    }

    fn objectives(&self) -> Vec<Counted> {
        let now = u64::from(self.shared.now().unix_secs());
        self.objectives.counted(&self.metadata.load(), now)
    }

    fn send_mail(&self, mail: Mail) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(self.mails().send_trial(mail, u64::from(self.shared.now().unix_secs())))
    }

    fn mail_log(&self) -> MailLog {
        self.mails().log()
    }

    fn told_by_sdk(&self, report: &Report) {
        self.sdks.told(report);
        let now = u64::from(self.shared.now().unix_secs());
        self.objectives.told(&self.metadata.load(), report, now);
    }

    fn sdks_connected(&self, count: usize) {
        self.sdks.connected(count);
    }

    fn probed(&self) -> Vec<Probed> {
        self.probing().probed()
    }

    fn system(&self) -> SystemStats {
        self.gauges.system(&self.shared)
    }

    fn alerts(&self) -> Vec<Notice> {
        // What holds at this moment, and what fires that takes longer to be seen. The leader's REST tells of silent nodes itself.
        let holding = self.holding();
        let is_other = |firing: &Firing| {
            firing.about != &NODE_DOWN
                && !holding.iter().any(|one| (one.about, &one.subject) == (firing.about, &firing.subject))
        };
        let firing: Vec<Notice> = self
            .alerting()
            .firing()
            .into_iter()
            .filter(is_other)
            .map(|firing| Notice::new(firing.subject, firing.text))
            .collect();
        holding.into_iter().map(|one| Notice::new(one.subject, one.text)).chain(firing).collect()
    }

    fn latency_past(&self, bucket: &str, zoom: LatencyZoom) -> Option<LatencyPast> {
        self.gauges.latency_past(bucket, zoom)
    }

    fn forecasts(&self) -> Vec<admin::Foretold> {
        self.forecasting().told()
    }

    fn slow_operations(&self) -> Vec<stats::SlowOperation> {
        self.shared.slow.all()
    }

    fn hot(&self, bucket: &str, uuid: Option<&BucketUuid>) -> Option<stats::HotReport> {
        let snapshot = self.shared.snapshot();
        let entry =
            snapshot.buckets.get(bucket).filter(|entry| uuid.is_none_or(|uuid| entry.uuid == *uuid))?;
        Some(entry.meter.hot(bucket, self.shared.now().mono_millis))
    }

    fn connections(&self) -> BoxFuture<'_, stats::ConnectionsReport> {
        Box::pin(self.loads.connections(&self.shared, &self.wakes))
    }

    fn trail(&self, question: TrailQuestion) -> BoxFuture<'_, Option<TrailPage>> {
        let (log, this) = (Arc::clone(&self.audit), self.this_id());
        Box::pin(async move {
            let read = move || log.page(&question, question.before.get(&this).copied());
            tokio::task::spawn_blocking(read).await.ok().flatten()
        })
    }

    fn firing_alerts(&self) -> Vec<FiringAlert> {
        let shown = |firing: Firing| FiringAlert {
            name: firing.about.name.to_owned(),
            level: firing.about.level.word().to_owned(),
            subject: firing.subject,
            text: firing.text,
            since_secs: firing.since_secs,
        };
        self.alerting().firing().into_iter().map(shown).collect()
    }

    fn collected_folder(&self) -> PathBuf {
        self.gauges.collected_folder()
    }

    fn obstacles(&self) -> Vec<Obstacle> {
        self.find_obstacles()
    }

    fn certificates(&self) -> Arc<dyn Certificates> {
        Arc::clone(&self.certificates) as Arc<dyn Certificates>
    }
}

/// What REST shows of an index.
fn shown(Progress { design_document, done, total }: Progress) -> Indexing {
    Indexing { design_document, done, total }
}
