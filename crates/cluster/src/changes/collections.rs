//! Scopes and collections: how a bucket's manifest changes. Ids are never given twice; every change takes the next
//! manifest uid. Names that begin with `_` belong to the system and are neither made nor dropped here. The default
//! collection is an exception: it may be dropped for good.

use base::{
    CollectionId, Manifest, ManifestUid, ScopeId,
    manifest::{Collection, Scope, is_valid_name},
};

use crate::{
    changes::{Applied, users},
    metadata::{ClusterError, Metadata},
};

/// Most scopes in a bucket (ns_server).
const SCOPES_MAX: usize = 1200;
/// Most collections in a bucket (ns_server).
const COLLECTIONS_MAX: usize = 1200;
/// The default scope and the default collection.
const DEFAULT: &str = "_default";

pub(crate) fn create_scope(state: &mut Metadata, bucket: &str, name: &str) -> Result<Applied, ClusterError> {
    let manifest = manifest_mut(state, bucket)?;
    check_name(name)?;
    if manifest.scope(name).is_some() {
        return Err(ClusterError::ScopeExists(name.into()));
    }
    if manifest.scopes.len() >= SCOPES_MAX {
        return refused(format!("Maximum number of scopes ({SCOPES_MAX}) for this bucket has been reached"));
    }
    let id = ScopeId(take_id(manifest)?);
    manifest.scopes.push(Scope { id, name: name.into(), collections: Vec::new() });
    Ok(next_uid(manifest))
}

pub(crate) fn drop_scope(state: &mut Metadata, bucket: &str, name: &str) -> Result<Applied, ClusterError> {
    let manifest = manifest_mut(state, bucket)?;
    if name == DEFAULT {
        return refused("Deleting _default scope is not allowed".into());
    }
    let at = manifest.scopes.iter().position(|scope| scope.name == name);
    manifest.scopes.remove(at.ok_or_else(|| ClusterError::ScopeNotFound(name.into()))?);
    let applied = next_uid(manifest);
    users::forget_grants(state, |grant| grant.target.is_within_scope(bucket, name));
    Ok(applied)
}

pub(crate) fn create_collection(
    state: &mut Metadata,
    bucket: &str,
    scope: &str,
    name: &str,
    max_ttl: i64,
) -> Result<Applied, ClusterError> {
    let manifest = manifest_mut(state, bucket)?;
    if name == DEFAULT {
        return refused(format!(
            "Cannot create _default collection in scope \"{scope}\". Creation of _default collection is not allowed."
        ));
    }
    check_name(name)?;
    let max_ttl_secs = ttl(max_ttl)?;
    let count: usize = manifest.scopes.iter().map(|scope| scope.collections.len()).sum();
    let found = scope_mut(manifest, scope)?;
    if found.collections.iter().any(|collection| collection.name == name) {
        return Err(ClusterError::CollectionExists(scope.into(), name.into()));
    }
    if count >= COLLECTIONS_MAX {
        return refused(format!(
            "Maximum number of collections ({COLLECTIONS_MAX}) for this bucket has been reached"
        ));
    }
    let id = CollectionId(take_id(manifest)?);
    scope_mut(manifest, scope)?.collections.push(Collection { id, name: name.into(), max_ttl_secs });
    Ok(next_uid(manifest))
}

pub(crate) fn update_collection(
    state: &mut Metadata,
    bucket: &str,
    scope: &str,
    name: &str,
    max_ttl: Option<i64>,
) -> Result<Applied, ClusterError> {
    let manifest = manifest_mut(state, bucket)?;
    let found = scope_mut(manifest, scope)?;
    let collection = found.collections.iter_mut().find(|collection| collection.name == name);
    let collection = collection.ok_or_else(|| ClusterError::CollectionNotFound(scope.into(), name.into()))?;
    if let Some(max_ttl) = max_ttl {
        if collection.id == CollectionId::DEFAULT {
            return refused(format!(
                "Cannot modify collection properties for Scope \"{scope}\" Collection \"{name}\""
            ));
        }
        collection.max_ttl_secs = ttl(max_ttl)?;
    }
    Ok(next_uid(manifest))
}

pub(crate) fn drop_collection(
    state: &mut Metadata,
    bucket: &str,
    scope: &str,
    name: &str,
) -> Result<Applied, ClusterError> {
    let manifest = manifest_mut(state, bucket)?;
    let found = scope_mut(manifest, scope)?;
    let at = found.collections.iter().position(|collection| collection.name == name);
    found.collections.remove(at.ok_or_else(|| ClusterError::CollectionNotFound(scope.into(), name.into()))?);
    let applied = next_uid(manifest);
    users::forget_grants(state, |grant| grant.target.is_collection(bucket, scope, name));
    Ok(applied)
}

fn manifest_mut<'a>(state: &'a mut Metadata, bucket: &str) -> Result<&'a mut Manifest, ClusterError> {
    Ok(&mut state.buckets.get_mut(bucket).ok_or(ClusterError::BucketNotFound)?.manifest)
}

fn scope_mut<'a>(manifest: &'a mut Manifest, name: &str) -> Result<&'a mut Scope, ClusterError> {
    let scope = manifest.scopes.iter_mut().find(|scope| scope.name == name);
    scope.ok_or_else(|| ClusterError::ScopeNotFound(name.into()))
}

fn take_id(manifest: &mut Manifest) -> Result<u32, ClusterError> {
    let id = manifest.next_id;
    let next = id.checked_add(1).ok_or_else(|| ClusterError::Failed("no collection ids are left".into()))?;
    manifest.next_id = next;
    Ok(id)
}

fn next_uid(manifest: &mut Manifest) -> Applied {
    manifest.uid = ManifestUid(manifest.uid.get() + 1);
    Applied::Manifest(manifest.uid)
}

fn check_name(name: &str) -> Result<(), ClusterError> {
    if is_valid_name(name) {
        return Ok(());
    }
    let text = if name.is_empty() || name.len() > 251 {
        "Length must be in range from 1 to 251"
    } else if name.starts_with(['_', '%']) {
        "First character must not be _ or %"
    } else {
        "Can only contain characters A-Z, a-z, 0-9 and the following symbols _ - %"
    };
    Err(ClusterError::field("name", text))
}

fn ttl(max_ttl: i64) -> Result<Option<u32>, ClusterError> {
    match max_ttl {
        -1 => Ok(Some(0)),
        0 => Ok(None),
        1..=0x7fff_ffff => Ok(u32::try_from(max_ttl).ok()),
        _ => Err(ClusterError::field("maxTTL", "The value must be in range from -1 to 2147483647")),
    }
}

fn refused(text: String) -> Result<Applied, ClusterError> {
    Err(ClusterError::CollectionsRefused(text))
}
