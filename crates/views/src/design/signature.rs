//! What makes an index: map functions and their reductions, whatever the design document is called.
//!
//! Two design documents with equal views have equal signatures. So when a document under development is published, its
//! copy goes on with the index that was built for that document.

use std::collections::BTreeMap;

use md5::{Digest, Md5};

use super::{DesignDocument, Reduction, View};

/// The identity of an index, 32 hexadecimal digits when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signature(pub [u8; 16]);

impl std::fmt::Display for Signature {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

/// One map function of an index, with the views that it serves: views with equal functions and options share its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexedMap<'a> {
    /// The source.
    pub source: &'a str,
    /// The views by name.
    pub views: Vec<&'a View>,
}

impl<'a> IndexedMap<'a> {
    /// The distinct reductions of its rows.
    pub fn reductions(&self) -> impl Iterator<Item = &'a Reduction> {
        let distinct: std::collections::BTreeSet<&Reduction> =
            self.views.iter().filter_map(|view| view.reduce.as_ref()).collect();
        distinct.into_iter()
    }
}

impl DesignDocument {
    /// The distinct map functions, in an order that follows from the functions alone.
    #[must_use]
    pub fn maps(&self) -> Vec<IndexedMap<'_>> {
        let mut maps: BTreeMap<(&str, &str), Vec<&View>> = BTreeMap::new();
        for view in &self.views {
            maps.entry((&view.map, view.options.as_deref().unwrap_or_default())).or_default().push(view);
        }
        let mut sorted = Vec::with_capacity(maps.len());
        for ((source, _), mut views) in maps {
            views.sort_by(|left, right| left.name.cmp(&right.name));
            sorted.push(IndexedMap { source, views });
        }
        sorted
    }

    /// The identity of the index of this document's views.
    #[must_use]
    pub fn signature(&self) -> Signature {
        let mut digest = Md5::new();
        let mut part = |text: &str| {
            digest.update((text.len() as u64).to_be_bytes());
            digest.update(text.as_bytes());
        };
        part(if self.maps_deleted { "deleted" } else { "" });
        for map in self.maps() {
            part(map.source);
            for view in map.views {
                part(&view.name);
                part(view.options.as_deref().unwrap_or_default());
                part(view.reduce.as_ref().map_or("", Reduction::source));
            }
        }
        Signature(digest.finalize().into())
    }
}
