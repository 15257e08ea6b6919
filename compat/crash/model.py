"""What a client knows about its documents, and what a server may therefore still say after a kill -9.

Every document has one writer. Its history since the last restart is a list of versions: the first is *promised*
(the server said it is on disk, or it was read back after a restart), the rest followed it and are not promised:
answered but not yet on disk, or sent without ever hearing back. After a restart the server must hold one of them,
whole, and none that came before the promised one.

Versions of one vBucket reach the disk in seqno order, so a write that survived vouches for all answered
writes of its vBucket with lower seqnos. `judge_vbuckets` holds the server to that. A durable write vouches for
nothing: it is answered with the seqno of its commit when its prepare, which has a lower one, is on disk.
"""

from dataclasses import dataclass, field

# Seconds around an expiry during which a document may be there or not.
CLOCK_SLACK = 2


class Broken(Exception):
    """The server broke a promise."""


@dataclass
class Version:
    value: bytes | None  # None: deleted
    flags: int = 0
    expiry: int = 0
    cas: int | None = None  # None: no answer came
    seqno: int | None = None
    vb_uuid: int | None = None
    how: str = ""  # the operation and the promise that was asked for

    def may_be_gone(self, now):
        return self.value is None or (self.expiry and self.expiry <= now + CLOCK_SLACK)

    def may_be_there(self, now):
        return self.value is not None and (not self.expiry or self.expiry > now - CLOCK_SLACK)

    @property
    def seqno_on_disk(self):
        return None if self.how.endswith("durable") else self.seqno

    def __str__(self):
        value = "deleted" if self.value is None else f"{len(self.value)} bytes {self.value[:40]!r}"
        return f"[{value} flags={self.flags} expiry={self.expiry} cas={self.cas} seqno={self.seqno} {self.how}]"


@dataclass
class Document:
    key: bytes
    vb: int
    versions: list = field(default_factory=lambda: [Version(None)])
    cas_max: int = 0
    matched: Version | None = None  # the latest version that explains what was found
    vouches: int | None = None  # the seqno that survived for certain

    @property
    def current(self):
        return self.versions[-1]

    def attempt(self, version):
        self.versions.append(version)
        return version

    def refused(self):
        """The server said no: nothing happened."""
        self.versions.pop()

    def answered(self, response):
        version = self.current
        if response.cas <= self.cas_max:
            raise Broken(f"{self.key!r}: CAS {response.cas} after {self.cas_max}")
        version.cas = self.cas_max = response.cas
        if response.token:
            version.vb_uuid, version.seqno = response.token

    def promise(self):
        """The current version is on disk, so no earlier one can come back."""
        self.versions = [self.current]

    def judge(self, found, now):
        """`found` is (value, flags, expiry, cas), or None. Remembers the version that explains it."""
        if found is None:
            explanations = [each for each in self.versions if each.may_be_gone(now)]
        else:
            value, flags, expiry, cas = found
            explanations = [
                each
                for each in self.versions
                if each.may_be_there(now)
                and (each.value, each.flags, each.expiry) == (value, flags, expiry)
                and each.cas in (None, cas)
            ]
        if not explanations:
            raise Broken(self.explain(found, now))
        self.matched = explanations[-1]
        # Absence may have several explanations (deleted, or expired before that): only the first is certain.
        self.vouches = explanations[0].seqno_on_disk

    def explain(self, found, now):
        history = "\n    ".join(str(each) for each in self.versions)
        if found is None:
            seen = "nothing"
        else:
            value, flags, expiry, cas = found
            seen = str(Version(value, flags, expiry, cas))
        return f"{self.key!r} (vBucket {self.vb}, now {now}): found {seen}; possible, promised first:\n    {history}"

    def settle(self, found):
        """What was found after a restart is on disk: a promise from here on."""
        if found is None:
            # Of deletions that nobody promised, the last may have been lost with its seqno, which is then given anew.
            self.versions = [Version(None, cas=self.matched.cas, seqno=self.vouches)]
        else:
            value, flags, expiry, cas = found
            self.cas_max = max(self.cas_max, cas)
            self.versions = [Version(value, flags, expiry, cas, self.matched.seqno_on_disk, self.matched.vb_uuid)]
        self.matched = None


def judge_vbuckets(documents):
    """Seqno order: nothing that was answered may be missing below what survived."""
    survived = {}
    for document in documents:
        if document.vouches is not None:
            survived[document.vb] = max(survived.get(document.vb, 0), document.vouches)
    for document in documents:
        after = document.versions[document.versions.index(document.matched) + 1 :]
        for version in after:
            if version.seqno is not None and version.seqno <= survived.get(document.vb, 0):
                raise Broken(
                    f"vBucket {document.vb}: seqno {survived[document.vb]} survived, but {document.key!r} is back "
                    f"at {document.matched} before {version}"
                )
