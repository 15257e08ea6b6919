//! A node that is nothing but metadata, the real REST API in front of it, and a plain HTTP client.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use cluster::{Applied, ClusterError, Command, Metadata, NodeInfo, Ports};
use settee_admin::{
    Api, AuditEvent, BoxFuture, BucketStatsView, Limits, NodeControl, PhaseView, SystemStats, serve,
};
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};

use crate::http::{Response, request};

pub(crate) const NODE: &str = "11112222333344445555666677778888";
pub(crate) const CLUSTER: &str = "aaaabbbbccccddddeeeeffff00001111";
pub(crate) const ADMIN: Option<&str> = Some("Administrator:password");

/// A node without documents.
pub(crate) struct FakeNode {
    meta: Mutex<Arc<Metadata>>,
    rev: watch::Sender<i64>,
    pub(crate) audited: Mutex<Vec<AuditEvent>>,
    pub(crate) flushed: Mutex<Vec<String>>,
}

impl FakeNode {
    fn new(mgmt: u16) -> Self {
        let mut meta = Metadata::new(CLUSTER.into(), 1024);
        let ports = Ports {
            mgmt,
            mgmt_tls: 18091,
            kv: 11210,
            kv_tls: 11207,
            capi: 8092,
            capi_tls: 18092,
            memcached: 11211,
        };
        meta.nodes.push(NodeInfo::first(NODE.into(), "127.0.0.1".into(), ports));
        Self {
            meta: Mutex::new(Arc::new(meta)),
            rev: watch::channel(0).0,
            audited: Mutex::default(),
            flushed: Mutex::default(),
        }
    }

    /// Applies a command as the server would.
    pub(crate) fn apply(&self, command: &Command) -> Result<Applied, ClusterError> {
        let mut meta = self.meta.lock().unwrap();
        let (next, applied) = meta.apply(command)?;
        *meta = Arc::new(next);
        self.rev.send_if_modified(|rev| std::mem::replace(rev, meta.rev) != meta.rev);
        Ok(applied)
    }
}

impl NodeControl for FakeNode {
    fn metadata(&self) -> Arc<Metadata> {
        Arc::clone(&self.meta.lock().unwrap())
    }
    fn watch(&self) -> watch::Receiver<i64> {
        self.rev.subscribe()
    }
    fn this_node(&self) -> String {
        NODE.into()
    }
    fn submit(&self, command: Command) -> BoxFuture<'_, Result<Applied, ClusterError>> {
        Box::pin(async move { self.apply(&command) })
    }
    fn flush_bucket<'a>(&'a self, name: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        self.flushed.lock().unwrap().push(name.into());
        Box::pin(async { Ok(()) })
    }
    fn compact_bucket<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<(), ClusterError>> {
        Box::pin(async { Ok(()) })
    }
    fn bucket_is_ready(&self, _: &str) -> bool {
        true
    }
    fn bucket_stats(&self, name: &str) -> Option<BucketStatsView> {
        Some(BucketStatsView {
            items: 7,
            mem_used: 4096,
            // Of a bucket of that name keys and metadata fill so much.
            quota_min: if name == "heavy" { 250 << 20 } else { 0 },
            resident_percent: 100.0,
            ..BucketStatsView::default()
        })
    }
    fn bucket_phases(&self, _: &str) -> Vec<PhaseView> {
        Vec::new()
    }
    fn raw_stats(&self, _: &str, _: &str) -> Vec<(String, String)> {
        vec![("ep_max_size".into(), "104857600".into()), ("ep_version".into(), "text".into())]
    }
    fn system(&self) -> SystemStats {
        SystemStats { memory_total: 16 << 30, memory_free: 8 << 30, cpu_cores: 2, ..SystemStats::default() }
    }
    fn certificate_pem(&self) -> Option<String> {
        Some("-----BEGIN CERTIFICATE-----\n".into())
    }
    fn audit(&self, event: AuditEvent) {
        self.audited.lock().unwrap().push(event);
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

    /// A node with an administrator.
    pub(crate) fn initialized() -> Self {
        let test = Self::fresh();
        let form =
            "username=Administrator&password=password&port=SAME&services=kv&memoryQuota=1024&clusterName=c1";
        let response = test.send("POST", "/clusterInit", None, Some(form));
        assert_eq!(response.status, 200, "{}", response.body);
        test
    }

    pub(crate) fn with_limits(limits: Limits) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let node = Arc::new(FakeNode::new(address.port()));
        let api = Api::new(Arc::clone(&node) as Arc<dyn NodeControl>).unwrap();
        let (stop, stopping) = watch::channel(false);
        let served = runtime.spawn(serve(listener, None, api, limits, stopping));
        Self { node, address, stop, runtime, served }
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
