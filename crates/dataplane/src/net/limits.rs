//! How many connections fit. The soft file limit is raised to the hard one, and a reserve is kept for storage and
//! REST. The wanted connection limit is reduced to what remains.

/// File descriptors kept for storage segments, listeners, REST connections and the like.
pub const RESERVED_FILES: u64 = 512;

/// Raises the soft limit on open files to the hard one and returns the limit now in force.
pub fn raise_file_limit() -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid, writable rlimit for the duration of the call.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return 1024;
    }
    if limit.rlim_cur < limit.rlim_max {
        let raised = libc::rlimit { rlim_cur: limit.rlim_max, rlim_max: limit.rlim_max };
        // SAFETY: `raised` is a valid rlimit for the duration of the call.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const raised) } == 0 {
            return raised.rlim_cur;
        }
    }
    limit.rlim_cur
}

/// The connection limit that fits `files` open files: the wanted one, or what the reserve leaves, but never less
/// than half of the files.
#[must_use]
pub fn fit_connections(wanted: usize, files: u64) -> usize {
    let room = files.saturating_sub(RESERVED_FILES).max(files / 2);
    wanted.min(usize::try_from(room).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_shrinks_to_what_the_reserve_leaves() {
        assert_eq!(fit_connections(30_000, 1_048_576), 30_000);
        assert_eq!(fit_connections(30_000, 4_096), 4_096 - 512);
        assert_eq!(fit_connections(30_000, 256), 128);
    }
}
