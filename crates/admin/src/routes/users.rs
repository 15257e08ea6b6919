//! Users and groups (`/settings/rbac`). SDKs recognise what is missing by the texts `Unknown user.`,
//! `User was not found.` and their counterparts for groups.

use std::collections::BTreeSet;

use axum::http::StatusCode;
use cluster::{
    Command, FieldErrors, Group, Metadata, User, UserChange, UserDomain,
    auth::{Domain, Privilege, PrivilegeSet, effective_grants},
    roles::RoleGrant,
    users::roles_error,
};
use serde_json::{Value, json};

use super::{password, roles, unsupported, verifiers::hashed};
use crate::{
    node::time::{now_ms, rfc3339},
    request::{Api, Call},
};
use http::{
    AuditKind,
    form::Form,
    reply::{self, Outcome, Refusal, json_ok, with_status},
};

pub(super) async fn dispatch(call: &Call, path: &[&str]) -> Outcome {
    let method = call.method.as_str();
    match (method, path) {
        ("GET", ["roles"]) => roles::list(call),
        ("GET", ["users"]) => Ok(json_ok(&list(call, &[UserDomain::Local, UserDomain::External]))),
        ("GET", ["users", domain]) => {
            let domain = parse_domain(domain)?;
            Ok(json_ok(&list(call, &[domain])))
        }
        ("GET", ["users", domain, name]) => one(call, parse_domain(domain)?, name),
        ("PUT", ["users", domain, name]) => put(call, parse_domain(domain)?, name).await,
        ("PATCH", ["users", "local", name]) => patch(call, name).await,
        ("DELETE", ["users", domain, name]) => delete(call, parse_domain(domain)?, name).await,
        ("GET", ["groups"]) => {
            let groups = call.meta.groups.iter().map(|(name, group)| group_json(name, group));
            Ok(json_ok(&groups.collect::<Vec<_>>().into()))
        }
        ("GET", ["groups", name]) => match call.meta.groups.get(*name) {
            Some(group) => Ok(json_ok(&group_json(name, group))),
            None => Ok(with_status(StatusCode::NOT_FOUND, &json!("Unknown group."))),
        },
        ("PUT", ["groups", name]) => put_group(call, name).await,
        ("DELETE", ["groups", name]) => delete_group(call, name).await,
        _ => unsupported::path(call, path),
    }
}

fn parse_domain(name: &str) -> Result<UserDomain, Refusal> {
    match name {
        "local" => Ok(UserDomain::Local),
        "external" => Ok(UserDomain::External),
        _ => Err(with_status(StatusCode::NOT_FOUND, &json!("Unknown user domain.")).into()),
    }
}

fn list(call: &Call, domains: &[UserDomain]) -> Value {
    let users = domains.iter().flat_map(|&domain| {
        let users = call.meta.users_of(domain).iter();
        users.map(move |(name, user)| user_json(&call.meta, domain, name, user))
    });
    users.collect::<Vec<_>>().into()
}

fn one(call: &Call, domain: UserDomain, name: &str) -> Outcome {
    match call.meta.users_of(domain).get(name) {
        Some(user) => Ok(json_ok(&user_json(&call.meta, domain, name, user))),
        None => Ok(with_status(StatusCode::NOT_FOUND, &json!("Unknown user."))),
    }
}

/// A user with every role he has and where each comes from.
pub(super) fn user_json(meta: &Metadata, domain: UserDomain, name: &str, user: &User) -> Value {
    let mut roles: Vec<(&RoleGrant, Vec<Value>)> = Vec::new();
    for (grant, group) in effective_grants(meta, domain, name) {
        let origin = match group {
            None => json!({ "type": "user" }),
            Some(group) => json!({ "type": "group", "name": group }),
        };
        match roles.iter_mut().find(|(known, _)| *known == grant) {
            Some((_, origins)) => origins.push(origin),
            None => roles.push((grant, vec![origin])),
        }
    }
    let roles: Vec<Value> = roles
        .into_iter()
        .map(|(grant, origins)| {
            let mut fields = roles::grant_json(grant);
            // As Couchbase does, groups come first: tools take the first origin for the one that counts.
            let (groups, own): (Vec<Value>, Vec<Value>) =
                origins.into_iter().partition(|origin| origin["type"] == "group");
            fields.insert("origins".into(), [groups, own].concat().into());
            fields.into()
        })
        .collect();
    let mut view = json!({
        "id": name, "domain": domain.name(), "name": user.full_name, "uuid": user.uuid, "roles": roles,
        "groups": user.groups, "external_groups": [],
    });
    if domain == UserDomain::Local {
        view["password_change_date"] = rfc3339(user.password_changed_ms).into();
        view["locked"] = user.locked.into();
    }
    view
}

