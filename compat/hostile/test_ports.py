"""Garbage on every port, and nonsense over REST and the text protocol."""

import base64
import http.client
import json
import socket
import ssl

from case import ADDRESS, NODE, HostileCase, drain, read_lines, trusting_context
from settee.rest import Rest

MIB = 1024 * 1024
PORTS = ("mgmt", "mgmt_tls", "kv", "kv_tls", "capi", "memcached")


class Garbage(HostileCase):
    def throw(self, name, data):
        """Send, say that was all, and expect the end of the connection."""
        with socket.create_connection((ADDRESS, NODE.ports[name]), 10) as connection:
            try:
                connection.sendall(data)
                connection.shutdown(socket.SHUT_WR)
            except OSError:
                return
            self.assertTrue(drain(connection, 20), f"{name} is still open after {data[:60]!r}")

    def test_random_bytes(self):
        for name in PORTS:
            for size in (1, 23, 24, 100, 5_000, 200_000):
                self.throw(name, self.random.randbytes(size))

    def test_the_wrong_protocol(self):
        hello = bytes.fromhex("16030100c8010000c40303") + self.random.randbytes(194)
        request = b"GET /pools HTTP/1.1\r\nHost: x\r\n\r\n"
        for name in PORTS:
            for data in (hello, request, b"\r\n" * 1000, b"\0" * 10_000, b"\x80" * 24, b"get x\r\n", b"GET /" + b"a" * 100_000):
                self.throw(name, data)

    def test_connections_that_say_nothing(self):
        for name in PORTS:
            self.throw(name, b"")

    def test_broken_tls(self):
        context = trusting_context()
        for name in ("mgmt_tls", "kv_tls"):
            with socket.create_connection((ADDRESS, NODE.ports[name]), 10) as connection:
                secure = context.wrap_socket(connection, server_hostname=ADDRESS)
                # Behind the back of the TLS layer.
                raw = socket.socket(fileno=socket.dup(secure.fileno()))
                raw.sendall(b"\x17\x03\x03\x40\x00" + self.random.randbytes(0x4000))
                raw.settimeout(10)
                self.assertTrue(drain(raw))
                raw.close()
                secure.close()

    def test_old_tls_is_refused(self):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1
        except ValueError:
            self.skipTest("this Python cannot speak TLS 1.0")
        connection = socket.create_connection((ADDRESS, NODE.ports["kv_tls"]), 10)
        with connection, self.assertRaises((ssl.SSLError, OSError)):
            context.wrap_socket(connection, server_hostname=ADDRESS)


