//! Collections that come and go in a test, and the manifest that lists them.

use std::sync::Arc;

use base::{CollectionId, Manifest, ManifestUid, manifest::Collection};
use fastrand::Rng;

use crate::support::Rig;

/// The number of the first collection that a test makes.
const FIRST: u32 = 8;

/// The collections besides the default one.
pub(crate) struct Collections {
    ids: Vec<u32>,
    next: u32,
}

impl Collections {
    pub(crate) fn none() -> Self {
        Self { ids: Vec::new(), next: FIRST }
    }

    pub(crate) fn has(&self, id: u32) -> bool {
        self.ids.contains(&id)
    }

    /// A key in one of them, or in the default one.
    pub(crate) fn key(&self, rng: &mut Rng) -> Vec<u8> {
        let collection = match rng.u8(0..4) {
            0 if !self.ids.is_empty() => *rng.choice(&self.ids).unwrap() as u8,
            _ => 0,
        };
        [&[collection], format!("k{}", rng.u32(0..40)).as_bytes()].concat()
    }

    /// Creates one, or drops one, and says which it dropped. Sometimes neither; there are four at most.
    pub(crate) fn change(&mut self, rng: &mut Rng) -> Option<Option<CollectionId>> {
        if self.ids.len() >= 2 && rng.bool() {
            let dropped = self.ids.remove(rng.usize(0..self.ids.len()));
            Some(Some(CollectionId(dropped)))
        } else if self.ids.len() < 4 {
            self.ids.push(self.next);
            self.next += 1;
            Some(None)
        } else {
            None
        }
    }

    /// Tells the bucket which there are.
    pub(crate) fn tell(&self, rig: &mut Rig) {
        let manifest = Arc::new(self.manifest());
        rig.manifest = Arc::clone(&manifest);
        rig.bucket.set_manifest(manifest, rig.now());
    }

    fn manifest(&self) -> Manifest {
        let mut manifest = Manifest::default();
        let made = self.ids.iter().map(|id| Collection {
            id: CollectionId(*id),
            name: format!("c{id}"),
            max_ttl_secs: None,
        });
        manifest.scopes[0].collections.extend(made);
        manifest.next_id = self.next;
        // Grows with every creation and every drop.
        let drops = (self.next - FIRST) - self.ids.len() as u32;
        manifest.uid = ManifestUid(u64::from(self.next - FIRST + drops));
        manifest
    }
}
