"""Views held against a model: random documents, functions and queries, each answer compared as a whole.

    compat/run views                        one seed that is always the same, and a fresh one, on one node and on three
    compat/run views --seed 7 --nodes 3     one history alone
    compat/run views --minutes 30           as many fresh seeds as that takes
    compat/run views --nodes 3 --moves      while a node leaves and comes back: an answer is exact, or tells an error
    compat/run views --crashes              nodes are killed (-9) between rounds; of three nodes one is failed over and comes back, too

The model is apart from the server's code: `values` has JavaScript's values and the order of keys, `functions` what each function
means, `oracle` what a query has to answer. A failure prints the seed, the design document, the query, and what is wrong.
"""

import argparse
import base64
import http.client
import json
import os
import random
import re
import struct
import sys
import time
import unittest
import urllib.parse

import functions
import oracle
import values
from settee import documents, kv
from settee.cluster import Cluster
from settee.node import PASSWORD, USERNAME, scratch

BUCKET = "b"
FIXED_SEED = 20
ROUNDS = 5
# A node is stopped and started at the end of this one.
RESTARTED = 2
OPERATIONS, QUERIES = 70, 60
VBUCKETS = 1024
# With fewer of them a node comes back sooner.
VBUCKETS_CRASHING = 64
# While a node is down: each waits for it for five seconds before it tells an error. And while a node comes back.
DOWN_QUERIES, BACK_QUERIES = 1, 4
# Documents have one of so many ids.
IDS = 90
FAR = 2_000_000_000
SECONDS_AFTER_EXPIRY = 20.0
# A datatype.
SNAPPY = 0x02
# What one copy of a Snappy block makes, and the blank that it copies.
BLANKS = b" " * 65


class Wrong(Exception):
    """The server said something that is not so."""


def compressed(body):
    """A raw Snappy block of a body that ends with `BLANKS`: one literal up to the first blank, which is then copied."""
    literal = body[: len(body) - len(BLANKS) + 1]
    size, more = b"", len(body)
    while more > 0x7F:
        size, more = size + bytes([more & 0x7F | 0x80]), more >> 7
    size += bytes([more])
    return size + b"\xf4" + struct.pack("<H", len(literal) - 1) + literal + b"\xfe\x01\x00"


class Document:
    """What a document has now. `value` is of JSON, or bytes that are none."""

    def __init__(self, stored, flags, expiration):
        self.stored, self.flags, self.expiration = stored, flags, expiration

    def seen(self, docid, vbuckets):
        """`doc` and `meta` as a function gets them."""
        meta = {
            "id": docid,
            "flags": float(self.flags),
            "expiration": float(self.expiration),
            "vb": str(kv.vbucket_of(docid.encode(), vbuckets)),
        }
        try:
            return values.parse(self.stored.decode()), {**meta, "type": "json"}
        except ValueError:
            return base64.b64encode(self.stored).decode(), {**meta, "type": "base64"}


class Design:
    """A design document: views with a function and perhaps a reduction, in their order."""

    def __init__(self, rng, name):
        self.name = name
        self.views = {}
        for number in range(rng.randrange(1, 5)):
            reduction = rng.choice([None, *functions.REDUCTIONS])
            known = [function for function, _ in self.views.values()]
            function = rng.choice(known) if known and rng.random() < 0.2 else functions.Map(rng)
            self.views[f"v{number}"] = (function, reduction)
        # Nobody has asked it for everything yet.
        self.is_fed = False

    def text(self):
        views = {}
        for name, (function, reduction) in self.views.items():
            views[name] = {"map": function.text} | ({"reduce": reduction[0]} if reduction else {})
        return json.dumps({"views": views})

    def rows(self, held, vbuckets):
        """The rows of each view. All functions of a design document see one object, which they may change. They come in the
        order of their sources, and one that several views have is called once."""
        maps = {function.text: function for function, _ in self.views.values()}
        found = {text: [] for text in sorted(maps, key=str.encode)}
        for docid, document in held.items():
            doc, meta = document.seen(docid, vbuckets)
            for text, rows in found.items():
                rows += [oracle.Row(*row, docid) for row in maps[text].rows(doc, meta)]
        return {name: found[function.text] for name, (function, _) in self.views.items()}


