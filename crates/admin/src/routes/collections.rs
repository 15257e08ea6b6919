//! Scopes and collections of a bucket. After a 200 the manifest is visible on KV as well.

use base::{Manifest, manifest::Collection};
use cluster::{
    Applied, ClusterError, Command,
    auth::{Privilege, Privileges},
};
use serde_json::{Value, json};

use super::unsupported;
use crate::request::Call;
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok},
};

pub(super) async fn dispatch(call: &Call, bucket: &str, path: &[&str]) -> Outcome {
    let method = call.method.as_str();
    match (method, path) {
        ("GET", []) => show(call, bucket),
        ("POST", []) => create_scope(call, bucket).await,
        ("DELETE", [scope]) => {
            require_collections(call, bucket)?;
            change(call, bucket, Command::DropScope { bucket: bucket.into(), scope: (*scope).into() }).await
        }
        ("POST", [scope, "collections"]) => create_collection(call, bucket, scope).await,
        ("PATCH", [scope, "collections", name]) => update_collection(call, bucket, scope, name).await,
        ("DELETE", [scope, "collections", name]) => {
            require_collections(call, bucket)?;
            let command = Command::DropCollection {
                bucket: bucket.into(),
                scope: (*scope).into(),
                collection: (*name).into(),
            };
            change(call, bucket, command).await
        }
        ("PUT", []) => Err(reply::not_supported("Replacing all scopes at once is not supported yet.")),
        ("POST", ["@ensureManifest", uid]) => ensure_manifest(call, bucket, uid),
        _ => unsupported::path(call, path),
    }
}

fn show(call: &Call, bucket: &str) -> Outcome {
    let held = call.sender().privileges(Some(bucket));
    let info = call.bucket(bucket)?;
    Ok(json_ok(&manifest_json(&info.manifest, &held)))
}

/// The manifest with what the sender may see of it. `maxTTL` is -1 where expiry is switched off.
fn manifest_json(manifest: &Manifest, held: &Privileges) -> Value {
    let sees = |scope: &base::manifest::Scope, collection: &Collection| {
        held.has_in(scope.id, collection.id, Privilege::CollectionsRead)
    };
    let scopes = manifest.scopes.iter().filter_map(|scope| {
        let collections: Vec<Value> =
            scope.collections.iter().filter(|one| sees(scope, one)).map(collection_json).collect();
        let visible = !collections.is_empty() || held.has_in_scope(scope.id, Privilege::CollectionsRead);
        visible.then(|| {
            json!({ "name": scope.name, "uid": format!("{:x}", scope.id.get()), "collections": collections })
        })
    });
    json!({ "uid": format!("{:x}", manifest.uid.get()), "scopes": scopes.collect::<Vec<_>>() })
}

fn collection_json(collection: &Collection) -> Value {
    let max_ttl = match collection.max_ttl_secs {
        None => 0,
        Some(0) => -1,
        Some(seconds) => i64::from(seconds),
    };
    json!({
        "name": collection.name, "uid": format!("{:x}", collection.id.get()), "maxTTL": max_ttl, "history": false,
    })
}

async fn create_scope(call: &Call, bucket: &str) -> Outcome {
    require_collections(call, bucket)?;
    let form = call.form()?;
    let scope = required_name(&form)?;
    change(call, bucket, Command::CreateScope { bucket: bucket.into(), scope }).await
}

async fn create_collection(call: &Call, bucket: &str, scope: &str) -> Outcome {
    require_collections(call, bucket)?;
    let form = call.form()?;
    refuse_history(&form)?;
    let command = Command::CreateCollection {
        bucket: bucket.into(),
        scope: scope.into(),
        collection: required_name(&form)?,
        max_ttl: max_ttl(&form)?.unwrap_or(0),
    };
    change(call, bucket, command).await
}

async fn update_collection(call: &Call, bucket: &str, scope: &str, name: &str) -> Outcome {
    require_collections(call, bucket)?;
    let form = call.form()?;
    refuse_history(&form)?;
    let command = Command::UpdateCollection {
        bucket: bucket.into(),
        scope: scope.into(),
        collection: name.into(),
        max_ttl: max_ttl(&form)?,
    };
    change(call, bucket, command).await
}

/// Refuses buckets that have no collections.
fn require_collections(call: &Call, bucket: &str) -> Result<(), Refusal> {
    if call.bucket(bucket)?.kind == base::bucket::BucketKind::Memcached {
        return Err(ClusterError::CollectionsRefused("Not allowed on this type of bucket".into()).into());
    }
    Ok(())
}

async fn change(call: &Call, bucket: &str, command: Command) -> Outcome {
    let details = format!("{command:?}");
    let uid = match call.change(command, AuditKind::CollectionsChanged, bucket, details).await? {
        Applied::Manifest(uid) => uid,
        Applied::Done => call.bucket(bucket)?.manifest.uid,
    };
    Ok(json_ok(&json!({ "uid": format!("{:x}", uid.get()) })))
}

fn required_name(form: &Form) -> Result<String, Refusal> {
    form.get("name")
        .map(str::to_owned)
        .ok_or_else(|| reply::invalid_field("name", "The value must be supplied"))
}

fn max_ttl(form: &Form) -> Result<Option<i64>, Refusal> {
    let mut errors = cluster::FieldErrors::new();
    let value = form.integer("maxTTL", &mut errors);
    if errors.is_empty() { Ok(value) } else { Err(reply::invalid(&errors)) }
}

fn refuse_history(form: &Form) -> Result<(), Refusal> {
    match form.get("history") {
        None | Some("false") => Ok(()),
        Some("true") => Err(reply::invalid_field("history", "Change history is not supported by Settee.")),
        Some(_) => {
            Err(reply::invalid_field("history", "The value must be one of the following: [true,false]"))
        }
    }
}

/// Commands answer only when the manifest is in use, so any version there was is there.
fn ensure_manifest(call: &Call, bucket: &str, uid: &str) -> Outcome {
    let info = call.bucket(bucket)?;
    match u64::from_str_radix(uid, 16) {
        Ok(uid) if uid <= info.manifest.uid.get() => Ok(reply::empty_ok()),
        Ok(_) => Ok(reply::text(axum::http::StatusCode::GATEWAY_TIMEOUT, "timeout")),
        Err(_) => Err(reply::bad_request("Invalid UID")),
    }
}
