//! The identity of this node, and the consensus it starts with: what its log says, an older version's metadata file, or new.

use std::{net::IpAddr, path::Path, sync::Arc};

use arc_swap::ArcSwap;
use base::NodeId;
use cluster::{
    Command, Metadata, NodeInfo, Ports,
    consensus::{
        Batch, Commit, Consensus, DiskLog, LogError, LogStore as _, Member, Proposal, ProposalId, found,
    },
    read_metadata_file,
};
use dataplane::{
    machine,
    node_keys::{KeyRing, change_of_key},
    node_tls::new_authority,
};

use crate::{
    files::data_dir::DataDir,
    setup::{
        error::ServeError,
        options::{PortsInUse, ServeOptions},
        random::random_uuid,
    },
};

/// The log of the metadata.
const LOG: &str = "consensus.redb";

/// The identity of this node now; it gets another one when it joins or leaves a cluster.
pub(crate) struct ThisNode(ArcSwap<(String, NodeId)>);

impl ThisNode {
    pub(crate) fn new(uuid: String, id: NodeId) -> Self {
        Self(ArcSwap::from_pointee((uuid, id)))
    }

    /// Its uuid.
    pub(crate) fn uuid(&self) -> String {
        self.0.load().0.clone()
    }

    /// Its number in its cluster.
    pub(crate) fn id(&self) -> NodeId {
        self.0.load().1
    }

    pub(crate) fn set(&self, uuid: String, id: NodeId) {
        self.0.store(Arc::new((uuid, id)));
    }
}

/// The consensus of a node that starts.
pub(crate) struct Beginning {
    pub(crate) group: Consensus,
    pub(crate) store: DiskLog,
    pub(crate) seed: u64,
    pub(crate) keys: Arc<KeyRing>,
}

impl Beginning {
    /// What the node's log says. A node that is its own cluster is at its end when this returns; others learn the rest
    /// from their leader.
    pub(crate) fn of(
        data_dir: &DataDir,
        options: &ServeOptions,
        ports: &PortsInUse,
    ) -> Result<Self, ServeError> {
        let keys = Arc::new(KeyRing::new(data_dir.keys()));
        let folder = data_dir.metadata();
        let mut store = DiskLog::new(&folder.join(LOG));
        let mut stored = store.load()?;
        let mut unwritten = Vec::new();
        if stored.is_empty() {
            let first = first_batch(data_dir, options, ports, &keys)?;
            stored.apply(&first);
            unwritten.push(first);
        }
        let seed = random_number()?;
        let mut beginning = Self { group: Consensus::open(&stored, seed)?, store, seed, keys };
        beginning.settle(unwritten)?;
        forget_metadata_file(&folder)?;
        let uuid = &beginning.group.member().uuid;
        // A node that is older than keys gets one here.
        beginning.keys.of(uuid)?;
        beginning.keys.keep_only(uuid)?;
        if beginning.group.is_alone() {
            beginning.note_address(options, ports)?;
        }
        Ok(beginning)
    }

    /// Records where the node listens now, if that is not what is known.
    fn note_address(&mut self, options: &ServeOptions, ports: &PortsInUse) -> Result<(), ServeError> {
        if let Some(command) =
            change_of_address(self.group.metadata(), &self.group.member().uuid, options.listen, ports)
        {
            let id = ProposalId { origin: self.seed, number: 0 };
            // Leads, being alone.
            let _ = self.group.propose(&Proposal::new(id, command));
            self.settle(Vec::new())?;
        }
        Ok(())
    }

    /// Writes and applies until there is nothing left that could be done without others.
    fn settle(&mut self, mut unwritten: Vec<Batch>) -> Result<Vec<Commit>, LogError> {
        let mut commits = Vec::new();
        loop {
            // Messages are for the others, who will get newer ones.
            let turn = self.group.turn();
            commits.extend(turn.commits);
            unwritten.extend(turn.batches);
            if unwritten.is_empty() {
                return Ok(commits);
            }
            self.store.write(&unwritten)?;
            unwritten.clear();
            self.group.written(turn.number);
        }
    }
}

/// A command that says where this node listens, unless that is known.
pub(crate) fn change_of_address(
    metadata: &Metadata,
    uuid: &str,
    listen: IpAddr,
    ports: &PortsInUse,
) -> Option<Command> {
    let known = metadata.node(uuid)?;
    let node = NodeInfo { host: host(&known.host, listen), ports: rest_ports(ports), ..known.clone() };
    (node != *known).then_some(Command::SetNode(node))
}

