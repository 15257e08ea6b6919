//! Tries every role, granted on everything that it can be granted on, against every route of [`ROUTES`] and the rights of the port of
//! views. The result is compared with what Couchbase 7.6 lets the role do. Where the two differ the difference is listed here, with the
//! reason; a difference that is gone must go from the list.

use std::collections::{BTreeMap, BTreeSet};

use base::BucketUuid;
use cluster::{
    Admin, BucketParams, Command, Initialize, Metadata, NodeInfo, Ports, QuotaChange, UserChange, UserDomain,
    auth::{Credentials, Domain, Identity, Privilege, privileges},
    roles::{ROLES, RoleGrant, Scope},
};

use crate::{
    request::{Named, Route, Sender},
    routes::table::ROUTES,
};

const COUCHBASE: &str = include_str!("../tests/couchbase-7.6-rights.tsv");

/// What Couchbase asks for where this asks for something.
enum There {
    /// This permission.
    Permission(&'static str),
    /// A login, or nothing.
    Open,
    /// It has no such route, or leaves it to a service that is not here.
    None,
}

/// The rights that the port of views asks for, and what they are there.
const OF_VIEWS: [(Privilege, &str); 2] =
    [(Privilege::ViewsRead, "bucket.views!read"), (Privilege::ViewsWrite, "bucket.views!write")];

/// What changes how the cluster is secured, beside settings.
const SECURED: [&str; 5] = [
    "controller/regenerateCertificate",
    "controller/uploadClusterCA",
    "node/controller/loadTrustedCAs",
    "node/controller/reloadCertificate",
    "pools/default/trustedCAs/{id}",
];

/// What Couchbase shows to everybody, or leaves out of its answer what a user may not see.
const OPEN: [&str; 5] = [
    "pools/default/certificate",
    "pools/default/trustedCAs",
    "nodes/self/xdcrSSLPorts",
    "pools/default/stats/range",
    "pools/default/stats/range/**",
];

/// What shows certificates of all nodes.
const CERTIFICATES: [&str; 2] = ["pools/default/certificates", "pools/default/certificate/node/{node}"];
/// What Couchbase 7.6 has not: what is Settee's own, and what came with Couchbase 8.
const NOT_THERE: [&str; 5] =
    ["health/live", "health/ready", "_settee/challenge", "_appTelemetry", "settings/appTelemetry"];

/// What shows statistics of a bucket.
const STATISTICS: [&str; 4] = ["stats", "stats/{stat}", "nodes/{node}/stats", "statsDirectory"];

/// Routes that nothing of Couchbase's is compared with: nodes speak to one another there, Couchbase has them in services, or they
/// say what is missing. Their rights are held by the tests below and by those of `rest`.
const UNCOMPARED: &[&str] = &[
    "",
    "health/live",
    "health/ready",
    "ui/**",
    "uilogin",
    "uilogout",
    "pools/default/remoteClusters",
    "pools/default/replications",
    "pools/default/remoteClusters/**",
    "pools/default/replications/**",
    "pools/default/buckets/{bucket}/scopes",
    "settee/forecast",
    "controller/setAutoCompaction",
    "controller/createReplication",
    "controller/cancelXDCR/**",
    "controller/startLogsCollection",
    "controller/cancelLogsCollection",
    "controller/resetAdminPassword",
    "controller/lockAdmin",
    "controller/unlockAdmin",
    "_appTelemetry",
    "settings/appTelemetry",
    "_settee/challenge",
    "_settee/introduce",
    "_settee/join",
    "_settee/consensus",
    "_settee/members",
    "_settee/propose",
    "_settee/report",
    "_settee/standing",
    "_settee/{name}",
    "_settee/services/{service}",
];

/// What is asked for on routes of Settee alone, by what shows or changes the like in Couchbase.
fn of_settee(route: &Route) -> Option<&'static str> {
    let either = |read, write| if route.method == "GET" { read } else { write };
    Some(match route.path {
        "settee/audit" | "settee/logs" | "settee/connections" => "admin.security!read",
        // Nobody but a full administrator holds it.
        "settee/alerts/webhook" | "settee/archive" => "admin.security.admin!write",
        "settee/probe/metrics" => "admin.stats_export!read",
        "settee/slow" => "logs!read",
        "settee/probe" => either("settings!read", "settings!write"),
        path if path.starts_with("settee/alerts") => either("settings!read", "settings!write"),
        "settee/hot/{bucket}" => "any_collection.docs!read",
        "settee/latency/{bucket}" | "settee/sdk/{bucket}" => "bucket.stats!read",
        "settee/slo" => "any_bucket.settings!read",
        path if path.starts_with("settee/slo/") => either("bucket.settings!read", "bucket.settings!write"),
        "couchBase/{bucket}/**" if ["GET", "POST"].contains(&route.method) => "bucket.views!read",
        path if path.starts_with("couchBase/") => "bucket.views!write",
        _ => return None,
    })
}

