"""How a connection begins: features, authentication, buckets, cluster configuration, error texts."""

import base64
import hashlib
import hmac
import json
import struct
import uuid

from case import ADDRESS, BUCKET, PASSWORD, REST, USERNAME, WireCase
from settee import kv

HASHES = {"SCRAM-SHA512": "sha512", "SCRAM-SHA256": "sha256", "SCRAM-SHA1": "sha1"}


class Hello(WireCase):
    def hello(self, *features):
        with kv.Connection(ADDRESS, 11210) as connection:
            response = connection.call(kv.HELLO, key=b"wire", value=struct.pack(f">{len(features)}H", *features))
            if response.status != kv.OK:
                return response.status
            return [each for (each,) in struct.iter_unpack(">H", response.value)]

    def test_what_is_asked_for_is_granted_once(self):
        self.assertEqual(self.hello(), [])
        for feature in (0x03, 0x04, 0x07, 0x08, 0x0A, 0x0B, 0x0C, 0x0E, 0x0F, 0x10, 0x12, 0x14, 0x1D, 0x1E):
            self.assertEqual(self.hello(feature), [feature])
        self.assertEqual(self.hello(0x06, 0x22), [0x06, 0x22])
        subdocs = [0x06, 0x15, 0x17, 0x18, 0x19, 0x1C, 0x20, 0x21]
        self.assertEqual(self.hello(*subdocs), subdocs)

    def test_what_is_not_built_is_not_granted(self):
        self.assertEqual(self.hello(0x06, 0x1A, 0x1B, 0x23, 0x25), [0x06])

    def test_what_is_never_granted(self):
        self.assertEqual(self.hello(0x01, 0x02, 0x05, 0x09, 0x16, 0x7777), [])

    def test_combinations(self):
        self.assertEqual(self.hello(0x1F), kv.INVALID)
        self.assertEqual(self.hello(0x0D), kv.INVALID)
        self.assertEqual(sorted(self.hello(0x0C, 0x0D, 0x1F)), [0x0C, 0x1F])

    def test_server_duration(self):
        plain, traced = self.connect(()), self.connect((kv.F_TRACING,))
        self.assertEqual(plain.call(kv.NOOP).magic, 0x81)
        response = traced.call(kv.NOOP)
        self.assertEqual(response.magic, 0x18)
        self.assertEqual((response.framing[0], len(response.framing)), (0x02, 3))


class Authentication(WireCase):
    def test_mechanisms(self):
        with kv.Connection(ADDRESS, 11210) as connection:
            names = connection.call(kv.SASL_LIST).value.decode().split(" ")
        self.assertLessEqual({*HASHES, "PLAIN"}, set(names))

    def scram(self, mechanism, password, nonce=b"a b 0xffffffa7 0x11"):
        """RFC 5802 as the C++ SDKs do it, nonce included. The final status; the server's proof is checked."""
        digest = HASHES[mechanism]
        with kv.Connection(ADDRESS, 11210) as connection:
            first = b"n=" + USERNAME.encode() + b",r=" + nonce
            challenge = connection.call(kv.SASL_AUTH, key=mechanism.encode(), value=b"n,," + first)
            self.assertEqual(challenge.status, 0x21)
            fields = dict(part.split(b"=", 1) for part in challenge.value.split(b","))
            self.assertTrue(fields[b"r"].startswith(nonce))
            salted = hashlib.pbkdf2_hmac(
                digest, password.encode(), base64.b64decode(fields[b"s"]), int(fields[b"i"])
            )
            sign = lambda key, message: hmac.new(key, message, digest).digest()  # noqa: E731
            client_key = sign(salted, b"Client Key")
            bare = b"c=biws,r=" + fields[b"r"]
            message = b",".join([first, challenge.value, bare])
            signature = sign(hashlib.new(digest, client_key).digest(), message)
            proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
            final = connection.call(kv.SASL_STEP, key=mechanism.encode(), value=bare + b",p=" + proof)
            if final.status == kv.OK:
                expected = base64.b64encode(sign(sign(salted, b"Server Key"), message))
                self.assertEqual(final.value, b"v=" + expected)
                self.assertEqual(connection.call(kv.SELECT_BUCKET, key=BUCKET.encode()).status, kv.OK)
            return final.status

    def test_scram(self):
        for mechanism in HASHES:
            self.assertEqual(self.scram(mechanism, PASSWORD), kv.OK, mechanism)
            self.assertEqual(self.scram(mechanism, "wrong"), kv.AUTH_ERROR, mechanism)

    def test_a_pipelined_bootstrap(self):
        """As GO does it: everything in one write, and the answers in order."""
        proof = b"\0" + USERNAME.encode() + b"\0" + PASSWORD.encode()
        with kv.Connection(ADDRESS, 11210) as connection:
            connection.send(
                kv.frame(kv.HELLO, key=b"wire", value=struct.pack(">HH", kv.F_XERROR, kv.F_SELECT))
                + kv.frame(kv.ERROR_MAP, value=b"\0\2")
                + kv.frame(kv.SASL_LIST)
                + kv.frame(kv.SASL_AUTH, key=b"PLAIN", value=proof)
                + kv.frame(kv.SELECT_BUCKET, key=BUCKET.encode())
                + kv.frame(kv.CLUSTER_CONFIG)
                + kv.frame(kv.NOOP)
            )
            opcodes = []
            for _ in range(7):
                response = connection.receive()
                self.assertEqual(response.status, kv.OK, hex(response.opcode))
                opcodes.append(response.opcode)
        self.assertEqual(
            opcodes,
            [kv.HELLO, kv.ERROR_MAP, kv.SASL_LIST, kv.SASL_AUTH, kv.SELECT_BUCKET, kv.CLUSTER_CONFIG, kv.NOOP],
        )


