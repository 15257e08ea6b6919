//! Which events a change of the manifest makes, and which ones a vBucket lacks that holds some already.
//!
//! Order matters: a scope begins before its collections and ends after them.

use std::collections::BTreeMap;

use base::{CollectionId, Manifest, ManifestUid, ScopeId};

use super::{CollectionFacts, Happening, SystemEvent};

/// What lies between two manifests.
#[derive(Debug)]
pub(crate) struct Changes {
    /// To be recorded before the new manifest is in force: nothing may be written to a collection before it has begun.
    pub(crate) before: Vec<SystemEvent>,
    /// To be recorded after: nothing may be written to a collection once it has ended.
    pub(crate) after: Vec<SystemEvent>,
}

impl Changes {
    pub(crate) fn between(old: &Manifest, new: &Manifest) -> Self {
        let (had, has) = (Listing::of(old), Listing::of(new));
        let begins = has.begins(&had);
        let begun = begins.len();
        let rest = has.modifications(&had).into_iter().chain(had.ends(&has));
        let mut before = number(begins.into_iter().chain(rest), old.uid, new.uid);
        let after = before.split_off(begun);
        Self { before, after }
    }
}

/// What a vBucket whose events are `found` (the newest of each key) must be told for its events to tell `manifest`.
/// `since` is the manifest that it has surely been told.
pub(crate) fn owed_after(found: &[SystemEvent], since: ManifestUid, manifest: &Manifest) -> Vec<SystemEvent> {
    let has = Listing::of(manifest);
    let mut had = Listing::default();
    // The default collection needs no event to exist.
    let mut default_ended = false;
    for event in found {
        match &event.what {
            Happening::CollectionBegin(facts) | Happening::CollectionModified(facts) => {
                had.collections.insert(facts.collection, facts.clone());
            }
            Happening::ScopeBegin { scope, name } => {
                had.scopes.insert(*scope, name.clone());
            }
            Happening::CollectionEnd { collection, .. } => {
                default_ended |= *collection == CollectionId::DEFAULT;
            }
            Happening::ScopeEnd { .. } => {}
        }
    }
    if !default_ended {
        had.add_default_collection();
    }
    let owed = has.begins(&had).into_iter().chain(has.modifications(&had)).chain(had.ends(&has));
    number(owed, since, manifest.uid)
}

/// Gives the last one the new manifest's uid, the others the old one's.
fn number(
    happenings: impl Iterator<Item = Happening>,
    old: ManifestUid,
    new: ManifestUid,
) -> Vec<SystemEvent> {
    let mut events: Vec<_> = happenings.map(|what| SystemEvent { manifest_uid: old, what }).collect();
    if let Some(last) = events.last_mut() {
        last.manifest_uid = new;
    }
    events
}

/// Scopes and collections by id, without the default scope, which always is.
#[derive(Debug, Default)]
struct Listing {
    scopes: BTreeMap<ScopeId, Box<str>>,
    collections: BTreeMap<CollectionId, CollectionFacts>,
}

impl Listing {
    fn of(manifest: &Manifest) -> Self {
        let mut listing = Self::default();
        for scope in &manifest.scopes {
            if scope.id != ScopeId::DEFAULT {
                listing.scopes.insert(scope.id, scope.name.as_str().into());
            }
            for collection in &scope.collections {
                let facts = CollectionFacts {
                    scope: scope.id,
                    collection: collection.id,
                    name: collection.name.as_str().into(),
                    max_ttl_secs: collection.max_ttl_secs,
                };
                listing.collections.insert(collection.id, facts);
            }
        }
        listing
    }

    fn add_default_collection(&mut self) {
        let facts = CollectionFacts {
            scope: ScopeId::DEFAULT,
            collection: CollectionId::DEFAULT,
            name: "_default".into(),
            max_ttl_secs: None,
        };
        self.collections.insert(CollectionId::DEFAULT, facts);
    }

    /// The beginnings of what `had` does not list.
    fn begins(&self, had: &Self) -> Vec<Happening> {
        let scopes = self.scopes.iter().filter(|(scope, _)| !had.scopes.contains_key(scope));
        let collections =
            self.collections.values().filter(|facts| !had.collections.contains_key(&facts.collection));
        scopes
            .map(|(&scope, name)| Happening::ScopeBegin { scope, name: name.clone() })
            .chain(collections.cloned().map(Happening::CollectionBegin))
            .collect()
    }

