"""The official Java DCP client as connectors use it, through crashes on both sides.

    compat/run dcp-java [SCENARIO...] [--seed N]

Each scenario has a consumer process (src/main/java) that keeps what it was told together with where it was, writers, and
often a kill -9 of one or the other. At its end the consumer has exactly the bucket's content: every key, its CAS,
revision, flags, expiry and value, and a deletion for every key that is gone.
"""

import argparse
import base64
import os
import random
import re
import subprocess
import sys
import time

from settee import documents, kv
from settee.node import PASSWORD, USERNAME, Node, NodeError, scratch

HOME = os.path.dirname(os.path.abspath(__file__))
WORK = scratch("dcp-java")
PLAIN = tuple(feature for feature in documents.FEATURES if feature != kv.F_COLLECTIONS)


class Consumer:
    """One JVM with the client in it."""

    def __init__(self, node, bucket, name, **options):
        classpath = open(os.path.join(HOME, "target", "classpath"), encoding="utf-8").read().strip()
        given = {
            "address": node.address, "bucket": bucket, "username": USERNAME, "password": PASSWORD,
            "state": WORK / f"{name}.state", **options,
        }  # fmt: skip
        self.node, self.bucket, self.name = node, bucket, name
        self.log = WORK / f"{name}.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [
                    "java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
                    "-cp", f"{os.path.join(HOME, 'target', 'classes')}:{classpath}", "settee.Consumer",
                    *(f"{option}={value}" for option, value in given.items()),
                ],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
            )  # fmt: skip
        RUNNING.append(self)
        self.is_streaming = False

    def ready(self):
        """Wait until all its streams are open; whatever it is told waits for that by itself."""
        if not self.is_streaming:
            self._expect("streaming")
        self.is_streaming = True
        return self

    def _answer(self):
        while True:
            line = self.process.stdout.readline()
            if not line:
                raise AssertionError(f"{self.name}: the consumer died, and said at last:\n{self._last_words()}")
            # Whatever the client's own logging prints is not ours.
            if re.match(r"streaming|saved|ended|reached|late|undone|what", line):
                return line.strip()

    def _last_words(self, bytes_max=3000):
        """The end of its log: a run elsewhere leaves nothing but what is printed."""
        return self.log.read_bytes()[-bytes_max:].decode(errors="replace")

    def _expect(self, wanted):
        answer = self._answer()
        if answer != wanted:
            raise AssertionError(f"{self.name}: {answer}")

    def _tell(self, command):
        self.ready()
        self.process.stdin.write(command + "\n")
        self.process.stdin.flush()

    def reach(self, targets):
        """Wait until it is where `targets` ({vBucket: seqno}) says."""
        wanted = WORK / f"{self.name}.targets"
        wanted.write_text("".join(f"{vb} {seqno}\n" for vb, seqno in targets.items() if seqno))
        self._tell(f"await {wanted}")
        answer = self._answer()
        if answer != "reached":
            raise AssertionError(f"{self.name}: {answer}; the server's view of it: {self._seen_by_server(answer)}")

    def _seen_by_server(self, answer):
        """What the statistics say of the stream that an answer complains about, and of its connection."""
        vb = re.search(r"vBucket (\d+)", answer)
        with documents.connect(self.node, self.bucket) as client:
            stats = client.stats(b"dcp")
        mine = f"stream_{vb and vb.group(1)}_"
        facts = {name.rsplit(":", 1)[-1]: value for name, value in stats.items()}
        return {name: value for name, value in facts.items() if name.startswith((mine, "unacked", "paused", "max_buf"))}

    def save(self):
        self._tell("save")
        self._expect("saved")

    def content(self):
        """{(collection name, key): (kind, vb, seqno, cas, rev, flags, expiry, value, xattrs)}, how many changes were undone,
        and how many of those have neither come again nor been replaced."""
        path = WORK / f"{self.name}.dump"
        self._tell(f"dump {path}")
        answer = re.match(r"undone (\d+), lost (\d+), created \d+, problems \[(.*)\]$", self._answer())
        if answer.group(3):
            raise AssertionError(f"{self.name}: {answer.group(3)}")
        found = {}
        for line in path.read_text().splitlines():
            vb, seqno, kind, _, name, key, cas, rev, flags, expiry, value, xattrs = line.split("\t")
            facts = (int(cas), int(rev), int(flags) & 0xFFFF_FFFF, int(expiry) & 0xFFFF_FFFF, base64.b64decode(value))
            found[name, base64.b64decode(key)] = (kind, int(vb), int(seqno), *facts, xattrs)
        return found, int(answer.group(1)), int(answer.group(2))

    def end(self):
        self._tell("end")
        self._expect("ended")
        self.process.wait(10)

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