class Buckets(WireCase):
    def test_selecting(self):
        nowhere = self.connect(bucket=None)
        self.assertEqual(nowhere.get(self.key).status, kv.NO_BUCKET)
        self.assertEqual(nowhere.call(kv.SELECT_BUCKET, key=b"no-such-bucket").status, kv.NO_ACCESS)
        self.assertEqual(nowhere.call(kv.SELECT_BUCKET, key=BUCKET.encode()).status, kv.OK)
        self.assertEqual(nowhere.get(self.key).status, kv.NOT_FOUND)
        self.assertEqual(nowhere.call(kv.SELECT_BUCKET, key=b"@no bucket@").status, kv.OK)
        self.assertEqual(nowhere.get(self.key).status, kv.NO_BUCKET)


class ClusterConfiguration(WireCase):
    def test_bucket_level(self):
        response = self.client.must("config", self.client.call(kv.CLUSTER_CONFIG))
        self.assertEqual(response.datatype, 1)
        config = json.loads(response.value)
        self.assertEqual((config["name"], config["nodeLocator"]), (BUCKET, "vbucket"))
        self.assertEqual(config["vBucketServerMap"]["hashAlgorithm"], "CRC")
        self.assertEqual(config["vBucketServerMap"]["vBucketMap"], [[0]] * 1024)
        self.assertIn(config["vBucketServerMap"]["serverList"], (["$HOST:11210"], [f"{ADDRESS}:11210"]))
        node = config["nodesExt"][0]
        self.assertTrue(node["thisNode"])
        self.assertEqual((node["services"]["kv"], node["services"]["kvSSL"]), (11210, 11207))
        self.assertEqual((node["services"]["mgmt"], node["services"]["mgmtSSL"]), (8091, 18091))
        self.assertIn("couchApiBase", config["nodes"][0])
        self.assertEqual(config["nodes"][0]["ports"]["direct"], 11210)
        for capability in ("couchapi", "nonDedupedHistory"):
            self.assertNotIn(capability, config["bucketCapabilities"])
        self.assertLessEqual({"collections", "durableWrite", "cccp", "nodesExt"}, set(config["bucketCapabilities"]))

    def test_cluster_level(self):
        connection = self.connect(bucket=None)
        config = json.loads(connection.must("config", connection.call(kv.CLUSTER_CONFIG)).value)
        self.assertNotIn("vBucketServerMap", config)
        self.assertEqual(len(config["nodesExt"]), 1)

    def test_known_versions_are_not_sent_again(self):
        connection = self.connect((kv.F_SELECT, kv.F_KNOWN_VERSION))
        config = json.loads(connection.call(kv.CLUSTER_CONFIG).value)
        version = struct.pack(">qq", config["revEpoch"], config["rev"])
        known = connection.call(kv.CLUSTER_CONFIG, extras=version)
        self.assertEqual((known.status, known.value, known.datatype), (kv.OK, b"", 0))
        older = connection.call(kv.CLUSTER_CONFIG, extras=struct.pack(">qq", config["revEpoch"], config["rev"] - 1))
        self.assertEqual(json.loads(older.value)["rev"], config["rev"])

    def test_not_my_vbucket_tells_where(self):
        plain, deduped = self.connect((kv.F_JSON,)), self.connect((kv.F_JSON, kv.F_DEDUPE))
        for _ in range(2):
            response = plain.call(kv.GET, key=b"k", vb=2000)
            self.assertEqual((response.status, response.datatype), (kv.NOT_MY_VBUCKET, 1))
            self.assertEqual(json.loads(response.value)["name"], BUCKET)
        first, second = (deduped.call(kv.GET, key=b"k", vb=2000) for _ in range(2))
        self.assertEqual(json.loads(first.value)["name"], BUCKET)
        self.assertEqual((second.status, second.value), (kv.NOT_MY_VBUCKET, b""))

    def test_changes_are_pushed(self):
        full = self.connect((kv.F_SELECT, kv.F_DUPLEX, 0x0D))
        brief = self.connect((kv.F_SELECT, kv.F_DUPLEX, kv.F_BRIEF))
        before = json.loads(brief.call(kv.CLUSTER_CONFIG).value)
        scope = "s" + uuid.uuid4().hex[:8]
        REST.ok("POST", f"/pools/default/buckets/{BUCKET}/scopes", {"name": scope})
        REST.ok("DELETE", f"/pools/default/buckets/{BUCKET}/scopes/{scope}")
        for connection in (full, brief):
            while not connection.pushes:
                connection.call(kv.NOOP)
            push = connection.pushes[0]
            epoch, rev = struct.unpack(">qq", push.extras)
            self.assertEqual((push.opcode, push.key, epoch), (kv.CONFIG_CHANGED, BUCKET.encode(), before["revEpoch"]))
            self.assertGreater(rev, before["rev"])
        self.assertEqual(brief.pushes[0].value, b"")
        self.assertEqual(json.loads(full.pushes[0].value)["name"], BUCKET)


