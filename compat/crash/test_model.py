"""The judge itself: every kind of broken promise is noticed, and what is allowed passes."""

import unittest
from types import SimpleNamespace

from model import Broken, Document, Version, judge_vbuckets

NOW = 1_000_000


def document(key=b"k", seqno=1):
    """One that was stored as `old` and promised."""
    made = Document(key, 3)
    made.attempt(Version(b"old", 1))
    made.answered(SimpleNamespace(cas=10 * seqno, token=(5, seqno)))
    made.promise()
    return made


def store(made, value, seqno=None):
    made.attempt(Version(value, 1))
    if seqno:
        made.answered(SimpleNamespace(cas=10 * seqno, token=(5, seqno)))
    return made


class Judgement(unittest.TestCase):
    def test_a_promised_document(self):
        document().judge((b"old", 1, 0, 10), NOW)
        for found in [None, (b"ol", 1, 0, 10), (b"old", 2, 0, 10), (b"old", 1, 99, 10), (b"old", 1, 0, 11)]:
            with self.assertRaises(Broken):
                document().judge(found, NOW)

    def test_an_unknown_outcome_may_be_either(self):
        for found in [(b"old", 1, 0, 10), (b"new", 1, 0, 12345)]:
            store(document(), b"new").judge(found, NOW)
        with self.assertRaises(Broken):
            store(document(), b"new").judge((b"newer", 1, 0, 12345), NOW)

    def test_nothing_from_before_the_promise(self):
        made = store(document(), b"new", 2)
        made.promise()
        with self.assertRaises(Broken):
            made.judge((b"old", 1, 0, 10), NOW)

    def test_a_promised_deletion_stays(self):
        made = store(document(), None, 2)
        made.promise()
        made.judge(None, NOW)
        with self.assertRaises(Broken):
            made.judge((b"old", 1, 0, 10), NOW)

    def test_expiry(self):
        made = document()
        made.current.expiry = NOW - 10
        made.judge(None, NOW)
        with self.assertRaises(Broken):
            made.judge((b"old", 1, NOW - 10, 10), NOW)
        made.current.expiry = NOW + 10
        made.judge((b"old", 1, NOW + 10, 10), NOW)
        with self.assertRaises(Broken):
            made.judge(None, NOW)

    def test_seqno_order_within_a_vbucket(self):
        first, second = store(document(b"a", 1), b"a2", 3), store(document(b"b", 2), b"b2", 4)
        first.judge((b"a2", 1, 0, 30), NOW)
        second.judge((b"old", 1, 0, 20), NOW)
        judge_vbuckets([first, second])
        first.judge((b"old", 1, 0, 10), NOW)
        second.judge((b"b2", 1, 0, 40), NOW)
        with self.assertRaises(Broken):
            judge_vbuckets([first, second])

    def test_a_durable_write_vouches_for_nothing_but_itself(self):
        first, second = store(document(b"a", 1), b"a2", 3), store(document(b"b", 2), b"b2", 4)
        second.current.how = "0x01 durable"
        second.promise()
        first.judge((b"old", 1, 0, 10), NOW)
        second.judge((b"b2", 1, 0, 40), NOW)
        judge_vbuckets([first, second])
        with self.assertRaises(Broken):
            second.judge((b"old", 1, 0, 20), NOW)

    def test_a_deletion_that_may_have_been_lost_vouches_for_nothing_later(self):
        made = Document(b"key", 7)
        store(made, b"a", 1)
        made.attempt(Version(None, seqno=2, cas=20))
        made.judge(None, NOW)
        made.settle(None)
        store(made, b"b", 2)
        made.judge(None, NOW)
        judge_vbuckets([made])

    def test_cas_never_goes_back(self):
        with self.assertRaises(Broken):
            store(document(seqno=5), b"new", 4)


if __name__ == "__main__":
    unittest.main()
