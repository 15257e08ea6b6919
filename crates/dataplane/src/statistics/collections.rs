//! Documents by collection. Only `/metrics` shows them: a series for each collection of a bucket's manifest, 1,200 at most.
//! STAT has them in its group `collections`.

use std::collections::HashMap;

use base::{CollectionId, Manifest};
use stats::{Metric, Reading, Row, Unit, gauge, read};

use super::facts::BucketFacts;

/// Most series of a bucket; a manifest has no more collections than that (ns_server).
const SERIES_MAX: usize = 1200;

/// Documents of a collection.
type F = u64;

pub(crate) static COLLECTIONS: &[Row<F>] =
    &[gauge(&[], Unit::Count, "Documents of active vBuckets, by collection.", |items: &F| (*items).into())
        .metrics(&[Metric::new("kv_collection_item_count")])];

/// What a bucket's collections say, in the manifest's order.
pub fn of_collections(facts: &BucketFacts, manifest: &Manifest) -> Vec<Reading> {
    let items: HashMap<CollectionId, u64> = facts.stats.collections.iter().copied().collect();
    let all = manifest
        .scopes
        .iter()
        .flat_map(|scope| scope.collections.iter().map(move |collection| (scope.name.as_str(), collection)));
    let said = all.take(SERIES_MAX).flat_map(|(scope, collection)| {
        let count = items.get(&collection.id).copied().unwrap_or_default();
        let labels = vec![("scope", scope.to_owned()), ("collection", collection.name.clone())];
        let labelled = |reading| Reading { labels: labels.clone(), ..reading };
        read(COLLECTIONS, &count).map(labelled).collect::<Vec<_>>()
    });
    said.collect()
}

#[cfg(test)]
mod tests {
    use base::{
        ScopeId,
        manifest::{Collection, Scope},
    };
    use stats::Value;

    use super::*;

    fn collection(id: u32, name: String) -> Collection {
        Collection { id: CollectionId(id), name, max_ttl_secs: None }
    }

    fn said(facts: &BucketFacts, manifest: &Manifest) -> Vec<(Value, Vec<String>)> {
        let plain = |reading: Reading| {
            let labels = reading.labels.into_iter().map(|(name, value)| format!("{name}={value}"));
            (reading.value, labels.collect())
        };
        of_collections(facts, manifest).into_iter().map(plain).collect()
    }

    #[test]
    fn each_collection_has_its_documents_and_no_bucket_more_series_than_there_may_be_collections() {
        let scope = |id, name: &str, collections| Scope { id: ScopeId(id), name: name.into(), collections };
        let mut facts = BucketFacts::default();
        facts.stats.collections = vec![(CollectionId(9), 5), (CollectionId(77), 3)];
        let shop = vec![collection(8, "carts".into()), collection(9, "orders".into())];
        let mut manifest = Manifest { scopes: vec![scope(8, "shop", shop)], ..Manifest::default() };
        let expected = [(0, "carts"), (5, "orders")].map(|(count, name)| {
            (Value::Count(count), vec!["scope=shop".to_owned(), format!("collection={name}")])
        });
        // A collection that the manifest does not have any more has no series.
        assert_eq!(said(&facts, &manifest), expected);
        let many = (10..20_000).map(|id| collection(id, format!("c{id}"))).collect();
        manifest.scopes.push(scope(10, "many", many));
        assert_eq!(said(&facts, &manifest).len(), SERIES_MAX);
    }
}
