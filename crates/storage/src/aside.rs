//! Files of which nothing can be read, and of which nobody knows whether they mattered. They are renamed, so that an operator who looks
//! into the damage still has them.
//!
//! A segment that was synced is listed in the manifest, and its file keeps its name whatever becomes of it. Here are the others
//! whose headers are damaged: mostly such as a power failure has left half made. So there is a bound: [`FILES_MAX`] of them,
//! of at most 256 MiB each, the newest. Blank ones are removed at once.

use crate::{
    fs::FsFile,
    segment::{file_name, parse_name},
    state::Core,
};

/// What the name of such a file ends with, behind the name that it had.
const SUFFIX: &str = ".unreadable";
/// So many are kept.
const FILES_MAX: usize = 16;
const WINDOW_BYTES: usize = 256 << 10;

/// Renames a segment's file, unless there is nothing in it. Failing is harmless: the next open tries again.
pub(crate) fn put(core: &Core, name: &str) {
    let path = core.dir.join(name);
    if core.fs.open(&path).is_ok_and(|file| is_blank(&*file)) {
        return core.remove_file(name);
    }
    let renamed = format!("{name}{SUFFIX}");
    match core.fs.rename(&path, &core.dir.join(&renamed)) {
        Ok(()) => tracing::error!(file = renamed, "nothing in a segment's file can be read: renamed"),
        Err(error) => tracing::warn!(file = name, %error, "could not rename a file that cannot be read"),
    }
}

/// Removes the oldest beyond the bound, of those that have just been renamed as well. Failing is harmless here, too.
pub(crate) fn bound(core: &Core) {
    let names = core.fs.list(&core.dir).unwrap_or_default();
    let mut ids: Vec<u32> = names.iter().filter_map(|name| parse_name(name.strip_suffix(SUFFIX)?)).collect();
    ids.sort_unstable();
    for id in ids.iter().rev().skip(FILES_MAX) {
        core.remove_file(&format!("{}{SUFFIX}", file_name(*id)));
    }
}

/// Whether there is nothing but zeros in a file. What cannot be read may be anything.
#[expect(clippy::indexing_slicing, reason = "a read gives no more bytes than its buffer has")]
fn is_blank(file: &dyn FsFile) -> bool {
    let mut window = vec![0; WINDOW_BYTES];
    let mut at = 0;
    loop {
        match file.read_at(&mut window, at) {
            Ok(0) => return true,
            Ok(count) if window[..count].iter().all(|&byte| byte == 0) => at += count as u64,
            _ => return false,
        }
    }
}
