//! Users and groups: who is known, and which roles they were given.

use std::collections::BTreeSet;

use crate::{
    changes::command::UserChange,
    metadata::{ClusterError, FieldErrors, Group, Metadata, User, UserDomain},
    rights::roles::{RoleGrant, Target},
};

/// Longest user or group name (ns_server).
const NAME_CHARS_MAX: usize = 128;

pub(crate) fn put(state: &mut Metadata, change: &UserChange) -> Result<(), ClusterError> {
    let mut errors = FieldErrors::new();
    if let Some(text) = name_error("Username", &change.name) {
        errors.insert("_".into(), text);
    }
    let known = state.users_of(change.domain).get(&change.name);
    if known.is_none() && change.domain == UserDomain::Local && change.credentials.is_none() {
        errors.insert("password".into(), "Password is required for new user.".into());
    }
    let reserved =
        state.admin.as_ref().is_some_and(|admin| admin.name == change.name) || change.name.starts_with('@');
    if reserved && change.domain == UserDomain::Local {
        errors.insert("_".into(), "This name is reserved for the internal use.".into());
    }
    check_roles(state, "user", change.roles.as_deref().unwrap_or_default(), &mut errors);
    let missing = missing_groups(state, change.groups.as_ref());
    if !missing.is_empty() {
        errors.insert("groups".into(), format!("Groups do not exist: {}", missing.join(",")));
    }
    ClusterError::unless_empty(errors)?;

    let user = state.users_of_mut(change.domain).entry(change.name.clone()).or_insert_with(|| User {
        uuid: change.uuid.clone(),
        full_name: String::new(),
        credentials: None,
        password_changed_ms: change.now_ms,
        roles: Vec::new(),
        groups: BTreeSet::new(),
        locked: false,
    });
    if let Some(full_name) = &change.full_name {
        user.full_name.clone_from(full_name);
    }
    if change.credentials.is_some() && change.domain == UserDomain::Local {
        user.credentials.clone_from(&change.credentials);
        user.password_changed_ms = change.now_ms;
    }
    if let Some(roles) = &change.roles {
        user.roles.clone_from(roles);
    }
    if let Some(groups) = &change.groups {
        user.groups.clone_from(groups);
    }
    user.locked = change.locked.unwrap_or(user.locked);
    Ok(())
}

pub(crate) fn delete(state: &mut Metadata, domain: UserDomain, name: &str) -> Result<(), ClusterError> {
    state.users_of_mut(domain).remove(name).map(|_| ()).ok_or(ClusterError::UserNotFound)
}

pub(crate) fn lock(state: &mut Metadata, name: &str, locked: bool) -> Result<(), ClusterError> {
    state.users.get_mut(name).ok_or(ClusterError::UserNotFound)?.locked = locked;
    Ok(())
}

pub(crate) fn put_group(
    state: &mut Metadata,
    name: &str,
    description: &str,
    roles: &[RoleGrant],
    ldap_group_ref: &str,
) -> Result<(), ClusterError> {
    let mut errors = FieldErrors::new();
    if let Some(text) = name_error("Group name", name) {
        errors.insert("_".into(), text);
    }
    check_roles(state, "group", roles, &mut errors);
    ClusterError::unless_empty(errors)?;
    let group = Group {
        description: description.into(),
        roles: roles.to_vec(),
        ldap_group_ref: ldap_group_ref.into(),
    };
    state.groups.insert(name.into(), group);
    Ok(())
}

pub(crate) fn delete_group(state: &mut Metadata, name: &str) -> Result<(), ClusterError> {
    state.groups.remove(name).ok_or(ClusterError::GroupNotFound)?;
    for user in state.users.values_mut().chain(state.external_users.values_mut()) {
        user.groups.remove(name);
    }
    Ok(())
}

/// Takes away every grant that `gone` recognises; called when what it names is dropped.
pub(crate) fn forget_grants(state: &mut Metadata, gone: impl Fn(&RoleGrant) -> bool) {
    let users = state.users.values_mut().chain(state.external_users.values_mut()).map(|user| &mut user.roles);
    let groups = state.groups.values_mut().map(|group| &mut group.roles);
    for roles in users.chain(groups) {
        roles.retain(|grant| !gone(grant));
    }
}

fn check_roles(state: &Metadata, whose: &str, roles: &[RoleGrant], errors: &mut FieldErrors) {
    let unknown = unknown_grants(state, roles);
    if !unknown.is_empty() {
        errors.insert("roles".into(), roles_error(whose, &unknown));
    }
}

/// What a request with roles that do not exist is told.
#[must_use]
pub fn roles_error(whose: &str, unknown: &[String]) -> String {
    format!(
        "Cannot assign roles to {whose} because the following roles are unknown, malformed or role parameters are \
         undefined: [{}]",
        unknown.join(",")
    )
}

fn missing_groups(state: &Metadata, groups: Option<&BTreeSet<String>>) -> Vec<String> {
    groups.into_iter().flatten().filter(|group| !state.groups.contains_key(*group)).cloned().collect()
}

fn name_error(what: &str, name: &str) -> Option<String> {
    let forbidden = |c: char| c.is_control() || c == ' ' || "()<>,;:\\\"/[]?={}".contains(c);
    if name.is_empty() {
        Some(format!("{what} must not be empty"))
    } else if name.chars().count() > NAME_CHARS_MAX {
        Some(format!("{what} may not exceed {NAME_CHARS_MAX} characters"))
    } else if name.chars().any(forbidden) {
        Some(format!("{what} must not contain spaces, control or any of ()<>,;:\\\"/[]?={{}} characters"))
    } else {
        None
    }
}

/// Those of `grants` that name a role, bucket, scope or collection that does not exist.
pub(crate) fn unknown_grants(state: &Metadata, grants: &[RoleGrant]) -> Vec<String> {
    let exists = |grant: &&RoleGrant| {
        let Target::Bucket { bucket, scope, collection } = &grant.target else {
            return grant.definition().is_some();
        };
        let Some(info) = state.buckets.get(bucket) else { return false };
        let Some(scope) = scope else { return grant.definition().is_some() };
        let Some(scope) = info.manifest.scope(scope) else { return false };
        collection.as_ref().is_none_or(|name| scope.collections.iter().any(|known| known.name == *name))
            && grant.definition().is_some()
    };
    grants.iter().filter(|grant| !exists(grant)).map(RoleGrant::text).collect()
}
