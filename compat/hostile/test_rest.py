"""What came after the data ports: views and their functions, documents and sessions over REST, what nodes ask one another.

A stranger and a user with few rights try every route of docs/rest-routes.md. What a user may do is done as badly as it can be.
"""

import base64
import http.client
import json
import pathlib
import random
import re
import subprocess
import threading
import time

import case
from case import ADDRESS, ARENA, ATTACKER, ATTACKER_PASSWORD, HEALTH, HostileCase, NODE, attacker, memory_kib
from settee.node import PASSWORD, binary
from settee.rest import Rest

MIB = 1024 * 1024
ROUTES = pathlib.Path(__file__).parents[2] / "docs" / "rest-routes.md"
# Answers that go on for ever.
STREAMS = ("Streaming", "/pools/default/bs/")
# Who may work on views of the arena, and on nothing else.
VIEWER, VIEWER_PASSWORD = "viewer", "viewer-pass"
# What stands in braces in a path, for somebody without rights in it.
NAMES = {"bucket": HEALTH, "scope": "_default", "collection": "_default", "key": "healthy", "service": "views", "name": "figures",
         "user": ATTACKER, "domain": "local", "group": "g", "node": "self", "id": "1", "uid": "0", "stat": "curr_items",
         "document": "d"}


def routes():
    """Method, path and right of every row."""
    for line in ROUTES.read_text(encoding="utf-8").splitlines():
        row = re.match(r"\| `([^`]+)` \| `([^`]+)` \| (.+?) \| ", line)
        if row:
            method, path, right = row.groups()
            path = re.sub(r"\{(\w+)\}", lambda name: NAMES[name.group(1)], path).replace("**", "x")
            yield {"*": "POST", "!GET": "POST"}.get(method, method), path, right


def user(name=ATTACKER, password=ATTACKER_PASSWORD, timeout=30.0):
    return Rest(ADDRESS, NODE.ports["mgmt"], name, password, timeout)


def stranger():
    return Rest(ADDRESS, NODE.ports["mgmt"])


def trial(source, documents=1, **more):
    shown = [{"meta": {"id": f"d{number}"}, "json": '{"a":1}'} for number in range(documents)]
    return json.dumps({"map": source, "documents": shown, **more})


