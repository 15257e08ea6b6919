//! The clock that leases run by ([`cluster::Lease`]).

/// Milliseconds since the machine was started, the time that it was suspended included.
pub fn clock_millis() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &raw mut time) };
    let (secs, nanos) = (u64::try_from(time.tv_sec), u64::try_from(time.tv_nsec));
    secs.unwrap_or_default() * 1000 + nanos.unwrap_or_default() / 1_000_000
}
