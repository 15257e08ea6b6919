//! A bucket's collections manifest: scopes, their collections, and the version that orders manifests.

use serde::{Deserialize, Serialize};

use crate::ids::{CollectionId, ManifestUid, ScopeId};

/// One collection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Collection {
    /// Never reused within a bucket.
    pub id: CollectionId,
    /// 1..=251 bytes of `A-Za-z0-9_-%`.
    pub name: String,
    /// Expiry given to documents that bring none or a later one, in seconds; `None` inherits the bucket's,
    /// `Some(0)` switches expiry off for the collection.
    pub max_ttl_secs: Option<u32>,
}

/// One scope and its collections.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Scope {
    /// Never reused within a bucket.
    pub id: ScopeId,
    /// As a collection's.
    pub name: String,
    /// In order of creation.
    pub collections: Vec<Collection>,
}

/// All scopes and collections of a bucket at one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// Grows with every change.
    pub uid: ManifestUid,
    /// In order of creation; the default scope first.
    pub scopes: Vec<Scope>,
    /// The next id to give to a scope or collection; ids 1..=7 are reserved.
    pub next_id: u32,
}

impl Default for Manifest {
    /// What a new bucket has: the default collection in the default scope.
    fn default() -> Self {
        let collection =
            Collection { id: CollectionId::DEFAULT, name: "_default".into(), max_ttl_secs: None };
        let scope = Scope { id: ScopeId::DEFAULT, name: "_default".into(), collections: vec![collection] };
        Self { uid: ManifestUid(0), scopes: vec![scope], next_id: 8 }
    }
}

impl Manifest {
    /// The scope of that name; an empty name means the default one.
    #[must_use]
    pub fn scope(&self, name: &str) -> Option<&Scope> {
        let name = if name.is_empty() { "_default" } else { name };
        self.scopes.iter().find(|scope| scope.name == name)
    }

    /// The collection with that id, with its scope.
    #[must_use]
    pub fn collection(&self, id: CollectionId) -> Option<(&Scope, &Collection)> {
        self.scopes.iter().find_map(|scope| {
            scope.collections.iter().find(|c| c.id == id).map(|collection| (scope, collection))
        })
    }

    /// The manifest as `GET_COLLECTIONS_MANIFEST` and `GET /pools/default/buckets/B/scopes` show it: ids and uids
    /// as lower-case hexadecimal strings.
    #[must_use]
    pub fn to_json(&self) -> serde_json::Value {
        let scopes: Vec<_> = self
            .scopes
            .iter()
            .map(|scope| {
                let collections: Vec<_> = scope.collections.iter().map(Collection::to_json).collect();
                serde_json::json!({
                    "name": scope.name, "uid": format!("{:x}", scope.id.get()), "collections": collections,
                })
            })
            .collect();
        serde_json::json!({ "uid": format!("{:x}", self.uid.get()), "scopes": scopes })
    }
}

impl Collection {
    fn to_json(&self) -> serde_json::Value {
        let mut json = serde_json::json!({ "name": self.name, "uid": format!("{:x}", self.id.get()) });
        if let Some(ttl) = self.max_ttl_secs {
            json["maxTTL"] = ttl.into();
        }
        json
    }
}

/// Whether a client may give this name to a scope or collection.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'%');
    (1..=251).contains(&name.len())
        && name.bytes().all(allowed)
        && !name.starts_with('_')
        && !name.starts_with('%')
}
