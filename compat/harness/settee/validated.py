"""`settee load --validate` as the load beside a test: whatever is done to the node meanwhile, each read is one of what was
acknowledged before it or sent meanwhile, and at the end everything acknowledged is there.

    with ValidatedLoad(node, "main", seconds=10, durability="persistToMajority") as load:
        ...harm...
    load.report["reconnects"]

Leaving the block waits until the time is over and everything was read back, and raises `Violated` if something is lost,
stale, resurrected, torn or foreign. Refusals are no violations: what they mean is for the test to say.
"""

import json
import os
import subprocess

from .node import PASSWORD, USERNAME, binary

RECORDS = 2000
CONNECTIONS = 8


class Violated(Exception):
    """The server broke its word, or the load could not be held against it."""


class ValidatedLoad:
    def __init__(self, node, bucket, seconds, durability=None, mix="get=4,set=5,delete=1"):
        command = [binary(), "load", "--validate", "--reconnect", "--closed", "--mix", mix, "-n", RECORDS]
        command += ["-c", CONNECTIONS, "--seconds", seconds, "--warmup", 0, "--json"]
        command += ["--durability", durability] if durability else []
        self.command = [str(word) for word in [*command, "--host", node.address, "-b", bucket]]
        self.process = None
        self.report = None

    def __enter__(self):
        environment = {**os.environ, "SETTEE_USER": USERNAME, "SETTEE_PASSWORD": PASSWORD}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(self.command, stdout=pipe, stderr=pipe, text=True, env=environment)
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            self.process.kill()
        told, errors = self.process.communicate()
        if kind is not None:
            return
        try:
            self.report = json.loads(told)
        except json.JSONDecodeError:
            raise Violated(f"no report: {told}{errors}") from None
        if self.report["violations"] or self.process.returncode != 0 or self.report["stored"] == 0:
            raise Violated(f"exit code {self.process.returncode}: {told}{errors}")