/// A command that gives the cluster a certificate authority, where nodes need one. If it cannot be made, that is for another start.
pub(crate) fn founding_of_authority(metadata: &Metadata) -> Option<Command> {
    let made = (!metadata.can_encrypt()).then(new_authority)?;
    made.inspect_err(|error| tracing::warn!(%error, "the cluster has no certificate authority"))
        .ok()
        .map(Command::SetAuthority)
}

/// A node that belongs to no cluster.
pub(crate) fn fresh_node(
    listen: IpAddr,
    ports: &PortsInUse,
    memory_quota_mb: u64,
    keys: &KeyRing,
) -> Result<(Member, Metadata), ServeError> {
    let metadata = Metadata::new(random_uuid()?, memory_quota_mb);
    named(metadata, listen, ports, keys)
}

/// The metadata of one node with its name, address, key and secret in it, and who it is.
fn named(
    mut metadata: Metadata,
    listen: IpAddr,
    ports: &PortsInUse,
    keys: &KeyRing,
) -> Result<(Member, Metadata), ServeError> {
    let uuid = match metadata.nodes.first() {
        Some(node) => node.uuid.clone(),
        None => {
            let node = NodeInfo::first(random_uuid()?, listen.to_string(), rest_ports(ports));
            let uuid = node.uuid.clone();
            metadata = metadata.apply(&Command::SetNode(node))?.0;
            uuid
        }
    };
    if let Some(command) = change_of_address(&metadata, &uuid, listen, ports) {
        metadata = metadata.apply(&command)?.0;
    }
    keys.of(&uuid)?;
    if let Some(command) = change_of_key(&metadata, &uuid, keys) {
        metadata = metadata.apply(&command)?.0;
    }
    if metadata.secret.is_empty() {
        let secret = [random_uuid()?, random_uuid()?].concat();
        metadata = metadata.apply(&Command::SetSecret(secret))?.0;
    }
    if !metadata.can_encrypt() {
        metadata = metadata.apply(&Command::SetAuthority(new_authority()?))?.0;
    }
    let node = metadata.node(&uuid).map(|node| node.id).unwrap_or_default();
    let cluster_uuid = metadata.cluster_uuid.clone();
    let (epoch, secret, peers, authority) = Default::default();
    let member = Member { uuid, node, cluster_uuid, epoch, secret, peers, authority };
    Ok((member, metadata))
}

/// How the log of a node begins that has none: with what an earlier version kept in a file, or new.
fn first_batch(
    data_dir: &DataDir,
    options: &ServeOptions,
    ports: &PortsInUse,
    keys: &KeyRing,
) -> Result<Batch, ServeError> {
    let (member, metadata) = match read_metadata_file(&data_dir.metadata())? {
        Some(metadata) => named(metadata, options.listen, ports, keys)?,
        None => {
            data_dir.require_no_buckets()?;
            let memory_mb = machine::memory_bytes() / (1024 * 1024);
            if let Some(text) = admin::quota_objection(options.memory_quota_mb, memory_mb) {
                return Err(ServeError::Refused(format!("--memory-quota-mb: {text}")));
            }
            fresh_node(options.listen, ports, options.memory_quota_mb, keys)?
        }
    };
    Ok(found(&member, &Arc::new(metadata))?)
}

/// Puts aside what was taken over from an earlier version's file, so that nobody takes it for the truth.
fn forget_metadata_file(folder: &Path) -> Result<(), ServeError> {
    let file = folder.join(cluster::METADATA_FILE);
    match std::fs::rename(&file, file.with_extension("json.imported")) {
        Ok(()) => {
            tracing::info!("the metadata of an earlier version was taken over");
            Ok(())
        }
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// A name that somebody gave stays; an address is the one that is listened on now.
fn host(known: &str, listen: IpAddr) -> String {
    if known.parse::<IpAddr>().is_ok() { listen.to_string() } else { known.to_owned() }
}

fn rest_ports(ports: &PortsInUse) -> Ports {
    Ports {
        mgmt: ports.mgmt,
        mgmt_tls: ports.mgmt_tls,
        kv: ports.kv,
        kv_tls: ports.kv_tls,
        capi: ports.capi,
        capi_tls: ports.capi_tls,
        memcached: ports.memcached,
    }
}

/// 64 random bits.
pub(crate) fn random_number() -> Result<u64, ServeError> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
    Ok(u64::from_le_bytes(bytes))
}
