//! Buckets: listing, creating, changing, flushing, dropping, and the configurations clients bootstrap from.

use axum::http::{HeaderValue, StatusCode, header};
use base::bucket::EvictionPolicy;
use cluster::{
    BucketChange, BucketInfo, BucketParams, ClusterError, Command, FieldErrors, LegacyParams,
    auth::Privilege, bucket, config,
};
use plan::{
    live::{Live, Verdict, WhatIf},
    sizing::Rule,
};
use serde_json::{Value, json};

use super::{
    bucket_view, collections, design_documents, documents, nodes, sizing, stats, unsupported,
    verifiers::hashed,
};
use crate::request::{Api, Call, stream::stream};
use http::{
    AuditKind,
    reply::{self, Outcome, Refusal, json_ok},
};

const MIB: u64 = 1024 * 1024;

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    let method = call.method.as_str();
    match (method, path) {
        ("GET", []) => list(call),
        ("POST", []) => create(call).await,
        ("GET", [name]) => one(call, name),
        ("POST", [name]) => update(call, name).await,
        ("DELETE", [name]) => delete(call, name).await,
        ("POST", [name, "controller", "doFlush"]) => flush(call, name).await,
        ("POST", [name, "controller", "compactBucket" | "compactDatabases"]) => compact(call, name).await,
        ("POST", [_, "controller", "cancelBucketCompaction" | "cancelDatabasesCompaction"]) => {
            Err(reply::not_supported("A compaction cannot be cancelled: it runs in short steps by itself."))
        }
        ("GET", [name, "nodes"]) => node_list(call, name),
        ("GET", [name, "nodes", node, "stats"]) => stats::of_bucket(call, name, Some(node)).await,
        ("GET", [name, "stats"]) => stats::of_bucket(call, name, None).await,
        ("GET", [name, "stats", stat]) => stats::one_by_node(call, name, stat).await,
        ("GET", [name, "statsDirectory"]) => stats::directory(call, name),
        ("GET", [name, "ddocs"]) => design_documents::list(call, name),
        ("POST", [name, "ddocs", document, "controller", operation]) => {
            design_documents::operate(call, name, document, operation).await
        }
        (_, [name, "docs", rest @ ..]) => {
            documents::dispatch(call, name, ("_default", "_default"), rest.first().copied()).await
        }
        (_, [name, "scopes", scope, "collections", collection, "docs", rest @ ..]) => {
            documents::dispatch(call, name, (scope, collection), rest.first().copied()).await
        }
        (_, [name, "scopes", rest @ ..]) => collections::dispatch(call, name, rest).await,
        _ => unsupported::path(call, path),
    }
}

/// The buckets the sender may see.
fn list(call: &Call) -> Outcome {
    let map = !call.query.is_on("skipMap");
    let visible: Vec<Value> = call
        .meta
        .buckets
        .iter()
        .filter(|(name, _)| call.holds(Privilege::BucketRead, Some(name)))
        .map(|(name, info)| bucket_view::full(call, name, info, map))
        .collect();
    Ok(json_ok(&visible.into()))
}

fn one(call: &Call, name: &str) -> Outcome {
    let info = call.bucket(name)?;
    Ok(json_ok(&bucket_view::full(call, name, info, !call.query.is_on("skipMap"))))
}

async fn create(call: &Call) -> Outcome {
    let form = call.form()?;
    let name = form.get("name");
    let mut params = match BucketParams::from_form(form.fields()) {
        Ok(params) => params,
        Err(errors) => return Err(refused(call, name.unwrap_or_default(), None, errors)),
    };
    let Some(name) = name else {
        let errors = FieldErrors::from([("name".into(), "Bucket name needs to be specified".into())]);
        return Err(refused(call, "", Some(&params), errors));
    };
    check_openings(call, name, &mut params)?;
    let errors = bucket::check(&call.meta, name, &params, true);
    if !errors.is_empty() {
        return Err(refused(call, name, Some(&params), errors));
    }
    if call.query.is_on("just_validate") {
        return Ok(json_ok(&summaries(call, name, Some(&params), &FieldErrors::new())));
    }
    // A node that has not heard that the last one was dropped would acknowledge writes to that one.
    if call.api.control.is_held_elsewhere(name).await {
        let body = json!({ "_": "Bucket with given name still exists" });
        return Ok(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &body));
    }
    hash_password(&mut params).await?;
    let uuid = base::BucketUuid(Api::new_uuid()?);
    let command = Command::CreateBucket { name: name.to_owned(), uuid, params };
    change(call, name, command, "created").await?;
    let mut accepted = reply::with_body(StatusCode::ACCEPTED, "text/html", axum::body::Body::empty());
    if let Ok(location) = HeaderValue::from_str(&format!("/pools/default/buckets/{name}")) {
        accepted.headers_mut().insert(header::LOCATION, location);
    }
    Ok(accepted)
}

