"""A release build of the last commit in which something can be left out at run time, so that its cost is the difference of two runs of one
binary. The source is changed in a folder of its own."""

import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent


def infrastructure(variable):
    """What reads the bits of an environment variable at the start, and tells whether one of them is set."""
    return [
        (
            "crates/cli/src",
            "fn main() -> ExitCode {",
            f'fn main() -> ExitCode {{\n    base::hash::leave_out(std::env::var("{variable}").ok().and_then(|bits| bits.parse().ok()));',
        ),
        (
            "crates/base/src",
            "static SECRET:",
            """static WITHOUT: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);
/// Which parts are left out.
pub fn leave_out(bits: Option<u8>) { WITHOUT.store(bits.unwrap_or(0), std::sync::atomic::Ordering::Relaxed); }
/// Whether that one is.
#[inline(always)]
pub fn is_out(bit: u8) -> bool { WITHOUT.load(std::sync::atomic::Ordering::Relaxed) & bit != 0 }
static SECRET:""",
        ),
    ]


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