class Information(WireCase):
    def test_version(self):
        self.assertTrue(self.client.call(kv.VERSION).value.startswith(b"7.6."))

    def test_error_map(self):
        found = json.loads(self.client.must("map", self.client.call(kv.ERROR_MAP, value=b"\0\2")).value)
        self.assertEqual(found["version"], 2)
        self.assertEqual({"name", "desc", "attrs"}, set(found["errors"]["1"]))
        for code in ("0", "2", "7", "9", "24", "82", "86", "88", "a0", "a1"):
            self.assertIn(code, found["errors"])

    def test_statistics(self):
        stored = self.stored()
        general = self.client.stats()
        self.assertGreater(int(general["curr_items"]), 0)
        self.assertIn("pid", general)
        vb = kv.vbucket_of(self.key)
        seqnos = self.client.stats(b"vbucket-seqno")
        self.assertGreaterEqual(int(seqnos[f"vb_{vb}:high_seqno"]), stored.token[1])
        self.assertEqual(int(seqnos[f"vb_{vb}:uuid"]), stored.token[0])
        self.assertEqual(self.client.stats(b"vbucket")[f"vb_{vb}"], "active")

    def test_error_texts_for_the_oldest_clients(self):
        self.stored()
        self.assertEqual(self.connect(()).get(self.key + b"-").value, b"Not found")
        self.assertIn(b"exists", self.connect(()).on(kv.ADD, self.key, extras=bytes(8), value=b"x").value)

    def test_error_context(self):
        connection = self.connect((kv.F_XERROR, kv.F_JSON, kv.F_COLLECTIONS))
        response = connection.call(kv.GET, key=b"\x7fkey")
        self.assertEqual((response.status, response.datatype), (0x88, 1))
        int(json.loads(response.value)["manifest_uid"], 16)


class Collections(WireCase):
    FEATURES = (*kv.Client.FEATURES, kv.F_COLLECTIONS)

    def setUp(self):
        super().setUp()
        self.scope = "s" + uuid.uuid4().hex[:8]
        path = f"/pools/default/buckets/{BUCKET}/scopes"
        REST.ok("POST", path, {"name": self.scope})
        self.addCleanup(REST.ok, "DELETE", f"{path}/{self.scope}")
        self.uid = REST.ok("POST", f"{path}/{self.scope}/collections", {"name": "c"}).json["uid"]

    def collection_id(self):
        response = self.client.must("id", self.client.call(kv.GET_CID, value=f"{self.scope}.c".encode()))
        return struct.unpack(">QI", response.extras)

    def test_names_become_numbers(self):
        manifest_uid, number = self.collection_id()
        self.assertGreaterEqual(manifest_uid, int(self.uid, 16))
        self.assertGreaterEqual(number, 8)
        for name, status in [(b"_default._default", kv.OK), (b".", kv.OK), (b"nowhere.c", 0x8C), (b"_default.no", 0x88), (b"$.$", 4)]:
            self.assertEqual(self.client.call(kv.GET_CID, value=name).status, status, name)
        self.client.must("scope", self.client.call(kv.GET_SID, value=self.scope.encode()))

    def test_manifest(self):
        manifest = json.loads(self.client.must("manifest", self.client.call(kv.GET_MANIFEST)).value)
        found = {scope["name"]: [c["name"] for c in scope["collections"]] for scope in manifest["scopes"]}
        self.assertEqual(found[self.scope], ["c"])
        self.assertIn("_default", found["_default"])

    def test_documents_of_different_collections(self):
        _, number = self.collection_id()
        prefix = bytes([number]) if number < 0x80 else bytes([number & 0x7F | 0x80, number >> 7])
        vb = kv.vbucket_of(self.key)
        stored = self.client.call(kv.SET, key=prefix + self.key, vb=vb, extras=bytes(8), value=b"named")
        self.client.must("store", stored)
        self.assertEqual(self.client.get(self.key).status, kv.NOT_FOUND)
        self.assertEqual(self.client.call(kv.GET, key=prefix + self.key, vb=vb).value, b"named")
        self.assertEqual(self.client.call(kv.GETK, key=prefix + self.key, vb=vb).key, prefix + self.key)
        self.client.must("seqnos", self.client.call(kv.ALL_SEQNOS, extras=struct.pack(">II", 1, number)))
        got = self.client.must("random", self.client.call(kv.GET_RANDOM, extras=struct.pack(">I", number)))
        self.assertEqual(got.value, b"named")
