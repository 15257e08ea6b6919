//! Which documents and events a stream is told about.
//!
//! A consumer without collections gets the default one, and no events. Others get everything, or some collections, or one
//! scope as its collections come and go. A filter follows the events that pass it: what is dropped is not waited for,
//! and a stream whose last collection is gone ends.

use std::collections::BTreeSet;

use base::{CollectionId, DocKey, Manifest, ScopeId, Status};
use engine::feed::FeedFilter;
use protocol::binary::dcp::{StreamFilter, SystemEvent};

/// See the module header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    kind: Kind,
    /// Collections let through; empty and meaningless for [`Kind::Everything`].
    collections: BTreeSet<CollectionId>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The default collection, for consumers that know of no others.
    Legacy,
    Everything,
    Collections,
    Scope {
        id: ScopeId,
        dropped: bool,
    },
}

/// A part of the bucket that one must be allowed to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All of it.
    Bucket,
    /// A scope.
    Scope(ScopeId),
    /// A collection.
    Collection(CollectionId),
}

impl Filter {
    /// The filter that a stream request asks for. `collections` tells whether the connection negotiated them.
    ///
    /// # Errors
    /// `UnknownCollection` or `UnknownScope` for what is not in the manifest.
    pub fn new(request: &StreamFilter, collections: bool, manifest: &Manifest) -> Result<Self, Status> {
        if !collections {
            let default = CollectionId::DEFAULT;
            manifest.collection(default).ok_or(Status::UnknownCollection)?;
            return Ok(Self { kind: Kind::Legacy, collections: [default].into() });
        }
        if let Some(id) = request.scope {
            let scope = manifest.scopes.iter().find(|scope| scope.id == id).ok_or(Status::UnknownScope)?;
            let collections = scope.collections.iter().map(|collection| collection.id).collect();
            return Ok(Self { kind: Kind::Scope { id, dropped: false }, collections });
        }
        if let Some(ids) = &request.collections {
            if ids.iter().any(|id| manifest.collection(*id).is_none()) {
                return Err(Status::UnknownCollection);
            }
            return Ok(Self { kind: Kind::Collections, collections: ids.iter().copied().collect() });
        }
        Ok(Self { kind: Kind::Everything, collections: BTreeSet::new() })
    }

    /// Whether nothing is filtered out.
    #[must_use]
    pub fn passes_everything(&self) -> bool {
        self.kind == Kind::Everything
    }

    /// Whether the consumer named its collections, or their scope.
    #[must_use]
    pub const fn is_selective(&self) -> bool {
        matches!(self.kind, Kind::Collections | Kind::Scope { .. })
    }

