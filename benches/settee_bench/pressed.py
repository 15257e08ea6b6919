"""A node whose data does not fit its memory, and what it says of itself meanwhile.

Sizes follow the production reports: keys of 36 bytes, values of 750 to 1,250. The quota is computed from the share of
the values that shall stay in memory; what really is resident is asked and told, never assumed. The sampler asks the
server once a second, and the kernel about the server's threads and its disk.
"""

import json
import os
import shutil
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

from settee.kv import Client
from settee.node import PASSWORD, USERNAME, Node, binary, scratch

from .servers import BUCKET, SetteePersistent, pinned, wait_for_port

KEY_BYTES = 36
VALUE_SIZES = "750-1250"
VALUE_BYTES_MEAN = 1000
# Header, collection id, rounding and the table's share: what docs/benchmarks/one-node.md found per item beyond key and value.
ITEM_OVERHEAD = 60
# What full eviction keeps of a key that it has evicted.
EVICTED_BYTES = 2
# Where a bucket that is full comes to rest: at the low watermark.
WATERMARK_SHARE = 0.75
# With everything resident the low watermark must not be reached.
ROOMY_SHARE = 0.65
# Memory that does not grow with the number of items.
FIXED_MB = 4
# The least that a bucket can have.
QUOTA_MB_MIN = 100
# What waits for the disk, and, of clusters, for a replica.
QUEUES = ("ep_queue_size", "ep_flusher_todo", "replication:items_remaining")
DRAIN_TIMEOUT = 180.0


def shape(records):
    """Flags of `settee load` for these records."""
    return ["--records", records, "--key-bytes", KEY_BYTES, "--value-bytes", VALUE_SIZES]


def quota_mb(records, ratio, policy):
    """The bucket's quota at which this share of the values stays in memory."""
    kept = KEY_BYTES + ITEM_OVERHEAD
    evicted = kept if policy == "valueOnly" else EVICTED_BYTES
    each = ratio * (kept + VALUE_BYTES_MEAN) + (1 - ratio) * evicted
    share = ROOMY_SHARE if ratio >= 1 else WATERMARK_SHARE
    return max(QUOTA_MB_MIN, round((records * each / 2**20 + FIXED_MB) / share))


class UnderPressure:
    """What is asked of servers whose data does not fit their memory. `watched` is a context whose value tells figures."""

    # So many nodes write each document to their disks.
    copies = 1

    def fill(self):
        """Every record once, then rest. Returns the resident share of the values."""
        attempt(self.options, self, "--populate", "--pipeline", 16, *shape(self.options.pressure_records))
        self.drain()
        self.settle()
        return self.stats()["resident"]

    def stats(self):
        with self.watched() as look:
            return look()

    def drain(self):
        """Seconds until no mutation waits for the disk; None if that takes too long."""
        began = time.monotonic()
        with self.watched() as look:
            while time.monotonic() - began < DRAIN_TIMEOUT:
                if look()["queue"] == 0:
                    return time.monotonic() - began
                time.sleep(0.05)
        return None


class Pressed(UnderPressure, SetteePersistent):
    """`settee serve` with one bucket that has less memory than data."""

    def __init__(self, options, ratio, policy="valueOnly", name="settee pressed"):
        super().__init__(options)
        self.options, self.ratio, self.policy, self.name = options, ratio, policy, name
        self.quota = quota_mb(options.pressure_records, ratio, policy)

    def start(self):
        self.directory = scratch("bench-pressed")
        self.node = Node(self.host, self.directory, options=disk_flags(self.options))
        self.node.start()
        self.node.initialise(memoryQuota=self.quota + 256)
        self.node.rest.create_bucket(BUCKET, quota_mb=self.quota, kind=self.kind, evictionPolicy=self.policy)
        self.process_id = self.node.pid
        wait_for_port(self.host, 11210)

    def client(self, bucket=BUCKET):
        return Client(self.host, 11210, USERNAME, PASSWORD, bucket)

    @contextmanager
    def watched(self):
        with self.client() as client:
            yield lambda: figures(client.stats())

    def items(self):
        with self.client() as client:
            return int(client.stats()["curr_items"])

    def runtimes(self):
        """The processor time of the steps of housekeeping, and of what holds locks, as the server tells it."""
        with self.client() as client:
            return client.stats(b"runtimes")


