//! The engine's system events in the words of the protocol.

use engine::system_events::{Happening, SystemEvent as Recorded};
use protocol::binary::dcp::SystemEvent;

/// The same event.
pub(super) fn in_protocol(recorded: &Recorded) -> SystemEvent<'_> {
    let manifest = recorded.manifest_uid;
    match &recorded.what {
        Happening::CollectionBegin(facts) => SystemEvent::CollectionBegin {
            manifest,
            scope: facts.scope,
            collection: facts.collection,
            max_ttl: facts.max_ttl_secs,
            name: facts.name.as_bytes(),
        },
        Happening::CollectionModified(facts) => SystemEvent::CollectionModified {
            manifest,
            scope: facts.scope,
            collection: facts.collection,
            max_ttl: facts.max_ttl_secs,
            name: facts.name.as_bytes(),
        },
        Happening::CollectionEnd { scope, collection } => {
            SystemEvent::CollectionEnd { manifest, scope: *scope, collection: *collection }
        }
        Happening::ScopeBegin { scope, name } => {
            SystemEvent::ScopeBegin { manifest, scope: *scope, name: name.as_bytes() }
        }
        Happening::ScopeEnd { scope } => SystemEvent::ScopeEnd { manifest, scope: *scope },
    }
}