RUNNING = []


def check(node, bucket, keys, consumer, values=True, vbuckets=1024):
    """What the consumer has is what the server has, for all the keys that were ever written and no others."""
    content, undone, lost = consumer.content()
    names = {uid: name for name, uid in documents.manifest(node, bucket).items()}
    known = {(collection, key) for collection, key in keys if collection in names}
    with documents.connect(node, bucket, vbuckets=vbuckets) as client:
        truth = documents.read_all(client, sorted(known))
    extra = set(content) - {(names[collection], key) for collection, key in known}
    if extra:
        raise AssertionError(f"{len(extra)} keys that nobody wrote: {sorted(extra)[:5]}")
    alive = 0
    for (collection, key), facts in truth.items():
        told = content.get((names[collection], key))
        where = f"{names[collection]}/{key!r}: the server has {facts and facts[:5]}, the consumer {told and told[:7]}"
        if facts is None or facts[0]:
            if told is not None and told[0] == "mutation":
                raise AssertionError(where)
            if facts and (told is None or told[3:5] != facts[1:3]):
                raise AssertionError(where)
            continue
        alive += 1
        if told is None or told[0] != "mutation" or told[3:7] != facts[1:5]:
            raise AssertionError(where)
        if told[7] != (facts[5] if values else b""):
            raise AssertionError(f"{where}: another value")
    if not alive:
        raise AssertionError("nothing was left to compare")
    return alive, len(truth) - alive, undone, lost


def collection(node, bucket, scope, name, drop=False):
    path = f"/pools/default/buckets/{bucket}/scopes/{scope}/collections"
    if drop:
        node.rest.ok("DELETE", f"{path}/{name}")
        return None
    node.rest.ok("POST", path, {"name": name})
    return documents.manifest(node, bucket)[f"{scope}.{name}"]


def scope(node, bucket, name):
    node.rest.ok("POST", f"/pools/default/buckets/{bucket}/scopes", {"name": name})


def write(node, bucket, collections, seed, seconds=None, operations=None, **options):
    """A writer that has run for a while; it goes on if only a time is given."""
    writer = documents.Writer(node, bucket, collections, seed, operations=operations, **options)
    writer.start()
    if operations is not None:
        writer.join(60)
        return writer.finish()
    time.sleep(seconds)
    return writer


def settled(node, bucket):
    """High seqnos, once documents that expire have done so: those of one second live for two at most, and the pager comes each second."""
    time.sleep(3.5)
    with documents.connect(node, bucket) as client:
        before = None
        while (now := documents.high_seqnos(client)) != before:
            before = now
            time.sleep(0.3)
        return now


def last_of(node, bucket, collections):
    """The last seqno in each vBucket that some collections have."""
    with documents.connect(node, bucket) as client:
        each = [documents.high_seqnos(client, collection) for collection in collections]
    return {vb: max(seqnos[vb] for seqnos in each) for vb in each[0]}


def restart(node, writer):
    """kill -9 under the writer, and a new start."""
    writer.doomed = True
    node.kill()
    node.start()
    for _ in range(200):
        try:
            documents.connect(node, "health").close()
            return
        except (kv.Closed, kv.Refused, OSError):
            time.sleep(0.05)
    raise NodeError("the node does not serve its buckets again")


