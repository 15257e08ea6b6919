"""A mail server that takes every mail and keeps it."""

import socketserver
import threading
from dataclasses import dataclass, field


@dataclass
class Mail:
    recipients: list = field(default_factory=list)
    text: str = ""


class Session(socketserver.StreamRequestHandler):
    def say(self, line):
        self.wfile.write(f"{line}\r\n".encode())

    def handle(self):
        self.say("220 here")
        mail = Mail()
        for line in self.rfile:
            verb = line.split(maxsplit=1)[0].upper() if line.strip() else b""
            if verb == b"RCPT":
                mail.recipients.append(line.decode().partition("<")[2].partition(">")[0])
            if verb == b"DATA":
                self.say("354 go on")
                mail.text = b"".join(iter(self.rfile.readline, b".\r\n")).decode()
                self.server.owner.mails.append(mail)
                mail = Mail()
            self.say("221 bye" if verb == b"QUIT" else "250 taken")
            if verb == b"QUIT":
                return


class MailServer:
    def __init__(self, address):
        self.mails = []
        self.server = socketserver.ThreadingTCPServer((address, 0), Session)
        self.server.daemon_threads = True
        self.server.owner = self
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, args=(0.1,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
