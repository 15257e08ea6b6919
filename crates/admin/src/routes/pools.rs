//! The cluster as a whole: `/pools` and what hangs below it, `/versions`, `/poolsStreaming`.

use std::collections::BTreeMap;

use axum::http::StatusCode;
use cluster::{auth::Privilege, config};
use serde_json::{Map, Value, json};

use super::{
    alerts as alert_routes, collecting, design_documents, groups, nodes, rebalance,
    storage_totals::{add_quotas, storage_totals},
};
use crate::{
    node::{
        cluster_status::Notice,
        events,
        time::{now_ms, rfc3339},
        versions::{PRODUCT_VERSION, SETTEE_VERSION},
    },
    request::{Call, stream::stream},
};
use http::reply::{self, Outcome, Refusal, json_ok};

pub(super) fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    match path {
        ["pools"] => Ok(json_ok(&pools(call))),
        ["pools", "default" | "nodes"] => Ok(json_ok(&pool(call)?)),
        ["poolsStreaming", "default"] => stream(call, "", render_pool),
        ["pools", "default", "nodeServices"] => node_services(call),
        ["pools", "default", "nodeServicesStreaming"] => stream(call, "", render_node_services),
        ["pools", "default", "terseClusterInfo"] => Ok(json_ok(&terse_cluster_info(call)?)),
        ["pools", "default", "tasks"] => tasks(call),
        ["pools", "default", "rebalanceProgress"] => rebalance::progress(call),
        ["pools", "default", "pendingRetryRebalance"] => {
            Ok(json_ok(&json!({ "retry_rebalance": "not_pending" })))
        }
        ["pools", "default", "remoteClusters" | "replications"] => Ok(json_ok(&json!([]))),
        _ => Ok(reply::not_found()),
    }
}

/// `GET /versions`: for users that have logged in.
pub(super) fn versions() -> Outcome {
    let mut all = version_fields();
    all.insert("settee".into(), json!({ "version": SETTEE_VERSION }));
    Ok(json_ok(&Value::Object(all)))
}

fn version_fields() -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("implementationVersion".into(), PRODUCT_VERSION.into());
    fields.insert("componentsVersion".into(), json!({ "ns_server": PRODUCT_VERSION }));
    fields
}

fn pools(call: &Call) -> Value {
    let meta = &call.meta;
    let uuid = &meta.cluster_uuid;
    let mut fields = version_fields();
    let list = if meta.initialized {
        json!([{
            "name": "default", "uri": format!("/pools/default?uuid={uuid}"),
            "streamingUri": format!("/poolsStreaming/default?uuid={uuid}"),
        }])
    } else {
        json!([])
    };
    fields.insert("pools".into(), list);
    // Couchbase shows an empty list instead of a uuid before initialisation.
    fields.insert("uuid".into(), if meta.initialized { uuid.as_str().into() } else { json!([]) });
    fields.insert("isAdminCreds".into(), call.holds(Privilege::ClusterAdmin, None).into());
    fields.insert("isROAdminCreds".into(), call.holds(Privilege::ClusterRead, None).into());
    fields.insert("isEnterprise".into(), true.into());
    fields.insert("isDeveloperPreview".into(), false.into());
    fields.insert("configProfile".into(), "default".into());
    fields.insert("packageVariant".into(), "settee".into());
    fields.insert("allowedServices".into(), json!(["kv"]));
    fields.insert("settings".into(), json!({}));
    fields.insert("settee".into(), json!({ "version": SETTEE_VERSION }));
    Value::Object(fields)
}

/// Refuses while there is no cluster.
fn require_initialized(call: &Call) -> Result<(), Refusal> {
    if call.meta.initialized {
        Ok(())
    } else {
        Err(reply::with_status(StatusCode::NOT_FOUND, &json!("unknown pool")).into())
    }
}

fn render_pool(call: &Call, _: &str) -> Result<String, Refusal> {
    Ok(pool(call)?.to_string())
}

fn pool(call: &Call) -> Result<Value, Refusal> {
    require_initialized(call)?;
    let meta = &call.meta;
    let uuid = &meta.cluster_uuid;
    let controller = |name: &str| json!({ "uri": format!("/controller/{name}?uuid={uuid}") });
    let mut pool = json!({
        "name": "default",
        "nodes": nodes::list(call),
        "buckets": {
            "uri": format!("/pools/default/buckets?v={}&uuid={uuid}", meta.rev),
            "terseBucketsBase": "/pools/default/b/",
            "terseStreamingBucketsBase": "/pools/default/bs/",
        },
        "bucketNames": bucket_names(call),
        "clusterName": meta.cluster_name,
        "balanced": rebalance::balanced(meta),
        "rebalanceStatus": rebalance::status(meta),
        "rebalanceProgressUri": "/pools/default/rebalanceProgress",
        "stopRebalanceUri": format!("/controller/stopRebalance?uuid={uuid}"),
        "nodeStatusesUri": "/nodeStatuses",
        "nodeServicesUri": format!("/pools/default/nodeServices?v={}", meta.rev),
        "serverGroupsUri": format!("/pools/default/serverGroups?v={}", groups::revision(meta)),
        "checkPermissionsURI": format!("/pools/default/checkPermissions?v={}", meta.version),
        "tasks": { "uri": "/pools/default/tasks?v=0" },
        "remoteClusters": { "uri": format!("/pools/default/remoteClusters?uuid={uuid}") },
        "controllers": {
            "addNode": controller("addNodeV2"), "rebalance": controller("rebalance"),
            "failOver": controller("failOver"), "startGracefulFailover": controller("startGracefulFailover"),
            "reAddNode": controller("reAddNode"), "ejectNode": controller("ejectNode"),
            "setRecoveryType": controller("setRecoveryType"),
            "setAutoCompaction": controller("setAutoCompaction"),
            "clusterLogsCollection": {
                "startURI": format!("/controller/startLogsCollection?uuid={uuid}"),
                "cancelURI": format!("/controller/cancelLogsCollection?uuid={uuid}"),
            },
        },
        "alerts": alerts(call),
        "counters": call.api.events.counts(),
        "maxBucketCount": 30,
        "maxCollectionCount": 1200,
        "maxScopeCount": 1200,
        "minReplicasCount": 0,
        "clusterEncryptionLevel": "control",
        "storageTotals": storage_totals(call, None),
        "settee": {
            "version": SETTEE_VERSION, "missingNodes": missing(call),
            "hasLeader": meta.nodes.len() < 2 || !call.status.stale,
        },
    });
    add_quotas(call, &mut pool);
    Ok(pool)
}

