//! Judges a route's [`Needs`] by the metadata and the sender's identity. Nothing else does.

use cluster::{
    Metadata,
    auth::{self, Domain, Identity, Privilege, Privileges, privileges},
};

use super::route::Needs;

/// Somebody, by what is in the metadata.
#[derive(Clone, Copy)]
pub(crate) struct Sender<'a> {
    pub(crate) meta: &'a Metadata,
    pub(crate) user: &'a Identity,
}

/// What is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lack {
    /// A login.
    Login,
    /// A right: on the cluster, or in the bucket that the request names.
    Right(Privilege, On),
    /// Every right.
    Everything,
    /// Membership in the cluster, of a node that has logged in.
    Membership,
}

/// What the path of a request names, as far as rights go by it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named<'a> {
    pub(crate) bucket: Option<&'a str>,
    pub(crate) scope: Option<&'a str>,
    pub(crate) collection: Option<&'a str>,
}

/// What a right is missing on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum On {
    /// The cluster.
    Cluster,
    /// The bucket that the request names.
    Bucket,
}

impl Sender<'_> {
    /// The rights in `bucket`, or on the cluster.
    pub(crate) fn privileges(self, bucket: Option<&str>) -> Privileges {
        privileges(self.meta, self.user, bucket)
    }

    /// Clients older than users may read what they bootstrap from and nothing else, however much KV allows them.
    fn is_legacy(self) -> bool {
        matches!(self.user.domain, Domain::Bucket | Domain::Anonymous)
    }

    /// Whether a right is held on the cluster (`bucket` absent) or in a whole bucket.
    pub(crate) fn holds(self, privilege: Privilege, bucket: Option<&str>) -> bool {
        if !self.is_legacy() {
            return self.privileges(bucket).has(privilege);
        }
        let reads = |name: &str| self.privileges(Some(name)).has(Privilege::BucketRead);
        match (privilege, bucket) {
            (Privilege::PoolsRead, None) => self.meta.buckets.keys().any(|name| reads(name)),
            (Privilege::BucketRead, Some(bucket)) => reads(bucket),
            _ => false,
        }
    }

    /// Whether every right is held, as full administrators do.
    pub(crate) fn holds_everything(self) -> bool {
        Privilege::ALL.iter().all(|privilege| self.holds(*privilege, None))
    }

    /// What is missing for a request, by what its path names; `None` if nothing is.
    pub(crate) fn lacks(self, needs: Needs, named: Named<'_>) -> Option<Lack> {
        let Named { bucket, scope, .. } = named;
        let on_cluster =
            |privilege| (!self.holds(privilege, None)).then_some(Lack::Right(privilege, On::Cluster));
        let in_bucket = |privilege, holds: bool| (!holds).then_some(Lack::Right(privilege, On::Bucket));
        match needs {
            Needs::Nothing => None,
            Needs::Login => (self.user.domain == Domain::Anonymous).then_some(Lack::Login),
            Needs::Cluster(privilege) => on_cluster(privilege),
            Needs::Both(first, second) => on_cluster(first).or_else(|| on_cluster(second)),
            Needs::Everything => (!self.holds_everything()).then_some(Lack::Everything),
            Needs::Bucket(privilege) => {
                in_bucket(privilege, bucket.is_some_and(|_| self.holds(privilege, bucket)))
            }
            Needs::Within(privilege) => {
                let held = !self.is_legacy() && self.privileges(bucket).has_somewhere(privilege);
                in_bucket(privilege, bucket.is_some() && held)
            }
            Needs::Scope(privilege) => in_bucket(
                privilege,
                bucket.is_some_and(|bucket| self.holds_in_scope(privilege, bucket, scope)),
            ),
            Needs::Documents(privilege) => in_bucket(
                privilege,
                bucket.is_some_and(|bucket| self.holds_over_documents(privilege, bucket, named)),
            ),
            Needs::AnyBucket(privilege) => {
                let mut buckets = self.meta.buckets.keys();
                let any = buckets.any(|bucket| self.holds(privilege, Some(bucket)));
                if any { None } else { on_cluster(Privilege::ClusterRead) }
            }
            Needs::Member => self.lacks_membership(|| false),
            Needs::Listed => self.lacks_membership(|| auth::member(self.meta, self.user).is_some()),
            Needs::Node => self.lacks_membership(|| true),
        }
    }

    /// A node that counts lacks nothing, and no other node where it is `admitted`.
    fn lacks_membership(self, admitted: impl FnOnce() -> bool) -> Option<Lack> {
        if !self.user.is_internal() {
            return Some(Lack::Login);
        }
        let is_admitted = auth::is_current(self.meta, self.user) || admitted();
        (!is_admitted).then_some(Lack::Membership)
    }

    fn holds_over_documents(self, privilege: Privilege, bucket: &str, named: Named<'_>) -> bool {
        let names = (named.scope.unwrap_or("_default"), named.collection.unwrap_or("_default"));
        let held = self.privileges(Some(bucket));
        let scope = self.meta.buckets.get(bucket).and_then(|info| info.manifest.scope(names.0));
        let collection = scope.and_then(|scope| scope.collections.iter().find(|known| known.name == names.1));
        match scope.zip(collection) {
            Some((scope, collection)) => !self.is_legacy() && held.has_in(scope.id, collection.id, privilege),
            None => !self.is_legacy() && held.has(privilege),
        }
    }

    fn holds_in_scope(self, privilege: Privilege, bucket: &str, scope: Option<&str>) -> bool {
        let held = self.privileges(Some(bucket));
        let manifest = self.meta.buckets.get(bucket).map(|info| &info.manifest);
        match manifest.zip(scope).and_then(|(manifest, scope)| manifest.scope(scope)) {
            Some(scope) => !self.is_legacy() && held.has_in_scope(scope.id, privilege),
            None => !self.is_legacy() && held.has(privilege),
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::{
        Membership, NodeInfo, Ports,
        auth::{LoginPort, NodeKey, NodeProof},
    };

    use super::*;

    #[test]
    fn what_a_node_may_ask_goes_by_what_became_of_it() {
        let key = NodeKey::from_seed(&[7; 32]).unwrap();
        let signature = key.sign(LoginPort::Rest, "a", "b", b"challenge");
        let (port, signature) = (LoginPort::Rest, &signature[..]);
        let proof = NodeProof { port, from: "a", to: "b", challenge: b"challenge", signature };
        let user = proof.check(key.public()).unwrap();
        let node = NodeInfo {
            key: Some(key.public().to_owned()),
            ..NodeInfo::first("a".into(), "h".into(), Ports::default())
        };
        let mut meta = Metadata { nodes: vec![node], ..Metadata::new("c".into(), 256) };
        let lacks = |meta: &Metadata, user: &Identity| {
            [Needs::Member, Needs::Listed, Needs::Node]
                .map(|needs| Sender { meta, user }.lacks(needs, Named::default()))
        };
        let membership = Some(Lack::Membership);
        assert_eq!(lacks(&meta, &user), [None; 3]);
        assert_eq!(lacks(&meta, &Identity::anonymous()), [Some(Lack::Login); 3]);
        meta.nodes[0].membership = Membership::InactiveFailed;
        assert_eq!(lacks(&meta, &user), [membership, None, None]);
        meta.nodes.clear();
        assert_eq!(lacks(&meta, &user), [membership, membership, None]);
    }
}