def disk_flags(options):
    flags = ["--disk-bytes-per-sec", options.disk_mb * 1_000_000] if options.disk_mb else []
    return flags + (["--disk-iops", options.disk_iops] if options.disk_iops else [])


def figures(stats):
    """What is looked at of a server's statistics; a name that it does not have counts as nothing."""
    def number(name):
        return float(stats.get(name, 0))

    return {
        "queue": sum(number(name) for name in QUEUES),
        "memory": number("mem_used"),
        "resident": number("vb_active_perc_mem_resident"),
        "fetched": number("ep_bg_fetched"),
        "persisted": number("ep_total_persisted"),
        "refused": number("ep_tmp_oom_errors"),
        "step": number("ep_pressure_step"),
    }


def attempt(options, server, *flags, bucket=BUCKET, start=False, nice=0):
    """One run of `settee load` that may meet errors: they are part of what is measured here. Wrong documents are not.

    With `start` the running process is returned; `finish` waits for it. With `nice` it stands back where others want to
    run on its core."""
    command = ["nice", "-n", nice, binary(), "load", *flags, "--json", "--verify", 0, "--host", server.host, "-u", USERNAME,
               "-p", PASSWORD, "-b", bucket, "--server-pid", ",".join(map(str, server.process_ids))]
    with pinned(options.client_core):
        process = subprocess.Popen([str(part) for part in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
    return process if start else finish(process)


def finish(process, orders=None):
    """Waits for the end of a run, after telling it these orders if it takes any (`--control -`)."""
    out, err = process.communicate(orders)
    try:
        result = json.loads(out)
    except json.JSONDecodeError:
        raise SystemExit(f"{' '.join(map(str, process.args))}\n{out}{err}") from None
    if result["corrupt"]:
        raise SystemExit(f"{result['corrupt']} documents came back different from what was stored")
    return result


class Sampler:
    """Asks the server once a second for as long as the block lasts."""

    EVERY = 1.0

    def __init__(self, server):
        self.server, self.samples, self.over = server, [], threading.Event()

    def __enter__(self):
        self.began = time.monotonic()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()

    def run(self):
        with self.server.watched() as look:
            while not self.over.is_set():
                sample = look()
                compaction = sum(thread_seconds(pid, "compaction") for pid in self.server.process_ids)
                sample |= {"at": time.monotonic() - self.began, "compaction_cpu": compaction,
                           "disk_free": shutil.disk_usage(self.server.directory).free,
                           "disk_taken": taken_bytes(self.server.directory)}
                self.samples.append(sample)
                self.over.wait(self.EVERY)

    def align(self, result):
        """Call it when the run that `result` tells of has just ended: the samples' times count from its beginning, and
        what was sampled before that, while its connections were made, goes."""
        early = time.monotonic() - self.began - result["seconds"]
        self.samples = [{**sample, "at": sample["at"] - early} for sample in self.samples if sample["at"] >= early]

    def column(self, name):
        return [sample[name] for sample in self.samples]


def thread_seconds(pid, name):
    """CPU seconds of the threads whose name contains this."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        try:
            if name in (task / "comm").read_text():
                total += int((task / "schedstat").read_text().split()[0])
        except (FileNotFoundError, ProcessLookupError):
            continue
    return total / 1e9


def taken_bytes(directory):
    """What the files of a directory take of the disk; those that go meanwhile take nothing."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            with suppress(FileNotFoundError):
                total += os.stat(os.path.join(folder, name)).st_blocks * 512
    return total


def written_bytes(pid):
    """Bytes that the process has handed to the disk's page cache."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("write_bytes")).split()[1])


def sequential_write_mb_per_s(directory, megabytes=1024):
    """What the disk itself takes: one file written from front to back in pieces of a MiB and synced at its end."""
    path, piece = Path(directory) / "sequential", os.urandom(1 << 20)
    os.sync()
    began = time.monotonic()
    file = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(megabytes):
            os.write(file, piece)
        os.fdatasync(file)
    finally:
        os.close(file)
        path.unlink()
    return megabytes * 1.048576 / (time.monotonic() - began)

