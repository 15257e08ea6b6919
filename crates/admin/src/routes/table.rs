//! Every route there is, and the right that it asks for. This table alone decides which sender may send what. A request that it
//! does not have reaches no handler, and handlers look at nothing but what the request contains.
//!
//! Rights that depend on the contents of a request are asked for where the contents are known. These are the roles that a
//! sender gives (`users`), and what opens a bucket to clients without a user (`buckets`).

use cluster::auth::Privilege as P;

use crate::request::{Alone, Needs, Route};

const fn route(method: &'static str, path: &'static str, needs: Needs, about: &'static str) -> Route {
    Route { method, path, needs, about, is_built: true, needs_figures: false, alone: Alone::Refused }
}

const fn get(path: &'static str, needs: Needs, about: &'static str) -> Route {
    route("GET", path, needs, about)
}

const fn post(path: &'static str, needs: Needs, about: &'static str) -> Route {
    route("POST", path, needs, about)
}

const fn put(path: &'static str, needs: Needs, about: &'static str) -> Route {
    route("PUT", path, needs, about)
}

const fn patch(path: &'static str, needs: Needs, about: &'static str) -> Route {
    route("PATCH", path, needs, about)
}

const fn delete(path: &'static str, needs: Needs, about: &'static str) -> Route {
    route("DELETE", path, needs, about)
}

/// A route that Couchbase has and Settee has not. A sender with the right hears that; others are refused as usual.
const fn absent(method: &'static str, path: &'static str, needs: Needs, about: &'static str) -> Route {
    Route { is_built: false, ..route(method, path, needs, about) }
}

const POOLS: Needs = Needs::Cluster(P::PoolsRead);
const SEES: Needs = Needs::Cluster(P::ClusterRead);
const MANAGES: Needs = Needs::Cluster(P::ClusterAdmin);
/// Nodes log in at the process that answers at a member's address, and that process may do what they may. So the user who says what
/// that address is, or adds a member, needs these rights.
const ADMITS: Needs = Needs::Both(P::ClusterAdmin, P::SecurityAdmin);
/// What only administrators see of metrics.
const SEES_METRICS: Needs = Needs::Both(P::ClusterRead, P::ClusterStats);
const SEES_SECURITY: Needs = Needs::Cluster(P::SecurityRead);
const SECURES: Needs = Needs::Cluster(P::SecurityAdmin);
const SEES_USERS: Needs = Needs::Cluster(P::UserRead);
const USERS: Needs = Needs::Cluster(P::UserAdmin);
const EXTERNAL_USERS: Needs = Needs::Cluster(P::ExternalUserAdmin);
const SEES_BUCKET: Needs = Needs::Bucket(P::BucketRead);

