"""A release build of the last commit in which something can be left out at run time, so that its cost is the difference of two runs of one
binary. The source is changed in a folder of its own."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def infrastructure(variable):
    """What reads the bits of an environment variable at the start, and tells whether one of them is set.

    Where another variable, with _ALTERNATE behind its name, names a file, the first bit is set and taken back by turns. A line of the file
    has the nanoseconds of the processor and the operations of both turns: first of the one in which the part is left out.
    """
    return [
        ("crates/cli/src", "fn main() -> ExitCode {", MAIN.replace("VARIABLE", variable)),
        ("crates/base/src", "static SECRET:", BITS),
    ]


MAIN = """/// Nanoseconds of the processor that the process has taken, and operations that it has carried out.
fn taken() -> [u64; 2] {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a valid clock and a valid place for the result.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &raw mut time) };
    [time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64, base::hash::counted()]
}

fn alternate(mut file: std::fs::File, others: u8) {
    use std::{io::Write, thread::sleep, time::Duration};
    let mut first = 0;
    loop {
        let mut turns = [[0; 2]; 2];
        for turn in [first, first ^ 1] {
            base::hash::leave_out(others & !1 | turn ^ 1);
            // What it uses is in the caches again, or is not.
            sleep(Duration::from_millis(2));
            let before = taken();
            sleep(Duration::from_millis(20));
            let after = taken();
            turns[usize::from(turn)] = [after[0] - before[0], after[1] - before[1]];
        }
        let [[nanos_out, out], [nanos_in, within]] = turns;
        writeln!(file, "{nanos_out} {out} {nanos_in} {within}").expect("the file can be written");
        first ^= 1;
    }
}

fn main() -> ExitCode {
    let bits = std::env::var("VARIABLE").ok().and_then(|bits| bits.parse().ok()).unwrap_or(0);
    base::hash::leave_out(bits);
    if let Ok(path) = std::env::var("VARIABLE_ALTERNATE") {
        let file = std::fs::File::create(path).expect("the file can be made");
        std::thread::spawn(move || alternate(file, bits));
    }"""

BITS = """static WITHOUT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
static COUNTED: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
/// Which parts are left out.
pub fn leave_out(bits: u8) { WITHOUT.store(bits, std::sync::atomic::Ordering::Relaxed); }
/// Whether that one is.
#[inline(always)]
pub fn is_out(bit: u8) -> bool { WITHOUT.load(std::sync::atomic::Ordering::Relaxed) & bit != 0 }
/// Counts operations, of one loop.
#[inline(always)]
pub fn count(operations: u64) { COUNTED.store(counted() + operations, std::sync::atomic::Ordering::Relaxed); }
/// Operations so far.
#[inline(always)]
pub fn counted() -> u64 { COUNTED.load(std::sync::atomic::Ordering::Relaxed) }
static SECRET:"""


def change(tree, variable, switches):
    """Puts switches into the source that is in a folder. Each is a folder, what is in files below it, and what is put in its place."""
    for folder, there, instead in [*infrastructure(variable), *switches]:
        found = [path for path in (tree / folder).rglob("*.rs") if there in path.read_text(encoding="utf-8")]
        if not found:
            raise SystemExit(f"nowhere in {folder}: {there}")
        for path in found:
            path.write_text(path.read_text(encoding="utf-8").replace(there, instead), encoding="utf-8")


def build(name, variable, switches):
    """The binary that obeys the variable."""
    tree = ROOT / "target" / "bench" / name
    shutil.rmtree(tree / "crates", ignore_errors=True)
    tree.mkdir(parents=True, exist_ok=True)
    packed = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    subprocess.run(["tar", "-x", "-C", tree], input=packed, check=True)
    change(tree, variable, switches)
    environment = {**os.environ, "CARGO_TARGET_DIR": str(tree / "target")}
    command = ["cargo", "build", "--release", "--locked", "-p", "settee-cli"]
    subprocess.run(command, cwd=tree, check=True, env=environment)
    return tree / "target" / "release" / "settee"