    /// Whether nothing will ever pass again.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self.kind {
            Kind::Everything => false,
            Kind::Scope { dropped, .. } => dropped,
            Kind::Legacy | Kind::Collections => self.collections.is_empty(),
        }
    }

    /// What one has to be allowed to see.
    pub fn parts(&self) -> impl Iterator<Item = Part> {
        let whole = match self.kind {
            Kind::Everything => Some(Part::Bucket),
            Kind::Scope { id, .. } => Some(Part::Scope(id)),
            Kind::Legacy | Kind::Collections => None,
        };
        let some = if whole.is_none() { Some(&self.collections) } else { None };
        whole.into_iter().chain(some.into_iter().flatten().map(|id| Part::Collection(*id)))
    }

    /// The collections let through now; `None` for all of them.
    #[must_use]
    pub fn collections(&self) -> Option<&BTreeSet<CollectionId>> {
        (self.kind != Kind::Everything).then_some(&self.collections)
    }

    /// What the feed may leave out. A scope grows, which the feed does not know, so there it may not.
    #[must_use]
    pub fn for_feed(&self) -> FeedFilter {
        match self.kind {
            Kind::Everything | Kind::Scope { .. } => FeedFilter::All,
            Kind::Legacy | Kind::Collections => {
                FeedFilter::Collections(self.collections.iter().map(|id| id.get()).collect())
            }
        }
    }

    /// Whether a document passes.
    #[inline]
    #[must_use]
    pub fn admits(&self, key: DocKey<'_>) -> bool {
        self.kind == Kind::Everything || self.collections.contains(&key.collection())
    }

    /// Whether an event passes; what it changes is followed in any case.
    pub fn admits_event(&mut self, event: &SystemEvent<'_>) -> bool {
        match *event {
            SystemEvent::CollectionBegin { scope, collection, .. }
            | SystemEvent::CollectionModified { scope, collection, .. } => {
                if self.is_in_scope(scope) {
                    self.collections.insert(collection);
                }
                self.admits_event_of(collection)
            }
            SystemEvent::CollectionEnd { scope, collection, .. } => {
                let had = self.collections.remove(&collection);
                self.kind != Kind::Legacy && (had || self.kind == Kind::Everything || self.is_in_scope(scope))
            }
            SystemEvent::ScopeBegin { scope, .. } => self.kind == Kind::Everything || self.is_in_scope(scope),
            SystemEvent::ScopeEnd { scope, .. } => match &mut self.kind {
                Kind::Scope { id, dropped } => {
                    *dropped |= *id == scope;
                    *id == scope
                }
                kind => *kind == Kind::Everything,
            },
        }
    }

    fn admits_event_of(&self, collection: CollectionId) -> bool {
        match self.kind {
            Kind::Legacy => false,
            Kind::Everything => true,
            Kind::Collections | Kind::Scope { .. } => self.collections.contains(&collection),
        }
    }

    fn is_in_scope(&self, scope: ScopeId) -> bool {
        matches!(self.kind, Kind::Scope { id, .. } if id == scope)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{ManifestUid, manifest};

    const UID: ManifestUid = ManifestUid(9);

    fn manifest() -> Manifest {
        let collection = |id, name: &str| manifest::Collection {
            id: CollectionId(id),
            name: name.into(),
            max_ttl_secs: None,
        };
        let mut manifest = Manifest::default();
        manifest.scopes[0].collections.push(collection(8, "a"));
        let collections = vec![collection(10, "b")];
        manifest.scopes.push(manifest::Scope { id: ScopeId(9), name: "s".into(), collections });
        manifest
    }

    fn filter(json: &str) -> Result<Filter, Status> {
        Filter::new(&StreamFilter::decode(json.as_bytes()).unwrap(), true, &manifest())
    }

    fn begin(scope: u32, collection: u32) -> SystemEvent<'static> {
        SystemEvent::CollectionBegin {
            manifest: UID,
            scope: ScopeId(scope),
            collection: CollectionId(collection),
            max_ttl: None,
            name: b"n",
        }
    }

    fn end(scope: u32, collection: u32) -> SystemEvent<'static> {
        SystemEvent::CollectionEnd {
            manifest: UID,
            scope: ScopeId(scope),
            collection: CollectionId(collection),
        }
    }

    fn key(collection: u8) -> [u8; 2] {
        [collection, b'k']
    }

    #[test]
    fn without_collections_the_default_one_comes_and_no_event() {
        let mut filter = Filter::new(&StreamFilter::default(), false, &manifest()).unwrap();
        assert!(filter.admits(DocKey::trusted(&key(0))) && !filter.admits(DocKey::trusted(&key(8))));
        assert!(!filter.admits_event(&begin(0, 8)) && !filter.is_empty());
        assert!(!filter.admits_event(&end(0, 0)) && filter.is_empty());
        let gone = Manifest { scopes: Vec::new(), ..Manifest::default() };
        assert_eq!(
            Filter::new(&StreamFilter::default(), false, &gone).unwrap_err(),
            Status::UnknownCollection
        );
    }

    #[test]
    fn named_collections_come_with_their_own_events_until_they_are_gone() {
        let mut filter = filter(r#"{"collections":["8","a"]}"#).unwrap();
        assert_eq!(filter.for_feed(), FeedFilter::Collections([8, 10].into()));
        assert_eq!(filter.parts().count(), 2);
        assert!(filter.admits_event(&begin(9, 10)) && !filter.admits_event(&begin(9, 11)));
        let scope_end = SystemEvent::ScopeEnd { manifest: UID, scope: ScopeId(9) };
        assert!(!filter.admits_event(&scope_end));
        assert!(filter.admits_event(&end(0, 8)) && !filter.admits(DocKey::trusted(&key(8))));
        assert!(!filter.is_empty() && filter.admits_event(&end(9, 10)) && filter.is_empty());
    }

    #[test]
    fn a_scope_follows_its_collections_and_ends_with_it() {
        let mut filter = filter(r#"{"scope":"9"}"#).unwrap();
        assert_eq!(filter.for_feed(), FeedFilter::All);
        assert!(!filter.admits(DocKey::trusted(&key(11))));
        assert!(filter.admits_event(&begin(9, 11)) && filter.admits(DocKey::trusted(&key(11))));
        assert!(!filter.admits_event(&begin(0, 12)) && !filter.admits(DocKey::trusted(&key(12))));
        assert!(filter.admits_event(&end(9, 99)), "one that it never saw");
        assert!(filter.admits_event(&end(9, 10)) && filter.admits_event(&end(9, 11)) && !filter.is_empty());
        assert!(filter.admits_event(&SystemEvent::ScopeEnd { manifest: UID, scope: ScopeId(9) }));
        assert!(filter.is_empty());
    }

    #[test]
    fn everything_is_everything() {
        let mut filter = filter(r#"{"uid":"0"}"#).unwrap();
        assert!(filter.passes_everything() && filter.admits(DocKey::trusted(&key(99))));
        assert!(filter.admits_event(&begin(7, 7)) && filter.admits_event(&end(7, 7)) && !filter.is_empty());
        assert_eq!(filter.parts().collect::<Vec<_>>(), [Part::Bucket]);
    }

    #[test]
    fn what_is_not_there_cannot_be_asked_for() {
        assert_eq!(filter(r#"{"collections":["8","77"]}"#).unwrap_err(), Status::UnknownCollection);
        assert_eq!(filter(r#"{"scope":"77"}"#).unwrap_err(), Status::UnknownScope);
    }
}
