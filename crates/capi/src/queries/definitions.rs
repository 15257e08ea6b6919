//! What design documents define, by their texts, which are read once.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use base::BucketUuid;
use cluster::BucketInfo;
use views::{design::DesignDocument, index::Definition, refusal::Refusal};

use crate::{answer, path::DESIGN};

/// Definitions that are kept.
const DEFINITIONS_MAX: usize = 256;

/// A text, and what it defines.
type Known = (Arc<String>, Arc<Definition>);

/// See the module. They are kept by bucket and name.
#[derive(Default)]
pub(super) struct Definitions(Mutex<HashMap<(BucketUuid, String), Known>>);

impl Definitions {
    /// What the design document of this name defines.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub(super) fn of(&self, info: &BucketInfo, name: &str) -> Result<Arc<Definition>, Refusal> {
        let documents = &info.design_documents;
        let document = documents.get(name).ok_or_else(|| {
            let why = if documents.was_deleted(name) { "deleted" } else { "not found" };
            answer::not_found(format!("Design document {DESIGN}{name} {why}"))
        })?;
        let key = (info.uuid.clone(), name.to_owned());
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((text, definition)) = known.get(&key)
            && *text == document.text
        {
            return Ok(Arc::clone(definition));
        }
        let parsed = DesignDocument::parse_unchecked(document.text.as_bytes())?;
        let definition = Arc::new(Definition::of(&parsed));
        if known.len() >= DEFINITIONS_MAX {
            known.clear();
        }
        known.insert(key, (Arc::clone(&document.text), Arc::clone(&definition)));
        Ok(definition)
    }
}