class RestNonsense(HostileCase):
    """Answered with a client error (or 501), never with success or a crash."""

    def client_error(self, method, path, **fields):
        answer = NODE.rest.request(method, path, **fields)
        okay = 400 <= answer.status < 500 or answer.status == 501
        self.assertTrue(okay, f"{method} {path[:80]}: {answer.status} {answer.text[:200]}")

    def test_paths(self):
        for path in ("/nowhere", "/pools/default/buckets/no-such", "/pools/default/buckets/%00", "/%zz", "/" + "a" * 5000,
                     "/pools/default/b/no-such", "/pools/default/bs/no-such", "/../../etc/passwd", "/pools/default/../../x",
                     "/pools/default/buckets/health/scopes/no/collections/no"):
            self.client_error("GET", path)

    def test_methods(self):
        for method in ("DELETE", "PATCH", "TRACE", "BREW"):
            self.client_error(method, "/pools")

    def test_forms(self):
        buckets = "/pools/default/buckets"
        for form in ({}, {"name": ""}, {"name": "a/b", "ramQuotaMB": 100}, {"name": "x" * 101, "ramQuotaMB": 100},
                     {"name": "n", "ramQuotaMB": "many"}, {"name": "n", "ramQuotaMB": -1}, {"name": "n", "ramQuotaMB": 10**30},
                     {"name": "n", "ramQuotaMB": 100, "replicaNumber": 99}, {"name": "n", "ramQuotaMB": 100, "bucketType": "x"},
                     {"name": "health", "ramQuotaMB": 100}, {"name": "n", "ramQuotaMB": 100, "numVBuckets": 7}):
            self.client_error("POST", buckets, form=form)
        self.client_error("POST", f"{buckets}/health/scopes", form={"name": "_system"})
        self.client_error("POST", f"{buckets}/health/scopes", form={"name": "spaces are bad"})
        self.client_error("PUT", "/settings/rbac/users/local/x", form={"password": "long-enough", "roles": "no_such_role"})
        self.client_error("POST", "/clusterInit", form={"username": "again", "password": "again-pass", "port": "SAME"})

    def test_bodies(self):
        urlencoded = {"Content-Type": "application/x-www-form-urlencoded"}
        for body in (b"\xff\xfe%", b"=" * 1000, b"&" * 100_000, b"a=%", b"name=%ff%fe&ramQuotaMB=100", json.dumps([[[]]])):
            self.client_error("POST", "/pools/default/buckets", body=body, headers=urlencoded)
        deep = "[" * 100_000
        self.client_error("POST", "/pools/default/buckets", body=deep, headers={"Content-Type": "application/json"})

    def test_a_body_without_end(self):
        """The server stops reading at some point, with an answer or by closing."""
        connection = http.client.HTTPConnection(ADDRESS, NODE.ports["mgmt"], timeout=10)
        connection.putrequest("POST", "/pools/default/buckets")
        for name, value in {**NODE.rest.headers, "Content-Length": str(1 << 40)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        sent = 0
        try:
            while sent < 256 * MIB:
                connection.send(b"a" * MIB)
                sent += MIB
            self.fail("took 256 MiB of a form")
        except OSError:
            pass
        finally:
            connection.close()

    def test_credentials(self):
        for header in ("Basic", "Basic ", "Basic !!!", "Bearer x", "Basic " + base64.b64encode(b"nocolon").decode(),
                       "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(), "Basic " + "A" * 20_000):
            stranger = Rest(ADDRESS, NODE.ports["mgmt"])
            answer = stranger.request("GET", "/pools/default", headers={"Authorization": header})
            self.assertIn(answer.status, (400, 401, 431), header[:40])
        for method, path in [("GET", "/pools/default/buckets/arena"), ("GET", "/settings/rbac/users"),
                             ("POST", "/pools/default/buckets"), ("DELETE", "/pools/default/buckets/health"),
                             ("POST", "/controller/changePassword")]:
            self.assertEqual(Rest(ADDRESS, NODE.ports["mgmt"]).request(method, path).status, 401, path)

    def test_what_the_oldest_clients_see_without_a_password(self):
        """The buckets that need none, and no others."""
        answer = Rest(ADDRESS, NODE.ports["mgmt"]).request("GET", "/pools/default/buckets")
        self.assertEqual(answer.status, 200)
        self.assertEqual([bucket["name"] for bucket in answer.json], ["health"])

    def test_a_view_is_missing_for_good(self):
        """Clients of 2014 repeat a request without a pause after any other answer."""
        for path in ("/health/_design/x", "/health/_design/x/_view/y", "/health%2Bother/_design/x"):
            answer = Rest(ADDRESS, NODE.ports["capi"]).request("GET", path)
            self.assertEqual(answer.status, 404, path)
            self.assertEqual(answer.json["error"], "not_found", path)
            self.assertIn(b"missing", answer.body, path)


class TextNonsense(HostileCase):
    """The memcached text protocol: an error line, and the connection goes on where it can."""

    def setUp(self):
        super().setUp()
        self.text = socket.create_connection((ADDRESS, NODE.ports["memcached"]), 10)

    def tearDown(self):
        self.text.close()
        super().tearDown()

    def answers(self, request, prefix):
        """The error comes first and the connection goes on. A data block that belonged to a refused line may be
        taken for a command of its own, as memcached does."""
        self.text.sendall(request + b"version\r\n")
        lines = []
        while not lines or not lines[-1].startswith(b"VERSION"):
            more = read_lines(self.text, 1)
            self.assertNotEqual(more, [b""], f"closed after {request[:60]!r}: {lines}")
            lines += [line for line in more if line]
        self.assertTrue(lines[0].startswith(prefix), f"{request[:60]!r}: {lines}")

    def test_commands(self):
        self.answers(b"bogus\r\n", b"ERROR")
        self.answers(b"get\r\n", b"ERROR")
        self.answers(b"set\r\n", b"ERROR")
        self.answers(b"get " + b"k" * 251 + b"\r\n", b"CLIENT_ERROR")
        self.answers(b"incr k words\r\n", b"CLIENT_ERROR")
        self.answers(b"touch k\r\n", b"ERROR")
        self.answers(b"delete\r\n", b"ERROR")

    def test_stores(self):
        self.answers(b"set " + b"k" * 251 + b" 0 0 2\r\nab\r\n", b"CLIENT_ERROR")
        self.answers(b"set k 0 0 2\r\nabc\r\n", b"CLIENT_ERROR bad data chunk")

    def test_too_large_a_value(self):
        size = 20 * MIB + 1
        self.answers(b"set k 0 0 %d\r\n" % size + bytes(size) + b"\r\n", b"SERVER_ERROR")

    def test_a_line_without_end(self):
        try:
            for _ in range(64):
                self.text.sendall(b"x" * MIB)
        except OSError:
            return
        self.text.shutdown(socket.SHUT_WR)
        self.assertTrue(drain(self.text))

    def test_lengths_that_are_none(self):
        for length in (b"-1", b"x", b"99999999999999999999"):
            with socket.create_connection((ADDRESS, NODE.ports["memcached"]), 10) as text:
                text.sendall(b"set k 0 0 " + length + b"\r\n")
                answer = text.recv(100)
                self.assertTrue(answer == b"" or b"ERROR" in answer, answer)