/// What is asked for on documents below a bucket.
fn of_documents(route: &Route) -> Option<&'static str> {
    let rest = route.path.strip_prefix("pools/default/buckets/{bucket}/")?;
    let is_default = rest.starts_with("docs");
    if !is_default && !rest.starts_with("scopes/{scope}/collections/{collection}/docs") {
        return None;
    }
    Some(match (route.method, is_default) {
        ("GET", true) => "default.docs!read",
        ("DELETE", true) => "default.docs!delete",
        (_, true) => "default.docs!upsert",
        ("GET", false) => "collection.docs!read",
        ("DELETE", false) => "collection.docs!delete",
        (_, false) => "collection.docs!upsert",
    })
}

fn there(route: &Route) -> There {
    use There::{Open, Permission};
    let is_get = route.method == "GET";
    let read_or = |read, write| Permission(if is_get { read } else { write });
    match route.path {
        "versions" | "whoami" | "pools/default/checkPermissions" | "controller/changePassword" => Open,
        path if OPEN.contains(&path) => Open,
        path if NOT_THERE.contains(&path) => There::None,
        "metrics" | "prometheus_sd_config" => Permission("admin.stats_export!read"),
        "logs" => Permission("logs!read"),
        "diag/eval" => Permission("admin.diag!write"),
        "pools/default/tasks" | "pools/default/rebalanceProgress" | "pools/default/pendingRetryRebalance" => {
            Permission("tasks!read")
        }
        path if CERTIFICATES.contains(&path) => Permission("admin.security!read"),
        "pools/default/serverGroups" | "pools/default/serverGroups/{group}" => {
            read_or("server_groups!read", "server_groups!write")
        }
        "pools/default/buckets" => read_or("any_bucket.settings!read", "buckets!create"),
        "pools/default/buckets/{bucket}" if route.method == "DELETE" => Permission("bucket!delete"),
        "pools/default/buckets/{bucket}" => read_or("bucket.settings!read", "bucket.settings!write"),
        "pools/default/buckets/{bucket}/scopes" if route.method == "POST" => {
            Permission("bucket.collections!write")
        }
        "pools/default/buckets/{bucket}/scopes" if is_get => Permission("bucket.collections!read"),
        "pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}" => {
            Permission("bucket.collections!read")
        }
        "pools/default/buckets/{bucket}/ddocs" => Permission("bucket.views!read"),
        "pools/default/b/{bucket}"
        | "pools/default/bs/{bucket}"
        | "pools/default/bucketsStreaming/{bucket}" => Permission("bucket.settings!read"),
        "nodes/{node}" | "nodeStatuses" => Permission("nodes!read"),
        "clusterInit" | "nodeInit" | "nodes/self/controller/settings" => Permission("admin.setup!write"),
        "controller/hardResetNode" => Permission("admin.reset!write"),
        "controller/setAutoCompaction" if is_get => There::None,
        "controller/setAutoCompaction" => Permission("settings.autocompaction!write"),
        path if SECURED.contains(&path) => Permission("admin.security!write"),
        "settings/rbac/users/external/{user}" => Permission("admin.security.external!write"),
        "settings/rbac/users/{domain}/{user}" | "settings/rbac/users/local/{user}" if !is_get => {
            Permission("admin.security.local!write")
        }
        // Couchbase lets both kinds of security administrators change groups.
        "settings/rbac/groups/{group}" if !is_get => Permission("admin.security!write"),
        path => {
            let bucket = path.strip_prefix("pools/default/buckets/{bucket}/");
            match (bucket, path.split('/').next().unwrap_or_default()) {
                (Some("nodes"), _) => Permission("bucket.settings!read"),
                (Some(rest), _) if STATISTICS.contains(&rest) => Permission("bucket.stats!read"),
                (Some(rest), _) if rest.starts_with("ddocs/") => Permission("bucket.views!compact"),
                (Some("controller/doFlush"), _) => Permission("bucket!flush"),
                (Some(rest), _) if rest.starts_with("controller/") => Permission("bucket!compact"),
                (Some(rest), _) if rest.starts_with("scopes/{scope}") && !rest.contains("/docs") => {
                    Permission("scope.collections!write")
                }
                (None, "settings") if path.starts_with("settings/rbac/") => Permission("admin.security!read"),
                (None, "settings") => settings(path.strip_prefix("settings/").unwrap_or_default(), is_get),
                (None, "node") => Permission("admin.setup!write"),
                (None, "controller") if !is_absent(path) => Permission("pools!write"),
                (None, "pools" | "poolsStreaming") if is_get && !is_absent(path) => Permission("pools!read"),
                (None, "pools") if path == "pools/default" || path.contains("addNode") => {
                    Permission("pools!write")
                }
                _ => of_settee(route).or_else(|| of_documents(route)).map_or(There::None, Permission),
            }
        }
    }
}