def crashes(node, chance):
    """Streams from zero to now through kill -9 of the node and of the consumer, collections coming and going."""
    bucket = "crashes"
    node.rest.create_bucket(bucket, quota_mb=128)
    scope(node, bucket, "s")
    ids = [0, collection(node, bucket, "s", "a"), collection(node, bucket, "s", "b")]
    keys = write(node, bucket, ids, chance.getrandbits(32), operations=3000)
    # With mitigation every window waits for the disk: a small one would make this a test of patience.
    options = {"collections": 1, "mitigate": 200, "compression": "ENABLED", "flow": 1 << 20}
    consumer = Consumer(node, bucket, "crashes", **options).ready()
    lost = 0
    for number in range(3):
        writer = write(node, bucket, ids, chance.getrandbits(32), seconds=0.5, bytes_max=500)
        if number == 1:
            collection(node, bucket, "s", "b", drop=True)
            ids = [0, ids[1], collection(node, bucket, "s", "c")]
        time.sleep(chance.uniform(0, 0.3))
        restart(node, writer)
        keys |= writer.finish()
        if number == 1:
            # The consumer dies in mid-stream and goes on from what it had saved a moment before.
            writer = write(node, bucket, ids, chance.getrandbits(32), seconds=0.3)
            with documents.connect(node, bucket) as client:
                consumer.reach(documents.high_seqnos(client))
            lost += consumer.content()[2]
            consumer.save()
            time.sleep(0.2)
            consumer.kill()
            time.sleep(0.3)
            keys |= writer.finish()
            consumer = Consumer(node, bucket, "crashes", **options)
    keys |= write(node, bucket, ids, chance.getrandbits(32), operations=500)
    consumer.reach(settled(node, bucket))
    alive, gone, _, more = check(node, bucket, keys, consumer)
    if lost + more:
        raise AssertionError(f"{lost + more} changes lost, though only what is on disk was to be handed over")
    consumer.end()
    return f"{alive} documents and {gone} deletions through 3 crashes of the node and 1 of the consumer"


def rollback(node, chance):
    """Without mitigation a consumer is told what a crash takes back, and takes it back too."""
    bucket = "rollback"
    node.rest.create_bucket(bucket, quota_mb=128)
    keys = write(node, bucket, [0], chance.getrandbits(32), operations=1000)
    consumer = Consumer(node, bucket, "rollback", collections=1).ready()
    undone, rounds = 0, 0
    while not undone and rounds < 10:
        rounds += 1
        writer = write(node, bucket, [0], chance.getrandbits(32), seconds=chance.uniform(0.2, 0.5), bytes_max=200)
        restart(node, writer)
        keys |= writer.finish()
        keys |= write(node, bucket, [0], chance.getrandbits(32), operations=300)
        consumer.reach(settled(node, bucket))
        alive, gone, undone, _ = check(node, bucket, keys, consumer)
    if not undone:
        raise AssertionError(f"{rounds} crashes under writes and nothing to undo: nothing was streamed early")
    consumer.end()
    return f"{alive} documents, {gone} deletions, {undone} changes undone by {rounds} crashes"


def filters(node, chance):
    """By name, by id, by scope, the default collection only; dropped and new collections under the stream."""
    bucket = "filters"
    node.rest.create_bucket(bucket, quota_mb=128)
    scope(node, bucket, "s")
    a, b = (collection(node, bucket, "s", name) for name in "ab")
    keys = write(node, bucket, [0, a, b], chance.getrandbits(32), operations=2000)
    consumers = {
        "names": Consumer(node, bucket, "names", collections=1, names="s.a", mitigate=200),
        "ids": Consumer(node, bucket, "ids", collections=1, ids=f"0,{b}"),
        "scope": Consumer(node, bucket, "scope", collections=1, scope="s", flow=4096),
        "legacy": Consumer(node, bucket, "legacy"),
    }
    for consumer in consumers.values():
        consumer.ready()
    writer = write(node, bucket, [0, a, b], chance.getrandbits(32), seconds=0.5, bytes_max=500)
    c = collection(node, bucket, "s", "c")
    keys |= writer.finish()
    keys |= write(node, bucket, [0, a, b, c], chance.getrandbits(32), operations=1000)
    settled(node, bucket)
    with documents.connect(node, bucket, PLAIN) as client:
        default = documents.high_seqnos(client)
    wanted = {"names": {a}, "ids": {0, b}, "scope": {a, b, c}, "legacy": {0}}
    counts = []
    for name, consumer in consumers.items():
        consumer.reach(default if name == "legacy" else last_of(node, bucket, wanted[name]))
        own = {pair for pair in keys if pair[0] in wanted[name]}
        alive, gone, *_ = check(node, bucket, own, consumer)
        counts.append(f"{name} {alive}+{gone}")
    collection(node, bucket, "s", "b", drop=True)
    keys |= write(node, bucket, [0, a, c], chance.getrandbits(32), operations=500)
    settled(node, bucket)
    consumers["scope"].reach(last_of(node, bucket, {a, c}))
    check(node, bucket, {pair for pair in keys if pair[0] in (a, c)}, consumers["scope"])
    for consumer in consumers.values():
        consumer.end()
    return "documents+deletions: " + ", ".join(counts)