class EveryRoute(HostileCase):
    """The server's answers, where `crates/admin/src/matrix.rs` compares what it decides them by."""

    def tries(self, rest, form):
        for method, path, right in routes():
            if any(stream in path for stream in STREAMS):
                continue
            answer = rest.request(method, path, form if method in ("POST", "PUT") else None)
            yield f"{method} {path} ({right})", right, method, answer

    def test_a_stranger_gets_nothing_that_needs_a_right(self):
        seen = 0
        for what, right, _, answer in self.tries(stranger(), {}):
            seen += 1
            # Bucket `health` needs no password: the oldest clients see what they bootstrap from.
            is_open = right == "none" or "pools!read" in right or "settings!read" in right
            self.assertTrue(is_open or answer.status in (401, 403), f"{what}: {answer.status} {answer.text[:200]}")
            self.assertLess(answer.status, 500, what)
        self.assertGreater(seen, 200)

    def test_a_user_of_another_bucket_changes_nothing(self):
        may = ("/uilogout", "/uilogin", "/controller/changePassword", "/pools/default/checkPermissions")
        for what, right, method, answer in self.tries(user(), {}):
            if method == "GET" or any(path in what for path in may):
                self.assertLess(answer.status, 500, what)
            else:
                self.assertIn(answer.status, (401, 403), f"{what}: {answer.text[:200]}")
            if "data.docs!" in right or "views!" in right or "admin" in right:
                self.assertIn(answer.status, (401, 403), f"{what}: {answer.text[:200]}")

    def test_nobody_passes_for_a_node(self):
        paths = [path for _, path, right in routes() if right.startswith("a node")]
        self.assertGreater(len(paths), 6)
        logins = [stranger(), user(), NODE.rest, user("@settee", "guess"), user("@settee", ATTACKER_PASSWORD)]
        for rest in logins:
            for path in paths + ["/_settee/services/indexes", "/_settee/documents", "/_settee/hot"]:
                answer = rest.request("POST", path, body=b"{}", headers={"Content-Type": "application/json"})
                self.assertIn(answer.status, (401, 403), f"{path}: {answer.text[:100]}")

    def test_a_stranger_has_no_body_read(self):
        """Nodes may send 64 MiB to one another."""
        for path in ("/_settee/services/views", "/_settee/propose", f"/couchBase/{ARENA}/_design/x"):
            connection = http.client.HTTPConnection(ADDRESS, NODE.ports["mgmt"], timeout=10)
            connection.putrequest("POST", path)
            connection.putheader("Content-Type", "application/json")
            connection.putheader("Content-Length", str(64 * MIB))
            connection.endheaders()
            sent = 0
            try:
                while sent < 16 * MIB:
                    connection.send(b"a" * MIB)
                    sent += MIB
                self.fail(f"took 16 MiB for {path}")
            except OSError:
                pass
            finally:
                connection.close()

    def test_a_cluster_administrator_is_not_the_full_one(self):
        NODE.rest.ok("PUT", "/settings/rbac/users/local/manager", {"password": "manager-pass", "roles": "cluster_admin"})
        manager = user("manager", "manager-pass")
        takes_over = {"username": "manager", "password": "manager-pass", "port": "SAME", "hostname": ADDRESS, "services": "kv"}
        self.assertNotIn(manager.request("POST", "/clusterInit", takes_over).status, (200, 202))
        self.assertEqual(manager.request("POST", "/settings/web", takes_over).status, 403)
        # An alert is a request of the node's own: where to is for full administrators alone.
        for method in ("GET", "PUT", "DELETE"):
            answer = manager.request(method, "/settee/alerts/webhook", {"url": f"http://{ADDRESS}:1/"})
            self.assertEqual(answer.status, 403, method)
        for url in ("file:///etc/passwd", "http://", "gopher://h/", "http://h/\r\nX: y", "http://u:p@h/", "http://h:99999/", "h"):
            self.assertEqual(NODE.rest.request("PUT", "/settee/alerts/webhook", {"url": url}).status, 400, url)
        for form in ({"alert": "node_down"}, {"alert": "x", "minutes": 1}, {"alert": "node_down", "minutes": 10**12},
                     {"alert": "node_down", "minutes": 1, "comment": "x" * 10_000}):
            self.assertEqual(manager.request("POST", "/settee/alerts/silences", form).status, 400, form)
        forged = {"alert": "node_down", "minutes": 1, "comment": "a\r\n2026-01-01T00:00:00Z ERROR forged: \x1b[2J"}
        for _ in range(105):
            last = manager.request("POST", "/settee/alerts/silences", forged)
        self.assertEqual(last.status, 400, "a cluster has a hundred at most")
        for silence in manager.get("/settee/alerts/silences").json["silences"]:
            manager.ok("DELETE", f"/settee/alerts/silences/{silence['id']}")
        self.assertFalse([line for line in NODE.log.read_text(errors="replace").splitlines() if "forged" in line[:60]])


class Sessions(HostileCase):
    """What is taken for a login of the console."""

    def login(self, password=ATTACKER_PASSWORD, **headers):
        return stranger().request("POST", "/uilogin", {"user": ATTACKER, "password": password}, headers=headers)

    def test_a_cookie_is_nothing_without_its_login(self):
        cookie = self.login().headers["set-cookie"].split(";")[0]
        name, token = cookie.split("=")
        ask = lambda cookie, **more: stranger().request("GET", "/whoami", headers={"Cookie": cookie, **more})
        mine = {"ns-server-ui": "yes"}
        self.assertIn(ATTACKER, ask(cookie, **mine).text)
        self.assertNotIn(ATTACKER, ask(cookie).text, "a page of another origin sends no such header")
        for wrong in (f"{name}={token[:-1]}", f"{name}=", f"{name}={'0' * 64}", f"{name}={token}x", f"ui-auth={token}",
                      "=" * 4000, ";" * 4000, f"{name}={'a' * 8000}", f"{name}=%00"):
            self.assertNotIn(ATTACKER, ask(wrong, **mine).text, wrong[:80])
        for origin in ("http://evil.example", "null", f"http://{ADDRESS}.evil.example"):
            sent = {"Cookie": cookie, "Origin": origin, **mine}
            answer = stranger().request("POST", "/controller/changePassword", {"password": "stolen-pass"}, headers=sent)
            self.assertEqual(answer.status, 403, origin)
            self.assertEqual(self.login(Origin=origin).status, 403, origin)
        out = stranger().request("POST", "/uilogout", headers={"Cookie": cookie, **mine})
        self.assertEqual(out.status, 200)
        self.assertNotIn(ATTACKER, ask(cookie, **mine).text)

    def test_sessions_are_bounded_and_guesses_count(self):
        first = self.login().headers["set-cookie"].split(";")[0]
        for _ in range(40):
            self.assertEqual(self.login().status, 200)
        answer = stranger().request("GET", "/whoami", headers={"Cookie": first, "ns-server-ui": "yes"})
        self.assertNotIn(ATTACKER, answer.text, "the oldest goes")
        guess = lambda: stranger().request("POST", "/uilogin", {"user": "nobody", "password": "wrong"}).status
        self.assertIn(429, [guess() for _ in range(20)])


