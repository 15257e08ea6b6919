//! Reading many records at known places: in the order in which they lie, what lies close together with one read.

use crate::{
    api::{Locator, OwnedRecord},
    error::StoreError,
    format::{UNIT, frame},
    locator::Place,
    pin,
    segment::Segment,
    state::{Core, SegmentSet},
    window::{Extent, Window},
};

/// Read at once at most, unless one record is larger.
const WINDOW_BYTES: u64 = 256 << 10;

/// Calls `visit` with the number of each place and what is there.
pub(crate) fn read(
    core: &Core,
    places: &[Locator],
    visit: &mut dyn FnMut(usize, Result<OwnedRecord, StoreError>),
) {
    let set = core.segments();
    let mut order: Vec<(Place, usize)> =
        places.iter().enumerate().map(|(number, &at)| (Place::unpack(at), number)).collect();
    order.sort_unstable_by_key(|(place, _)| (place.segment, place.offset));
    let mut window = (0, Window::default());
    for (index, &(place, number)) in order.iter().enumerate() {
        if window.0 != place.segment {
            window = (place.segment, Window::default());
        }
        let rest = order.get(index + 1..).unwrap_or_default();
        visit(number, read_one(core, &set, place, rest, &mut window.1));
    }
}

fn read_one(
    core: &Core,
    set: &SegmentSet,
    place: Place,
    rest: &[(Place, usize)],
    window: &mut Window,
) -> Result<OwnedRecord, StoreError> {
    let segment = set.get(&place.segment).ok_or(StoreError::Stale)?;
    let following = rest.iter().take_while(|next| next.0.segment == place.segment).map(|next| extent(next.0));
    window.hold(segment, extent(place), following, WINDOW_BYTES)?;
    decode(core, segment, place, window).map_or_else(
        // Cut short by the window, damaged, or no record at all: asked by itself it says which.
        || pin::read(Some(segment), place, &core.incarnations),
        |record| {
            crate::counters::count(&core.counters.records_read, 1);
            Ok(record)
        },
    )
}

fn decode(core: &Core, segment: &Segment, place: Place, window: &Window) -> Option<OwnedRecord> {
    let record = frame::decode_record(window.from(place.offset), segment.salt).ok()?;
    core.is_current(record.vb, record.incarnation).then(|| segment.own(place.offset, &record))
}

fn extent(place: Place) -> Extent {
    Extent { offset: place.offset, length: u64::from(place.units) * UNIT }
}
