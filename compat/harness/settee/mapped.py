"""Ports outside that lead to those of a node, as a router or a container's host has them. The link may be a slow one."""

import queue
import socket
import threading
import time


class Mapped:
    """A port at an address that leads to another one. Everything is on its way for so many seconds, in either direction."""

    def __init__(self, address, port, to, travel=0.0):
        self.to, self.travel, self.connections = to, travel, 0
        self.listener = socket.create_server((address, port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                outside, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            inside = socket.create_connection(self.to)
            for end in (outside, inside):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for one, other in ((outside, inside), (inside, outside)):
                underway = queue.SimpleQueue()
                threading.Thread(target=self.send, args=(one, underway), daemon=True).start()
                threading.Thread(target=self.arrive, args=(underway, other), daemon=True).start()

    def send(self, one, underway):
        """Takes bytes from one end. No bytes are the end of them."""
        data = b"first"
        while data:
            try:
                data = one.recv(1 << 16)
            except OSError:
                data = b""
            underway.put((time.monotonic() + self.travel, data))

    @staticmethod
    def arrive(underway, other):
        """Gives the other end each part when it is due."""
        while True:
            due, data = underway.get()
            time.sleep(max(0.0, due - time.monotonic()))
            try:
                if not data:
                    other.shutdown(socket.SHUT_RDWR)
                    return
                other.sendall(data)
            except OSError:
                return

    def close(self):
        self.listener.close()
