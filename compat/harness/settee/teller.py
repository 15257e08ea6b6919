"""A client that tells a node what it has measured, as SDKs do over a WebSocket when they are asked."""

import base64
import os
import socket
import threading

from .node import PASSWORD, USERNAME

BINARY = 0x82


class Teller(threading.Thread):
    """Answers the first question with a report, and those that follow with one that has nothing new. One that repeats itself has
    measured the same again."""

    def __init__(self, node, report, repeats=False):
        super().__init__(daemon=True)
        self.repeats = repeats
        self.report = b"\0" + report.encode()
        self.socket = socket.create_connection((node.address, node.ports["mgmt"]), 10)
        self.stream = self.socket.makefile("rb")
        login = base64.b64encode(f"{USERNAME}:{PASSWORD}".encode()).decode()
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            "GET /_appTelemetry HTTP/1.1",
            f"Host: {node.address}:{node.ports['mgmt']}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
            f"Authorization: Basic {login}",
        ]
        self.socket.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())
        status = self.stream.readline()
        assert b" 101 " in status, status
        while self.stream.readline().strip():
            pass
        self.socket.settimeout(None)

    def run(self):
        try:
            while (first := self.stream.read(1)) == bytes([BINARY]):
                assert self.stream.read(2) == b"\1\0", "a question has one byte"
                self.socket.sendall(self.frame(self.report))
                self.report = self.report if self.repeats else b"\0"
        except OSError:
            return
        assert first in (b"", b"\x88"), first

    @staticmethod
    def frame(payload):
        """A frame of a client has a mask; one of zeros changes nothing."""
        length = len(payload).to_bytes(2, "big")
        head = [0x80 | 126, *length] if len(payload) > 125 else [0x80 | len(payload)]
        return bytes([BINARY, *head]) + bytes(4) + payload

    def close(self):
        self.socket.close()
