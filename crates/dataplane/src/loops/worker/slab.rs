//! A worker's connections, found by an id that never names two of them: slot in the low half, the slot's
//! generation in the high half. Late events and wake-ups for a closed connection find nothing.

use crate::request::located::ConnectionId;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    item: Option<Box<T>>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    len: usize,
}

impl<T> Slab<T> {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: Vec::new(), len: 0 }
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds what `make` returns, telling it its id; nothing when it fails.
    pub(crate) fn insert<E>(
        &mut self,
        make: impl FnOnce(ConnectionId) -> Result<T, E>,
    ) -> Result<ConnectionId, E> {
        let index = match self.free.pop() {
            Some(index) => index,
            None => {
                self.slots.push(Slot { generation: 0, item: None });
                u32::try_from(self.slots.len() - 1).unwrap_or(u32::MAX)
            }
        };
        let generation = self.slots.get(index as usize).map_or(0, |slot| slot.generation);
        // One bit stays free: the largest token is the waker's.
        let id = (u64::from(generation & 0x7fff_ffff) << 32) | u64::from(index);
        match make(id) {
            Ok(item) => {
                if let Some(slot) = self.slots.get_mut(index as usize) {
                    slot.item = Some(Box::new(item));
                    self.len += 1;
                }
                Ok(id)
            }
            Err(error) => {
                self.free.push(index);
                Err(error)
            }
        }
    }

    fn slot(&mut self, id: ConnectionId) -> Option<&mut Slot<T>> {
        let slot = self.slots.get_mut((id & u64::from(u32::MAX)) as usize)?;
        (u64::from(slot.generation & 0x7fff_ffff) == id >> 32).then_some(slot)
    }

    /// The connection of that id.
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut T> {
        self.slot(id)?.item.as_deref_mut()
    }

    /// Takes it out for a turn; [`Self::put_back`] or [`Self::retire`] must follow.
    pub(crate) fn take(&mut self, id: ConnectionId) -> Option<Box<T>> {
        self.slot(id)?.item.take()
    }

    /// Ends what [`Self::take`] began.
    pub(crate) fn put_back(&mut self, id: ConnectionId, item: Box<T>) {
        if let Some(slot) = self.slot(id) {
            slot.item = Some(item);
        }
    }

    /// Frees the slot of a connection that was taken out for good.
    pub(crate) fn retire(&mut self, id: ConnectionId) {
        if let Some(slot) = self.slot(id) {
            slot.item = None;
            slot.generation = slot.generation.wrapping_add(1);
            self.free.push((id & u64::from(u32::MAX)) as u32);
            self.len -= 1;
        }
    }

    /// Ids of all connections.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        let id = |(index, slot): (usize, &Slot<T>)| {
            slot.item.as_ref().map(|_| (u64::from(slot.generation & 0x7fff_ffff) << 32) | index as u64)
        };
        self.slots.iter().enumerate().filter_map(id).collect()
    }

    /// All connections.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.item.as_deref_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_of_a_retired_connection_finds_nothing_even_when_its_slot_is_used_again() {
        let mut slab = Slab::new();
        let first = slab.insert(|_| Ok::<_, ()>('a')).unwrap();
        drop(slab.take(first));
        slab.retire(first);
        let second = slab.insert(|_| Ok::<_, ()>('b')).unwrap();
        assert_ne!(first, second);
        assert_eq!(slab.get_mut(first), None);
        assert_eq!(slab.get_mut(second), Some(&mut 'b'));
        assert_eq!(slab.len(), 1);
        slab.retire(first);
        assert_eq!((slab.len(), slab.ids()), (1, vec![second]));
        assert_eq!(slab.insert(|_| Err::<char, _>("no")), Err("no"));
        assert_eq!(slab.len(), 1);
    }
}
