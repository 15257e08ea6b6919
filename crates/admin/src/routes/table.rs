//! Every route there is, and the right that it asks for. This table alone decides who may send what: a request that it does not
//! have reaches no handler, and handlers look at nothing but what the request contains.
//!
//! What depends on the contents is asked for where they are known: the roles that somebody gives (`users`), what opens a bucket
//! to clients without a user (`buckets`).

use cluster::auth::Privilege::{self as P};

/// The right that the sender of a request needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: clients ask before they can log in.
    Nothing,
    /// A login.
    Login,
    /// A right on the cluster.
    Cluster(P),
    /// Two rights on the cluster.
    Both(P, P),
    /// Every right: that of full administrators.
    Everything,
    /// A right in the whole of `{bucket}`.
    Bucket(P),
    /// A right somewhere in `{bucket}`. The answer shows no more than that.
    Within(P),
    /// A right in `{scope}` of `{bucket}`, or in the bucket if there is no such scope.
    Scope(P),
    /// A right in a bucket, whichever, or that of seeing the cluster. The answer shows those buckets.
    AnyBucket(P),
    /// Being another node of the cluster that counts: it was neither removed nor failed over.
    Member,
    /// Being another node of the cluster, or one that was failed over.
    Listed,
    /// A node's login that is accepted: that of a node that is yet to hear of its removal, too.
    Node,
}

/// One route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Route {
    /// A method; `*` for any, `!GET` for any that may change something.
    pub(crate) method: &'static str,
    /// Segments; one in braces stands for any, `**` at the end for any number of them.
    pub(crate) path: &'static str,
    /// The right that it needs.
    pub(crate) needs: Needs,
}

const fn get(path: &'static str, needs: Needs) -> Route {
    Route { method: "GET", path, needs }
}

const fn post(path: &'static str, needs: Needs) -> Route {
    Route { method: "POST", path, needs }
}

const fn put(path: &'static str, needs: Needs) -> Route {
    Route { method: "PUT", path, needs }
}

const fn patch(path: &'static str, needs: Needs) -> Route {
    Route { method: "PATCH", path, needs }
}

const fn delete(path: &'static str, needs: Needs) -> Route {
    Route { method: "DELETE", path, needs }
}

/// A route that Couchbase has and Settee has not. A sender with the right hears that; others are refused as usual.
const fn absent(method: &'static str, path: &'static str, needs: Needs) -> Route {
    Route { method, path, needs }
}

const POOLS: Needs = Needs::Cluster(P::PoolsRead);
const SEES: Needs = Needs::Cluster(P::ClusterRead);
const MANAGES: Needs = Needs::Cluster(P::ClusterAdmin);
/// Nodes log in at the process that answers at a member's address, and that process may do what they may. So the user who says what
/// that address is, or adds a member, needs these rights.
const ADMITS: Needs = Needs::Both(P::ClusterAdmin, P::SecurityAdmin);
const SEES_SECURITY: Needs = Needs::Cluster(P::SecurityRead);
const SECURES: Needs = Needs::Cluster(P::SecurityAdmin);
const SEES_USERS: Needs = Needs::Cluster(P::UserRead);
const USERS: Needs = Needs::Cluster(P::UserAdmin);
const EXTERNAL_USERS: Needs = Needs::Cluster(P::ExternalUserAdmin);
const SEES_BUCKET: Needs = Needs::Bucket(P::BucketRead);