class Documents(HostileCase):
    """Documents over REST are for people; a client that takes them for a data port hurts nobody."""

    def test_what_is_no_document_is_refused(self):
        docs = f"/pools/default/buckets/{ARENA}/docs"
        rest = user()
        for path in (f"{docs}/{'k' * 251}", f"{docs}/%ff%fe", f"{docs}/%00", f"{docs}?limit=-1", f"{docs}?skip=99999999999",
                     f"{docs}?startkey=x", f"{docs}?include_docs=true&limit=101", f"{docs}?startkey={'[' * 3000}",
                     f"/pools/default/buckets/{ARENA}/scopes/_default/collections/no/docs"):
            self.assertIn(rest.request("GET", path).status, (200, 400, 404), path[:80])
        deep = "[" * 900_000
        self.assertEqual(rest.request("POST", f"{docs}/deep", {"value": deep}).status, 200, "a value is any bytes")
        self.assertIn("base64", rest.get(f"{docs}/deep").json)
        for form in ({"value": "1", "flags": "-1"}, {"value": "1", "expiry": "x"}, {"value": "1", "cas": "1" * 40}):
            self.assertEqual(rest.request("POST", f"{docs}/k", form).status, 400, form)
        for path in (f"/pools/default/buckets/{HEALTH}/docs", f"/pools/default/buckets/{HEALTH}/docs/healthy",
                     f"/pools/default/buckets/{HEALTH}/scopes/_default/collections/_default/docs/healthy", "/settee/hot/" + HEALTH):
            self.assertEqual(rest.request("GET", path).status, 403, path)

    def test_large_documents_that_are_asked_for_and_not_taken(self):
        """40 answers of 28 MB each are a GiB; the node holds an eighth of a GiB of them."""
        with attacker() as client:
            client.must("store", client.set(b"large", b"\xff" * (20 * MIB)))
            client.must("store", client.set(b"small", b"1"))
        before = memory_kib(self.pid)
        token = base64.b64encode(f"{ATTACKER}:{ATTACKER_PASSWORD}".encode()).decode()
        held = []
        try:
            answers = []
            for _ in range(40):
                connection = http.client.HTTPConnection(ADDRESS, NODE.ports["mgmt"], timeout=20)
                connection.request("GET", f"/pools/default/buckets/{ARENA}/docs/large", headers={"Authorization": f"Basic {token}"})
                held.append(connection)
                answers.append(connection.getresponse().status)
            grown = (memory_kib(self.pid) - before) // 1024
            self.assertLess(grown, 512, f"{grown} MiB for {answers.count(200)} answers that nobody takes")
            self.assertIn(503, answers)
            self.assertEqual(NODE.rest.get(f"/pools/default/buckets/{ARENA}/docs/small").json["json"], "1")
        finally:
            for connection in held:
                connection.close()


