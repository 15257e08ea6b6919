"""Queries of views over connections that are kept, by a client that costs little beside the server."""

import base64
import socket
import time
from urllib.parse import quote, urlencode

VIEWS_PORT = 8092
CHUNKED_END = b"\r\n0\r\n\r\n"
HEAD_END = b"\r\n\r\n"
TIMEOUT = 900.0


class QueryError(Exception):
    """An answer is not what a query has to get."""


def query_path(bucket, design, view="v", **parameters):
    """The path of a query. Values are taken as they are: keys have to be JSON."""
    told = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
    return f"/{bucket}/_design/{design}/_view/{view}?{urlencode(told, quote_via=quote)}"


class Connection:
    """One connection to the port of views, with one question at a time."""

    def __init__(self, address, user, password, port=VIEWS_PORT):
        self.socket = socket.create_connection((address, port), TIMEOUT)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        login = base64.b64encode(f"{user}:{password}".encode()).decode()
        self.head = f" HTTP/1.1\r\nHost: {address}\r\nAuthorization: Basic {login}\r\n\r\n".encode()
        self.buffer = bytearray(1 << 20)
        self.filled = 0

    def send(self, path):
        self.socket.sendall(b"GET " + path.encode() + self.head)

    def receive(self):
        """The whole answer as it came, with its head, until the next one is received."""
        self.filled = 0
        while (head := self.buffer.find(HEAD_END, 0, self.filled)) < 0:
            self._read()
        names = bytes(self.buffer[:head]).lower()
        if not names.startswith(b"http/1.1 200 "):
            raise QueryError(bytes(self.buffer[:self.filled])[:500].decode(errors="replace"))
        if (at := names.find(b"content-length:")) >= 0:
            length = int(names[at + 15:].split(b"\r\n", 1)[0])
            while self.filled < head + 4 + length:
                self._read()
        else:
            # An answer has no such line but behind its last chunk: its rows end with CR LF, and none is "0".
            while not self.buffer.endswith(CHUNKED_END, 0, self.filled):
                self._read()
        return memoryview(self.buffer)[:self.filled]

    def _read(self):
        if self.filled == len(self.buffer):
            self.buffer = self.buffer + bytearray(len(self.buffer))
        with memoryview(self.buffer) as view:
            count = self.socket.recv_into(view[self.filled:])
        if count == 0:
            raise QueryError("the node closed the connection")
        self.filled += count

    def get(self, path):
        self.send(path)
        return self.receive()

    def body(self, path):
        """The body alone. Raises where it tells an error of a node."""
        found = body_of(bytes(self.get(path)))
        if b'\r\n"errors":[' in found:
            raise QueryError(f"{path}: {found[-500:].decode(errors='replace')}")
        return found

    def close(self):
        self.socket.close()


def body_of(answer):
    """The body of a whole answer."""
    head, _, rest = answer.partition(HEAD_END)
    if b"content-length:" in head.lower():
        return rest
    parts, at = [], 0
    while True:
        end = rest.index(b"\r\n", at)
        length = int(rest[at:end], 16)
        if length == 0:
            return b"".join(parts)
        parts.append(rest[end + 2:end + 2 + length])
        at = end + 2 + length + 2


def row_lines(body):
    """The text of each row."""
    lines = body.split(b"\r\n")[1:]
    return [line.removesuffix(b",") for line in lines if line.startswith(b"{")]


def one_by_one(connections, paths, seconds, check, rate=None):
    """Asks one question after the other, over the connections by turns; the milliseconds of each. At a rate, each is due at its time."""
    took, began, number = [], time.perf_counter(), 0
    while (now := time.perf_counter()) - began < seconds:
        if rate is not None and (wait := began + number / rate - now) > 0:
            time.sleep(wait)
        path, connection = next(paths), connections[number % len(connections)]
        asked = time.perf_counter()
        answer = connection.get(path)
        took.append((time.perf_counter() - asked) * 1e3)
        check(answer)
        number += 1
    return took


def at_once(connections, paths, seconds, check):
    """Asks over all connections at the same time, each as soon as it has its answer; how many answers and bytes, and in how long."""
    began, count, size = time.perf_counter(), 0, 0
    for connection in connections:
        connection.send(next(paths))
    goes_on = True
    while goes_on:
        goes_on = time.perf_counter() - began < seconds
        for connection in connections:
            answer = connection.receive()
            check(answer)
            count += 1
            size += len(answer)
            if goes_on:
                connection.send(next(paths))
    return count, size, time.perf_counter() - began
