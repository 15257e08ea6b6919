//! Collections that come and go in a test, and the manifest that lists them.

use base::{CollectionId, Manifest, ManifestUid, manifest::Collection};

/// The number of the first collection that a test makes.
pub(crate) const FIRST: u32 = 8;

/// Lists `collections`; the next one that is made has the number `next`.
pub(crate) fn manifest(collections: &[u32], next: u32) -> Manifest {
    let mut manifest = Manifest::default();
    let made = collections.iter().map(|id| Collection {
        id: CollectionId(*id),
        name: format!("c{id}"),
        max_ttl_secs: None,
    });
    manifest.scopes[0].collections.extend(made);
    manifest.next_id = next;
    // Grows with every creation and every drop.
    let drops = (next - FIRST) - collections.len() as u32;
    manifest.uid = ManifestUid(u64::from(next - FIRST + drops));
    manifest
}