fn group_json(name: &str, group: &Group) -> Value {
    let roles: Vec<Value> = group.roles.iter().map(|grant| roles::grant_json(grant).into()).collect();
    let mut view = json!({ "id": name, "description": group.description, "roles": roles });
    if !group.ldap_group_ref.is_empty() {
        view["ldap_group_ref"] = group.ldap_group_ref.as_str().into();
    }
    view
}

async fn put(call: &Call, domain: UserDomain, name: &str) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    let known: &[&str] = match domain {
        UserDomain::Local => &["name", "roles", "groups", "locked", "password", "temporaryPassword"],
        // Their names are known elsewhere.
        UserDomain::External => &["name", "roles", "groups", "locked"],
    };
    refuse_unknown(&form, known, &mut errors);
    let roles = parse_roles(&form, "user", &mut errors);
    let groups: BTreeSet<String> = form
        .get("groups")
        .unwrap_or_default()
        .split(',')
        .map(|group| group.trim().to_owned())
        .filter(|group| !group.is_empty())
        .collect();
    let password = password::wanted(&call.meta, &form, &mut errors);
    let locked = form.boolean("locked", &mut errors);
    if form.is_on("temporaryPassword") {
        errors.insert("temporaryPassword".into(), "Temporary passwords are not supported by Settee.".into());
    }
    cluster::ClusterError::unless_empty(errors)?;
    let inherited =
        groups.iter().filter_map(|group| call.meta.groups.get(group)).flat_map(|group| &group.roles);
    let granted = || roles.iter().chain(inherited.clone());
    may_grant(call, granted())?;
    may_touch(call, domain, name)?;
    if is_own(call, name) {
        may_raise(call, granted())?;
    }
    let credentials = match password {
        Some(password) if domain == UserDomain::Local => Some(hashed(password.to_owned()).await?),
        _ => None,
    };
    let change = UserChange {
        domain,
        name: name.to_owned(),
        uuid: Api::new_uuid()?,
        full_name: form.get("name").map(str::to_owned),
        credentials,
        // As in Couchbase a PUT replaces: roles and groups that are not named are taken away.
        roles: Some(roles),
        groups: Some(groups),
        locked,
        now_ms: now_ms(),
    };
    call.change(
        Command::PutUser(change),
        AuditKind::UsersChanged,
        name,
        format!("set {} user", domain.name()),
    )
    .await?;
    Ok(reply::empty_ok())
}

/// Locking and unlocking is what tools patch.
async fn patch(call: &Call, name: &str) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    refuse_unknown(&form, &["locked"], &mut errors);
    let locked = form.boolean("locked", &mut errors);
    cluster::ClusterError::unless_empty(errors)?;
    if !call.meta.users.contains_key(name) {
        return Ok(with_status(StatusCode::NOT_FOUND, &json!("Unknown user.")));
    }
    may_touch(call, UserDomain::Local, name)?;
    if let Some(locked) = locked {
        call.change(
            Command::LockUser { name: name.to_owned(), locked },
            AuditKind::UsersChanged,
            name,
            if locked { "locked" } else { "unlocked" },
        )
        .await?;
    }
    Ok(reply::empty_ok())
}

async fn delete(call: &Call, domain: UserDomain, name: &str) -> Outcome {
    may_touch(call, domain, name)?;
    call.change(
        Command::DeleteUser { domain, name: name.to_owned() },
        AuditKind::UsersChanged,
        name,
        format!("removed {} user", domain.name()),
    )
    .await?;
    Ok(reply::empty_ok())
}

