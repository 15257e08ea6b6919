//! What other nodes of the cluster say and ask of the consensus, and becoming one of another cluster.

use std::{
    sync::{Arc, Weak},
    time::Instant,
};

use admin::JoinOffer;
use base::NodeId;
use cluster::{
    ClusterError,
    consensus::{Epoch, Member, epoch_of, is_from, join},
};

use node::Verdict;

use super::{Control, LOOK_AGAIN, PATIENCE, PROPOSE, TAKEN, stopping};
use crate::talk::{
    peers::{MESSAGES, decode_messages, marked_cluster},
    proposals,
};

impl Control {
    /// Joins another cluster, of which this node knows nothing yet but its members.
    pub(crate) async fn become_member(&self, offer: JoinOffer) -> Result<(), ClusterError> {
        let metadata = self.metadata.load_full();
        cluster::level::check(offer.level, cluster::level::LEVEL)?;
        if metadata.nodes.len() > 1 || !metadata.buckets.is_empty() {
            let text = "a node that has buckets, or belongs to a cluster, cannot join another one";
            return Err(ClusterError::Failed(text.into()));
        }
        let member = Member {
            uuid: self.this_node.uuid(),
            node: offer.node,
            cluster_uuid: offer.cluster_uuid,
            epoch: offer.epoch,
            secret: offer.secret,
            peers: offer.members,
            authority: offer.authority,
        };
        let first = join(&member).map_err(|error| ClusterError::Failed(error.to_string()))?;
        let (cluster_uuid, node) = (member.cluster_uuid, member.node);
        self.agreement.become_member(first).await?;
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            tokio::time::sleep(LOOK_AGAIN).await;
            let metadata = self.metadata.load();
            // Until the cluster's own metadata is here no number has been given.
            if metadata.cluster_uuid == cluster_uuid && metadata.next_node > node.get() {
                return Ok(());
            }
        }
        self.agreement.forget_cluster(node, &cluster_uuid);
        let text = "the nodes of the cluster have not sent its metadata in time; can they reach this node?";
        Err(ClusterError::Failed(text.into()))
    }

    /// Makes this node new; when this resolves nothing that it held is served, and no crash brings that back.
    pub(crate) async fn begin_anew(&self) -> Result<(), ClusterError> {
        self.agreement.reset().await?;
        // What is new is read once it is on disk and carried out.
        if self.agreement.read(PATIENCE).await {
            return Ok(());
        }
        let trouble = self.agreement.trouble();
        Err(ClusterError::Failed(trouble.map_or_else(
            || "the node is still letting go of what it held".into(),
            |trouble| format!("the node is reset once that can be written: {trouble}"),
        )))
    }

    /// Answers what other nodes ask of the consensus.
    pub(crate) fn answer_peers(self: &Arc<Self>) {
        super::certificates::answer(&self.certificates, self);
        self.answer_strangers();
        let me = Weak::clone(&self.me);
        self.routes().add_for(MESSAGES, move |from, body| {
            let me = me.upgrade();
            async move { me.map_or_else(|| Err(stopping()), |me| me.take_messages(from, &body)) }
        });
        let me = Weak::clone(&self.me);
        self.routes().add_for(PROPOSE, move |from, body| {
            let me = me.upgrade();
            async move {
                let me = me.ok_or_else(stopping)?;
                // What this node would not carry out whole is not for it to propose.
                let proposal = proposals::decode(&body).map_err(|error| {
                    ClusterError::Failed(format!("the leader cannot read a proposal: {error}"))
                })?;
                let taken = me.agreement.propose(from, proposal).await.is_ok();
                Ok(if taken { TAKEN.to_vec() } else { Vec::new() })
            }
        });
        self.answer_survivors();
    }

    /// What is to be said to a node that is none of the cluster's, and of the group in that epoch by what it knows.
    pub(crate) fn judge(&self, node: NodeId, epoch: Option<Epoch>) -> Option<Verdict> {
        let membership = (self.agreement.epoch(), self.agreement.has_member(node));
        Verdict::on(node, epoch, &self.metadata.load(), membership)
    }

    fn take_messages(&self, signer: Option<NodeId>, body: &[u8]) -> Result<Vec<u8>, ClusterError> {
        let (from, messages) =
            decode_messages(body).ok_or_else(|| ClusterError::Failed("malformed messages".into()))?;
        // Another cluster may have a node where one of this cluster was.
        let ours = &self.metadata.load().cluster_uuid;
        let is_foreign = |message: &&[u8]| marked_cluster(message).is_some_and(|its| its != ours.as_bytes());
        if messages.iter().any(is_foreign) {
            return Err(ClusterError::Failed("messages of another cluster".into()));
        }
        let epoch = messages.first().and_then(|message| epoch_of(message));
        if let Some(verdict) = self.judge(from, epoch) {
            return Ok(verdict.text().as_bytes().to_vec());
        }
        // While nodes are known by a secret, nobody knows which node sends something.
        let is_member = signer.is_some_and(|signer| self.metadata.load().node_by_id(signer).is_some());
        let counts = |message: &[u8]| signer.is_none_or(|signer| is_from(message, signer, is_member));
        let is_mark = |message: &[u8]| marked_cluster(message).is_some();
        let messages = messages.into_iter().filter(|message| !is_mark(message) && counts(message));
        messages.for_each(|message| self.agreement.step(signer, message.to_vec()));
        Ok(Vec::new())
    }
}
