//! A last look at the marks of documents ([`crate::parts`]).

use std::sync::Arc;

use base::bucket::DurabilityLevel;

use super::World;
use crate::{
    clients::{mark_of, vb_of},
    invariants::histories::Did,
};

impl World {
    /// Somebody reads every mark that counts.
    pub(super) fn read_marks_in_the_end(&mut self) {
        let (at, newest) = (self.journal.now, Arc::clone(self.newest()));
        for info in newest.buckets.values() {
            let keys: Vec<(DurabilityLevel, Vec<u8>)> = self.clients.keys_of(info, self.clients.generation());
            for (level, key) in keys {
                let vb = vb_of(info, &key);
                let node = info.vbs[usize::from(vb.get())].chain[0];
                let now = self.machines[&node].clock.now(at);
                let open = self.open(node, &info.uuid).expect("an active copy");
                let looked = open.look(vb, &key, now);
                let looked = looked.unwrap_or_else(|status| panic!("{key:?} of {vb}: {status:?}"));
                let moments = (self.clients.next_moment(), Some(self.clients.next_moment()));
                let (number, mark) = looked.unwrap_or_default();
                let histories = &mut self.invariants.histories;
                histories.note((&info.uuid, &key, level), moments, Did::Read(number));
                histories.note((&info.uuid, &mark_of(&key), level), moments, Did::Read(mark));
            }
        }
    }
}