    /// What `had` lists with other settings.
    fn modifications(&self, had: &Self) -> Vec<Happening> {
        let differs = |facts: &&CollectionFacts| {
            had.collections.get(&facts.collection).is_some_and(|old| old.max_ttl_secs != facts.max_ttl_secs)
        };
        self.collections.values().filter(differs).cloned().map(Happening::CollectionModified).collect()
    }

    /// The ends of what `has` does not list any more.
    fn ends(&self, has: &Self) -> Vec<Happening> {
        let collections =
            self.collections.values().filter(|facts| !has.collections.contains_key(&facts.collection));
        let scopes = self.scopes.keys().filter(|scope| !has.scopes.contains_key(scope));
        collections
            .map(|facts| Happening::CollectionEnd { scope: facts.scope, collection: facts.collection })
            .chain(scopes.map(|&scope| Happening::ScopeEnd { scope }))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use base::manifest::{Collection, Scope};

    use super::*;

    /// Id and cap.
    type TestCollection = (u32, Option<u32>);

    fn manifest(uid: u64, scopes: &[(u32, &[TestCollection])]) -> Manifest {
        let scopes = scopes.iter().map(|&(id, collections)| Scope {
            id: ScopeId(id),
            name: format!("s{id}"),
            collections: collections
                .iter()
                .map(|&(id, max_ttl_secs)| Collection {
                    id: CollectionId(id),
                    name: format!("c{id}"),
                    max_ttl_secs,
                })
                .collect(),
        });
        Manifest { uid: ManifestUid(uid), scopes: scopes.collect(), next_id: 100 }
    }

    fn told(events: &[SystemEvent]) -> Vec<String> {
        let tell = |event: &SystemEvent| {
            let what = match &event.what {
                Happening::CollectionBegin(facts) => format!("+c{}", facts.collection),
                Happening::CollectionModified(facts) => format!("~c{}", facts.collection),
                Happening::CollectionEnd { collection, .. } => format!("-c{collection}"),
                Happening::ScopeBegin { scope, .. } => format!("+s{scope}"),
                Happening::ScopeEnd { scope } => format!("-s{scope}"),
            };
            format!("{what}@{}", event.manifest_uid)
        };
        events.iter().map(tell).collect()
    }

    #[test]
    fn only_the_last_event_of_a_change_names_the_new_manifest() {
        let old = manifest(4, &[(0, &[(0, None)]), (8, &[(9, None), (10, Some(5))])]);
        let new = manifest(7, &[(0, &[(12, None)]), (11, &[(13, None)])]);
        let changes = Changes::between(&old, &new);
        assert_eq!(told(&changes.before), ["+s11@4", "+c12@4", "+c13@4"]);
        assert_eq!(told(&changes.after), ["-c0@4", "-c9@4", "-c10@4", "-s8@7"]);
        let wider = manifest(5, &[(0, &[(0, None)]), (8, &[(9, Some(1)), (10, Some(5))])]);
        let changes = Changes::between(&old, &wider);
        assert_eq!((told(&changes.before), told(&changes.after)), (vec![], vec!["~c9@5".to_owned()]));
        let changes = Changes::between(&Manifest::default(), &manifest(1, &[(0, &[(0, None)]), (8, &[])]));
        assert_eq!((told(&changes.before), told(&changes.after)), (vec!["+s8@1".to_owned()], vec![]));
    }

    #[test]
    fn what_a_vbucket_holds_is_not_owed_to_it() {
        let old = manifest(4, &[(0, &[(0, None)]), (8, &[(9, None), (10, Some(5))])]);
        let all = owed_after(&[], ManifestUid(0), &old);
        assert_eq!(told(&all), ["+s8@0", "+c9@0", "+c10@4"]);
        assert!(owed_after(&all, ManifestUid(4), &old).is_empty());
        assert_eq!(told(&owed_after(&all[1..], ManifestUid(3), &old)), ["+s8@4"]);
        let new = manifest(6, &[(0, &[]), (8, &[(9, Some(1)), (11, None)])]);
        let owed = owed_after(&all, ManifestUid(4), &new);
        assert_eq!(told(&owed), ["+c11@4", "~c9@4", "-c0@4", "-c10@6"]);
        let ended: Vec<_> = all.into_iter().chain(owed).filter(|event| event.what.is_end()).collect();
        assert_eq!(told(&owed_after(&ended, ManifestUid(6), &manifest(6, &[(0, &[])]))), [""; 0]);
    }
}