/// Every route. The first that fits counts.
pub(crate) const ROUTES: &[Route] = &[
    get("", Needs::Nothing, "Sends a browser to the console's place."),
    get("versions", Needs::Login, "Versions of the parts of a server."),
    get("whoami", Needs::Nothing, "The sender, and the sender's roles."),
    // Answered before anything else is looked at: see `health` and `console`.
    get("health/live", Needs::Nothing, "Whether the process answers."),
    get("health/ready", Needs::Nothing, "Whether the node should get clients, and why not."),
    get("ui/**", Needs::Nothing, "The files of the web console."),
    post("uilogin", Needs::Nothing, "Logs a browser in: a session begins."),
    post("uilogout", Needs::Nothing, "Ends the session of a browser."),
    get("metrics", Needs::Cluster(P::ClusterStats), "Figures of the node, for Prometheus."),
    get(
        "prometheus_sd_config",
        Needs::Cluster(P::ClusterStats),
        "Where Prometheus finds the cluster's nodes.",
    ),
    get(
        "_appTelemetry",
        Needs::Cluster(P::AppTelemetry),
        "Asks an SDK over a WebSocket how long its operations took.",
    ),
    get("logs", SEES, "Changes of the cluster that this node has seen."),
    absent("*", "diag/eval", Needs::Everything, "Code to be evaluated on the server."),
    // The cluster.
    get("pools", POOLS, "What the server is, and its clusters.").figures(),
    get("pools/default", POOLS, "The cluster: nodes, quotas, alerts, figures.").figures(),
    get("pools/nodes", POOLS, "The cluster and its nodes.").figures(),
    get("poolsStreaming/default", POOLS, "The cluster, told anew with each change.").figures(),
    get("pools/default/nodeServices", POOLS, "The services and ports of each node."),
    get(
        "pools/default/nodeServicesStreaming",
        POOLS,
        "The services and ports of each node, told anew with each change.",
    ),
    get("pools/default/terseClusterInfo", POOLS, "Name, identity and state of the cluster.").figures(),
    post("pools/default/stats/range", Needs::AnyBucket(P::Stats), "The past of several series.")
        .alone(Alone::CarriedOut),
    get("pools/default/stats/range/**", Needs::AnyBucket(P::Stats), "The past of the series of one name."),
    get(
        "pools/default/tasks",
        SEES,
        "What is under way: rebalance, warm-up, compaction, indexing, archives of logs.",
    )
    .figures(),
    get("pools/default/rebalanceProgress", SEES, "How far the rebalance is.").figures(),
    get("pools/default/pendingRetryRebalance", SEES, "The rebalance that is to be tried again.").figures(),
    get("pools/default/remoteClusters", SEES, "Clusters that this one replicates to.").figures(),
    get("pools/default/replications", SEES, "Replications to other clusters.").figures(),
    absent("!GET", "pools/default/remoteClusters/**", MANAGES, "Replication to other clusters."),
    absent("!GET", "pools/default/replications/**", MANAGES, "Replication to other clusters."),
    post("pools/default", MANAGES, "Changes quotas and the cluster's name.").figures(),
    post("pools/default/checkPermissions", Needs::Login, "Which of the named rights the sender has.")
        .figures()
        .alone(Alone::CarriedOut),
    get("pools/default/certificate", Needs::Nothing, "The certificate of this node.").figures(),
    get("pools/default/trustedCAs", Needs::Nothing, "The authorities that the cluster trusts.").figures(),
    delete("pools/default/trustedCAs/{id}", SECURES, "Trusts an authority no longer.").figures(),
    post("node/controller/loadTrustedCAs", SECURES, "Trusts the authorities in this node's inbox."),
    // Without the new one the nodes may not reach one another.
    post("node/controller/reloadCertificate", SECURES, "Takes the certificate in this node's inbox.")
        .alone(Alone::CarriedOut),
    get("pools/default/certificates", SEES_SECURITY, "The certificate of every node.").figures(),
    get("pools/default/certificate/node/{node}", SEES_SECURITY, "The certificate of a node.").figures(),
    get("pools/default/serverGroups", SEES, "Server groups and their nodes.").figures(),
    post("pools/default/serverGroups", MANAGES, "Makes a server group.").figures(),
    put("pools/default/serverGroups", MANAGES, "Moves nodes between server groups.").figures(),
    put("pools/default/serverGroups/{group}", MANAGES, "Renames a server group.").figures(),
    delete("pools/default/serverGroups/{group}", MANAGES, "Removes an empty server group.").figures(),
    post("pools/default/serverGroups/{group}/addNode", ADMITS, "Adds a node to a server group.").figures(),
    post("pools/default/serverGroups/{group}/addNodeV2", ADMITS, "Adds a node to a server group.").figures(),
    // Buckets.
    get("pools/default/buckets", Needs::AnyBucket(P::BucketRead), "The buckets that the sender may see.")
        .figures(),
    post("pools/default/buckets", Needs::Cluster(P::BucketCreate), "Creates a bucket.").figures(),
    get("pools/default/buckets/{bucket}", SEES_BUCKET, "A bucket: settings, map of vBuckets, figures.")
        .figures(),
    post(
        "pools/default/buckets/{bucket}",
        Needs::Bucket(P::BucketWrite),
        "Changes the settings of a bucket.",
    )
    .figures(),
    delete("pools/default/buckets/{bucket}", Needs::Bucket(P::BucketDelete), "Drops a bucket.").figures(),
    post(
        "pools/default/buckets/{bucket}/controller/doFlush",
        Needs::Bucket(P::BucketFlush),
        "Empties a bucket that allows it.",
    )
    .figures(),
    post(
        "pools/default/buckets/{bucket}/controller/compactBucket",
        Needs::Bucket(P::BucketCompact),
        "Compacts a bucket's files.",
    )
    .figures(),
    post(
        "pools/default/buckets/{bucket}/controller/compactDatabases",
        Needs::Bucket(P::BucketCompact),
        "Compacts a bucket's files, without views.",
    )
    .figures(),
    post(
        "pools/default/buckets/{bucket}/controller/cancelBucketCompaction",
        Needs::Bucket(P::BucketCompact),
        "Stops a compaction that was asked for.",
    )
    .figures(),
    post(
        "pools/default/buckets/{bucket}/controller/cancelDatabasesCompaction",
        Needs::Bucket(P::BucketCompact),
        "Stops a compaction that was asked for.",
    )
    .figures(),
    get("pools/default/buckets/{bucket}/nodes", SEES_BUCKET, "The nodes of a bucket.").figures(),
    get(
        "pools/default/buckets/{bucket}/nodes/{node}/stats",
        Needs::Bucket(P::Stats),
        "A bucket's figures on one node, with their past.",
    ),
    get(
        "pools/default/buckets/{bucket}/stats",
        Needs::Bucket(P::Stats),
        "A bucket's figures, with their past.",
    ),
    get(
        "pools/default/buckets/{bucket}/stats/{stat}",
        Needs::Bucket(P::Stats),
        "One figure of a bucket by node, with its past.",
    ),
    get(
        "pools/default/buckets/{bucket}/statsDirectory",
        Needs::Bucket(P::Stats),
        "Names and descriptions of a bucket's figures.",
    ),
    get("pools/default/buckets/{bucket}/ddocs", Needs::Bucket(P::ViewsRead), "Design documents of a bucket.")
        .figures(),
    post(
        "pools/default/buckets/{bucket}/ddocs/{document}/controller/compactView",
        Needs::Bucket(P::ViewsCompact),
        "Compacts the index of a design document on all nodes.",
    ),
    post(
        "pools/default/buckets/{bucket}/ddocs/{document}/controller/cancelViewCompaction",
        Needs::Bucket(P::ViewsCompact),
        "Ends the compaction of an index.",
    ),
    post(
        "pools/default/buckets/{bucket}/ddocs/{document}/controller/setUpdateMinChanges",
        Needs::Bucket(P::ViewsCompact),
        "Sets `updateMinChanges` and `replicaUpdateMinChanges` of a design document, which are stored and have no effect.",
    ),
    // What the ports of views answer: see `views`.
    get(
        "couchBase/{bucket}/**",
        Needs::Bucket(P::ViewsRead),
        "As `/{bucket}/…` on the port of views: a design document, or the rows of a view.",
    ),
    post(
        "couchBase/{bucket}/_try",
        Needs::Bucket(P::ViewsWrite),
        "Runs the functions of a view on documents that the request has. Nothing is stored.",
    ),
    post(
        "couchBase/{bucket}/**",
        Needs::Bucket(P::ViewsRead),
        "As `/{bucket}/…` on the port of views: the rows of a view, by parameters in the body.",
    )
    .alone(Alone::CarriedOut),
    put(
        "couchBase/{bucket}/**",
        Needs::Bucket(P::ViewsWrite),
        "As `/{bucket}/…` on the port of views: stores a design document.",
    ),
    delete(
        "couchBase/{bucket}/**",
        Needs::Bucket(P::ViewsWrite),
        "As `/{bucket}/…` on the port of views: deletes a design document.",
    ),
    get("pools/default/b/{bucket}", SEES_BUCKET, "What clients need of a bucket."),
    get(
        "pools/default/bs/{bucket}",
        SEES_BUCKET,
        "What clients need of a bucket, told anew with each change.",
    ),
    get("pools/default/bucketsStreaming/{bucket}", SEES_BUCKET, "A bucket, told anew with each change.")
        .figures(),
    get(
        "pools/default/buckets/{bucket}/scopes",
        Needs::Within(P::CollectionsRead),
        "Scopes and collections of a bucket.",
    )
    .figures(),
    post("pools/default/buckets/{bucket}/scopes", Needs::Bucket(P::CollectionsWrite), "Makes a scope.")
        .figures(),
    absent(
        "PUT",
        "pools/default/buckets/{bucket}/scopes",
        Needs::Bucket(P::CollectionsWrite),
        "Replaces all scopes and collections at once.",
    ),
    post(
        "pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
        Needs::Within(P::CollectionsRead),
        "Waits until every node knows this manifest or a later one.",
    )
    .figures()
    .alone(Alone::CarriedOut),
    delete(
        "pools/default/buckets/{bucket}/scopes/{scope}",
        Needs::Scope(P::CollectionsWrite),
        "Drops a scope.",
    )
    .figures(),
    post(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections",
        Needs::Scope(P::CollectionsWrite),
        "Makes a collection.",
    )
    .figures(),
    patch(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Needs::Scope(P::CollectionsWrite),
        "Changes the settings of a collection.",
    )
    .figures(),
    delete(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        Needs::Scope(P::CollectionsWrite),
        "Drops a collection.",
    )
    .figures(),
    // Of Settee alone.
    // A line may name users and addresses.
    get("settee/audit", SEES_SECURITY, "The audit trails of all nodes, the newest event first."),
    get("settee/logs", SEES_SECURITY, "The last lines of this node's own log."),
    get(
        "settee/archive",
        Needs::Everything,
        "The archive of logs, figures and settings that this node has made last.",
    ),
    get("settee/alerts", SEES, "Alerts that fire now on every node."),
    get("settee/alerts/kinds", SEES, "Every kind of alert, and what to do about it."),
    get("settee/alerts/silences", SEES, "Alerts that are not sent for a while."),
    post("settee/alerts/silences", MANAGES, "Has an alert not sent for a while."),
    delete("settee/alerts/silences/{id}", MANAGES, "Ends a silence."),
    // The address may have a password in it, and nodes connect to it.
    get("settee/alerts/webhook", Needs::Everything, "Where alerts are posted."),
    put("settee/alerts/webhook", Needs::Everything, "Has alerts posted to an address."),
    delete("settee/alerts/webhook", Needs::Everything, "Has alerts posted to no address any more."),
    get("settee/probe", SEES, "What every node's probes of buckets on nodes have found."),
    put("settee/probe", MANAGES, "Sets which buckets are probed, whether by writes too, and how often."),
    get("settee/probe/metrics", Needs::Cluster(P::ClusterStats), "This node's probes under published names."),
    get(
        "settee/forecast",
        Needs::AnyBucket(P::Stats),
        "What runs out on every node, and when, by what was sampled.",
    ),
    get("settee/slow", SEES, "Operations that took half a second or longer of late, on every node."),
    // A key is content.
    get(
        "settee/hot/{bucket}",
        Needs::Within(P::Read),
        "Documents that many operations go to, on every node, as far as the sender may read them.",
    ),
    // Connections name users and addresses.
    get("settee/connections", SEES_SECURITY, "Connections and clients with the most load, on every node."),
    get(
        "settee/latency/{bucket}",
        Needs::Bucket(P::Stats),
        "How long operations of a bucket took over time: percentiles, histograms, and what they waited for.",
    ),
    get(
        "settee/sdk/{bucket}",
        Needs::Bucket(P::Stats),
        "What clients tell of their operations on a bucket: how long these took, and how many were given up.",
    ),
    get("settee/slo", Needs::AnyBucket(P::BucketRead), "Objectives of latency, and how they are kept."),
    get("settee/slo/{bucket}", SEES_BUCKET, "Objectives of a bucket, and how they are kept."),
    get("settee/slo/{bucket}/{name}", SEES_BUCKET, "An objective, and how it is kept."),
    put("settee/slo/{bucket}/{name}", Needs::Bucket(P::BucketWrite), "Sets an objective of a bucket."),
    delete("settee/slo/{bucket}/{name}", Needs::Bucket(P::BucketWrite), "Removes an objective of a bucket."),
    // Documents.
    get("pools/default/buckets/{bucket}/docs", Needs::Documents(P::Read), "Keys of documents."),
    get("pools/default/buckets/{bucket}/docs/{key}", Needs::Documents(P::Read), "A document."),
    post("pools/default/buckets/{bucket}/docs/{key}", Needs::Documents(P::Upsert), "Writes a document."),
    delete("pools/default/buckets/{bucket}/docs/{key}", Needs::Documents(P::Delete), "Deletes a document."),
    get(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs",
        Needs::Documents(P::Read),
        "Keys of documents of a collection.",
    ),
    get(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{key}",
        Needs::Documents(P::Read),
        "A document of a collection.",
    ),
    post(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{key}",
        Needs::Documents(P::Upsert),
        "Writes a document of a collection.",
    ),
    delete(
        "pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}/docs/{key}",
        Needs::Documents(P::Delete),
        "Deletes a document of a collection.",
    ),
    // Nodes.
    get("nodes/self/xdcrSSLPorts", Needs::Nothing, "The ports of this node under TLS.").figures(),
    get("nodes/{node}", SEES, "A node: versions, folders, memory, quotas.").figures(),
    get("nodeStatuses", SEES, "The state of each node.").figures(),
    post("clusterInit", MANAGES, "Sets a new node up, all at once.").figures(),
    post("nodeInit", ADMITS, "Sets name, folders and address family of a node."),
    post("nodes/self/controller/settings", ADMITS, "Sets the folders of a node.").figures(),
    post("node/controller/setupServices", MANAGES, "Sets the services of a node."),
    post("node/controller/rename", ADMITS, "Gives the node the name that others reach it under."),
    post("node/controller/setupNetConfig", MANAGES, "Sets encryption between nodes, and the address family."),
    put(
        "node/controller/setupAlternateAddresses/external",
        MANAGES,
        "Sets the address under which clients outside reach the node.",
    ),
    delete(
        "node/controller/setupAlternateAddresses/external",
        MANAGES,
        "Removes the address for clients outside.",
    ),
    post(
        "node/controller/enableExternalListener",
        MANAGES,
        "Starts listening for nodes by another protocol.",
    ),
    post(
        "node/controller/disableUnusedExternalListeners",
        MANAGES,
        "Stops listening for nodes by protocols that are not used.",
    ),
    post("node/controller/doJoinCluster", ADMITS, "Joins the cluster of another node."),
    post("node/controller/doJoinClusterV2", ADMITS, "Joins the cluster of another node."),
    post("controller/addNode", ADMITS, "Adds a node to the cluster."),
    post("controller/addNodeV2", ADMITS, "Adds a node to the cluster."),
    post("controller/ejectNode", MANAGES, "Removes a node that holds nothing."),
    post("controller/hardResetNode", Needs::Everything, "Makes this node a new one, without its data.")
        .alone(Alone::CarriedOut),
    post("controller/rebalance", MANAGES, "Starts a rebalance.").figures(),
    post("controller/stopRebalance", MANAGES, "Stops the rebalance."),
    // Logs tell of security, too.
    post(
        "controller/startLogsCollection",
        Needs::Everything,
        "Has nodes make an archive of logs, figures and settings each.",
    )
    .figures()
    .alone(Alone::CarriedOut),
    post("controller/cancelLogsCollection", Needs::Everything, "Ends the making of these archives.")
        .figures()
        .alone(Alone::CarriedOut),
    post("controller/failOver", MANAGES, "Fails nodes over at once.").alone(Alone::IfUnsafe),
    post("controller/startFailover", MANAGES, "Fails nodes over at once.").alone(Alone::IfUnsafe),
    post(
        "controller/startGracefulFailover",
        MANAGES,
        "Moves what is active away from a node, then fails it over.",
    ),
    post("controller/setRecoveryType", MANAGES, "Says how a node that was failed over is recovered."),
    post("controller/reAddNode", MANAGES, "Takes a node that was failed over back."),
    post("controller/reFailOver", MANAGES, "Takes back that a node is to be recovered."),
    post("controller/regenerateCertificate", SECURES, "Has every node make a certificate of its own anew."),
    // Nodes among one another. Any sender may ask for a challenge: answered before anything else is looked at. The next two are of nodes that are not of one cluster yet, and say who they are like anybody else.
    get("_settee/challenge", Needs::Nothing, "What a node signs to log in at this one."),
    post("_settee/introduce", ADMITS, "A node says who it is, before it is added."),
    post("_settee/join", ADMITS, "A node is told the cluster that it joins."),
    // What is agreed on reaches nodes that are yet to hear that they were removed. A node that was failed over reports, so that it can be
    // recovered, and says what `Metadata::may_propose` lets it say.
    post("_settee/consensus", Needs::Node, "Messages of the group that agrees on the metadata."),
    post("_settee/members", Needs::Listed, "The members that this node knows."),
    post("_settee/propose", Needs::Listed, "A command for the leader to propose."),
    post("_settee/report", Needs::Listed, "What a node's copies are, for the leader."),
    post("_settee/standing", Needs::Listed, "Whether a node counts, was failed over, or was removed."),
    post("_settee/{name}", Needs::Member, "What nodes ask one another besides."),
    post("_settee/services/{service}", Needs::Member, "A question of a service to itself on this node."),
    // Users.
    post("controller/changePassword", Needs::Login, "Changes the sender's own password."),
    get("settings/rbac/roles", SEES_USERS, "All roles, and what they allow."),
    get("settings/rbac/users", SEES_USERS, "All users."),
    get("settings/rbac/users/{domain}", SEES_USERS, "All users of a domain."),
    get("settings/rbac/users/{domain}/{user}", SEES_USERS, "A user."),
    put(
        "settings/rbac/users/external/{user}",
        EXTERNAL_USERS,
        "Makes or changes a user whose password is kept elsewhere.",
    ),
    delete(
        "settings/rbac/users/external/{user}",
        EXTERNAL_USERS,
        "Removes a user whose password is kept elsewhere.",
    ),
    put("settings/rbac/users/{domain}/{user}", USERS, "Makes or changes a user."),
    delete("settings/rbac/users/{domain}/{user}", USERS, "Removes a user."),
    patch("settings/rbac/users/local/{user}", USERS, "Locks or unlocks a user."),
    get("settings/rbac/groups", SEES_USERS, "All groups of users."),
    get("settings/rbac/groups/{group}", SEES_USERS, "A group of users."),
    put("settings/rbac/groups/{group}", USERS, "Makes or changes a group of users."),
    delete("settings/rbac/groups/{group}", USERS, "Removes a group of users."),
    // Settings.
    get("settings/web", SEES, "The administrator's name and port."),
    post("settings/web", Needs::Everything, "Sets the administrator's name and password."),
    get("settings/autoFailover", SEES, "When nodes are failed over automatically."),
    post("settings/autoFailover", MANAGES, "Sets when nodes are failed over automatically."),
    post("settings/autoFailover/resetCount", MANAGES, "Counts automatic failovers anew."),
    get("settings/autoReprovision", SEES, "What becomes of memory-only buckets after a crash."),
    post("settings/autoReprovision", MANAGES, "Sets what becomes of memory-only buckets after a crash."),
    get("settings/stats", SEES, "Whether usage is told to the maker."),
    post("settings/stats", MANAGES, "Sets whether usage is told to the maker."),
    get("settings/appTelemetry", SEES_METRICS, "Whether SDKs are asked how long operations take."),
    post("settings/appTelemetry", MANAGES, "Sets whether SDKs are asked how long operations take."),
    get("settings/indexes", SEES, "Settings of the index service."),
    post("settings/indexes", MANAGES, "Changes settings of the index service."),
    get("settings/alerts", SEES, "Which alerts are mailed, and to where."),
    post("settings/alerts", MANAGES, "Sets which alerts are mailed, and to where."),
    post("settings/alerts/testEmail", MANAGES, "Sends a mail by settings that are to be tried."),
    get("settings/autoCompaction", SEES, "When files are compacted."),
    post("settings/autoCompaction", MANAGES, "Sets when files are compacted."),
    get("controller/setAutoCompaction", SEES, "When files are compacted."),
    post("controller/setAutoCompaction", MANAGES, "Sets when files are compacted."),
    get("settings/rebalance", SEES, "How many vBuckets move at a time."),
    post("settings/rebalance", MANAGES, "Sets how many vBuckets move at a time."),
    get(
        "settings/viewUpdateDaemon",
        SEES,
        "What is recorded of how often views are updated; they always are.",
    ),
    post("settings/viewUpdateDaemon", MANAGES, "Records how often views are to be updated; without effect."),
    get("settings/retryRebalance", SEES, "Whether a rebalance that failed is tried again."),
    post("settings/retryRebalance", MANAGES, "Sets whether a rebalance that failed is tried again."),
    get("settings/logRedaction", SEES, "Whether logs are redacted."),
    post("settings/logRedaction", SECURES, "Sets whether logs are redacted."),
    get("settings/maxParallelIndexers", SEES, "What is recorded of how many indexes are built at a time."),
    post(
        "settings/maxParallelIndexers",
        MANAGES,
        "Records how many indexes are built at a time; without effect.",
    ),
    get("settings/failover", SEES, "Settings of failovers."),
    post("settings/failover", MANAGES, "Changes settings of failovers."),
    get("settings/developerPreview", SEES, "Whether previews are switched on."),
    post("settings/developerPreview", MANAGES, "Switches previews on."),
    get("settings/audit", SEES_SECURITY, "What goes into the audit trail."),
    post("settings/audit", SECURES, "Sets what goes into the audit trail."),
    get("settings/audit/descriptors", SEES_SECURITY, "The kinds of events in the audit trail."),
    get("settings/security", SEES_SECURITY, "Settings of TLS and of encryption between nodes."),
    post("settings/security", SECURES, "Changes settings of TLS and of encryption between nodes."),
    get("settings/passwordPolicy", SEES_SECURITY, "What passwords have to be like."),
    post("settings/passwordPolicy", SECURES, "Sets what passwords have to be like."),
    get("settings/ldap", SEES_SECURITY, "Settings of logins by LDAP."),
    post("settings/ldap", SECURES, "Changes settings of logins by LDAP."),
    get("settings/saslauthdAuth", SEES_SECURITY, "Settings of logins by saslauthd."),
    post("settings/saslauthdAuth", SECURES, "Changes settings of logins by saslauthd."),
    get("settings/clientCertAuth", SEES_SECURITY, "Whether certificates log clients in."),
    post("settings/clientCertAuth", SECURES, "Sets whether certificates log clients in."),
    // What is known and not built.
    absent("!GET", "controller/createReplication", MANAGES, "Replication to another cluster."),
    absent("!GET", "controller/cancelXDCR/**", MANAGES, "Replication to another cluster."),
    absent("!GET", "controller/uploadClusterCA", SECURES, "An authority of the cluster for clients."),
    absent(
        "!GET",
        "controller/resetAdminPassword",
        Needs::Everything,
        "A new password for the administrator.",
    ),
    absent("!GET", "controller/lockAdmin", Needs::Everything, "A lock of the administrator."),
    absent("!GET", "controller/unlockAdmin", Needs::Everything, "The end of a lock of the administrator."),
];

/// The route of a request.
pub(crate) fn find(method: &str, path: &[String]) -> Option<&'static Route> {
    ROUTES.iter().find(|route| route.has_method(method) && route.has_path(path))
}

/// Whether there is something to be had at a path, be it by another method.
pub(crate) fn knows(path: &[String]) -> bool {
    ROUTES.iter().any(|route| route.has_path(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_is_one_of_the_bucket_that_the_service_of_views_takes() {
        for segment in ["b", "b+0123", "b/17", "b/master;0123", "b;x+y", "b+"] {
            let path = ["couchBase", segment, "_design", "x"].map(str::to_owned);
            let route = find("GET", &path).unwrap();
            assert_eq!(route.parameter("{bucket}", &path), Some("b"), "{segment}");
        }
        let path = ["pools", "default", "buckets", "b+0123", "ddocs"].map(str::to_owned);
        let route = find("GET", &path).unwrap();
        assert_eq!(route.parameter("{bucket}", &path), Some("b+0123"), "other paths name buckets alone");
    }
}