/// Every route. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    get("", Needs::Nothing),
    get("versions", Needs::Login),
    get("whoami", Needs::Nothing),
    // Answered before anything else is looked at: see `health` and `console`.
    get("health/live", Needs::Nothing),
    get("health/ready", Needs::Nothing),
    get("ui/**", Needs::Nothing),
    post("uilogin", Needs::Nothing),
    post("uilogout", Needs::Nothing),
    get("metrics", Needs::Cluster(P::ClusterStats)),
    get("prometheus_sd_config", Needs::Cluster(P::ClusterStats)),
    get("logs", SEES),
    absent("*", "diag/eval", Needs::Everything),
    // The cluster.
    get("pools", POOLS),
    get("pools/default", POOLS),
    get("pools/nodes", POOLS),
    get("poolsStreaming/default", POOLS),
    get("pools/default/nodeServices", POOLS),
    get("pools/default/nodeServicesStreaming", POOLS),
    get("pools/default/terseClusterInfo", POOLS),
    get("pools/default/tasks", SEES),
    get("pools/default/rebalanceProgress", SEES),
    get("pools/default/pendingRetryRebalance", SEES),
    get("pools/default/remoteClusters", SEES),
    get("pools/default/replications", SEES),
    absent("!GET", "pools/default/remoteClusters/**", MANAGES),
    absent("!GET", "pools/default/replications/**", MANAGES),
    post("pools/default", MANAGES),
    post("pools/default/checkPermissions", Needs::Login),
    get("pools/default/certificate", Needs::Nothing),
    get("pools/default/trustedCAs", Needs::Nothing),
    delete("pools/default/trustedCAs/{id}", SECURES),
    post("node/controller/loadTrustedCAs", SECURES),
    post("node/controller/reloadCertificate", SECURES),
    get("pools/default/certificates", SEES_SECURITY),
    get("pools/default/certificate/node/{node}", SEES_SECURITY),
    get("pools/default/serverGroups", SEES),
    post("pools/default/serverGroups", MANAGES),
    put("pools/default/serverGroups", MANAGES),
    put("pools/default/serverGroups/{group}", MANAGES),
    delete("pools/default/serverGroups/{group}", MANAGES),
    post("pools/default/serverGroups/{group}/addNode", ADMITS),
    post("pools/default/serverGroups/{group}/addNodeV2", ADMITS),
    // Buckets.
    get("pools/default/buckets", Needs::AnyBucket(P::BucketRead)),
    post("pools/default/buckets", Needs::Cluster(P::BucketCreate)),
    get("pools/default/buckets/{bucket}", SEES_BUCKET),
    post("pools/default/buckets/{bucket}", Needs::Bucket(P::BucketWrite)),
    delete("pools/default/buckets/{bucket}", Needs::Bucket(P::BucketDelete)),
    post("pools/default/buckets/{bucket}/controller/doFlush", Needs::Bucket(P::BucketFlush)),
    post("pools/default/buckets/{bucket}/controller/compactBucket", Needs::Bucket(P::BucketCompact)),
    post("pools/default/buckets/{bucket}/controller/compactDatabases", Needs::Bucket(P::BucketCompact)),
    post("pools/default/buckets/{bucket}/controller/cancelBucketCompaction", Needs::Bucket(P::BucketCompact)),
    post(
        "pools/default/buckets/{bucket}/controller/cancelDatabasesCompaction",
        Needs::Bucket(P::BucketCompact),
    ),
    get("pools/default/buckets/{bucket}/nodes", SEES_BUCKET),
    get("pools/default/buckets/{bucket}/nodes/{node}/stats", Needs::Bucket(P::Stats)),
    get("pools/default/buckets/{bucket}/stats", Needs::Bucket(P::Stats)),
    get("pools/default/buckets/{bucket}/stats/{stat}", Needs::Bucket(P::Stats)),
    get("pools/default/buckets/{bucket}/statsDirectory", Needs::Bucket(P::Stats)),
    get("pools/default/buckets/{bucket}/ddocs", Needs::Bucket(P::ViewsRead)),
    get("pools/default/b/{bucket}", SEES_BUCKET),
    get("pools/default/bs/{bucket}", SEES_BUCKET),
    get("pools/default/bucketsStreaming/{bucket}", SEES_BUCKET),
    get("pools/default/buckets/{bucket}/scopes", Needs::Within(P::CollectionsRead)),
    post("pools/default/buckets/{bucket}/scopes", Needs::Bucket(P::CollectionsWrite)),
    absent("PUT", "pools/default/buckets/{bucket}/scopes", Needs::Bucket(P::CollectionsWrite)),
    post("pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}", Needs::Within(P::CollectionsRead)),
    delete("pools/default/buckets/{bucket}/scopes/{scope}", Needs::Scope(P::CollectionsWrite)),
    post("pools/default/buckets/{bucket}/scopes/{scope}/collections", Needs::Scope(P::CollectionsWrite)),
    patch(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Needs::Scope(P::CollectionsWrite),
    ),
    delete(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Needs::Scope(P::CollectionsWrite),
    ),
    // Objectives, of Settee alone.
    get("settee/slo", Needs::AnyBucket(P::BucketRead)),
    get("settee/slo/{bucket}", SEES_BUCKET),
    get("settee/slo/{bucket}/{name}", SEES_BUCKET),
    put("settee/slo/{bucket}/{name}", Needs::Bucket(P::BucketWrite)),
    delete("settee/slo/{bucket}/{name}", Needs::Bucket(P::BucketWrite)),
    // Nodes.
    get("nodes/self/xdcrSSLPorts", Needs::Nothing),
    get("nodes/{node}", SEES),
    get("nodeStatuses", SEES),
    post("clusterInit", MANAGES),
    post("nodeInit", ADMITS),
    post("nodes/self/controller/settings", ADMITS),
    post("node/controller/setupServices", MANAGES),
    post("node/controller/rename", ADMITS),
    post("node/controller/setupNetConfig", MANAGES),
    put("node/controller/setupAlternateAddresses/external", MANAGES),
    delete("node/controller/setupAlternateAddresses/external", MANAGES),
    post("node/controller/enableExternalListener", MANAGES),
    post("node/controller/disableUnusedExternalListeners", MANAGES),
    post("node/controller/doJoinCluster", ADMITS),
    post("node/controller/doJoinClusterV2", ADMITS),
    post("controller/addNode", ADMITS),
    post("controller/addNodeV2", ADMITS),
    post("controller/ejectNode", MANAGES),
    post("controller/hardResetNode", Needs::Everything),
    post("controller/rebalance", MANAGES),
    post("controller/stopRebalance", MANAGES),
    post("controller/failOver", MANAGES),
    post("controller/startFailover", MANAGES),
    post("controller/startGracefulFailover", MANAGES),
    post("controller/setRecoveryType", MANAGES),
    post("controller/reAddNode", MANAGES),
    post("controller/reFailOver", MANAGES),
    post("controller/regenerateCertificate", SECURES),
    // Nodes among one another. Any sender may ask for a challenge: answered before anything else is looked at. The next two are of nodes that are not of one cluster yet, and say who they are like anybody else.
    get("_settee/challenge", Needs::Nothing),
    post("_settee/introduce", ADMITS),
    post("_settee/join", ADMITS),
    // What is agreed on reaches nodes that are yet to hear that they were removed. A node that was failed over reports, so that it can be
    // recovered, and says what `Metadata::may_propose` lets it say.
    post("_settee/consensus", Needs::Node),
    post("_settee/members", Needs::Listed),
    post("_settee/propose", Needs::Listed),
    post("_settee/report", Needs::Listed),
    post("_settee/standing", Needs::Listed),
    post("_settee/{name}", Needs::Member),
    post("_settee/services/{service}", Needs::Member),
    // Users.
    post("controller/changePassword", Needs::Login),
    get("settings/rbac/roles", SEES_USERS),
    get("settings/rbac/users", SEES_USERS),
    get("settings/rbac/users/{domain}", SEES_USERS),
    get("settings/rbac/users/{domain}/{user}", SEES_USERS),
    put("settings/rbac/users/external/{user}", EXTERNAL_USERS),
    delete("settings/rbac/users/external/{user}", EXTERNAL_USERS),
    put("settings/rbac/users/{domain}/{user}", USERS),
    delete("settings/rbac/users/{domain}/{user}", USERS),
    patch("settings/rbac/users/local/{user}", USERS),
    get("settings/rbac/groups", SEES_USERS),
    get("settings/rbac/groups/{group}", SEES_USERS),
    put("settings/rbac/groups/{group}", USERS),
    delete("settings/rbac/groups/{group}", USERS),
    // Settings.
    get("settings/web", SEES),
    post("settings/web", Needs::Everything),
    get("settings/autoFailover", SEES),
    post("settings/autoFailover", MANAGES),
    post("settings/autoFailover/resetCount", MANAGES),
    get("settings/autoReprovision", SEES),
    post("settings/autoReprovision", MANAGES),
    get("settings/stats", SEES),
    post("settings/stats", MANAGES),
    get("settings/indexes", SEES),
    post("settings/indexes", MANAGES),
    get("settings/alerts", SEES),
    post("settings/alerts", MANAGES),
    get("settings/autoCompaction", SEES),
    post("settings/autoCompaction", MANAGES),
    get("controller/setAutoCompaction", SEES),
    post("controller/setAutoCompaction", MANAGES),
    get("settings/rebalance", SEES),
    post("settings/rebalance", MANAGES),
    get("settings/retryRebalance", SEES),
    post("settings/retryRebalance", MANAGES),
    get("settings/logRedaction", SEES),
    post("settings/logRedaction", SECURES),
    get("settings/maxParallelIndexers", SEES),
    post("settings/maxParallelIndexers", MANAGES),
    get("settings/failover", SEES),
    post("settings/failover", MANAGES),
    get("settings/developerPreview", SEES),
    post("settings/developerPreview", MANAGES),
    get("settings/audit", SEES_SECURITY),
    post("settings/audit", SECURES),
    get("settings/audit/descriptors", SEES_SECURITY),
    get("settings/security", SEES_SECURITY),
    post("settings/security", SECURES),
    get("settings/passwordPolicy", SEES_SECURITY),
    post("settings/passwordPolicy", SECURES),
    get("settings/ldap", SEES_SECURITY),
    post("settings/ldap", SECURES),
    get("settings/saslauthdAuth", SEES_SECURITY),
    post("settings/saslauthdAuth", SECURES),
    get("settings/clientCertAuth", SEES_SECURITY),
    post("settings/clientCertAuth", SECURES),
    // What is known and not built.
    absent("!GET", "controller/createReplication", MANAGES),
    absent("!GET", "controller/cancelXDCR/**", MANAGES),
    absent("!GET", "controller/startLogsCollection", MANAGES),
    absent("!GET", "controller/cancelLogsCollection", MANAGES),
    absent("!GET", "controller/uploadClusterCA", SECURES),
    absent("!GET", "controller/resetAdminPassword", Needs::Everything),
    absent("!GET", "controller/lockAdmin", Needs::Everything),
    absent("!GET", "controller/unlockAdmin", Needs::Everything),
];

/// The route of a request.
pub(crate) fn find(method: &str, path: &[String]) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.has_method(method) && route.has_path(path))
}

/// Whether there is something to be had at a path, be it by another method.
pub(crate) fn knows(path: &[String]) -> bool {
    ROUTES.iter().any(|route| route.has_path(path))
}

impl Route {
    fn has_method(&self, method: &str) -> bool {
        match self.method {
            "*" => true,
            "!GET" => method != "GET",
            one => one == method,
        }
    }

    fn segments(&self) -> impl Iterator<Item = &'static str> {
        self.path.split('/').filter(|segment| !segment.is_empty())
    }

    fn has_path(&self, path: &[String]) -> bool {
        let mut left = path.iter();
        for segment in self.segments() {
            if segment == "**" {
                return true;
            }
            match left.next() {
                Some(found) if segment.starts_with('{') || segment == found => {}
                _ => return false,
            }
        }
        left.next().is_none()
    }

    /// What stands in a path where the route says `name`, which is in braces.
    pub(crate) fn parameter<'p>(&self, name: &str, path: &'p [String]) -> Option<&'p str> {
        let at = self.segments().position(|segment| segment == name)?;
        path.get(at).map(String::as_str)
    }
}
