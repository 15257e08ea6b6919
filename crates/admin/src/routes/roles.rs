//! The roles that can be granted, those that the sender has, and whether it suffices for something.

use std::collections::BTreeMap;

use axum::http::{Method, StatusCode};
use cluster::{
    auth::{Domain, effective_grants},
    roles::{ROLES, RoleGrant, Scope, Target},
};
use serde_json::{Map, Value, json};

use super::users;
use crate::request::Call;
use http::{
    permissions,
    reply::{self, Outcome, json_ok},
};

/// `GET /settings/rbac/roles`: every role, once for the whole cluster and once per bucket where it has parameters.
pub(super) fn list(call: &Call) -> Outcome {
    let mut all: Vec<Value> = Vec::new();
    for role in ROLES {
        let targets: Vec<Target> = match role.scope {
            Scope::Cluster => vec![Target::Everything],
            Scope::Bucket | Scope::BucketScope | Scope::Collection => {
                let buckets = call.meta.buckets.keys();
                let named = buckets.map(|bucket| Target::Bucket {
                    bucket: bucket.clone(),
                    scope: None,
                    collection: None,
                });
                std::iter::once(Target::AnyBucket).chain(named).collect()
            }
        };
        for target in targets {
            let mut one = grant_json(&RoleGrant { role: role.id.into(), target });
            one.insert("name".into(), role.name.into());
            one.insert("desc".into(), role.desc.into());
            all.push(one.into());
        }
    }
    Ok(json_ok(&all.into()))
}

/// A grant as users and groups show it: a scoped role names bucket, scope and collection, `*` standing for all.
pub(super) fn grant_json(grant: &RoleGrant) -> Map<String, Value> {
    let mut fields = Map::new();
    fields.insert("role".into(), grant.role.as_str().into());
    let (bucket, scope, collection) = match &grant.target {
        Target::Everything => return fields,
        Target::AnyBucket => ("*", None, None),
        Target::Bucket { bucket, scope, collection } => {
            (bucket.as_str(), scope.as_deref(), collection.as_deref())
        }
    };
    fields.insert("bucket_name".into(), bucket.into());
    let kind = grant.definition().map_or(Scope::Bucket, |role| role.scope);
    if matches!(kind, Scope::BucketScope | Scope::Collection) {
        fields.insert("scope_name".into(), scope.unwrap_or("*").into());
    }
    if kind == Scope::Collection {
        fields.insert("collection_name".into(), collection.unwrap_or("*").into());
    }
    fields
}

/// `GET /whoami`: open to everybody; gocb pings with it.
pub(super) fn whoami(call: &Call) -> Outcome {
    let user = &call.user;
    let domain = match user.domain {
        Domain::Local => cluster::UserDomain::Local,
        Domain::External => cluster::UserDomain::External,
        Domain::Admin | Domain::Bucket | Domain::Internal | Domain::Anonymous => {
            let roles = if user.domain == Domain::Admin { json!([{ "role": "admin" }]) } else { json!([]) };
            return Ok(json_ok(&json!({ "id": user.name, "domain": user.domain.name(), "roles": roles })));
        }
    };
    let mut view = call.meta.users_of(domain).get(&user.name).map_or_else(
        || json!({ "id": user.name }),
        |known| users::user_json(&call.meta, domain, &user.name, known),
    );
    let mut roles: Vec<Value> = Vec::new();
    for (grant, _) in effective_grants(&call.meta, domain, &user.name) {
        let grant = Value::Object(grant_json(grant));
        if !roles.contains(&grant) {
            roles.push(grant);
        }
    }
    view["roles"] = roles.into();
    Ok(json_ok(&view))
}

/// `POST /pools/default/checkPermissions`: a comma-separated list of names in, each with yes or no out.
pub(super) fn check_permissions(call: &Call) -> Outcome {
    if call.method != Method::POST {
        return Ok(reply::method_not_allowed());
    }
    let Ok(body) = std::str::from_utf8(&call.body) else {
        return Err(reply::bad_request("Malformed permissions"));
    };
    let names: Vec<&str> = body.split(',').map(str::trim).filter(|name| !name.is_empty()).collect();
    if names.is_empty() {
        return Ok(reply::with_status(StatusCode::BAD_REQUEST, &json!("Request body should not be empty.")));
    }
    let malformed: Vec<&str> =
        names.iter().filter(|name| !(name.starts_with("cluster") && name.contains('!'))).copied().collect();
    if !malformed.is_empty() {
        let text = format!("Malformed permissions: [{}].", malformed.join(","));
        return Ok(reply::with_status(StatusCode::BAD_REQUEST, &json!(text)));
    }
    let mut judged = BTreeMap::new();
    let answers: Map<String, Value> =
        names.into_iter().map(|name| (name.to_owned(), allowed(call, name, &mut judged).into())).collect();
    Ok(json_ok(&answers.into()))
}

/// Names that mean nothing here are allowed to the full administrator, who may do everything. `judged`: what was asked before in the
/// same request. Any user may send many names, and a right in any bucket takes long to find.
fn allowed<'a>(call: &Call, name: &'a str, judged: &mut BTreeMap<(u8, Option<&'a str>), bool>) -> bool {
    let Some(asked) = permissions::parse(name) else { return call.user.domain == Domain::Admin };
    let privilege = asked.privilege;
    *judged.entry((privilege as u8, asked.bucket)).or_insert_with(|| match asked.bucket {
        Some(".") => call.meta.buckets.keys().any(|bucket| call.holds(privilege, Some(bucket))),
        bucket => call.holds(privilege, bucket),
    })
}
