//! Keys of a vBucket whose newest version is being looked up on disk: whether what was read still holds when it arrives.
//!
//! A version that is on disk and not in the table was so before, with one exception. The key may have been in the table meanwhile
//! and have left it again, as a synced tombstone or an evicted document. The code that takes a key out of the table says so here,
//! and the answers that are on their way for it are void.

/// See the module header.
#[derive(Debug, Default)]
pub(crate) struct Lookups {
    running: Vec<Lookup>,
    last_ticket: u32,
}

#[derive(Debug)]
struct Lookup {
    ticket: u32,
    hash: u64,
    void: bool,
}

impl Lookups {
    /// A look-up begins; returns what to end it with.
    pub(crate) fn begin(&mut self, hash: u64) -> u32 {
        self.last_ticket = self.last_ticket.wrapping_add(1);
        self.running.push(Lookup { ticket: self.last_ticket, hash, void: false });
        self.last_ticket
    }

    /// It has ended; whether its answer holds.
    pub(crate) fn end(&mut self, ticket: u32) -> bool {
        let index = self.running.iter().position(|lookup| lookup.ticket == ticket);
        index.is_some_and(|index| !self.running.swap_remove(index).void)
    }

    /// A key has left the table.
    #[inline]
    pub(crate) fn departed(&mut self, hash: u64) {
        for lookup in &mut self.running {
            lookup.void |= lookup.hash == hash;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_answers_about_a_key_that_left_meanwhile_are_void() {
        let mut lookups = Lookups::default();
        let (before, other) = (lookups.begin(7), lookups.begin(8));
        lookups.departed(7);
        let after = lookups.begin(7);
        assert!(!lookups.end(before));
        assert!(lookups.end(other) && lookups.end(after));
        assert!(!lookups.end(after), "each ends once");
        assert!(lookups.running.is_empty());
    }
}