async fn update(call: &Call, name: &str) -> Outcome {
    let uuid = &call.bucket(name)?.uuid;
    let form = call.form()?;
    // As in Couchbase, an edit leaves it as it is, whatever the value is.
    let mut fields = form.fields().to_vec();
    fields.retain(|(name, _)| !["replicaIndex", sizing::FORCE].contains(&name.as_str()));
    let mut params = match BucketParams::from_form(&fields) {
        Ok(params) => params,
        Err(errors) => return Err(refused(call, name, None, errors)),
    };
    check_openings(call, name, &mut params)?;
    let mut errors = bucket::check(&call.meta, name, &params, false);
    if !sizing::is_forced(call, &form) && !call.query.is_on("ignore_warnings") {
        for (field, text) in too_small(call, name, &params) {
            errors.entry(field.into()).or_insert(text);
        }
    }
    if !errors.is_empty() {
        return Err(refused(call, name, Some(&params), errors));
    }
    if call.query.is_on("just_validate") {
        return Ok(json_ok(&summaries(call, name, Some(&params), &FieldErrors::new())));
    }
    hash_password(&mut params).await?;
    let command = call.meta.change_of_bucket(name, uuid, BucketChange::Update(Box::new(params)));
    change(call, name, command, "changed").await?;
    Ok(reply::empty_ok())
}

/// Opening a bucket to clients without a user needs the right over security. Managers of buckets may not read documents, and
/// must not open them to themselves. A request that changes nothing needs nothing: older tools send an empty password along. Nor must it
/// change anything later: another node may have closed the bucket meanwhile.
fn check_openings(call: &Call, name: &str, params: &mut BucketParams) -> Result<(), Refusal> {
    if call.holds(Privilege::SecurityAdmin, None) {
        return Ok(());
    }
    let current = call.meta.buckets.get(name).map(|bucket| bucket.legacy.clone()).unwrap_or_default();
    let wanted = &params.legacy;
    let password = wanted.sasl_password.as_deref();
    let changes = wanted.passwordless.is_some_and(|on| on != current.passwordless)
        || wanted.memcached_port.is_some_and(|on| on != current.memcached_port)
        || password.is_some_and(|password| password != current.sasl_password.as_deref().unwrap_or_default());
    if changes {
        return Err(call.denied(Privilege::SecurityAdmin, None));
    }
    params.legacy = LegacyParams::default();
    Ok(())
}

/// What a bucket would have no room for on the nodes that there are: more copies, or what it cannot eject in less quota. Mutations would
/// be refused for good. The same goes for a bucket that evicts keys and is to keep all of them. A cut below what is used otherwise is
/// carried out: values leave memory.
fn too_small(call: &Call, name: &str, params: &BucketParams) -> Vec<(&'static str, String)> {
    let Some(info) = call.meta.buckets.get(name) else { return Vec::new() };
    let copies = params.replicas.map_or(info.copies(), |replicas| usize::from(replicas) + 1);
    let quota_mb = params.ram_quota_mb.unwrap_or(info.ram_quota_mb);
    let shortage = |copies, quota_mb| {
        let text = sizing::of_change(&call.meta, &call.figures, (name, info), copies, quota_mb)?;
        Some(format!("{text} Give it more, add nodes, or force it ({}=true).", sizing::FORCE))
    };
    let cut = (quota_mb < info.ram_quota_mb).then(|| shortage(info.copies(), quota_mb)).flatten();
    let cut = cut.map(|text| ("ramQuotaMB", format!("RAM quota cannot be set below current usage. {text}")));
    let more = (copies > info.copies()).then(|| shortage(copies, quota_mb)).flatten();
    let is_switched =
        info.eviction == EvictionPolicy::FullEviction && params.eviction == Some(EvictionPolicy::ValueOnly);
    let keys = is_switched.then(|| too_small_for_keys(call, (name, info), copies, quota_mb)).flatten();
    let all = [cut, more.map(|text| ("replicaNumber", text)), keys.map(|text| ("evictionPolicy", text))];
    all.into_iter().flatten().collect()
}