/// A setting of the cluster, by what follows `settings/`.
fn settings(name: &str, is_get: bool) -> There {
    let read_or = |read, write| There::Permission(if is_get { read } else { write });
    match name {
        "audit" | "audit/descriptors" | "security" | "passwordPolicy" | "clientCertAuth" => {
            read_or("admin.security!read", "admin.security!write")
        }
        "ldap" | "saslauthdAuth" => read_or("admin.security.external!read", "admin.security.external!write"),
        "logRedaction" => read_or("settings!read", "admin.security!write"),
        "indexes" | "maxParallelIndexers" => read_or("settings.indexes!read", "settings.indexes!write"),
        "autoCompaction" => read_or("settings.autocompaction!read", "settings.autocompaction!write"),
        "web" | "developerPreview" => read_or("settings!read", "admin.setup!write"),
        _ => read_or("settings!read", "settings!write"),
    }
}

/// Requests that are told to be missing, those of replication between clusters among them, and the two about logs, which only full
/// administrators may send.
fn is_absent(path: &str) -> bool {
    let name = path.rsplit('/').find(|part| *part != "**").unwrap_or_default();
    let absent = ["remoteClusters", "replications", "createReplication", "cancelXDCR", "startLogsCollection"];
    absent.contains(&name)
        || ["cancelLogsCollection", "resetAdminPassword", "lockAdmin", "unlockAdmin"].contains(&name)
}

/// A state with buckets, scopes, a collection and a user.
fn state() -> Metadata {
    let credentials = Credentials::new("password", [7; 32]);
    let user = UserChange { credentials: Some(credentials.clone()), ..user() };
    let admin = Admin { name: "Administrator".into(), credentials };
    let params = || BucketParams { ram_quota_mb: Some(100), replicas: Some(0), ..BucketParams::default() };
    let bucket = |name: &str| Command::CreateBucket {
        name: name.into(),
        uuid: BucketUuid(format!("{name:0>32}")),
        params: params(),
    };
    let scope = |name: &str| Command::CreateScope { bucket: "b".into(), scope: name.into() };
    let commands = [
        Command::SetNode(NodeInfo::first("1".repeat(32), "127.0.0.1".into(), Ports::default())),
        Command::Initialize(Initialize { admin, cluster_name: None, quotas: QuotaChange::default() }),
        bucket("b"),
        bucket("other"),
        scope("s"),
        scope("t"),
        Command::CreateCollection {
            bucket: "b".into(),
            scope: "s".into(),
            collection: "c".into(),
            max_ttl: 0,
        },
        Command::PutUser(user),
    ];
    commands
        .iter()
        .fold(Metadata::new("c".repeat(32), 1024), |state, command| state.apply(command).unwrap().0)
}

/// The same with the grants given to the user.
fn with_grant(state: &Metadata, grants: &str) -> Metadata {
    let roles = Some(RoleGrant::parse_list(grants).unwrap());
    state.apply(&Command::PutUser(UserChange { roles, ..user() })).unwrap().0
}

fn user() -> UserChange {
    UserChange {
        domain: UserDomain::Local,
        name: "u".into(),
        uuid: "u".into(),
        full_name: None,
        credentials: None,
        roles: None,
        groups: None,
        locked: None,
        now_ms: 0,
    }
}

/// What a role can be granted on, as the table of Couchbase names it.
fn targets(scope: Scope) -> &'static [&'static str] {
    match scope {
        Scope::Cluster => &["cluster"],
        Scope::Bucket => &["*", "b", "other"],
        Scope::BucketScope => &["*", "b", "other", "b:s", "b:t"],
        Scope::Collection => &["*", "b", "other", "b:s", "b:t", "b:s:c"],
    }
}

