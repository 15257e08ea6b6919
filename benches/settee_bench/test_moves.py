"""What is made of what was looked at during a rebalance."""

import unittest

from . import moves

RUN = {"seconds_p99_us": [4_000, 6_000, 7_000, 1_000]}
SECONDS = 20.0


def stats(connection, created, items):
    prefix = f"eq_dcpq:{connection}"
    return {f"{prefix}:created": str(created), f"{prefix}:items_sent": str(items), f"{prefix}:total_bytes_sent": str(items * 100),
            f"{prefix}:items_remaining": "7", "ep_dcp_items_sent": "1000"}


def look(at, done, eta, waits_for=None):
    return {"at": at, "done": done, "eta": eta, "waits_for": waits_for}


class WhatWasSent(unittest.TestCase):
    def setUp(self):
        self.links = moves.Links()
        self.links.look("a", stats("replication:0->1:bench", 5, 10))
        self.links.begin()

    def test_it_counts_from_the_beginning_over_all_links(self):
        self.links.look("a", stats("replication:0->1:bench", 5, 15))
        self.links.look("b", stats("replication:1->0:bench", 5, 3))
        self.assertEqual(self.links.sent, {"items_sent": 8, "total_bytes_sent": 800})

    def test_a_connection_that_was_made_anew_counts_whole(self):
        self.links.look("a", stats("replication:0->1:bench", 6, 12))
        self.links.look("a", stats("replication:0->1:bench", 6, 2))
        self.assertEqual(self.links.sent["items_sent"], 14)

    def test_other_feeds_are_none(self):
        self.links.look("a", stats("go-dcp:0->1", 5, 99))
        self.assertEqual(self.links.sent, {})


class WhatItSaysOfItself(unittest.TestCase):
    def test_guesses_count_after_the_first_tenth(self):
        looks = [look(1, 0.09, 100), look(2, 0.1, 13), look(3, 0.5, None), look(4, 0.9, 21)]
        errors = moves.eta_errors({"seconds": SECONDS, "looks": looks})
        self.assertEqual([round(error, 3) for error in errors], [0.25, 0.25])

    def test_none_where_it_never_said(self):
        self.assertEqual(moves.eta_errors({"seconds": SECONDS, "looks": [look(2, 0.5, None)]}), [])

    def test_progress_is_held_against_time(self):
        looks = [look(10, 0.05, None), look(2, 0.15, None), look(10, 0.4, 9)]
        self.assertAlmostEqual(moves.progress_error({"seconds": SECONDS, "looks": looks}), 0.1)
        self.assertIsNone(moves.progress_error({"seconds": SECONDS, "looks": []}))

    def test_how_much_of_it_went_one_copy_at_a_time(self):
        words = "one copy at a time: on node a operations take 9 us (p99), its objective is 1"
        looks = [look(1, 0, None), look(2, 0.1, 9, words), look(3, 0.2, 8, "node b has not been heard of"), look(4, 0.3, 7)]
        self.assertEqual(moves.paced({"seconds": SECONDS, "looks": looks}), 0.25)

    def test_seconds_above_an_objective(self):
        self.assertEqual(moves.above(RUN, 5_000), 0.5)


if __name__ == "__main__":
    unittest.main()