/// Nodes that are in no sum of figures: they have not said theirs of late.
fn missing(call: &Call) -> Vec<String> {
    call.figures.missing(&call.meta).map(|node| nodes::hostname(call, node)).collect()
}

fn alerts(call: &Call) -> Vec<Value> {
    let server_time = rfc3339(now_ms());
    let notices = call.api.control.alerts().into_iter().chain(events::outages(&call.meta, &call.status));
    let shown = notices.filter(|notice| alert_routes::is_shown(call, &notice.subject));
    shown
        .map(|Notice { text, .. }| json!({ "msg": text, "serverTime": server_time, "disableUIPopUp": false }))
        .collect()
}

fn bucket_names(call: &Call) -> Vec<Value> {
    let visible = call.meta.buckets.iter().filter(|(name, _)| call.holds(Privilege::BucketRead, Some(name)));
    visible.map(|(name, bucket)| json!({ "bucketName": name, "uuid": bucket.uuid.0 })).collect()
}

fn node_services(call: &Call) -> Outcome {
    let text = render_node_services(call, "")?;
    Ok(reply::with_body(StatusCode::OK, "application/json", text.into()))
}

fn render_node_services(call: &Call, _: &str) -> Result<String, Refusal> {
    Ok(config::cluster_config(&call.meta, &call.api.control.this_node()))
}

fn terse_cluster_info(call: &Call) -> Result<Value, Refusal> {
    require_initialized(call)?;
    let leader = call.status.leader.and_then(|leader| call.meta.node_by_id(leader));
    let name = leader.map(|node| nodes::otp_node(call, node));
    Ok(json!({
        "clusterUUID": call.meta.cluster_uuid, "clusterName": call.meta.cluster_name,
        "orchestrator": name, "isBalanced": rebalance::balanced(&call.meta), "clusterCompatVersion": "7.6",
        "quotaInfo": { "memoryQuota": call.meta.quotas.data_mb },
    }))
}

/// The rebalance entry that tools look for is always there, and says whether one runs. Buckets that are being loaded here
/// have an entry each, and so have indexes of views that are not up to date on some node.
fn tasks(call: &Call) -> Outcome {
    let mut tasks = vec![rebalance::task(call)];
    let node = call.meta.node(&call.api.control.this_node()).map(|node| nodes::otp_node(call, node));
    for name in call.meta.buckets.keys() {
        tasks.extend(indexing(call, name));
        tasks.extend(compacting(call, name));
        let stats = warm_up(call, name);
        if stats.get("ep_warmup_state").is_some_and(|state| state != "done") {
            tasks.push(json!({
                "type": "warming_up", "bucket": name, "node": node, "status": "running",
                "recommendedRefreshPeriod": 2.0, "stats": stats,
            }));
        }
    }
    tasks.extend(collecting::task(call));
    Ok(json_ok(&Value::Array(tasks)))
}

/// The indexes of a bucket that have yet to get changes, each over all nodes.
fn indexing<'a>(call: &'a Call, bucket: &'a str) -> impl Iterator<Item = Value> + 'a {
    let unfinished = call.figures.indexing(bucket).into_iter().filter(|(_, (done, total))| done < total);
    unfinished.map(move |(design_document, (done, total))| {
        let progress = u128::from(done) * 100 / u128::from(total.max(1));
        json!({
            "type": "indexer", "bucket": bucket, "designDocument": design_document, "status": "running",
            "recommendedRefreshPeriod": 2.0, "changesDone": done, "totalChanges": total,
            "progress": u64::try_from(progress).unwrap_or(100),
        })
    })
}

/// The compactions of a bucket's indexes that somebody asked for, each over all nodes. Their figures are bytes.
fn compacting<'a>(call: &'a Call, bucket: &'a str) -> impl Iterator<Item = Value> + 'a {
    call.figures.compacting(bucket).into_iter().map(move |(design_document, (done, total))| {
        let progress = u128::from(done) * 100 / u128::from(total.max(1));
        let cancel = design_documents::controller(bucket, design_document, "cancelViewCompaction");
        json!({
            "type": "view_compaction", "bucket": bucket, "designDocument": design_document,
            "status": "running", "recommendedRefreshPeriod": 2.0, "changesDone": done,
            "totalChanges": total, "progress": u64::try_from(progress).unwrap_or(100), "cancelURI": cancel,
        })
    })
}

/// What STAT says of a bucket's warm-up here.
fn warm_up(call: &Call, bucket: &str) -> BTreeMap<&'static str, String> {
    let readings = call.api.control.readings(bucket).into_iter();
    let shown = readings.filter_map(|reading| Some((reading.about.stat, reading.value.text()?)));
    let named = shown.flat_map(|(names, text)| names.iter().map(move |name| (*name, text.clone())));
    named.filter(|(name, _)| name.starts_with("ep_warmup")).collect()
}
