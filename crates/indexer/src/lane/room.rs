//! Whether the disk has room for what a lane's indexes may write.

use std::time::Duration;

use super::{LOOKS, Runner};

/// What is known of the room on the disk.
#[derive(Default)]
pub(super) struct Room {
    looked: Option<Duration>,
    /// Bytes beside those that are to stay free; none where these are not.
    free: Option<u64>,
    /// Others were told that it is not enough.
    is_lacking: bool,
}

impl Room {
    /// The disk is asked anew by the next look.
    pub(super) fn has_changed(&mut self) {
        self.looked = None;
    }
}

impl Runner {
    /// Whether the disk has room for what publications may write.
    pub(super) fn look_for_room(&mut self, now: Duration) -> bool {
        if self.room.looked.is_none_or(|at| now.saturating_sub(at) >= LOOKS) {
            self.room.looked = Some(now);
            let space = self.setup.fs.space(&self.setup.dir);
            self.room.free =
                space.map_or(Some(u64::MAX), |space| space.free.checked_sub((self.setup.room_min)()));
        }
        let wanted: u64 = self.members.values().map(|member| member.index.room_wanted()).sum();
        let has_room = self.room.free.is_some_and(|free| free >= wanted);
        self.tell_of_room(has_room);
        has_room
    }

    /// Has others know of it.
    pub(super) fn tell_of_room(&mut self, has_room: bool) {
        if has_room == self.room.is_lacking {
            self.room.is_lacking = !has_room;
            let without_room = &mut self.shared.state.lock().without_room;
            if has_room {
                without_room.remove(&self.lane)
            } else {
                without_room.insert(self.lane)
            };
        }
    }
}