fn sender() -> Identity {
    Identity::unproved("u", Domain::Local)
}

fn is_served(state: &Metadata, route: &Route) -> bool {
    let of = |name, value| route.path.contains(name).then_some(value);
    let named =
        Named { bucket: of("{bucket}", "b"), scope: of("{scope}", "s"), collection: of("{collection}", "c") };
    Sender { meta: state, user: &sender() }.lacks(route.needs, named).is_none()
}

/// Permission and target, with the roles that hold it there.
fn couchbase() -> BTreeMap<(&'static str, &'static str), BTreeSet<&'static str>> {
    let lines = COUCHBASE.lines().filter(|line| !line.starts_with('#'));
    let parsed = lines.map(|line| {
        let mut columns = line.split('\t');
        let mut column = || columns.next().unwrap_or_default();
        ((column(), column()), column().split(' ').collect())
    });
    parsed.collect()
}

/// Roles, permissions (`*`: any), whether they are held here and not there, or the other way round.
type Difference = (&'static [&'static str], &'static [&'static str], bool);

const DIFFERENCES: &[Difference] = &[
    // What KV tells them as well: the scopes and collections that they may use.
    (
        &["data_reader", "data_writer", "query_select", "query_insert", "query_update", "query_delete"],
        &["bucket.collections!read"],
        true,
    ),
    // Names and versions of nodes, without which a tool does not find its way.
    (
        &["scope_admin", "external_stats_reader", "sync_gateway_configurator", "sync_gateway_dev_ops"],
        &["pools!read"],
        true,
    ),
    // A manager of users may know that Settee asks no outside directory.
    (&["security_admin_local"], &["admin.security.external!read"], true),
    // Members trust what answers at a member's address; the administrator's password is his own; a reset loses data.
    (&["cluster_admin"], &["pools!write", "admin.setup!write", "admin.reset!write"], false),
    // Backups need data and buckets, not the cluster.
    (
        &["backup_admin"],
        &[
            "pools!write",
            "server_groups!write",
            "settings!write",
            "settings.indexes!write",
            "settings.autocompaction!write",
        ],
        false,
    ),
    // Each of them manages its own kind of users; the rest of security is for both kinds together.
    (&["security_admin_local"], &["admin.security!write"], false),
    (&["security_admin_external"], &["admin.security!write", "admin.security.external!write"], false),
    // Other buckets are none of its business.
    (&["bucket_admin"], &["bucket.settings!read"], false),
    (&["data_monitoring"], &["tasks!read"], false),
    // Roles of services that are not here give what they give on documents at most.
    (
        &[
            "eventing_admin",
            "eventing_manage_functions",
            "fts_admin",
            "fts_searcher",
            "mobile_sync_gateway",
            "query_external_access",
            "query_manage_external_functions",
            "query_manage_functions",
            "query_manage_index",
            "query_manage_sequences",
            "query_system_catalog",
            "query_use_sequences",
            "sync_gateway_configurator",
            "sync_gateway_dev_ops",
        ],
        &["*"],
        false,
    ),
    // They see what functions make of documents. A document itself takes the right to it.
    (
        &["views_admin", "views_reader"],
        &["default.docs!read", "collection.docs!read", "any_collection.docs!read"],
        false,
    ),
    // Design documents of a bucket are no reason to look at the cluster.
    (
        &["views_admin"],
        &[
            "tasks!read",
            "server_groups!read",
            "nodes!read",
            "logs!read",
            "settings!read",
            "settings.indexes!read",
            "settings.autocompaction!read",
            "bucket.settings!read",
            "any_bucket.settings!read",
            "bucket.stats!read",
        ],
        false,
    ),
    // What replicates in writes documents with their metadata, by one right here and another in Couchbase.
    (
        &["replication_target"],
        &["default.docs!upsert", "default.docs!delete", "collection.docs!upsert", "collection.docs!delete"],
        true,
    ),
];

