//! How fast this machine's memory is, in two figures; a quarter of a second in all.

use std::hint::black_box;
use std::time::Instant;

/// Larger than the caches of one core.
const BYTES: usize = 64 << 20;
const LINE: usize = 64;
const STEPS: usize = 500_000;

/// The time of one access that depends on the one before, in nanoseconds.
pub(super) fn latency_nanos() -> f64 {
    // One cycle through all lines in random order, so that no prefetcher guesses the next one.
    let lines = BYTES / LINE;
    let mut order: Vec<u32> = (0..lines as u32).collect();
    fastrand::Rng::with_seed(1).shuffle(&mut order);
    let mut next = vec![0u32; BYTES / size_of::<u32>()];
    let words = LINE / size_of::<u32>();
    for pair in order.windows(2) {
        next[pair[0] as usize * words] = pair[1] * words as u32;
    }
    if let (Some(first), Some(last)) = (order.first(), order.last()) {
        next[*last as usize * words] = first * words as u32;
    }
    let begun = Instant::now();
    let mut at = 0;
    for _ in 0..STEPS {
        at = next[at as usize];
    }
    black_box(at);
    begun.elapsed().as_secs_f64() * 1e9 / STEPS as f64
}

/// How fast memory is copied, counting what is read.
pub(super) fn gigabytes_per_second() -> f64 {
    let from = vec![1u8; BYTES];
    // Written once, so that the pages are there when it counts.
    let mut to = vec![2u8; BYTES];
    let begun = Instant::now();
    to.copy_from_slice(black_box(&from));
    black_box(&to);
    BYTES as f64 / 1e9 / begun.elapsed().as_secs_f64()
}