class Functions(HostileCase):
    """Functions of views do what their author likes, in a process that can do nothing else."""

    def setUp(self):
        super().setUp()
        NODE.rest.ok("PUT", f"/settings/rbac/users/local/{VIEWER}",
                     {"password": VIEWER_PASSWORD, "roles": f"views_admin[{ARENA}]"})
        self.rest = user(VIEWER, VIEWER_PASSWORD, timeout=60.0)

    def run_trial(self, source, **more):
        return self.rest.request("POST", f"/couchBase/{ARENA}/_try", body=trial(source, **more),
                                 headers={"Content-Type": "application/json"})

    def test_trials_that_never_end_or_take_all_memory(self):
        answers = {}

        def attack(name, source):
            answers[name] = self.run_trial(source)

        sources = {
            "loop": "function (d) { while (true) {} }",
            "memory": "function (d) { var a = []; while (true) a.push(new Uint8Array(10000000)); }",
        }
        threads = [threading.Thread(target=attack, args=one) for one in sources.items()]
        before = memory_kib(self.pid)
        for thread in threads:
            thread.start()
        # Others are served meanwhile, and an administrator's design document is checked.
        for _ in range(10):
            began = time.monotonic()
            self.assert_healthy()
            self.assertLess(time.monotonic() - began, 3)
        began = time.monotonic()
        design = json.dumps({"views": {"v": {"map": "function (d, m) { emit(m.id); }"}}})
        stored = NODE.rest.request("PUT", f"/couchBase/{HEALTH}/_design/dev_ok", body=design,
                                   headers={"Content-Type": "application/json"})
        self.assertIn(stored.status, (200, 201), stored.text)
        self.assertLess(time.monotonic() - began, 10)
        for thread in threads:
            thread.join()
        for name, answer in answers.items():
            self.assertEqual(answer.status, 200, f"{name}: {answer.text[:300]}")
            told = answer.json
            self.assertEqual((told["failed"], told["rows"], [one["id"] for one in told["errors"]]), (1, [], ["d0"]), name)
            self.assertIn({"loop": "timeout", "memory": "out of memory"}[name], told["errors"][0]["text"], name)
        self.assertLess((memory_kib(self.pid) - before) // 1024, 512)

    def test_functions_reach_nothing(self):
        reach = ("require", "process", "std", "os", "fetch", "XMLHttpRequest", "Worker", "Deno", "load", "print", "java",
                 "importScripts", "scriptArgs", "__loadScript", "WebAssembly")
        source = "function (d, m) { [%s].forEach(function (n) { emit(n, typeof globalThis[n]); }); }" % ", ".join(
            f"'{name}'" for name in reach)
        answer = self.run_trial(source)
        self.assertEqual(answer.status, 200, answer.text[:300])
        for name in reach:
            self.assertNotIn(f'"{name}","value":"function"', answer.text.replace(" ", ""), name)
        # What a function gets by its rows, or by the error that its document costs.
        for source, key, error in (
                ("function (d) { emit(function f() { return f; }, d); }", "null", None),
                ("function (d) { (function f() { f(); })(); }", None, "Maximum call stack size exceeded"),
                ("function (d) { Object.prototype.toJSON = function () { return Infinity; }; emit(d, d); }", "null", None),
                ("function (d) { var a = {}; a.a = a; emit(a); }", None, "circular reference"),
                ("function (d) { emit(d, '\\ud800'); }", '{"a":1}', None)):
            answer = self.run_trial(source)
            self.assertEqual(answer.status, 200, f"{source[:60]}: {answer.text[:200]}")
            told = answer.json
            self.assertEqual([row["key"] for row in told["rows"]], [] if key is None else [key], source)
            self.assertEqual(len(told["errors"]), 0 if error is None else 1, source)
            if error is not None:
                self.assertIn(error, told["errors"][0]["text"], source)
        self.assertEqual(self.run_trial("function (d) { import('os'); }").json["rows"], [])
        for source in ("}) (function () {", "function", "", "function (d) { emit(" + "[" * 5000):
            answer = self.run_trial(source)
            self.assertEqual((answer.status, answer.json["error"]), (400, "invalid_design_document"), source[:60])

    def test_trials_that_are_none(self):
        for body in (b"", b"{", b"[]", b"null", b"{\"documents\":1}", b"{\"map\":1}", b"{\"map\":\"x\",\"documents\":[{}]}",
                     trial("function (d) {}", 101).encode(), b"[" * 500_000, b"\xff" * 100,
                     b'{"map":"function(d){}","reduce":"function(){","documents":[]}'):
            answer = self.rest.request("POST", f"/couchBase/{ARENA}/_try", body=body, headers={"Content-Type": "application/json"})
            self.assertIn(answer.status, (400, 503), f"{body[:40]}: {answer.status} {answer.text[:200]}")
        for who in (user(), stranger()):
            answer = who.request("POST", f"/couchBase/{ARENA}/_try", body=trial("function (d) {}"),
                                 headers={"Content-Type": "application/json"})
            self.assertIn(answer.status, (401, 403))
        self.assertEqual(self.rest.request("POST", f"/couchBase/{HEALTH}/_try", body=b"{}").status, 403)


class Queries(HostileCase):
    """Parameters of queries and names on the ports of views."""

    def test_nonsense(self):
        rest = Rest(ADDRESS, NODE.ports["capi"], *NODE_LOGIN)
        design = json.dumps({"views": {"v": {"map": "function (d, m) { emit(m.id); }", "reduce": "_count"}}})
        stored = rest.request("PUT", f"/{ARENA}/_design/h", body=design, headers={"Content-Type": "application/json"})
        self.assertIn(stored.status, (200, 201), stored.text)
        view = f"/{ARENA}/_design/h/_view/v"
        pieces = ("limit", "skip", "keys", "key", "startkey", "endkey", "group_level", "group", "reduce", "stale", "descending",
                  "connection_timeout", "on_error", "full_set", "inclusive_end", "startkey_docid", "bbox", "_", "")
        values = ("-1", "x", "[", "]" * 50, "[" * 3000, "null", "true", "18446744073709551616", "%00", "%ff", "1e400", '"%5cud800"',
                  "%7b%7d", "[1,2,3]", "")
        for _ in range(150):
            query = "&".join(f"{self.random.choice(pieces)}={self.random.choice(values)}" for _ in range(self.random.randrange(4)))
            answer = rest.request("GET", f"{view}?stale=ok&connection_timeout=2000&{query}")
            self.assertTrue(answer.status == 200 or 400 <= answer.status < 500, f"{query}: {answer.status} {answer.text[:200]}")
        for path in (f"/{ARENA}/_design/%00", f"/{ARENA}/_design/{'d' * 5000}", f"/{ARENA}/_design/a/_view/{'v' * 5000}",
                     f"/{ARENA}%2F1048576/_design/h", f"/{ARENA};;;/_design/h", "/%2f%2f/_design/h", f"/{ARENA}/_all_docs",
                     f"/{ARENA}/_design/..%2f..%2fetc/_view/v", f"/{ARENA}/_design/h/_view/v/x/y", "/_replicate", "/_config", "/_utils"):
            for method in ("GET", "POST", "PUT", "DELETE", "PATCH", "TRACE"):
                answer = rest.request(method, path, body=b"{}" if method in ("POST", "PUT") else None,
                                      headers={"Content-Type": "application/json"})
                self.assertTrue(200 <= answer.status < 500 or answer.status == 501, f"{method} {path[:60]}: {answer.status}")
        for body in (b"[" * 800_000, b"{" * 1000, b"null", b"[]", b"\xff\xfe", b'{"keys":1}',
                     json.dumps({"keys": ["k"] * 100_000}).encode(), b'{"keys":[' + b"[" * 1000):
            answer = rest.request("POST", view, body=body, headers={"Content-Type": "application/json"})
            self.assertTrue(200 <= answer.status < 500, f"{body[:30]}: {answer.status} {answer.text[:200]}")


class Collected(HostileCase):
    """The archive for support is sent to others."""

    def test_no_password_and_no_document_is_in_it(self):
        secrets = {"hook-token-71c1": lambda: NODE.rest.ok("PUT", "/settee/alerts/webhook", {"url": "http://127.0.0.1:9/hook-token-71c1"}),
                   "bucketpw-5d3e": lambda: NODE.rest.ok("POST", f"/pools/default/buckets/{ARENA}", {"saslPassword": "bucketpw-5d3e"})}
        for make in secrets.values():
            make()
        with attacker() as client:
            client.must("store", client.set(b"key-93ab", b'{"value":"document-0c2f"}'))
            for _ in range(2000):
                client.get(b"key-93ab")
        archive = NODE.directory / f"collected-{random.random()}.tar"
        try:
            done = subprocess.run(
                [str(binary()), "collect", "--host", f"{ADDRESS}:{NODE.ports['mgmt']}", "--file", str(archive), "-u", "Administrator"],
                env={"SETTEE_PASSWORD": PASSWORD}, capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr.decode())
            self.assertEqual(archive.stat().st_mode & 0o777, 0o600)
            held = archive.read_bytes()
            for secret in (*secrets, PASSWORD, ATTACKER_PASSWORD, "document-0c2f", "key-93ab", "PRIVATE KEY"):
                self.assertNotIn(secret.encode(), held, secret)
        finally:
            archive.unlink(missing_ok=True)
            NODE.rest.ok("DELETE", "/settee/alerts/webhook")
            NODE.rest.ok("POST", f"/pools/default/buckets/{ARENA}", {"saslPassword": ""})


NODE_LOGIN = (case.USERNAME, case.PASSWORD)
