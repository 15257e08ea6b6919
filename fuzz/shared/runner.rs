//! Runs a fuzz target without libFuzzer, on any toolchain: first every seed as it is, then mutations of them until
//! the time is up. No coverage guides it; it is the quick guard in the test command, not the hunt.
//!
//! All mutations follow from one number, printed and settable by `SETTEE_FUZZ_SEED`; the time in seconds comes
//! from `SETTEE_FUZZ_SECONDS`. A failing input is printed in hexadecimal before the panic goes on.

use std::{
    env, fs,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    path::Path,
    str::FromStr,
    time::{Duration, Instant},
};

const SECONDS: u64 = 2;
const SEED: u64 = 0x5e77_ee00;
/// Mutated inputs stay below this; decoders see longer ones only in their own tests.
const INPUT_BYTES_MAX: usize = 4096;

/// Bytes, and halves of lengths, that decoders treat specially.
const INTERESTING: [u8; 16] =
    [0x00, 0x01, 0x07, 0x08, 0x0f, 0x18, 0x7f, 0x80, 0x81, 0xf0, 0xff, b' ', b',', b'=', b'\r', b'\n'];

/// Feeds `target` the seeds of `name` and then mutations of them.
pub(super) fn run(name: &str, target: fn(&[u8])) {
    let seeds = read_seeds(name);
    for seed in &seeds {
        feed(name, target, seed);
    }
    let seed = setting("SETTEE_FUZZ_SEED", SEED);
    let time = Duration::from_secs(setting("SETTEE_FUZZ_SECONDS", SECONDS));
    println!("{name}: {} seeds, then {time:?} of mutations with SETTEE_FUZZ_SEED={seed}", seeds.len());
    let mut random = fastrand::Rng::with_seed(seed);
    let start = Instant::now();
    let mut rounds = 0_u64;
    while start.elapsed() < time {
        for _ in 0..256 {
            let input = mutate(&seeds, &mut random);
            feed(name, target, &input);
            rounds += 1;
        }
    }
    println!("{name}: {rounds} mutations");
}

fn setting<T: FromStr>(name: &str, default: T) -> T {
    env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn read_seeds(name: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let seeds: Vec<_> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!seeds.is_empty(), "no seeds in {}", folder.display());
    seeds
}

fn feed(name: &str, target: fn(&[u8]), input: &[u8]) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| target(input))) {
        let hex: String = input.iter().map(|byte| format!("{byte:02x}")).collect();
        eprintln!("{name} failed on {} bytes: {hex}", input.len());
        resume_unwind(panic);
    }
}

fn mutate(seeds: &[Vec<u8>], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut input = seeds[random.usize(..seeds.len())].clone();
    for _ in 0..random.usize(1..8) {
        mutate_once(&mut input, seeds, random);
    }
    input.truncate(INPUT_BYTES_MAX);
    input
}

fn mutate_once(input: &mut Vec<u8>, seeds: &[Vec<u8>], random: &mut fastrand::Rng) {
    let at = random.usize(..=input.len());
    let range = at..random.usize(at..=input.len().min(at + 32));
    match random.u8(..8) {
        0 => input.truncate(at),
        1 => input.insert(at, random.u8(..)),
        2 => drop(input.drain(range)),
        3 => {
            let copy = input[range].to_vec();
            input.splice(at..at, copy);
        }
        4 => {
            let other = &seeds[random.usize(..seeds.len())];
            input.splice(at.., other[random.usize(..=other.len())..].iter().copied());
        }
        5 if at < input.len() => input[at] ^= 1 << random.u8(..8),
        6 if at < input.len() => input[at] = INTERESTING[random.usize(..INTERESTING.len())],
        _ if at < input.len() => input[at] = input[at].wrapping_add(random.u8(..16)).wrapping_sub(8),
        _ => input.push(INTERESTING[random.usize(..INTERESTING.len())]),
    }
}