/// Why a bucket that evicts keys cannot keep all of them in memory; nothing where it can. How long keys are is not known of those that
/// have left memory, so their own bytes are not counted.
fn too_small_for_keys(
    call: &Call,
    (name, info): (&str, &BucketInfo),
    copies: usize,
    quota_mb: u64,
) -> Option<String> {
    let rule = Rule::SETTEE;
    let floors = call.figures.of_bucket(name).map(|stats| {
        let items = stats.items.saturating_add(stats.replica_items);
        items.saturating_mul(rule.metadata_bytes).max(stats.mem_floor)
    });
    let floors: Vec<u64> = floors.collect();
    let nodes = call.meta.active_nodes().count() as u64;
    // Nodes that tell no figures are taken to hold as much as the others.
    let total = floors.iter().sum::<u64>().checked_div(floors.len() as u64)?.saturating_mul(nodes);
    let live = Live {
        floor: total as f64 * copies as f64 / info.copies().max(1) as f64,
        values: 0.0,
        copies: u32::try_from(copies).unwrap_or(u32::MAX),
        quota: quota_mb.saturating_mul(MIB) as f64,
        nodes: u32::try_from(nodes).unwrap_or(u32::MAX),
    };
    let need = live.needs(WhatIf::AsItIs, &rule);
    let least = need.least / f64::from(need.there_are.max(1)) / MIB as f64;
    (need.verdict() == Verdict::TooSmall).then(|| {
        format!(
            "Bucket \"{name}\": with value eviction all keys stay in memory. With headroom their metadata alone need a quota of \
             {:.0} MiB on each of {nodes} nodes; its quota there is {quota_mb} MiB. Give it more, add nodes, or force it ({}=true).",
            least.ceil(),
            sizing::FORCE,
        )
    })
}

async fn delete(call: &Call, name: &str) -> Outcome {
    let uuid = call.bucket(name)?.uuid.clone();
    let command = call.meta.change_of_bucket(name, &uuid, BucketChange::Delete);
    let dropped = call.api.control.submit(command).await;
    let now = call.api.control.metadata();
    if now.buckets.get(name).is_some_and(|bucket| bucket.uuid == uuid)
        && let Err(error) = dropped
    {
        call.audit_end(&Err::<(), _>(error.clone()), AuditKind::BucketChanged, name, "dropped");
        return Err(error.into());
    }
    // It is dropped, perhaps by another request: an error was of another bucket, which could not be opened. Said before anything is waited for, since the client may go.
    call.audit(AuditKind::BucketChanged, name, "dropped");
    if call.api.control.all_follow().await {
        return Ok(reply::empty_ok());
    }
    let body = json!({ "_": "Bucket deletion not yet complete, but will continue.\r\n" });
    Ok(reply::with_status(StatusCode::INTERNAL_SERVER_ERROR, &body))
}

async fn flush(call: &Call, name: &str) -> Outcome {
    let bucket = call.bucket(name)?;
    if !bucket.flush_enabled {
        let body = json!({ "_": "Flush is disabled for the bucket" });
        return Ok(reply::with_status(StatusCode::BAD_REQUEST, &body));
    }
    match call.api.control.flush_bucket(name, &bucket.uuid).await {
        // Not now: a rebalance runs, or nodes are missing.
        Err(ClusterError::MembersRefused(text)) => {
            return Ok(reply::with_status(StatusCode::SERVICE_UNAVAILABLE, &json!({ "_": text })));
        }
        flushed => {
            call.audit_end(&flushed, AuditKind::BucketChanged, name, "flushed");
            flushed?;
        }
    }
    Ok(reply::empty_ok())
}

async fn compact(call: &Call, name: &str) -> Outcome {
    call.bucket(name)?;
    call.api.control.compact_bucket(name).await?;
    Ok(reply::empty_ok())
}

