"""The management interface on 8091: one short-lived request at a time, answers as they came.

`request` never raises for an HTTP status, because many tests want the error; `ok` is for the others.
"""

import base64
import http.client
import json
import time
import urllib.parse
from dataclasses import dataclass


class RestError(Exception):
    """A request that had to succeed did not."""


@dataclass
class Answer:
    status: int
    headers: dict
    body: bytes

    @property
    def text(self):
        return self.body.decode("utf-8", "replace")

    @property
    def json(self):
        return json.loads(self.body)


class Rest:
    def __init__(self, address, port, username=None, password=None, timeout=30.0):
        self.address, self.port, self.timeout = address, port, timeout
        self.headers = {}
        if username is not None:
            token = base64.b64encode(f"{username}:{password}".encode()).decode()
            self.headers["Authorization"] = f"Basic {token}"

    def request(self, method, path, form=None, body=None, headers=None):
        sent = {**self.headers, **(headers or {})}
        if form is not None:
            body = urllib.parse.urlencode(form)
            sent["Content-Type"] = "application/x-www-form-urlencoded"
        connection = http.client.HTTPConnection(self.address, self.port, timeout=self.timeout)
        try:
            connection.request(method, path, body, sent)
            response = connection.getresponse()
            return Answer(response.status, dict(response.getheaders()), response.read())
        finally:
            connection.close()

    def ok(self, method, path, form=None):
        answer = self.request(method, path, form)
        if not 200 <= answer.status < 300:
            raise RestError(f"{method} {path} {form}: {answer.status} {answer.text}")
        return answer

    def get(self, path):
        return self.ok("GET", path)

    def initialise(self, username, password, **changes):
        form = {
            "hostname": self.address,
            "services": "kv",
            "username": username,
            "password": password,
            "port": "SAME",
            "memoryQuota": 2048,
            "clusterName": "compat",
            **changes,
        }
        return self.ok("POST", "/clusterInit", form)

    def create_bucket(self, name, quota_mb=128, replicas=0, kind="couchbase", **more):
        form = {"name": name, "ramQuotaMB": quota_mb, "bucketType": kind, **more}
        if kind != "memcached":
            form["replicaNumber"] = replicas
        self.ok("POST", "/pools/default/buckets", form)
        self.wait_healthy(name)

    def delete_bucket(self, name):
        self.ok("DELETE", f"/pools/default/buckets/{name}")

    def wait_healthy(self, name, timeout=20.0):
        """Every node of the bucket says `healthy`, which is what SDKs wait for too."""
        until = time.monotonic() + timeout
        while True:
            answer = self.request("GET", f"/pools/default/buckets/{name}")
            if answer.status == 200 and all(n["status"] == "healthy" for n in answer.json["nodes"]):
                return
            if time.monotonic() > until:
                raise RestError(f"bucket {name} is not healthy: {answer.status} {answer.text[:500]}")
            time.sleep(0.02)

    def certificate(self):
        """The certificate of the node, PEM."""
        return self.get("/pools/default/certificate").text

    def reported_version(self):
        """The version that clients are told: `7.6.4`."""
        return self.get("/pools").json["implementationVersion"].split("-")[0]
