//! A small file beside the segments with what is good to know after a restart and may be lost. The store's user decides
//! what that is. Replaced whole, never synced; what does not match its checksum is as good as absent. The log does not
//! depend on it in any way, and a store that fails to write it goes on.

use crate::{
    error::{StoreError, io_error},
    state::Core,
};

const NAME: &str = "hints";
const NEW_NAME: &str = "hints.new";
const MAGIC: &[u8; 8] = b"STLHINT1";
/// Magic and checksum.
const HEADER_BYTES: usize = MAGIC.len() + size_of::<u32>();
/// Larger files are not read.
const BYTES_MAX: u64 = 64 << 20;

/// Replaces the hints.
///
/// # Errors
/// [`StoreError::NoSpace`], [`StoreError::Io`]: the old ones are still there.
pub(crate) fn put(core: &Core, hints: &[u8]) -> Result<(), StoreError> {
    let (name, new_name) = (core.dir.join(NAME), core.dir.join(NEW_NAME));
    let mut content = Vec::with_capacity(HEADER_BYTES + hints.len());
    content.extend_from_slice(MAGIC);
    content.extend_from_slice(&crc32c::crc32c(hints).to_le_bytes());
    content.extend_from_slice(hints);
    let written = core.fs.create(&new_name).and_then(|file| file.write_at(&content, 0));
    written.and_then(|()| core.fs.rename(&new_name, &name)).map_err(|source| io_error("write", NAME, source))
}

/// The hints; none when there are none or they are damaged.
pub(crate) fn read(core: &Core) -> Option<Vec<u8>> {
    let file = core.fs.open(&core.dir.join(NAME)).ok()?;
    let length = file.length().ok().filter(|&length| length <= BYTES_MAX)?;
    let mut content = vec![0; usize::try_from(length).ok()?];
    let read = file.read_at(&mut content, 0).ok()?;
    let (magic, rest) = content.get(..read)?.split_first_chunk::<8>()?;
    let (crc, hints) = rest.split_first_chunk::<4>()?;
    (magic == MAGIC && crc32c::crc32c(hints) == u32::from_le_bytes(*crc)).then(|| hints.to_vec())
}