class History:
    """One run: a cluster, its documents, and the same documents in a dict."""

    def __init__(self, cluster, vbuckets, rng):
        self.cluster, self.vbuckets, self.rng = cluster, vbuckets, rng
        # Those that may be asked.
        self.members = list(cluster.nodes)
        # While vBuckets move, an answer may tell an error in place of rows.
        self.moves, self.errors = False, 0
        self.held = {}
        self.designs = {}
        self.clients = {}
        self.connections = {}
        self.queries = self.rows = 0
        self.map = cluster.map(BUCKET)
        self.ids = [self.new_id(number) for number in range(IDS)]

    def new_id(self, number):
        return random.Random(number).choice(["d", "é", "😀", "a b", "_", "A", "z-"]) + str(number)

    def close(self):
        for connection in [*self.clients.values(), *self.connections.values()]:
            connection.close()
        self.clients.clear()
        self.connections.clear()

    # Documents

    def client(self, docid):
        address = self.map[kv.vbucket_of(docid.encode(), self.vbuckets)][0]
        if address not in self.clients:
            node = next(node for node in self.cluster.nodes if node.address == address)
            features = (kv.F_SEQNO, kv.F_XATTR, kv.F_XERROR, kv.F_SNAPPY, kv.F_JSON)
            self.clients[address] = documents.connect(node, BUCKET, features, self.vbuckets)
        return self.clients[address]

    def new_body(self):
        chance = self.rng.random()
        if chance < 0.06:
            return self.rng.choice([b"", b"{", b"\xff\x00text", b"no json", b'{"a":1}}'])
        value = functions.random_object(self.rng) if chance < 0.9 else functions.random_value(self.rng)
        return functions.stored_text(self.rng, value).encode()

    def write(self, short_lived):
        """Changes one document, and what is held."""
        rng, docid = self.rng, self.rng.choice(self.ids)
        client, key, kind = self.client(docid), docid.encode(), rng.random()
        if kind < 0.15:
            response = client.delete(key)
            if response.status != (kv.OK if docid in self.held else kv.NOT_FOUND):
                raise kv.Refused(f"delete {docid!r}", response)
            self.held.pop(docid, None)
        elif kind < 0.22 and docid in self.held:
            expiration = FAR + rng.randrange(1000)
            client.must("touch", client.on(kv.TOUCH, key, extras=struct.pack(">I", expiration)))
            self.held[docid].expiration = expiration
        elif kind < 0.26 and docid in self.held:
            documents.set_xattr(client, key, b"x", b'{"a":1}')
            # As every change that does not ask to keep it.
            self.held[docid].expiration = 0
        else:
            flags, expiration = rng.choice([0, 0, rng.getrandbits(32)]), rng.choice([0, 0, FAR + rng.randrange(1000)])
            body = self.new_body()
            if kind > 0.97:
                expiration = 1
                short_lived.add(docid)
            sent, datatype = body, 0
            if rng.random() < 0.3:
                # Blanks are no part of a JSON value, and make of any body something that compresses well.
                body += BLANKS
                sent, datatype = compressed(body), SNAPPY
            client.must("set", client.set(key, sent, flags, expiration, datatype=datatype))
            self.held[docid] = Document(body, flags, expiration)
        if kind <= 0.97:
            short_lived.discard(docid)

    def change(self, operations):
        short_lived = set()
        for _ in range(operations):
            self.write(short_lived)
        until = time.monotonic() + SECONDS_AFTER_EXPIRY
        for docid in short_lived:
            while self.client(docid).get(docid.encode()).status != kv.NOT_FOUND:
                if time.monotonic() > until:
                    raise Wrong(f"{docid!r} does not expire")
                time.sleep(0.05)
            del self.held[docid]

    # HTTP

    def ask(self, method, path, body=None, headers=None, node=None):
        node = node or self.rng.choice(self.members)
        address = node.address
        if address not in self.connections:
            self.connections[address] = http.client.HTTPConnection(address, node.ports["capi"], timeout=60)
        connection = self.connections[address]
        login = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        connection.request(method, path, body, {"Authorization": f"Basic {login}", **(headers or {})})
        response = connection.getresponse()
        return response.status, response.read().decode()

    def publish(self):
        name = self.rng.choice(["one", "two", "dev_three"])
        design = self.designs[name] = Design(self.rng, name)
        path = f"/{BUCKET}/_design/{name}"
        status, text = self.ask("PUT", path, design.text(), {"Content-Type": "application/json"})
        if status != 201:
            raise Wrong(f"{design.text()} is refused: {status} {text}")

    # Queries

    def a_key(self, rows):
        """Mostly one that there is, or a part of it."""
        chance = self.rng.random()
        if rows and chance < 0.75:
            key = self.rng.choice(rows).key
            if isinstance(key, list) and chance < 0.2:
                key = key[: self.rng.randrange(len(key) + 1)]
            return key
        return self.rng.choice([functions.random_value(self.rng), {}, [], None])

    def parameters(self, rows, reduces):
        rng = self.rng
        asked, chance = {}, rng.random()
        if chance < 0.2:
            asked["key"] = self.a_key(rows)
        elif chance < 0.4:
            asked["keys"] = [self.a_key(rows) for _ in range(rng.randrange(5))]
        elif chance < 0.85:
            ends = [self.a_key(rows), self.a_key(rows)]
            descending = rng.random() < 0.5
            if rng.random() < 0.95:
                ends.sort(key=values.order, reverse=descending)
            asked |= {name: end for name, end in zip(["startkey", "endkey"], ends) if rng.random() < 0.75}
            if descending:
                asked["descending"] = True
        elif chance < 0.9:
            asked["descending"] = True
        for name, share, value in [
            ("startkey_docid", 0.3, rng.choice(self.ids)),
            ("endkey_docid", 0.3, rng.choice(self.ids)),
            ("inclusive_end", 0.3, rng.random() < 0.3),
            ("skip", 0.25, rng.choice([0, 1, 2, rng.randrange(60)])),
            ("limit", 0.4, rng.choice([0, 1, 2, rng.randrange(60), 10**6])),
            ("descending", 0.05, True),
            ("debug", 0.05, True),
            ("include_docs", 0.02, True),
        ]:
            if rng.random() < share:
                asked[name] = value
        chance = rng.random()
        if reduces and chance < 0.25:
            asked["reduce"] = False
        elif reduces and (chance < 0.6 or "keys" in asked):
            asked["group"] = True
        elif reduces and chance < 0.85:
            asked["group_level"] = rng.randrange(4)
        elif chance < 0.03:
            asked[rng.choice(["reduce", "group"])] = True
        return asked

    def query(self, design, name, rows):
        function, reduction = design.views[name]
        asked = self.parameters(rows, reduction is not None)
        question = oracle.Question(asked)
        stale = self.rng.choice(["ok", "false", "update_after", None]) if design.is_fed and not self.moves else "false"
        sent = {key: self.sent(key, value) for key, value in asked.items()}
        sent |= {"stale": stale} if stale else {}
        method, body, headers = "GET", None, {}
        if self.rng.random() < 0.3:
            method, headers = "POST", {"Content-Type": "application/json"}
            body = json.dumps({"keys": asked["keys"]} if "keys" in asked else {})
            sent.pop("keys", None)
        path = f"/{BUCKET}/_design/{design.name}/_view/{name}?{urllib.parse.urlencode(sent, quote_via=urllib.parse.quote)}"
        status, text = self.ask(method, path, body, headers)
        if self.moves and (status == 500 or '\r\n"errors":[' in text):
            self.errors += 1
            return
        why = self.judge(rows, reduction, question, status, text)
        self.queries += 1
        if why is None:
            design.is_fed = design.is_fed or (stale == "false" and status == 200)
            return
        every = "stale=false" + ("&reduce=false" if reduction else "")
        whole = self.ask("GET", f"/{BUCKET}/_design/{design.name}/_view/{name}?{every}")[1].split("\r\n")[1:-2]
        difference = oracle.difference(rows, [line.removesuffix(",") for line in whole])
        again = self.judge(rows, reduction, question, *self.ask(method, path + "&stale=false", body, headers))
        raise Wrong(
            f"{why}\n  at stale=false afterwards: {again or 'right'}\n  all rows: {difference}\n  asked: {method} {urllib.parse.unquote(path)} {body or ''}\n  parameters: {asked}"
            f"\n  map: {function.text}\n  reduce: {reduction and reduction[0]}\n  design: {design.text()}"
            f"\n  answer: {status} {text[:1500]}"
        )

    @staticmethod
    def sent(name, value):
        if name in ("key", "keys", "startkey", "endkey"):
            return values.text_of(value)
        return {True: "true", False: "false"}[value] if isinstance(value, bool) else str(value)

    def judge(self, rows, reduction, question, status, text):
        """What is wrong with an answer, or None."""
        reasons = oracle.refusals(question, reduction is not None)
        if reasons:
            told = json.loads(text).get("reason", "").strip() if status == 400 else None
            return None if told in reasons else f"it is not refused for one of {reasons}"
        if status != 200:
            return "it is refused"
        reduces = reduction is not None and question.reduce is not False
        head, _, rest = text.partition('"rows":[\r\n')
        if question.debug:
            head = re.sub(r'"debug_info":\{.*\},?', "", head)
        expected = "{" if reduces else f'{{"total_rows":{len(rows)},'
        if head != expected:
            return f"it begins with {head} instead of {expected}"
        if not rest.endswith("\r\n]\r\n}\n") and rest != "]\r\n}\n":
            return "it does not end as a whole answer does"
        lines = rest.removesuffix("]\r\n}\n").removesuffix("\r\n")
        lines = lines.split(",\r\n") if lines else []
        self.rows += len(lines)
        if question.debug and not reduces:
            try:
                lines = [self.without_origin(line) for line in lines]
            except Wrong as error:
                return str(error)
        return oracle.check(rows, reduction and reduction[1], question, lines)

    def without_origin(self, line):
        row = json.loads(line)
        if row.get("partition") != kv.vbucket_of(row["id"].encode(), self.vbuckets):
            raise Wrong(f"the wrong vBucket is told in {line}")
        node = f',"node":{json.dumps(row["node"])}' if "node" in row else ""
        return line.replace(f',"partition":{row["partition"]}{node}', "", 1)

    def move(self, found):
        """The last node leaves, or comes back, and queries go on meanwhile."""
        last = self.cluster.nodes[-1]
        leaves = last in self.members
        if leaves:
            self.members.remove(last)
            self.cluster.start_rebalance(remove=[last])
        else:
            # What it had it lets go of before.
            is_free = lambda: last.rest.request("GET", "/pools/default").status == 404  # noqa: E731
            self.cluster.wait("it is nobody's", is_free, 30)
            self.cluster.add(last)
            self.cluster.start_rebalance()
        self.moves, asked, exact = True, 0, self.queries
        while self.cluster.task()["status"] == "running" or asked < QUERIES:
            self.query_any(found)
            asked += 1
        self.moves = False
        if self.queries == exact:
            raise Wrong(f"each of {asked} answers tells an error while vBuckets move")
        self.cluster.wait_rebalanced()
        if not leaves:
            self.cluster.wait_healthy(BUCKET)
            self.members.append(last)
        self.map = self.cluster.map(BUCKET)
        self.close()
        print(f"  {asked} queries while a node {'left' if leaves else 'came'}, {self.errors} told an error so far", flush=True)

    def restart(self, found):
        """A node is stopped and started: its indexes go on from what they had made durable."""
        node = self.rng.choice(self.members)
        self.close()
        node.stop()
        node.start()
        self.cluster.wait_healthy(BUCKET)
        for design in self.designs.values():
            design.is_fed = False
        for _ in range(QUERIES // 2):
            self.query_any(found)

    def wait_persisted(self):
        """Until a kill takes nothing back that was written."""

        def is_quiet():
            waiting = 0
            for node in self.members:
                with documents.connect(node, BUCKET) as client:
                    waiting += int(client.stats()["ep_diskqueue_items"])
            return waiting == 0

        self.cluster.wait("everything is on the disks", is_quiet, 60)

    def ask_meanwhile(self, found, count):
        """Queries of the nodes that run, whose answers are exact or tell an error."""
        self.moves = True
        for _ in range(count):
            self.query_any(found)
        self.moves = False

    def kill(self, found):
        """A node is killed in the middle of queries, and started: its indexes go on from what they had made durable."""
        node = self.rng.choice(self.members)
        self.wait_persisted()
        self.close()
        node.kill()
        everybody, self.members = self.members, [member for member in self.members if member is not node]
        if self.members:
            self.ask_meanwhile(found, DOWN_QUERIES)
        node.start()
        self.members = everybody
        self.ask_meanwhile(found, BACK_QUERIES)
        self.cluster.wait_healthy(BUCKET)
        for design in self.designs.values():
            design.is_fed = False
        for _ in range(QUERIES // 2):
            self.query_any(found)
        print(f"  {node.address} was killed, {self.errors} answers told an error so far", flush=True)

    def fail_over(self, found):
        """A node is killed and failed over, and recovered later. Queries go on all the time."""
        node = self.rng.choice(self.members[1:])
        self.cluster.wait_replicated(BUCKET)
        self.close()
        node.kill()
        self.members.remove(node)
        self.ask_meanwhile(found, DOWN_QUERIES)
        self.cluster.fail_over(node)
        self.map = self.cluster.map(BUCKET)
        for design in self.designs.values():
            design.is_fed = False
        for _ in range(QUERIES // 2):
            self.query_any(found)
        kind = self.rng.choice(["delta", "full"])
        node.start()
        self.cluster.wait_member(node, status="healthy")
        self.cluster.recover(node, kind)
        self.cluster.start_rebalance()
        self.moves = True
        while self.cluster.task()["status"] == "running":
            self.query_any(found)
        self.moves = False
        self.cluster.wait_rebalanced()
        self.cluster.wait_healthy(BUCKET)
        self.members.append(node)
        self.map = self.cluster.map(BUCKET)
        self.close()
        for _ in range(QUERIES // 2):
            self.query_any(found)
        print(f"  {node.address} was failed over, {kind} recovery, {self.errors} answers told an error so far", flush=True)

    def query_any(self, found):
        design = self.designs[self.rng.choice(list(self.designs))]
        name = self.rng.choice(list(design.views))
        self.query(design, name, found[design.name][name])

    def round(self, number, moves=False, crashes=False):
        for _ in range(3 if number == 0 else 1):
            self.publish()
        self.change(OPERATIONS if number else 2 * OPERATIONS)
        found = {name: design.rows(self.held, self.vbuckets) for name, design in self.designs.items()}
        for design in self.designs.values():
            design.is_fed = False
        for _ in range(QUERIES):
            self.query_any(found)
        if number == RESTARTED:
            self.restart(found)
        if moves:
            self.move(found)
        if crashes:
            self.kill(found)
        if crashes and len(self.cluster.nodes) > 1:
            self.fail_over(found)


def run(cluster, seed, rounds=ROUNDS, moves=False, crashes=False):
    """One history. Its bucket is new."""
    replica_index, vbuckets = seed % 2, VBUCKETS_CRASHING if crashes else VBUCKETS
    more = {"replicas": 1, "replicaIndex": replica_index} if crashes and len(cluster.nodes) > 1 else {}
    told = f", crashes, replicaIndex {replica_index}" if more else ", crashes" if crashes else ""
    print(f"seed {seed}, {len(cluster.nodes)} nodes{told}", flush=True)
    cluster.rest.create_bucket(BUCKET, quota_mb=100, numVBuckets=vbuckets, **more)
    cluster.wait_healthy(BUCKET)
    history, began, number = History(cluster, vbuckets, random.Random(seed)), time.monotonic(), 0
    try:
        for number in range(rounds):
            history.round(number, moves, crashes)
        if len(history.members) < len(cluster.nodes):
            history.round(rounds, moves)
    except Wrong as error:
        sys.exit(f"seed {seed}, {len(cluster.nodes)} nodes{told}, round {number}: {error}")
    finally:
        history.close()
    cluster.rest.delete_bucket(BUCKET)
    counts = f"  {history.queries} queries, {history.rows} rows"
    print(f"{counts}, {len(history.held)} documents at the end, {time.monotonic() - began:.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, help="one history, of this seed")
    parser.add_argument("--nodes", type=int, choices=[1, 3], help="on so many nodes alone")
    parser.add_argument("--minutes", type=float, help="histories of fresh seeds for so long")
    parser.add_argument("--moves", action="store_true", help="a node leaves and comes back between rounds; of three nodes only")
    parser.add_argument("--crashes", action="store_true", help="nodes are killed and failed over between rounds")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="changes and queries after them, so many times")
    arguments = parser.parse_args()
    if not unittest.main("test_values", argv=["test_values"], exit=False).result.wasSuccessful():
        sys.exit("the model is wrong")
    if arguments.moves and arguments.nodes != 3:
        parser.error("--moves needs --nodes 3")
    fresh = random.SystemRandom()
    until = time.monotonic() + 60 * (arguments.minutes or 0)
    for count in [arguments.nodes] if arguments.nodes else [1, 3]:
        folder = scratch(f"views-{count}")
        with Cluster(os.environ.get("SETTEE_ADDRESS", "127.0.31.60"), folder, count) as cluster:
            cluster.form(memoryQuota=512)
            cluster.auto_failover(False)
            crashes = arguments.crashes
            seeds = [arguments.seed] if arguments.seed is not None else [FIXED_SEED, fresh.getrandbits(32)]
            for seed in seeds:
                run(cluster, seed, arguments.rounds, arguments.moves, crashes)
            if arguments.seed is None and not (arguments.moves or crashes):
                # A short one. The seed says whether copies are indexed.
                run(cluster, fresh.getrandbits(32), 1, crashes=True)
            left = (until - time.monotonic()) / (1 if count == 3 or arguments.nodes else 2)
            ends = time.monotonic() + left
            while time.monotonic() < ends:
                run(cluster, fresh.getrandbits(32), arguments.rounds, arguments.moves, crashes)


if __name__ == "__main__":
    main()