/// Has a change of a bucket made, and auditors told; a refusal that only the server's own state knows gets the summaries as well.
async fn change(call: &Call, name: &str, command: Command, what: &str) -> Result<(), Refusal> {
    let ended = call.api.control.submit(command).await;
    call.audit_end(&ended, AuditKind::BucketChanged, name, what);
    match ended {
        Ok(_) => Ok(()),
        Err(ClusterError::Invalid(errors)) => Err(refused(call, name, None, errors)),
        Err(error) => Err(error.into()),
    }
}

/// Hashes a bucket's own password, off the event loop.
async fn hash_password(params: &mut BucketParams) -> Result<(), Refusal> {
    let Some(password) = params.legacy.sasl_password.clone().filter(|password| !password.is_empty()) else {
        return Ok(());
    };
    params.legacy.credentials = Some(hashed(password).await?);
    Ok(())
}

/// 400 with the refusals and what the quotas would be, as Couchbase's console shows them.
fn refused(call: &Call, name: &str, params: Option<&BucketParams>, errors: FieldErrors) -> Refusal {
    reply::with_status(StatusCode::BAD_REQUEST, &summaries(call, name, params, &errors)).into()
}

fn summaries(call: &Call, name: &str, params: Option<&BucketParams>, errors: &FieldErrors) -> Value {
    let meta = &call.meta;
    let total = meta.quotas.data_mb.saturating_mul(MIB);
    let others = total.saturating_sub(bucket::free_quota_mb(meta, Some(name)).saturating_mul(MIB));
    let asked = params.and_then(|params| params.ram_quota_mb);
    let megabytes = asked.or_else(|| Some(meta.buckets.get(name)?.ram_quota_mb)).unwrap_or_default();
    let this = megabytes.saturating_mul(MIB);
    let stats = call.figures.sum(name);
    let disk = |figure: fn(&::stats::SystemStats) -> u64| -> u64 {
        call.figures.nodes().map(|(_, figures)| figure(&figures.system)).sum()
    };
    let (disk_total, disk_used) = (disk(|system| system.disk_total), disk(|system| system.disk_used));
    let free = i128::from(total) - i128::from(others) - i128::from(this);
    json!({
        "errors": errors,
        "summaries": {
            "ramSummary": {
                "total": total, "otherBuckets": others, "nodesCount": meta.nodes.len(),
                "perNodeMegs": megabytes, "thisAlloc": this, "thisUsed": stats.mem_used,
                "free": i64::try_from(free).unwrap_or(i64::MIN),
            },
            "hddSummary": {
                "total": disk_total, "otherData": disk_used.saturating_sub(stats.disk_used),
                "otherBuckets": 0, "thisUsed": stats.disk_used, "free": disk_total.saturating_sub(disk_used),
            },
        },
    })
}

/// `/pools/default/b/{bucket}`: the configuration of the KV protocol.
pub(super) fn terse(call: &Call, name: &str) -> Outcome {
    let text = render_terse(call, name)?;
    Ok(reply::with_body(StatusCode::OK, "application/json", text.into()))
}

/// `/pools/default/bs/{bucket}`: the same whenever it changes.
pub(super) fn terse_streaming(call: &Call, name: &str) -> Outcome {
    stream(call, name, render_terse)
}

/// `/pools/default/bucketsStreaming/{bucket}`: the form old clients bootstrap from.
pub(super) fn full_streaming(call: &Call, name: &str) -> Outcome {
    stream(call, name, render_full)
}

fn render_terse(call: &Call, name: &str) -> Result<String, Refusal> {
    call.bucket(name)?;
    let config = config::bucket_config(&call.meta, name, &call.api.control.this_node());
    config.ok_or_else(|| reply::not_found().into())
}

fn render_full(call: &Call, name: &str) -> Result<String, Refusal> {
    let info = call.bucket(name)?;
    Ok(Value::Object(bucket_view::streamed(call, name, info, true)).to_string())
}

fn node_list(call: &Call, name: &str) -> Outcome {
    call.bucket(name)?;
    let servers: Vec<Value> = config::shown_nodes(&call.meta)
        .into_iter()
        .map(|node| {
            let host = nodes::hostname(call, node);
            let uri = format!("/pools/default/buckets/{name}/nodes/{host}");
            json!({ "hostname": host, "uri": uri, "stats": { "uri": format!("{uri}/stats") } })
        })
        .collect();
    Ok(json_ok(&json!({ "servers": servers })))
}