def modes(node, chance):
    """Key-only, xattrs, tiny windows, no compression, from now on; and a bucket that is nothing but memory."""
    bucket = "modes"
    node.rest.create_bucket(bucket, quota_mb=128)
    keys = write(node, bucket, [0], chance.getrandbits(32), operations=1500)
    with documents.connect(node, bucket) as client:
        client.must("store", client.set(b"with-xattrs", b'{"a":1}'))
        documents.set_xattr(client, b"with-xattrs", b"_sync", b'{"rev":1}')
    before = settled(node, bucket)
    now = Consumer(node, bucket, "now", collections=1, **{"from": "NOW"})
    key_only = Consumer(node, bucket, "keys", collections=1, keys=1, compression="DISABLED")
    xattrs = Consumer(node, bucket, "xattrs", collections=1, xattrs=1, flow=1024, compression="FORCED")
    now.ready()
    later = write(node, bucket, [0], chance.getrandbits(32), operations=500)
    targets = settled(node, bucket)
    for consumer in (key_only, xattrs):
        consumer.reach(targets)
    now.reach({vb: seqno for vb, seqno in targets.items() if seqno > before[vb]})
    everything = keys | later | {(0, b"with-xattrs")}
    check(node, bucket, everything, key_only, values=False)
    alive, gone, *_ = check(node, bucket, everything, xattrs)
    told = xattrs.content()[0]["_default._default", b"with-xattrs"]
    if told[8] != '{_sync={"rev":1}}':
        raise AssertionError(f"xattrs: {told}")
    check(node, bucket, later, now)
    for consumer in (now, key_only, xattrs):
        consumer.end()
    node.rest.create_bucket("memory", kind="ephemeral")
    keys = write(node, "memory", [0], chance.getrandbits(32), operations=1000)
    consumer = Consumer(node, "memory", "memory", collections=1)
    keys |= write(node, "memory", [0], chance.getrandbits(32), operations=1000)
    consumer.reach(settled(node, "memory"))
    ephemeral = check(node, "memory", keys, consumer)[0]
    consumer.end()
    return f"{alive} documents, {gone} deletions, {ephemeral} documents in memory"


SCENARIOS = {function.__name__: function for function in (crashes, rollback, filters, modes)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenarios", nargs="*", choices=[*SCENARIOS, []], metavar="SCENARIO", help=", ".join(SCENARIOS))
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().getrandbits(32)
    print(f"seed {seed}", flush=True)
    node = Node(os.environ.get("SETTEE_ADDRESS", "127.0.31.11"), WORK / "node")
    node.directory.mkdir()
    chosen = arguments.scenarios or list(SCENARIOS)
    try:
        node.start()
        node.initialise()
        node.rest.create_bucket("health")
        for name in chosen:
            began = time.monotonic()
            said = SCENARIOS[name](node, random.Random(f"{seed}/{name}"))
            print(f"{name}: {said}; {time.monotonic() - began:.1f} s", flush=True)
            for bucket in (name, "memory"):
                node.rest.request("DELETE", f"/pools/default/buckets/{bucket}")
        node.stop()
        print(f"dcp-java: {len(chosen)} passed, 0 failed")
    except (AssertionError, NodeError, kv.Refused, kv.Closed, OSError) as error:
        print(f"\n{name} failed: {error}", file=sys.stderr)
        print(f"repeat with: compat/run dcp-java {name} --seed {seed}; consumers' logs are in {WORK}")
        print("dcp-java: 0 passed, 1 failed")
        sys.exit(1)
    finally:
        for consumer in RUNNING:
            consumer.kill()
        node.kill()


if __name__ == "__main__":
    main()