#[test]
fn every_role_may_what_it_may_in_couchbase() {
    let (state, there_holds) = (state(), couchbase());
    let known: BTreeSet<&str> = there_holds.values().flatten().copied().collect();
    let mut used = BTreeSet::new();
    let mut unexplained = BTreeSet::new();
    for role in ROLES.iter().filter(|role| known.contains(role.id)) {
        for target in targets(role.scope) {
            let grant =
                if *target == "cluster" { role.id.to_owned() } else { format!("{}[{target}]", role.id) };
            let state = with_grant(&state, &grant);
            let of_routes = ROUTES.iter().filter_map(|route| match there(route) {
                There::Permission(permission) => Some((permission, is_served(&state, route))),
                There::Open | There::None => None,
            });
            let rights = privileges(&state, &sender(), Some("b"));
            let of_views = OF_VIEWS.map(|(privilege, permission)| (permission, rights.has(privilege)));
            for (permission, here) in of_routes.chain(of_views) {
                let there =
                    there_holds.get(&(permission, *target)).is_some_and(|roles| roles.contains(role.id));
                if here == there {
                    continue;
                }
                let explains = |(roles, permissions, more): &Difference| {
                    *more == here
                        && (roles.contains(&role.id) || roles.contains(&"*"))
                        && (permissions.contains(&permission) || permissions.contains(&"*"))
                };
                match DIFFERENCES.iter().position(explains) {
                    Some(at) => {
                        used.insert(at);
                    }
                    None => {
                        unexplained
                            .insert(format!("{} {grant} {permission}", if here { "MORE" } else { "less" }));
                    }
                }
            }
        }
    }
    assert!(unexplained.is_empty(), "{unexplained:#?}");
    let gone: Vec<_> = (0..DIFFERENCES.len()).filter(|at| !used.contains(at)).collect();
    assert!(gone.is_empty(), "differences that are none any more: {gone:?}");
}

#[test]
fn a_new_route_is_compared_with_couchbase_or_listed() {
    let is_alone = |route: &&Route| matches!(there(route), There::None);
    let paths: BTreeSet<&str> = ROUTES.iter().filter(is_alone).map(|route| route.path).collect();
    assert_eq!(paths, UNCOMPARED.iter().copied().collect());
}

/// Lists the routes for full administrators, for roles with the right over security, and for everybody. A new route or role
/// makes this test fail until somebody has decided where it belongs.
#[test]
fn what_makes_members_and_administrators_is_for_very_few() {
    let state = state();
    let served = |path: &str| -> BTreeSet<&str> {
        let route = ROUTES.iter().find(|route| route.path == path && route.method != "GET").unwrap();
        let roles = ROLES.iter().filter(|role| {
            let grants = targets(role.scope).iter().map(|target| match *target {
                "cluster" => role.id.to_owned(),
                target => format!("{}[{target}]", role.id),
            });
            grants.into_iter().any(|grant| is_served(&with_grant(&state, &grant), route))
        });
        roles.map(|role| role.id).collect()
    };
    for path in [
        "settings/web",
        "controller/hardResetNode",
        "controller/addNode",
        "controller/addNodeV2",
        "pools/default/serverGroups/{group}/addNode",
        "node/controller/doJoinCluster",
        "node/controller/rename",
        "nodeInit",
        "nodes/self/controller/settings",
        "_settee/introduce",
        "_settee/join",
        "diag/eval",
    ] {
        assert_eq!(served(path), BTreeSet::from(["admin"]), "{path}");
    }
    assert_eq!(served("settings/security"), BTreeSet::from(["admin", "security_admin"]));
    let both = with_grant(&state, "cluster_admin,security_admin");
    let add = ROUTES.iter().find(|route| route.path == "controller/addNode").unwrap();
    assert!(is_served(&both, add));
    for path in [
        "_settee/{name}",
        "_settee/consensus",
        "_settee/members",
        "_settee/propose",
        "_settee/report",
        "_settee/standing",
        "_settee/services/{service}",
    ] {
        assert!(served(path).is_empty(), "no user is a node: {path}");
    }
}

#[test]
fn every_route_can_be_reached_and_every_settings_object_has_one() {
    use crate::routes::{settings_paths, table::find};
    for (at, route) in ROUTES.iter().enumerate() {
        let path: Vec<String> =
            route.path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect();
        let method = if ["*", "!GET"].contains(&route.method) { "POST" } else { route.method };
        let found = find(method, &path).map(|found| ROUTES.iter().position(|route| route == found));
        assert_eq!(found, Some(Some(at)), "{} {}", route.method, route.path);
    }
    for path in settings_paths() {
        let path: Vec<String> = ["settings", path].map(str::to_owned).into();
        assert!(find("GET", &path).is_some() && find("POST", &path).is_some(), "{path:?}");
    }
    assert!(find("POST", &["settings".to_owned(), "nonsense".to_owned()]).is_none());
}
