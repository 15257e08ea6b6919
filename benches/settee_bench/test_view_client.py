"""Answers of the port of views are taken whole, however they come."""

import socket
import threading
import unittest
from itertools import cycle

from . import view_client
from .view_client import Connection, QueryError, at_once, body_of, one_by_one, row_lines

ROWS = b'{"total_rows":2,"rows":[\r\n{"id":"a","key":"a","value":0},\r\n{"id":"b","key":"b","value":"0"}\r\n]\r\n}\n'
LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ROWS) + ROWS


def chunked(*sizes):
    parts, at = [], 0
    for size in (*sizes, len(ROWS)):
        if part := ROWS[at:at + size]:
            parts.append(b"%x\r\n%s\r\n" % (len(part), part))
        at += size
    return b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"".join(parts) + b"0\r\n\r\n"


class Answers(unittest.TestCase):
    def connect(self, answer, piece=7):
        """A connection to something that gives this answer to each question, in small pieces."""
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve():
            peer = listener.accept()[0]
            with peer:
                while peer.recv(65_536):
                    for at in range(0, len(answer), piece):
                        peer.sendall(answer[at:at + piece])

        threading.Thread(target=serve, daemon=True).start()
        connection = Connection("127.0.0.1", "user", "password", listener.getsockname()[1])
        self.addCleanup(connection.close)
        return connection

    def test_bodies_come_with_a_length_and_in_chunks(self):
        # Some chunks end with the end of a line, and one ends within the text "0".
        for answer in (LENGTH, chunked(26), chunked(1, 25, 34), chunked(len(ROWS) - 8), chunked(24, 2)):
            connection = self.connect(answer)
            for _ in range(2):
                self.assertEqual(connection.body("/"), ROWS)
        self.assertEqual(row_lines(ROWS), [b'{"id":"a","key":"a","value":0}', b'{"id":"b","key":"b","value":"0"}'])
        self.assertEqual(body_of(chunked(30)), ROWS)

    def test_an_answer_may_be_larger_than_the_buffer(self):
        connection = self.connect(chunked(26), piece=1_000)
        connection.buffer = bytearray(16)
        self.assertEqual(connection.body("/"), ROWS)

    def test_what_is_no_answer_is_an_error(self):
        refused = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\nno"
        partial = ROWS.replace(b"\r\n]\r\n", b'\r\n],\r\n"errors":[\r\n{}]\r\n')
        for answer in (refused, b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(partial) + partial):
            with self.assertRaises(QueryError):
                self.connect(answer, 1_000).body("/")

    def test_questions_are_counted_and_checked(self):
        connections, seen = [self.connect(LENGTH, 1_000) for _ in range(3)], []
        took = one_by_one(connections, cycle(["/"]), 0.05, lambda answer: seen.append(len(answer)))
        self.assertEqual(seen, [len(LENGTH)] * len(took))
        seen.clear()
        count, size, _ = at_once(connections, cycle(["/"]), 0.05, lambda answer: seen.append(len(answer)))
        self.assertEqual((count, size), (len(seen), sum(seen)))
        self.assertEqual(count % 3, 0)

    def test_parameters_are_escaped(self):
        path = view_client.query_path("b", "d", key='"a b"', reduce=False)
        self.assertEqual(path, "/b/_design/d/_view/v?key=%22a%20b%22&reduce=false")


if __name__ == "__main__":
    unittest.main()