async fn put_group(call: &Call, name: &str) -> Outcome {
    let form = call.form()?;
    let mut errors = FieldErrors::new();
    refuse_unknown(&form, &["description", "roles", "ldap_group_ref"], &mut errors);
    let roles = parse_roles(&form, "group", &mut errors);
    cluster::ClusterError::unless_empty(errors)?;
    let current = call.meta.groups.get(name).map(|group| group.roles.as_slice()).unwrap_or_default();
    may_grant(call, roles.iter().chain(current))?;
    if is_in_group(call, name) {
        may_raise(call, roles.iter())?;
    }
    let command = Command::PutGroup {
        name: name.to_owned(),
        description: form.get("description").unwrap_or_default().to_owned(),
        roles,
        ldap_group_ref: form.get("ldap_group_ref").unwrap_or_default().to_owned(),
    };
    call.change(command, AuditKind::UsersChanged, name, "set group").await?;
    Ok(reply::empty_ok())
}

async fn delete_group(call: &Call, name: &str) -> Outcome {
    if let Some(group) = call.meta.groups.get(name) {
        may_grant(call, group.roles.iter())?;
    }
    call.change(
        Command::DeleteGroup { name: name.to_owned() },
        AuditKind::UsersChanged,
        name,
        "removed group",
    )
    .await?;
    Ok(reply::empty_ok())
}

fn parse_roles(form: &Form, whose: &str, errors: &mut FieldErrors) -> Vec<RoleGrant> {
    RoleGrant::parse_list(form.get("roles").unwrap_or_default()).unwrap_or_else(|unknown| {
        errors.insert("roles".into(), roles_error(whose, &unknown));
        Vec::new()
    })
}

fn refuse_unknown(form: &Form, known: &[&str], errors: &mut FieldErrors) {
    for (name, _) in form.fields().iter().filter(|(name, _)| !known.contains(&name.as_str())) {
        errors.insert(name.clone(), "Unsupported key".into());
    }
}

/// Rights over security: only full administrators give or take them, as in Couchbase. Otherwise somebody who manages users would
/// make one of himself, or of a friend, in one step or in two.
const SECURITY: PrivilegeSet = PrivilegeSet::of(&[
    Privilege::UserRead,
    Privilege::UserAdmin,
    Privilege::ExternalUserAdmin,
    Privilege::SecurityRead,
    Privilege::SecurityAdmin,
    Privilege::Impersonate,
]);
/// Rights over the cluster. Only users with the right over security give or take them.
const GUARDED: PrivilegeSet =
    PrivilegeSet::of(&[Privilege::ClusterAdmin, Privilege::BucketCreate, Privilege::NodeSupervisor]);

fn may_grant<'a>(call: &Call, grants: impl Iterator<Item = &'a RoleGrant>) -> Result<(), Refusal> {
    for role in grants.filter_map(RoleGrant::definition) {
        if role.cluster.intersects(SECURITY) {
            call.require_everything()?;
        }
        if role.cluster.intersects(GUARDED) {
            call.require(Privilege::SecurityAdmin)?;
        }
    }
    Ok(())
}

/// Nobody gives himself a role that he does not have. Full administrators have all.
fn may_raise<'a>(call: &Call, mut grants: impl Iterator<Item = &'a RoleGrant>) -> Result<(), Refusal> {
    let own = own_domain(call).map(|domain| effective_grants(&call.meta, domain, &call.user.name));
    let own = own.unwrap_or_default();
    let has = |grant: &RoleGrant| own.iter().any(|(known, _)| *known == grant);
    if grants.all(has) { Ok(()) } else { call.require_everything() }
}

/// Whether a user is the sender, or the sender's namesake in the other list of users. The two are taken for one person: a
/// certificate logs in as whichever of them there is, and so would the sender.
fn is_own(call: &Call, name: &str) -> bool {
    own_domain(call).is_some() && call.user.name == name
}

/// Whether the sender is in a group, or a namesake is.
fn is_in_group(call: &Call, group: &str) -> bool {
    let of = |domain| call.meta.users_of(domain).get(&call.user.name);
    let both = [UserDomain::Local, UserDomain::External].into_iter().filter_map(of);
    own_domain(call).is_some() && both.into_iter().any(|user| user.groups.contains(group))
}

/// Which list of users the sender is in. Users of the second one log in by a certificate.
fn own_domain(call: &Call) -> Option<UserDomain> {
    match call.user.domain {
        Domain::Local => Some(UserDomain::Local),
        Domain::External => Some(UserDomain::External),
        _ => None,
    }
}

fn may_touch(call: &Call, domain: UserDomain, name: &str) -> Result<(), Refusal> {
    may_grant(call, effective_grants(&call.meta, domain, name).into_iter().map(|(grant, _)| grant))
}
